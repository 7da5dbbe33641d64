//! Looks on while jobs run, and waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::cli::exit::Fault;
use crate::clock::{Monotonic, monotonic};
use crate::job::State;
use crate::names::Name;
use crate::outcome::{Failure, Outcome};
use crate::queue::{ClaimedJob, ListQuery, QueueCounts, Settlement, Store};
use crate::sandbox::JobLog;
use crate::worker::Onlooker;

/// How often the store is looked at: the time that it takes is the store's, too.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The same when little is left.
const LOOK_SOON: Duration = Duration::from_millis(2);
/// Nothing moved for so long: something is wrong.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Pages of a list in which one that failed is looked for.
const PAGES: usize = 100;

/// What was seen of each run.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    begun: Vec<Monotonic>,
    ended: Vec<Run>,
}

/// A run that is over.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Which job.
    pub(super) record: u64,
    /// When it was over.
    pub(super) at: Monotonic,
    /// From its due time to its start, in microseconds.
    pub(super) lateness_us: u64,
    /// What it returned; `None` when it did not complete.
    pub(super) result: Option<Bytes>,
}

impl Onlooker for Tally {
    fn begun(&self, _job: &ClaimedJob, _log: &Arc<JobLog>) {
        self.0.lock().begun.push(monotonic());
    }

    fn ended(&self, settlement: &Settlement) {
        let result = match &settlement.outcome {
            Outcome::Completed { result } => Some(result.clone().unwrap_or_default()),
            _ => None,
        };
        let run = Run {
            record: settlement.lease.record,
            at: monotonic(),
            lateness_us: settlement.run.as_ref().map_or(0, |run| run.lateness_us),
            result,
        };
        self.0.lock().ended.push(run);
    }
}

impl Tally {
    /// When each run began.
    pub(super) fn begun(&self) -> Vec<Monotonic> {
        self.0.lock().begun.clone()
    }

    /// The runs that are over.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.0.lock().ended.clone()
    }

    /// How many that are.
    pub(super) fn count(&self) -> usize {
        self.0.lock().ended.len()
    }

    /// How late each of them started, sorted, in milliseconds.
    pub(super) fn lateness_ms(&self) -> Vec<f64> {
        let mut late: Vec<f64> =
            self.0.lock().ended.iter().map(|run| run.lateness_us as f64 / 1_000.0).collect();
        late.sort_by(f64::total_cmp);
        late
    }
}

/// Counts runs, and costs them next to nothing: counts of the store are a part of its work, and grow with what waits.
#[derive(Debug, Default)]
pub(super) struct Counter {
    completed: AtomicUsize,
    failed: AtomicBool,
}

impl Onlooker for Counter {
    fn begun(&self, _job: &ClaimedJob, _log: &Arc<JobLog>) {}

    fn ended(&self, settlement: &Settlement) {
        match settlement.outcome {
            Outcome::Completed { .. } => {
                self.completed.fetch_add(1, Relaxed);
            }
            Outcome::Retry { .. } | Outcome::Dead { .. } => self.failed.store(true, Relaxed),
            _ => {}
        }
    }
}

impl Counter {
    /// Waits until so many jobs of the queue have run, or until then; and for the store to have them. How many it has, with those that
    /// had completed before.
    ///
    /// # Errors
    /// As [`completed`].
    pub(super) async fn settled(
        &self,
        store: &dyn Store,
        queue: &Name,
        before: usize,
        jobs: usize,
        until: Option<Monotonic>,
    ) -> Result<usize, Fault> {
        let (mut last, mut moved) = (0, monotonic());
        loop {
            let done = self.completed.load(Relaxed);
            if done >= jobs || self.failed.load(Relaxed) || moved.elapsed() > STANDSTILL {
                return completed(store, queue, before + jobs, until).await;
            }
            if until.is_some_and(|until| monotonic() >= until) {
                return Ok(counts(store, queue).await?.completed_total as usize);
            }
            if done > last {
                (last, moved) = (done, monotonic());
            }
            tokio::time::sleep(LOOK_SOON).await;
        }
    }
}

/// Counts of the queue; all 0 before its first job.
pub(super) async fn counts(store: &dyn Store, queue: &Name) -> Result<QueueCounts, Fault> {
    let counts = store.counts().await?;
    let found = counts.queues.into_iter().find(|counts| counts.queue == *queue);
    Ok(found.unwrap_or_else(|| QueueCounts::none(queue.clone())))
}

/// Waits until so many jobs of the queue have completed, or until then: how many have.
///
/// # Errors
/// When one fails, or nothing moves.
pub(super) async fn completed(
    store: &dyn Store,
    queue: &Name,
    jobs: usize,
    until: Option<Monotonic>,
) -> Result<usize, Fault> {
    let (mut before, mut moved) = (0, monotonic());
    loop {
        let now = counts(store, queue).await?;
        let done = now.completed_total as usize;
        if now.failed_total > 0 {
            return Err(failure(store, queue).await);
        }
        if done >= jobs || until.is_some_and(|until| monotonic() >= until) {
            return Ok(done);
        }
        let step = done - before.min(done);
        if step > 0 {
            (before, moved) = (done, monotonic());
        } else if moved.elapsed() > STANDSTILL {
            return Err(Fault::failed(format!(
                "{done} of {jobs} jobs have completed, and none in the last {} s: a handler that snoozes, or takes \
                 so long, cannot be measured",
                STANDSTILL.as_secs()
            )));
        }
        // The last look should be close to the last end.
        let soon = jobs - done <= 2 * step.max(50);
        tokio::time::sleep(if soon { LOOK_SOON } else { LOOK_EVERY }).await;
    }
}

/// Why a job of the queue has failed.
async fn failure(store: &dyn Store, queue: &Name) -> Fault {
    let why = first_error(store, queue).await.map_or_else(String::new, |error| {
        format!(": {} ({})", error.message.lines().next().unwrap_or_default(), error.reason.as_str())
    });
    Fault::failed(format!("a job of kind {queue} failed, and only handlers that complete are measured{why}"))
}

/// The error of one that failed, if it is found soon.
async fn first_error(store: &dyn Store, queue: &Name) -> Option<Failure> {
    let mut query = ListQuery {
        queue: Some(queue.clone()),
        states: vec![State::Dead, State::Scheduled],
        limit: 250,
        ..ListQuery::default()
    };
    for _ in 0..PAGES {
        let page = store.list(&query).await.ok()?;
        if let Some(error) = page.items.into_iter().find_map(|view| view.error) {
            return Some(error);
        }
        query.cursor = Some(page.cursor?);
    }
    None
}

/// Waits until something is so.
///
/// # Errors
/// When it is not within a while; what it is, is said.
pub(super) async fn until(
    what: &str,
    within: Duration,
    mut so: impl AsyncFnMut() -> Result<bool, Fault>,
) -> Result<(), Fault> {
    let end = monotonic() + within;
    while !so().await? {
        if monotonic() >= end {
            return Err(Fault::failed(format!("{what}: not within {} s", within.as_secs())));
        }
        tokio::time::sleep(LOOK_SOON).await;
    }
    Ok(())
}
