//! What `store copy` moves from any store to any other: everything of a namespace that outlives its runners, and nothing
//! of how a store keeps it.
//!
//! Records and places are numbers of the source's sequence. The target sets them behind its own, all by the same
//! distance, and remembers that distance: so the order stays whatever the order of the pages, and a copy that was cut
//! short goes on where it was.

use std::fmt::Write as _;

use bytes::Bytes;

use super::life::{Owner, Told, add_event};
use super::{AttemptLog, BATCH_MAX, IdMemory, Retention, StoreError};
use crate::effects::{ProgressSeen, StateEntry};
use crate::job::{CRASHES_MAX, Job, State};
use crate::names::{JobId, Name};

/// Most bytes in one call of [`Store::import`](super::Store::import) with more than one item: a larger one travels alone.
pub const IMPORT_BYTES_MAX: usize = 1 << 20;

/// What items come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Tells it from every other, also when it is copied again.
    pub name: String,
    /// The last record or place that it has given out.
    pub last: u64,
}

/// One thing of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub enum Exported {
    /// A job.
    Job(Box<ExportedJob>),
    /// The id of a finished job of which the record is gone.
    Id(RememberedId),
    /// A queue.
    Queue(ExportedQueue),
    /// An entry of a bucket of state.
    State(ExportedState),
}

/// An entry of a bucket of state. Its version is a number of the source, as a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedState {
    /// Which bucket.
    pub bucket: Name,
    /// Its key, value and version.
    pub entry: StateEntry,
}

/// A job with all that is known of it. One that a runner had is as if that runner were lost.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedJob {
    /// Its record in the source; no other job has it.
    pub record: u64,
    /// Its place in the order of the source; no other job has it.
    pub place: u64,
    /// What was asked for.
    pub job: Job,
    /// Attempts used.
    pub attempt: u32,
    /// What the last claim said of how many it may use; 0 before the first.
    pub max_attempts: u32,
    /// Recorded crashes.
    pub crashes: u32,
    /// When it may or might start, in milliseconds since 1970.
    pub due_ms: u64,
    /// Its end; `None` while it waits.
    pub end: Option<JobEnd>,
    /// What its handler returned; empty when there is nothing.
    pub result: Bytes,
    /// How many events its history has.
    pub events: u32,
    /// Its history, as every store keeps it (queue/life.rs).
    pub history: Bytes,
    /// What it printed.
    pub logs: Vec<AttemptLog>,
    /// How far its last attempt had come, if it told.
    pub progress: Option<ProgressSeen>,
    /// Whether a runner had it.
    pub taken_back: bool,
}

impl ExportedJob {
    /// A job to which nothing has happened yet.
    pub(super) fn untouched(record: u64, job: Job, due_ms: u64, logs: Vec<AttemptLog>) -> Self {
        Self {
            record,
            place: record,
            job,
            attempt: 0,
            max_attempts: 0,
            crashes: 0,
            due_ms,
            end: None,
            result: Bytes::new(),
            events: 0,
            history: Bytes::new(),
            logs,
            progress: None,
            taken_back: false,
        }
    }

    /// Adds what the job has said of its progress, as far as it would be shown. `owner` is the lease that the source has of it,
    /// or the one that was settled last.
    pub(super) fn add_progress(&mut self, told: Option<Told>, owner: Option<&Owner>) {
        self.progress = told.and_then(|told| told.shown(self.attempt, owner, None));
    }
}

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobEnd {
    /// Completed, cancelled or dead.
    pub state: State,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// When retention removes it, in milliseconds since 1970; `None` is never.
    pub expires_ms: Option<u64>,
    /// When its id is forgotten, in milliseconds since 1970.
    pub forget_ms: u64,
}

/// An id that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedId {
    /// Of which queue.
    pub queue: Name,
    /// Which.
    pub id: JobId,
    /// What its job ended in.
    pub state: State,
    /// When that was due, in milliseconds since 1970.
    pub due_ms: u64,
    /// When it is forgotten, in milliseconds since 1970.
    pub forget_ms: u64,
}

/// A queue, known before its first job and after its last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedQueue {
    /// Which.
    pub queue: Name,
    /// The kinds that have ever been in it.
    pub kinds: Vec<Name>,
    /// Whether claims leave it alone.
    pub paused: bool,
    /// Jobs ever enqueued, jobs ever completed, attempts ever failed, dead letters ever dropped by a limit.
    pub totals: [u64; 4],
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Imported {
    /// It is in the target now, and was not before.
    Copied,
    /// The target has one of that queue and id: nothing changed.
    There,
    /// An earlier copy brought it to its end, and what the target made of it since is the target's affair.
    Before,
}

impl Exported {
    /// About how much it holds, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Job(job) => {
                let logs: usize = job.logs.iter().map(|log| log.text.len()).sum();
                1_000 + job.job.payload.len() + job.result.len() + job.history.len() + logs
            }
            Self::Id(_) => 500,
            Self::Queue(queue) => 500 + 1_000 * queue.kinds.len(),
            Self::State(state) => 500 + state.entry.key.len() + state.entry.found.value.len(),
        }
    }
}

/// The lease of a job whose runner does not work any more.
pub(super) struct LostLease<'a> {
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    pub(super) place: u64,
    pub(super) runner: &'a str,
    /// Whether somebody wanted it cancelled.
    pub(super) cancel: bool,
}

impl ExportedJob {
    /// True when nothing has happened to it since it was enqueued.
    pub(super) fn is_fresh(&self) -> bool {
        self.end.is_none()
            && self.events == 0
            && (self.attempt, self.max_attempts, self.crashes) == (0, 0, 0)
            && self.place == self.record
            && self.due_ms >= self.job.enqueued_ms
    }

    /// Takes the job back from a runner that is lost, as a reclaim does.
    pub(super) fn take_back(&mut self, lease: &LostLease<'_>, now_us: u64) {
        self.taken_back = true;
        (self.max_attempts, self.due_ms, self.place) = (lease.max_attempts, lease.due_ms, lease.place);
        let started = lease.due_ms <= now_us / 1_000;
        if started {
            (self.attempt, self.crashes) = (lease.attempt, lease.crashes + 1);
            self.note(now_us, "reclaimed", lease.runner, "lost", "its runner went away");
        }
        if lease.cancel {
            self.note(now_us, "cancelled", "", "", "");
            self.finish(State::Cancelled, Retention::FINISHED, now_us);
        } else if started && (self.crashes >= CRASHES_MAX || self.attempt >= lease.max_attempts) {
            let why = match self.crashes {
                crashes if crashes >= CRASHES_MAX => format!("{crashes} runners went away while they had it"),
                _ => "its runner went away in its last attempt".to_owned(),
            };
            self.note(now_us, "dead", "", "lost", &why);
            self.finish(State::Dead, Retention::DEAD, now_us);
        }
    }

    fn note(&mut self, now_us: u64, word: &str, runner: &str, reason: &str, message: &str) {
        let attempt = self.attempt;
        let event =
            format!("E{attempt}\u{1f}{now_us}\u{1f}{word}\u{1f}{runner}\u{1f}{reason}\u{1f}{message}");
        let mut history = self.history.to_vec();
        add_event(&mut history, &mut self.events, &event);
        self.history = history.into();
    }

    fn finish(&mut self, state: State, retention: Retention, now_us: u64) {
        let at_ms = now_us / 1_000;
        self.end = Some(JobEnd {
            state,
            at_ms,
            expires_ms: retention.age_ms.map(|age_ms| at_ms + age_ms),
            forget_ms: at_ms + IdMemory::default().age_ms,
        });
    }
}

/// Refuses what is more than one call takes.
pub(super) fn check_import(items: &[Exported]) -> Result<(), StoreError> {
    if items.len() > BATCH_MAX {
        return Err(super::checks::too_many(items.len()));
    }
    let bytes: usize = items.iter().map(Exported::bytes).sum();
    if items.len() > 1 && bytes > IMPORT_BYTES_MAX {
        return Err(StoreError::Invalid(format!(
            "batch of {bytes} bytes: expected at most {IMPORT_BYTES_MAX}, or a single item"
        )));
    }
    Ok(())
}

/// The last number that must be known of the source before these items are set behind the target's own.
pub(super) fn last_number(source: &Source, items: &[Exported]) -> u64 {
    let numbers = items.iter().filter_map(|item| match item {
        Exported::Job(job) => Some(job.record.max(job.place)),
        Exported::State(state) => Some(state.entry.found.version),
        _ => None,
    });
    numbers.fold(source.last, u64::max)
}

/// What a target remembers of a source, as text: up to which number it was copied to the end, and for each stretch of
/// its numbers up to which one it goes, and by how much they are set behind. lua/import.lua has the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stretches {
    complete: u64,
    stretches: Vec<(u64, u64)>,
}

impl Stretches {
    pub(super) fn read(text: &str) -> Self {
        let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
        let complete = numbers.next().unwrap_or(0);
        let mut stretches = Vec::new();
        while let (Some(upto), Some(by)) = (numbers.next(), numbers.next()) {
            stretches.push((upto, by));
        }
        Self { complete, stretches }
    }

    pub(super) fn text(&self) -> String {
        let mut text = self.complete.to_string();
        for (upto, by) in &self.stretches {
            // Writing to a string does not fail.
            let _ = write!(text, " {upto} {by}");
        }
        text
    }

    /// Makes room for the source's numbers up to `last` behind the target's `sequence`; the sequence after that.
    pub(super) fn reach(&mut self, last: u64, sequence: u64) -> u64 {
        let reached = self.stretches.last().map_or(0, |(upto, _)| *upto);
        if last <= reached {
            return sequence;
        }
        let by = sequence - reached.min(sequence);
        self.stretches.push((last, by));
        by + last
    }

    /// One of the source's numbers, in the target.
    pub(super) fn place(&self, number: u64) -> u64 {
        let stretch = self.stretches.iter().find(|(upto, _)| number <= *upto);
        stretch.map_or(number, |(_, by)| by + number)
    }

    /// Everything up to here was copied.
    pub(super) fn end(&mut self, last: u64) {
        self.complete = self.complete.max(last);
    }

    /// Whether a job of these numbers was there when everything was copied.
    pub(super) fn is_complete(&self, record: u64, place: u64) -> bool {
        record.max(place) <= self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_order_and_never_meet() {
        let mut stretches = Stretches::default();
        assert_eq!(stretches.reach(100, 40), 140);
        assert_eq!((stretches.place(1), stretches.place(100)), (41, 140));
        assert_eq!(stretches.reach(100, 200), 200, "it is known already");
        stretches.end(100);
        assert_eq!(stretches.reach(150, 200), 250, "the source has gone on");
        assert_eq!((stretches.place(100), stretches.place(101), stretches.place(150)), (140, 201, 250));
        assert!(stretches.is_complete(7, 100) && !stretches.is_complete(7, 101));
        assert_eq!(Stretches::read(&stretches.text()), stretches);
        assert_eq!(Stretches::read(""), Stretches::default());
    }
}
