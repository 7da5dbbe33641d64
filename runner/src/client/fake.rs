//! A store that stands in for a real one, and is away in every way.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::door::Door;
use crate::job::{Job, JobView, NewJob, OnConflict, State};
use crate::names::{JobId, Name};
use crate::queue::{Disposition, Enqueued, StoreError};

/// How a store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Up,
    /// It takes nothing, and says so at once.
    Full,
    /// It takes nothing, and says nothing.
    Silent,
    /// It takes the next call's jobs and its reply is lost; then it is full.
    LosesReply,
    /// The same, and then it is up.
    LosesOne,
    /// The same, and then it refuses.
    LosesThenRefuses,
    /// It takes all, but only the reply to a call of a single job comes through.
    Slow,
    Refuses,
    /// It is up, but the call with this number, counted from 1, takes it a second.
    SlowAt(usize),
}

/// The payload of a job that waits no more.
pub(super) const RUNNING: &str = "running";

/// A store that stands in for a real one: jobs that wait, in the order in which they came.
pub(super) struct Fake {
    mood: Mutex<Mood>,
    pub(super) jobs: Mutex<Vec<NewJob>>,
    pub(super) calls: AtomicUsize,
}

#[async_trait]
impl Door for Fake {
    fn address(&self) -> String {
        "fake".to_owned()
    }

    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        let mood = *self.mood.lock();
        match mood {
            Mood::Up => self.take(jobs),
            Mood::SlowAt(calls) => {
                *self.mood.lock() = if calls == 1 { Mood::Up } else { Mood::SlowAt(calls - 1) };
                if calls == 1 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                self.take(jobs)
            }
            Mood::Full => Err(StoreError::Full("no room".to_owned())),
            Mood::Silent => std::future::pending().await,
            Mood::Refuses => Err(StoreError::Refused("not you".to_owned())),
            Mood::Slow if jobs.len() == 1 => self.take(jobs),
            Mood::LosesReply | Mood::LosesOne | Mood::LosesThenRefuses | Mood::Slow => {
                self.take(jobs)?;
                *self.mood.lock() = match mood {
                    Mood::LosesOne => Mood::Up,
                    Mood::LosesThenRefuses => Mood::Refuses,
                    Mood::Slow => Mood::Slow,
                    _ => Mood::Full,
                };
                Err(StoreError::Unreachable("the reply is lost".to_owned()))
            }
        }
    }

    async fn find(&self, queue: &Name, id: &JobId) -> Result<Option<JobView>, StoreError> {
        if *self.mood.lock() == Mood::Full {
            return Err(StoreError::Full("not now".to_owned()));
        }
        let jobs = self.jobs.lock();
        let found = jobs.iter().find(|job| job.queue == *queue && job.id.as_ref() == Some(id));
        Ok(found.map(view))
    }
}

impl Fake {
    pub(super) fn new(mood: Mood) -> Self {
        Self { mood: Mutex::new(mood), jobs: Mutex::default(), calls: AtomicUsize::new(0) }
    }

    pub(super) fn take(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        if let Some(index) = jobs.iter().position(|job| job.kind.as_str() == "invalid") {
            return Err(StoreError::Invalid(format!("job {index}: not that")));
        }
        let mut held = self.jobs.lock();
        Ok(jobs
            .iter()
            .map(|job| {
                let there = held.iter().position(|old| old.queue == job.queue && old.id == job.id);
                let disposition = match (there, job.on_conflict) {
                    (None, _) => {
                        held.push(job.clone());
                        Disposition::Created
                    }
                    (Some(_), OnConflict::Keep) => Disposition::Kept,
                    (Some(at), OnConflict::Replace) => {
                        held.remove(at);
                        held.push(job.clone());
                        Disposition::Replaced
                    }
                    (Some(at), OnConflict::Reschedule) if held[at].payload == RUNNING => {
                        Disposition::Conflict
                    }
                    (Some(_), OnConflict::Reschedule) => Disposition::Rescheduled,
                    (Some(_), OnConflict::Reject) => Disposition::Conflict,
                };
                let id = job.id.clone().expect("an id before it is sent");
                Enqueued { id, disposition, state: State::Ready, due_ms: 1 }
            })
            .collect())
    }

    pub(super) fn be(&self, mood: Mood) {
        *self.mood.lock() = mood;
    }

    pub(super) fn payloads(&self) -> Vec<String> {
        self.jobs.lock().iter().map(|job| String::from_utf8_lossy(&job.payload).into_owned()).collect()
    }
}

fn view(job: &NewJob) -> JobView {
    JobView {
        job: Job {
            id: job.id.clone().expect("an id"),
            kind: job.kind.clone(),
            queue: job.queue.clone(),
            priority: job.priority,
            enqueued_ms: 1,
            max_attempts: None,
            timeout_ms: None,
            meta: Vec::new(),
            traceparent: None,
            source: job.source.clone(),
            payload: job.payload.clone(),
        },
        state: State::Ready,
        attempt: 0,
        max_attempts: 5,
        crashes: 0,
        due_ms: 1,
        started_us: None,
        ended_us: None,
        lateness_us: None,
        runner: None,
        handler: None,
        error: None,
        result: None,
        progress: None,
        history: Vec::new(),
    }
}
