//! What is gone from the store is gone from the disk.

use bytes::Bytes;
use hourhand::job::NewJob;
use hourhand::outcome::Outcome;
use hourhand::queue::{BATCH_MAX, Retention, Settlement, Store};

use crate::bed::{Hand, job, settlement};
use crate::kit::{assert_whole, beside, bytes_of, quick_store, tell};

const JOBS: usize = 30_000;
const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_shrinks_when_its_jobs_are_finished_and_pruned() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let log = beside(&file, "-wal");
    let store = quick_store(&file);
    let mut longest = 0;
    let mut look = || longest = longest.max(bytes_of(&log));
    let small = NewJob { payload: Bytes::from(vec![b'x'; 1_000]), ..job("a") };
    for _ in 0..JOBS / BATCH_MAX {
        store.enqueue(&vec![small.clone(); BATCH_MAX]).await.expect("taken");
        look();
    }
    let mut hand = Hand::new(&store, "s");
    let keep = Retention { age_ms: Some(1), count: None, bytes: None };
    let mut done = 0;
    while done < JOBS {
        let claimed = hand.claim(&["a"], BATCH_MAX).await;
        let settlements: Vec<Settlement> = claimed
            .iter()
            .map(|job| Settlement { retention: keep, ..settlement(job, Outcome::Completed { result: None }) })
            .collect();
        hand.settle_all(&settlements).await;
        done += claimed.len();
        look();
    }
    let largest = bytes_of(&file);
    let mut pruned = 0;
    loop {
        let step = store.prune().await.expect("pruned");
        pruned += step.jobs;
        look();
        if !step.more {
            break;
        }
    }
    // Prunes go on for as long as there is a runner.
    let mut prunes = 0;
    while bytes_of(&file) > 10 * MIB {
        store.prune().await.expect("pruned");
        prunes += 1;
        assert!(prunes < 200, "{} bytes are left", bytes_of(&file));
    }
    assert_eq!(pruned, JOBS as u64);
    tell(&format!(
        "{JOBS} jobs: the file had {} MiB and has {} MiB, after {prunes} prunes more; the log had at most {} MiB",
        largest / MIB,
        bytes_of(&file) / MIB,
        longest / MIB
    ));
    assert!(longest < 64 * MIB, "{longest}");
    assert_whole(&file);
}
