//! The log stays short, whoever reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use hourhand::job::NewJob;
use hourhand::queue::{ListQuery, Store};

use crate::bed::job;
use crate::kit::{assert_whole, beside, bytes_of, quick_store, stranger, tell};

const MIB: u64 = 1 << 20;

fn large_jobs() -> Vec<NewJob> {
    vec![NewJob { payload: Bytes::from(vec![b'x'; 25_000]), ..job("a") }; 10]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_read_of_a_stranger_lets_the_log_grow_only_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let log = beside(&file, "-wal");
    let store = quick_store(&file);
    store.enqueue(&[job("a")]).await.expect("taken");
    let client = stranger(&file);
    client.execute_batch("BEGIN; SELECT count(*) FROM jobs;").expect("reads");
    while bytes_of(&log) < 48 * MIB {
        store.enqueue(&large_jobs()).await.expect("taken");
    }
    client.execute_batch("COMMIT").expect("ended");
    let long = bytes_of(&log);
    while bytes_of(&log) > 17 * MIB {
        store.prune().await.expect("pruned");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tell(&format!("the log: {} MiB during the read, {} MiB after it", long / MIB, bytes_of(&log) / MIB));
    assert_whole(&file);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_never_pause_do_not_let_the_log_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let log = beside(&file, "-wal");
    let store = quick_store(&file);
    store.enqueue(&large_jobs()).await.expect("taken");
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut reads = 0;
                while !stop.load(Relaxed) {
                    let query = ListQuery { limit: 1_000, ..ListQuery::default() };
                    store.list(&query).await.expect("listed");
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    let mut longest = 0;
    for _ in 0..400 {
        store.enqueue(&large_jobs()).await.expect("taken");
        longest = longest.max(bytes_of(&log));
    }
    stop.store(true, Relaxed);
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.expect("a reader");
    }
    tell(&format!("100 MiB written during {reads} reads: the log had at most {} MiB", longest / MIB));
    assert!(longest < 64 * MIB, "{longest}");
}
