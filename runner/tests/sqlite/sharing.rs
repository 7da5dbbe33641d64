//! Many processes work on one file.

use std::collections::HashMap;
use std::path::Path;

use hourhand::clock::monotonic;
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimRequest, Settled, Settlement, Store};

use crate::bed::{Hand, job, settlement};
use crate::child::{Child, is_stopped, run, say};
use crate::kit::{assert_whole, eventually, store, stranger, tell};

const PROCESSES: usize = 8;
const BATCHES: usize = 40;
const BATCH: usize = 12;
const KINDS: [&str; 2] = ["red", "blue"];

/// Enqueues its share, and claims and settles whatever there is until it is stopped.
pub(crate) fn sharer(file: &Path) {
    run(async {
        let store = store(file);
        let enqueuing = async {
            for batch in 0..BATCHES {
                let jobs = vec![job(KINDS[batch % 2]); BATCH];
                match store.enqueue(&jobs).await {
                    Ok(enqueued) => enqueued.iter().for_each(|e| say(&format!("enqueued {}", e.id))),
                    Err(error) => say(&format!("enqueue: {error}")),
                }
            }
        };
        let working = async {
            let mut wakes = store.wakes();
            let mut hand = Hand::new(&store, &format!("session-{}", std::process::id()));
            let mut token = 1;
            while !is_stopped() {
                let request = ClaimRequest { first_token: token, ..hand.request(&KINDS, 10) };
                token += 10;
                let claimed = match store.claim(&request).await {
                    Ok(claimed) => claimed.jobs,
                    Err(error) => return say(&format!("claim: {error}")),
                };
                if claimed.is_empty() {
                    let nap = std::time::Duration::from_millis(20);
                    let _ = tokio::time::timeout(nap, wakes.recv()).await;
                    continue;
                }
                let settlements: Vec<Settlement> =
                    claimed.iter().map(|job| settlement(job, Outcome::Completed { result: None })).collect();
                match store.settle(&settlements).await {
                    Err(error) => return say(&format!("settle: {error}")),
                    Ok(settled) if settled.iter().any(|s| *s != Settled::Done) => {
                        return say(&format!("settle: {settled:?}"));
                    }
                    Ok(_) => claimed.iter().for_each(|job| say(&format!("settled {}", job.job.id))),
                }
            }
        };
        tokio::join!(enqueuing, working);
    });
}

#[test]
fn eight_processes_settle_every_job_exactly_once_and_no_error_reaches_anybody() {
    let folder = tempfile::tempdir().expect("a folder");
    // None of them finds a file: they make it together.
    let file = folder.path().join("jobs.db");
    let began = monotonic();
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| Child::start("sharer", &file)).collect();
    let total = PROCESSES * BATCHES * BATCH;
    let mut settled: HashMap<String, usize> = HashMap::new();
    let mut enqueued = 0;
    eventually("all jobs are settled", || {
        for line in children.iter().flat_map(Child::ready_lines) {
            match line.split_once(' ') {
                Some(("enqueued", _)) => enqueued += 1,
                Some(("settled", id)) => *settled.entry(id.to_owned()).or_default() += 1,
                _ => panic!("a child says: {line}"),
            }
        }
        enqueued == total && settled.len() == total
    });
    children.iter_mut().for_each(Child::stop);
    children.iter_mut().for_each(Child::wait);
    tell(&format!("{total} jobs by {PROCESSES} processes in {:?}", began.elapsed()));
    assert!(settled.values().all(|times| *times == 1));
    let client = stranger(&file);
    let count = |sql: &str| client.query_row(sql, [], |row| row.get::<_, usize>(0)).expect("a count");
    assert_eq!(count("SELECT count(*) FROM past WHERE state = 'c' AND attempt = 1 AND events = 1"), total);
    assert_eq!(count("SELECT sum(completed) FROM queues"), total);
    drop(client);
    assert_whole(&file);
}
