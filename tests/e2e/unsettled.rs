//! The store takes claims and no outcomes: what waits is bounded, and nothing of it is lost.

use std::fs;
use std::time::Duration;

use crate::harness::at_redis;
use crate::harness::backing::{Backing, StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

on_both_stores! {
    claims_pause_when_too_many_outcomes_wait
}

/// Where the index that outcomes go to is meanwhile.
const ASIDE: &str = "aside";

/// What keeps outcomes out while everything else goes on, and its end.
struct NoOutcomes<'a>(&'a Backing, String);

impl<'a> NoOutcomes<'a> {
    fn begin(store: &'a Backing, queue: &str) -> Self {
        let key = format!("hourhand:{{0}}:done:{queue}:c");
        match store {
            Backing::Redis(server) => {
                at_redis::command(server, &["RENAME", &key, ASIDE]);
                at_redis::command(server, &["SET", &key, "somebody else's"]);
            }
            Backing::Sqlite(file) => file
                .client()
                .execute_batch(
                    "CREATE TRIGGER no_end BEFORE DELETE ON leases BEGIN SELECT RAISE(ABORT, 'a test'); END",
                )
                .expect("a trigger"),
        }
        Self(store, key)
    }

    fn end(self) {
        match self.0 {
            Backing::Redis(server) => _ = at_redis::command(server, &["RENAME", ASIDE, &self.1]),
            Backing::Sqlite(file) => {
                file.client().execute_batch("DROP TRIGGER no_end").expect("the trigger goes");
            }
        }
    }
}

/// How many leases there are, behind the store's back.
fn leases(store: &Backing) -> u64 {
    match store {
        Backing::Redis(server) => {
            let count = at_redis::command(server, &["HLEN", "hourhand:{0}:running"]);
            redis::from_redis_value(count).expect("a count")
        }
        Backing::Sqlite(file) => {
            let count: i64 = file
                .client()
                .query_row("SELECT count(*) FROM leases", [], |row| row.get(0))
                .expect("leases are a table");
            count as u64
        }
    }
}

/// Enqueues so many jobs, lets the runner do what it will without being able to settle, and says how many it has taken.
fn taken(here: &Hourhand, store: &Backing, jobs: u64, payload: &str, at_least: u64) -> u64 {
    let line = format!("{{\"kind\":\"echo\",\"payload\":{payload}}}\n");
    fs::write(here.dir.path().join("jobs.ndjson"), line.repeat(jobs as usize)).expect("a file");
    // The queue is there before the first of them.
    here.ok(&["enqueue", "echo", "0", "--id", "first", "--wait"]);
    let kept_out = NoOutcomes::begin(store, "echo");
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    eventually("it takes what it may", Duration::from_secs(60), || (leases(store) >= at_least).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    let taken = leases(store);
    kept_out.end();
    here.counts("echo", "all complete", Duration::from_secs(90), |q| q["completed_total"] == jobs + 1);
    taken
}

fn all_in_one_attempt(here: &Hourhand) {
    for job in here.all_jobs(&["--queue", "echo", "--state", "completed"]) {
        assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    }
}

fn claims_pause_when_too_many_outcomes_wait(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let runner = here.runner(&["--concurrency", "4"]);
    let taken = taken(&here, &store, 2_000, "1", 1_016);
    assert!(taken < 1_300, "{taken} outcomes wait");
    all_in_one_attempt(&here);
    let lines = runner.log().lines().filter(|line| line.contains("does not do its part")).count();
    assert!(lines <= 20, "{lines} lines:\n{}", runner.log());
}

/// The runner's doing, whatever the store.
#[test]
fn claims_pause_when_the_outcomes_that_wait_are_too_large() {
    let store = StoreKind::Redis.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    here.manifest("echo", "[retention]\nresults = true\n");
    let _runner = here.runner(&["--concurrency", "4"]);
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    let taken = taken(&here, &store, 48, &payload, 33);
    assert!(taken < 43, "{taken} outcomes of a megabyte wait");
    all_in_one_attempt(&here);
}
