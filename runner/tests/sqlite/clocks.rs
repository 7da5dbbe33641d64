//! Steps of the wall clock, and boots.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use hourhand::clock::{HostClock, SystemClock};
use hourhand::job::{Due, NewJob, State};
use hourhand::outcome::Outcome;
use hourhand::queue::sqlite::{SqliteOptions, SqliteStore};
use hourhand::queue::{Settled, Store};

use crate::bed::{Hand, enqueue_one, job, view};
use crate::kit::{assert_whole, store_with};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS as i64;

/// A machine of which the clocks are set by hand, in microseconds from the real ones.
struct Machine {
    wall: AtomicI64,
    boot: AtomicI64,
    name: &'static str,
}

impl Machine {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { wall: AtomicI64::new(0), boot: AtomicI64::new(0), name })
    }

    /// Steps the wall clock.
    fn step(&self, ms: i64) {
        self.wall.fetch_add(ms * 1_000, Relaxed);
    }

    /// Lets time pass.
    fn pass(&self, ms: u64) {
        self.step(ms as i64);
        self.boot.fetch_add(ms as i64 * 1_000, Relaxed);
    }

    fn open(self: &Arc<Self>, file: &Path) -> SqliteStore {
        let clock = Arc::clone(self) as Arc<dyn HostClock>;
        store_with(file, SqliteOptions { clock, ..SqliteOptions::default() })
    }
}

impl HostClock for Machine {
    fn wall_us(&self) -> u64 {
        SystemClock.wall_us().saturating_add_signed(self.wall.load(Relaxed))
    }

    fn boot_us(&self) -> u64 {
        SystemClock.boot_us().saturating_add_signed(self.boot.load(Relaxed))
    }

    fn boot_id(&self) -> &str {
        self.name
    }
}

fn in_an_hour(kind: &str) -> NewJob {
    NewJob { due: Due::In(HOUR_MS), ..job(kind) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_wall_clock_by_a_day_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let machine = Machine::new("one");
    let store = machine.open(&file);
    let began_us = SystemClock.wall_us();
    let later = enqueue_one(&store, &in_an_hour("later")).await;
    let due_ms = view(&store, &later).await.due_ms;
    for step in [DAY_MS, -2 * DAY_MS, DAY_MS + 5_000, 30 * DAY_MS] {
        let mut hand = Hand::new(&store, &format!("s{step}"));
        let running = enqueue_one(&store, &job("now")).await;
        let claimed = hand.claim_one("now").await;
        assert_eq!(claimed.job.id, running);
        machine.step(step);
        // One that has just come to the file sees the same time.
        for store in [&store, &machine.open(&file)] {
            let mut other = Hand::new(store, &format!("other{step}"));
            let request = other.request(&["later", "now"], 10);
            let answer = other.send(request).await;
            assert_eq!(answer.jobs.len(), 0, "nothing is early, and nobody loses a lease");
            assert_eq!(answer.next_due_ms, Some(due_ms));
            assert!(answer.now_us.abs_diff(began_us) < 60_000_000, "the store's clock has not stepped");
            let seen = view(store, &later).await;
            assert_eq!((seen.state, seen.due_ms), (State::Scheduled, due_ms));
            assert_eq!(view(store, &running).await.state, State::Running);
        }
        assert_eq!(hand.settle(&claimed, Outcome::Completed { result: None }).await, Settled::Done);
    }
    // After a minute the wall clock is believed; the due times are what they were.
    machine.step(-30 * DAY_MS - 5_000 + 10_000);
    machine.pass(61_000);
    store.enqueue(&[job("now")]).await.expect("taken");
    assert_eq!(view(&store, &later).await.due_ms, due_ms);
    machine.pass(HOUR_MS);
    let mut hand = Hand::new(&store, "last");
    assert_eq!(hand.claim_one("later").await.job.id, later);
    assert_whole(&file);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boot_keeps_due_times_and_leases() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let before = Machine::new("before");
    before.boot.store(500 * DAY_MS * 1_000, Relaxed);
    let store = before.open(&file);
    let later = enqueue_one(&store, &in_an_hour("later")).await;
    enqueue_one(&store, &job("now")).await;
    let claimed = Hand::new(&store, "s").claim_one("now").await;
    let due_ms = view(&store, &later).await.due_ms;
    drop(store);
    // Time since the boot starts from nothing, and half an hour has passed.
    let after = Machine::new("after");
    after.boot.store(-(SystemClock.boot_us() as i64), Relaxed);
    after.step(HOUR_MS as i64 / 2);
    let store = after.open(&file);
    let seen = view(&store, &later).await;
    assert_eq!((seen.state, seen.due_ms), (State::Scheduled, due_ms));
    let mut hand = Hand::new(&store, "t");
    assert!(hand.claim(&["later", "now"], 10).await.is_empty());
    assert_eq!(hand.settle(&claimed, Outcome::Completed { result: None }).await, Settled::Done);
    after.pass(HOUR_MS / 2 + 1_000);
    assert_eq!(hand.claim_one("later").await.job.id, later);
    assert_whole(&file);
}
