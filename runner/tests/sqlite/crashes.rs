//! Processes that are killed in the middle of a transaction.

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use hourhand::job::NewJob;
use hourhand::outcome::Outcome;
use hourhand::queue::{Retention, Settlement, Store};

use crate::bed::{Hand, job, settlement};
use crate::child::{Child, run, say};
use crate::kit::{assert_whole, beside, bytes_of, store, stranger, tell};

const KILLS: usize = 20;

/// Enqueues, claims and settles as fast as it can, and says what was acknowledged.
pub(crate) fn worker(file: &Path) {
    run(async {
        let store = store(file);
        let mut hand = Hand::new(&store, &format!("session-{}", std::process::id()));
        for round in 0_usize.. {
            let payload = Bytes::from(vec![b'x'; round * 977 % 30_000]);
            let jobs = vec![NewJob { payload, ..job("crash") }; 1 + round % 7];
            let enqueued = store.enqueue(&jobs).await.expect("an enqueue is taken");
            enqueued.iter().for_each(|e| say(&format!("enqueued {}", e.id)));
            let claimed = hand.claim(&["crash"], 1 + round % 5).await;
            claimed.iter().for_each(|job| say(&format!("claimed {}", job.job.id)));
            let settlements: Vec<Settlement> =
                claimed.iter().map(|job| settlement(job, Outcome::Completed { result: None })).collect();
            store.settle(&settlements).await.expect("a settle is taken");
            claimed.iter().for_each(|job| say(&format!("settled {}", job.job.id)));
        }
    });
}

/// Takes the write lock, spoils what it can reach so that the log holds some of it, and waits for its end.
pub(crate) fn holder(file: &Path) {
    let client = stranger(file);
    client
        .execute_batch(
            "PRAGMA cache_size = 4; BEGIN IMMEDIATE; DELETE FROM waiting; UPDATE jobs SET payload = zeroblob(20000);",
        )
        .expect("changed");
    say("held");
    loop {
        std::thread::park();
    }
}

/// The first column of what a query finds.
fn texts(file: &Path, sql: &str) -> HashSet<String> {
    let client = stranger(file);
    let mut statement = client.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("texts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_in_the_middle_of_the_work_lose_and_repeat_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let survivor = store(&file);
    let (mut enqueued, mut settled) = (HashSet::new(), HashSet::new());
    for kill in 0..KILLS {
        let mut child = Child::start("worker", &file);
        let before = settled.clone();
        let (mut lines, last) = (0, 25 + 13 * kill);
        while let Some(line) = child.line() {
            match line.split_once(' ') {
                Some(("enqueued", id)) => assert!(enqueued.insert(id.to_owned()), "{id} is new"),
                Some(("settled", id)) => assert!(settled.insert(id.to_owned()), "{id} is settled once"),
                Some(("claimed", id)) => assert!(!before.contains(id), "{id} was settled before"),
                _ => panic!("the child says: {line}"),
            }
            lines += 1;
            if lines == last {
                child.kill();
            }
        }
        assert_whole(&file);
        let lost: Vec<_> = enqueued.difference(&texts(&file, "SELECT id FROM jobs")).cloned().collect();
        assert!(lost.is_empty(), "enqueued and lost: {lost:?}");
        let done = texts(&file, "SELECT id FROM jobs JOIN past USING (record) WHERE state = 'c'");
        let back: Vec<_> = settled.difference(&done).cloned().collect();
        assert!(back.is_empty(), "settled, and not done: {back:?}");
        let leases = survivor.leases(None).await.expect("leases are listed").items;
        survivor.reclaim(&leases, Retention::DEAD).await.expect("and taken back");
    }
    tell(&format!("{} enqueued, {} settled, {KILLS} kills", enqueued.len(), settled.len()));
    assert_whole(&file);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_while_it_has_the_write_lock_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let store = store(&file);
    for _ in 0..4 {
        store.enqueue(&vec![job("a"); 100]).await.expect("taken");
    }
    for _ in 0..3 {
        let log = bytes_of(&beside(&file, "-wal"));
        let mut child = Child::start("holder", &file);
        child.expect("held");
        assert!(bytes_of(&beside(&file, "-wal")) > log, "some of it is in the log");
        child.kill();
        store.enqueue(&[job("a")]).await.expect("taken");
        assert_whole(&file);
    }
    let mut hand = Hand::new(&store, "s");
    let claimed = hand.claim(&["a"], 250).await;
    assert_eq!(claimed.len(), 250);
    assert!(
        claimed.iter().all(|job| job.job.payload.is_empty()),
        "nothing of what was not committed is there"
    );
    assert_eq!(hand.claim(&["a"], 250).await.len(), 153);
}
