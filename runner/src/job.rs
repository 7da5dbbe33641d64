//! What a job is: its parts, states and limits. Pure, no IO.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::effects::ProgressSeen;
use crate::names::{JobId, Name};
use crate::outcome::{Failure, HistoryEvent};

/// Largest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Largest sum of a job's meta keys and values, in bytes.
pub const META_BYTES_MAX: usize = 4 << 10;
/// Furthest due time, in milliseconds from now: 100 years of 365.25 days.
pub const DELAY_MS_MAX: u64 = 3_155_760_000_000;
/// Largest due time, in milliseconds since 1970, whatever the clock says: what a store's numbers hold exactly.
pub const DUE_MS_MAX: u64 = (1 << 53) - 1;
/// Longest time ago that a job may have been accepted elsewhere, in milliseconds: 30 days.
pub const AGE_MS_MAX: u64 = 2_592_000_000;
/// Attempts when neither the job nor its handler says otherwise.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 5;
/// Most attempts that anybody may ask for.
pub const MAX_ATTEMPTS_MAX: u32 = 1_000;
/// Wall time of an attempt when neither the job nor its handler says otherwise, in milliseconds.
pub const TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// Longest wall time of an attempt, in milliseconds: 24 hours.
pub const TIMEOUT_MS_MAX: u64 = 86_400_000;
/// A job with so many recorded crashes is a poison pill: dead-lettered as `lost`.
pub const CRASHES_MAX: u32 = 3;

/// How urgent a job is among the jobs of its queue and kind, and, strictly, among all that a runner
/// serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Before all others.
    High,
    /// What a job has unless somebody says otherwise.
    #[default]
    Normal,
    /// After all others.
    Low,
}

impl Priority {
    /// All, the most urgent first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| format!("invalid priority {text:?}: expected high, normal or low"))
    }
}

/// Where a job is in its life: `scheduled -> ready -> running -> completed | dead | cancelled`.
///
/// A retry is `scheduled` with an attempt above 0. A job without a handler stays `ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its due time is ahead.
    Scheduled,
    /// It may be claimed.
    Ready,
    /// A runner has it.
    Running,
    /// It ended well.
    Completed,
    /// It gave up: a dead letter.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
}

impl State {
    /// All, in the order of a job's life.
    pub const ALL: [Self; 6] =
        [Self::Scheduled, Self::Ready, Self::Running, Self::Completed, Self::Dead, Self::Cancelled];

    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// True for `completed`, `dead` and `cancelled`.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Dead | Self::Cancelled)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| {
            format!(
                "invalid state {text:?}: expected scheduled, ready, running, completed, dead or cancelled"
            )
        })
    }
}

/// When a job may start. Resolved by the store, on its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So many milliseconds after the store accepted it.
    In(u64),
    /// At this instant, in milliseconds since 1970; one in the past means now.
    At(u64),
}

impl Due {
    /// At once.
    pub const NOW: Self = Self::In(0);
}

/// What to do when the id exists in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Leave the old job alone and say so.
    #[default]
    Keep,
    /// The new job takes the old one's place; only while that is scheduled or ready.
    Replace,
    /// Only the due time changes; only while the old job is scheduled or ready.
    Reschedule,
    /// Refuse.
    Reject,
}

impl OnConflict {
    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Replace => "replace",
            Self::Reschedule => "reschedule",
            Self::Reject => "reject",
        }
    }
}

impl FromStr for OnConflict {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Keep, Self::Replace, Self::Reschedule, Self::Reject]
            .into_iter()
            .find(|c| c.as_str() == text)
            .ok_or_else(|| format!("invalid value {text:?}: expected keep, replace, reschedule or reject"))
    }
}

/// A job as it is handed to a store. Limits are checked by [`NewJob::validate`], which every
/// store calls before it takes anything.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Chosen by the caller, or by the store when `None`.
    pub id: Option<JobId>,
    /// Which handler runs it.
    pub kind: Name,
    /// Where it waits: the kind's own name unless the caller says otherwise.
    pub queue: Name,
    /// Its urgency.
    pub priority: Priority,
    /// When it may start.
    pub due: Due,
    /// How long ago it was accepted, in milliseconds: 0, but for a job that comes from a spool. Its acceptance is so much
    /// before the store's now, and its delay counts from there.
    pub age_ms: u64,
    /// Opaque bytes for the handler.
    pub payload: Bytes,
    /// Attempts it may use; the handler's when `None`.
    pub max_attempts: Option<u32>,
    /// Wall time of an attempt in milliseconds; the handler's when `None`, never more than the handler's.
    pub timeout_ms: Option<u64>,
    /// Facts for the handler and for people, in this order.
    pub meta: Vec<(String, String)>,
    /// W3C trace context of whoever enqueued it.
    pub traceparent: Option<String>,
    /// Who enqueued it and from where, for people.
    pub source: String,
    /// What to do when the id exists.
    pub on_conflict: OnConflict,
}

impl NewJob {
    /// A job of `kind` on the kind's own queue, due at once, with an empty payload and all defaults.
    pub fn new(kind: Name) -> Self {
        Self {
            id: None,
            queue: kind.clone(),
            kind,
            priority: Priority::Normal,
            due: Due::NOW,
            age_ms: 0,
            payload: Bytes::new(),
            max_attempts: None,
            timeout_ms: None,
            meta: Vec::new(),
            traceparent: None,
            source: String::new(),
            on_conflict: OnConflict::Keep,
        }
    }

    /// When it is accepted and when it is due by a clock that says `now_ms`, all in milliseconds since 1970. An instant
    /// before its acceptance means its acceptance.
    pub fn times(&self, now_ms: u64) -> (u64, u64) {
        let accepted_ms = now_ms.saturating_sub(self.age_ms);
        let due_ms = match self.due {
            Due::In(ms) => accepted_ms.saturating_add(ms),
            Due::At(ms) => ms.max(accepted_ms),
        };
        (accepted_ms, due_ms)
    }

    /// Checks every limit that needs no clock.
    ///
    /// # Errors
    /// A message that says what was expected and what came.
    pub fn validate(&self) -> Result<(), String> {
        if self.age_ms > AGE_MS_MAX {
            return Err(format!(
                "accepted {} ms ago: expected at most 30 days ({AGE_MS_MAX} ms)",
                self.age_ms
            ));
        }
        let payload = self.payload.len();
        if payload > PAYLOAD_BYTES_MAX {
            return Err(format!("payload of {payload} bytes: expected at most {PAYLOAD_BYTES_MAX} (1 MiB)"));
        }
        if let Due::In(ms) = self.due
            && ms > DELAY_MS_MAX
        {
            return Err(format!("delay of {ms} ms: expected at most 100 years ({DELAY_MS_MAX} ms)"));
        }
        if let Due::At(ms) = self.due
            && ms > DUE_MS_MAX
        {
            return Err(format!("due time of {ms} ms: expected at most {DUE_MS_MAX}, and 100 years ahead"));
        }
        if let Some(n) = self.max_attempts
            && !(1..=MAX_ATTEMPTS_MAX).contains(&n)
        {
            return Err(format!("max_attempts of {n}: expected 1 to {MAX_ATTEMPTS_MAX}"));
        }
        if let Some(ms) = self.timeout_ms
            && !(1..=TIMEOUT_MS_MAX).contains(&ms)
        {
            return Err(format!("timeout of {ms} ms: expected 1 ms to 24 h ({TIMEOUT_MS_MAX} ms)"));
        }
        let meta: usize = self.meta.iter().map(|(k, v)| k.len() + v.len()).sum();
        if meta > META_BYTES_MAX {
            return Err(format!("meta of {meta} bytes: expected at most {META_BYTES_MAX}"));
        }
        if self.meta.iter().any(|(k, _)| k.is_empty()) {
            return Err("empty meta key: expected a name before the value".to_owned());
        }
        for (what, text, max) in
            [("source", Some(&self.source), 256), ("traceparent", self.traceparent.as_ref(), 128)]
        {
            if text.is_some_and(|t| t.len() > max || t.chars().any(char::is_control)) {
                return Err(format!(
                    "invalid {what}: expected at most {max} bytes without control characters"
                ));
            }
        }
        Ok(())
    }
}

/// A job as a store holds it: what was asked for, and when it was accepted. It does not change after
/// the enqueue.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id within the queue.
    pub id: JobId,
    /// Which handler runs it.
    pub kind: Name,
    /// Where it waits.
    pub queue: Name,
    /// Its urgency.
    pub priority: Priority,
    /// When the store accepted it, in milliseconds since 1970 on the store's clock.
    pub enqueued_ms: u64,
    /// Attempts that the job itself asks for.
    pub max_attempts: Option<u32>,
    /// Time-out that the job itself asks for, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Facts for the handler and for people.
    pub meta: Vec<(String, String)>,
    /// W3C trace context of whoever enqueued it.
    pub traceparent: Option<String>,
    /// Who enqueued it and from where.
    pub source: String,
    /// Opaque bytes for the handler.
    pub payload: Bytes,
}

/// Everything that a store knows of one job: what `job show` prints.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    /// What was asked for.
    pub job: Job,
    /// Where it is in its life.
    pub state: State,
    /// The attempt that runs or ran last; 0 before the first.
    pub attempt: u32,
    /// Attempts it may use: its own, else what the handler said at the last claim, else the default.
    pub max_attempts: u32,
    /// How often a runner went away while it had the job.
    pub crashes: u32,
    /// When it may or might start, in milliseconds since 1970.
    pub due_ms: u64,
    /// When the last attempt started, in microseconds since 1970.
    pub started_us: Option<u64>,
    /// When the last attempt ended, in microseconds since 1970.
    pub ended_us: Option<u64>,
    /// How long after its due time the last attempt started, in microseconds.
    pub lateness_us: Option<u64>,
    /// Who runs or ran it last.
    pub runner: Option<String>,
    /// First 12 hex digits of the sha256 of the module that ran it last.
    pub handler: Option<String>,
    /// Why the last attempt failed, if it did.
    pub error: Option<Failure>,
    /// What the handler returned, if it is kept.
    pub result: Option<Bytes>,
    /// How far the attempt that runs or ran last has come, if it told.
    pub progress: Option<ProgressSeen>,
    /// The first 10 and the last 40 events of its life.
    pub history: Vec<HistoryEvent>,
}
