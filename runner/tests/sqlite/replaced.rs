//! The file is deleted or replaced while the store has it open.

use std::path::Path;

use hourhand::queue::{Store, StoreError, Wake};
use tokio::sync::mpsc::Receiver;

use crate::bed::{Hand, job, lane};
use crate::kit::{PATIENCE, assert_whole, beside, close, quick_store};

/// A wake-up for this kind, at any time.
fn due(kind: &str) -> Wake {
    Wake::Due { lane: lane(kind), due_ms: 0 }
}

/// Until such a wake-up comes.
async fn woken_for(wakes: &mut Receiver<Wake>, wanted: &Wake) {
    let woken = async {
        while let Some(wake) = wakes.recv().await {
            let wake = match wake {
                Wake::Due { lane, .. } => Wake::Due { lane, due_ms: 0 },
                other => other,
            };
            if wake == *wanted {
                return;
            }
        }
        panic!("nobody listens any more");
    };
    tokio::time::timeout(PATIENCE, woken).await.expect("a wake-up");
}

fn remove(file: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        let _ = std::fs::remove_file(beside(file, suffix));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_deleted_is_made_anew_and_its_listener_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    for suffixes in [&["", "-wal", "-shm"][..], &[""]] {
        let file = folder.path().join(format!("jobs{}.db", suffixes.len()));
        let (store, other) = (quick_store(&file), quick_store(&file));
        let mut wakes = store.wakes();
        woken_for(&mut wakes, &Wake::Missed).await;
        store.enqueue(&vec![job("old"); 10]).await.expect("taken");
        store.counts().await.expect("counted");
        woken_for(&mut wakes, &due("old")).await;
        remove(&file, suffixes);
        // The first to notice is a read.
        assert!(store.counts().await.expect("counted").queues.is_empty(), "the old jobs are gone");
        woken_for(&mut wakes, &Wake::Missed).await;
        other.enqueue(&[job("new")]).await.expect("taken");
        woken_for(&mut wakes, &due("new")).await;
        assert_eq!(Hand::new(&store, "s").claim(&["new", "old"], 10).await.len(), 1);
        assert_whole(&file);
        // And then it is a write.
        remove(&file, suffixes);
        store.enqueue(&[job("newer")]).await.expect("taken");
        woken_for(&mut wakes, &Wake::Missed).await;
        other.enqueue(&[job("newest")]).await.expect("taken");
        woken_for(&mut wakes, &due("newest")).await;
        assert_eq!(store.counts().await.expect("counted").queues.len(), 2);
        assert_whole(&file);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_another_takes_the_place_of_is_left_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, backup) = (folder.path().join("jobs.db"), folder.path().join("backup.db"));
    let newcomer = quick_store(&backup);
    newcomer.enqueue(&vec![job("backup"); 7]).await.expect("taken");
    close(newcomer, &backup);
    let content = std::fs::read(&backup).expect("read");
    let store = quick_store(&file);
    store.enqueue(&vec![job("old"); 10]).await.expect("taken");
    std::fs::rename(&backup, &file).expect("moved");
    // The log of the old one is still there: with it, the newcomer would be spoilt.
    for _ in 0..2 {
        let error = store.enqueue(&[job("new")]).await.expect_err("refused");
        assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains("was replaced") && error.to_string().contains("move"), "{error}");
        store.counts().await.expect_err("refused");
    }
    assert_eq!(std::fs::read(&file).expect("read"), content, "unchanged");
    remove(&file, &["-wal", "-shm"]);
    store.enqueue(&[job("new")]).await.expect("taken");
    assert_eq!(Hand::new(&store, "s").claim(&["backup", "old", "new"], 20).await.len(), 8);
    assert_whole(&file);
}
