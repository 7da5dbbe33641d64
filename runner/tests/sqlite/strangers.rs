//! Other programs on the file: they hold locks, and read for long.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use hourhand::clock::monotonic;
use hourhand::outcome::Outcome;
use hourhand::queue::sqlite::SqliteOptions;
use hourhand::queue::{ListQuery, Settled, Store, StoreError};

use crate::bed::{Hand, job, settlement};
use crate::kit::{assert_whole, store, store_with, stranger, tell};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_stranger_that_holds_the_write_lock_and_reads_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let (store, other) = (store(&file), store(&file));
    store.enqueue(&vec![job("a"); 20]).await.expect("taken");
    let mut hand = Hand::new(&store, "s");
    let claimed = hand.claim(&["a"], 10).await;
    let client = stranger(&file);
    client.execute_batch("BEGIN IMMEDIATE; DELETE FROM jobs;").expect("held");
    let began = monotonic();
    let done = AtomicUsize::new(0);
    let writes = async {
        let settlement = settlement(&claimed[0], Outcome::Completed { result: None });
        let request = hand.request(&["a"], 5);
        let (enqueued, settled, more, pruned, beat) = tokio::join!(
            async { (other.enqueue(&[job("a")]).await, done.fetch_add(1, SeqCst)) },
            async { (store.settle(&[settlement]).await, done.fetch_add(1, SeqCst)) },
            async { (store.claim(&request).await, done.fetch_add(1, SeqCst)) },
            async { (other.prune().await, done.fetch_add(1, SeqCst)) },
            async { (hand.beat().await, done.fetch_add(1, SeqCst)) },
        );
        assert_eq!(enqueued.0.map(|e| e.len()), Ok(1));
        assert_eq!(settled.0, Ok(vec![Settled::Done]));
        assert_eq!(more.0.map(|c| c.jobs.len()), Ok(5));
        pruned.0.expect("pruned");
        assert_eq!(beat.0.sessions.len(), 1);
    };
    let reads = async {
        let (mut reads, mut slowest) = (0, Duration::ZERO);
        while began.elapsed() < Duration::from_secs(4) {
            let start = monotonic();
            let page = store.list(&ListQuery { limit: 100, ..ListQuery::default() }).await.expect("listed");
            assert_eq!(page.items.len(), 10);
            assert_eq!(store.leases(None).await.expect("listed").items.len(), 10);
            assert_eq!(other.counts().await.expect("counted").queues[0].running, 10);
            assert_eq!(done.load(SeqCst), 0, "no write goes by the lock");
            slowest = slowest.max(start.elapsed());
            reads += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        client.execute_batch("ROLLBACK").expect("freed");
        tell(&format!("{reads} times three reads while the lock was held, the slowest in {slowest:?}"));
    };
    tokio::join!(writes, reads);
    assert_whole(&file);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_held_for_too_long_fails_calls_clearly_and_nothing_is_half_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let options = SqliteOptions { call_timeout: Duration::from_secs(2), ..SqliteOptions::default() };
    let store = store_with(&file, options);
    store.enqueue(&[job("a"), job("a")]).await.expect("taken");
    let mut hand = Hand::new(&store, "s");
    let claimed = hand.claim_one("a").await;
    let client = stranger(&file);
    client.execute_batch("BEGIN IMMEDIATE").expect("held");
    let request = hand.request(&["a"], 1);
    let settlement = settlement(&claimed, Outcome::Completed { result: None });
    let (enqueued, settled, more) = tokio::join!(
        async { store.enqueue(&[job("b")]).await.map(drop) },
        async { store.settle(std::slice::from_ref(&settlement)).await.map(drop) },
        async { store.claim(&request).await.map(drop) },
    );
    // The first waits for the lock, the others for it.
    let answers = [enqueued, settled, more].map(Result::unwrap_err);
    assert!(answers.iter().any(|error| matches!(error, StoreError::NotReady(_))), "{answers:?}");
    for error in answers {
        assert!(matches!(error, StoreError::NotReady(_) | StoreError::Unreachable(_)), "{error:?}");
        assert!(error.to_string().contains("another program"), "{error}");
    }
    client.execute_batch("ROLLBACK").expect("freed");
    let counts = store.counts().await.expect("counted");
    assert_eq!(counts.queues.len(), 1, "the enqueue has left nothing");
    assert_eq!((counts.queues[0].running, counts.queues[0].ready), (1, 1));
    assert_eq!(store.settle(&[settlement]).await, Ok(vec![Settled::Done]));
    assert_eq!(hand.claim(&["a"], 5).await.len(), 1);
    assert_whole(&file);
}
