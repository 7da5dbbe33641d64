//! A disk that is full: enqueues stop first, what is there can still be settled, and work goes on when there is room again.

use std::path::Path;

use bytes::Bytes;
use hourhand::job::{NewJob, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimedJob, ListQuery, Settled, Store, StoreError, Wake};
use tokio::sync::mpsc::Receiver;

use crate::bed::{Hand, job, lane, settlement, state};
use crate::disk::{Disk, on_a_disk};
use crate::kit::{PATIENCE, assert_whole, store, tell};

const TEST: &str = "full_disk::a_full_disk_stops_enqueues_first_and_nothing_is_lost_or_done_falsely";

#[test]
fn a_full_disk_stops_enqueues_first_and_nothing_is_lost_or_done_falsely() {
    on_a_disk(TEST, |disk| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(fill(disk));
    });
}

async fn fill(disk: &Disk) {
    let file = disk.path().join("jobs.db");
    disk.take("ballast", 16 << 20);
    let store = store(&file);
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    let mut taken = 0;
    let refused = loop {
        let jobs = vec![NewJob { payload: Bytes::from(vec![b'x'; 4_000]), ..job("a") }; 50];
        match store.enqueue(&jobs).await {
            Ok(enqueued) => taken += enqueued.len() as u64,
            Err(error) => break error,
        }
    };
    tell(&format!("after {taken} jobs, with {} MiB free: {refused}", disk.free() >> 20));
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    assert!(disk.free() >= 16 << 20, "there is a reserve");
    // What is there is claimed and settled all the same.
    let mut hand = Hand::new(&store, "s");
    let mut claimed = Vec::new();
    while claimed.len() < 1_000 {
        claimed.extend(hand.claim(&["a"], 50).await);
    }
    for job in claimed.drain(..100) {
        hand.complete(&job).await;
    }
    // Now somebody takes the rest.
    disk.fill_up("hog");
    let (settled, unsettled) = settle_until_full(&hand, claimed).await;
    tell(&format!("{settled} more settled without any room"));
    // Nothing is taken for done that is not, whatever is tried meanwhile.
    for _ in 0..3 {
        for job in unsettled.iter().take(5) {
            let error = store.settle(&[large(job)]).await.expect_err("no room");
            assert!(matches!(error, StoreError::Full(_)), "{error:?}");
            assert_eq!(state(&store, &job.job.id).await, State::Running);
        }
        let error = store.enqueue(&[job("a")]).await.expect_err("no room");
        assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    }
    let page = store.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.expect("reads go on");
    assert!(!page.items.is_empty());
    let counts = store.counts().await.expect("counted").queues.remove(0);
    assert_eq!(counts.completed, 100 + settled);
    assert_eq!(counts.running, unsettled.len() as u64);
    assert_eq!(counts.ready + counts.running + counts.completed, taken);
    disk.give_back("hog");
    disk.give_back("ballast");
    go_on(&store, &file, &hand, &unsettled, &mut wakes).await;
}

/// A settlement that needs room.
fn large(job: &ClaimedJob) -> hourhand::queue::Settlement {
    settlement(job, Outcome::Completed { result: Some(Bytes::from(vec![b'r'; 100_000])) })
}

/// Settles until there is no room; how many were, and what is left.
async fn settle_until_full(hand: &Hand<'_>, jobs: Vec<ClaimedJob>) -> (u64, Vec<ClaimedJob>) {
    for (index, job) in jobs.iter().enumerate() {
        match hand.store.settle(&[large(job)]).await {
            Ok(settled) => assert_eq!(settled, [Settled::Done]),
            Err(error) => {
                assert!(matches!(error, StoreError::Full(_)), "{error:?}");
                assert!(error.to_string().contains("free some space"), "{error}");
                return (index as u64, jobs[index..].to_vec());
            }
        }
    }
    panic!("the disk was never full");
}

/// There is room again: everything works, with the connections and listeners of before.
async fn go_on(
    store: &impl Store,
    file: &Path,
    hand: &Hand<'_>,
    unsettled: &[ClaimedJob],
    wakes: &mut Receiver<Wake>,
) {
    for job in unsettled {
        hand.complete(job).await;
    }
    store.enqueue(&[job("fresh")]).await.expect("taken");
    let woken = async {
        while let Some(wake) = wakes.recv().await {
            if matches!(&wake, Wake::Due { lane: woken, .. } if *woken == lane("fresh")) {
                return;
            }
        }
        panic!("nobody listens any more");
    };
    tokio::time::timeout(PATIENCE, woken).await.expect("the listener has survived");
    store.prune().await.expect("pruned");
    assert_whole(file);
}
