//! What a handler is told of the job that it runs.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use crate::log::{self, Level};
use crate::{Refused, host};

/// The job that is running, and what it can do through its runner.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) enqueued_at: SystemTime,
    pub(crate) due_at: SystemTime,
    pub(crate) deadline: SystemTime,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) facts: Vec<(String, String)>,
}

impl Context {
    /// The job's id. It is the same for every attempt, so it makes a good idempotency key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The job's kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The queue that the job came from.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Which attempt this is, counted from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many attempts the job has.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Whether a retry would be refused: the last chance to leave things tidy.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt >= self.max_attempts
    }

    /// When the job was enqueued, by the store's clock.
    pub fn enqueued_at(&self) -> SystemTime {
        self.enqueued_at
    }

    /// When the job was to start, by the store's clock.
    pub fn due_at(&self) -> SystemTime {
        self.due_at
    }

    /// When the runner will stop this attempt.
    pub fn deadline(&self) -> SystemTime {
        self.deadline
    }

    /// What is left until [`deadline`](Self::deadline); zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.deadline.duration_since(self.now()).unwrap_or(Duration::ZERO)
    }

    /// What time it is. Under a [`TestHost`](crate::testing::TestHost) it is the time that the test set.
    pub fn now(&self) -> SystemTime {
        host::now()
    }

    /// What the enqueuing side attached under `key`; the last of several.
    pub fn meta(&self, key: &str) -> Option<&str> {
        last(&self.meta, key)
    }

    /// All that the enqueuing side attached, in its order.
    pub fn meta_all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.meta.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The W3C trace context that the job was enqueued with.
    pub fn traceparent(&self) -> Option<&str> {
        self.fact("traceparent")
    }

    /// A further fact that the runner tells by name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        last(&self.facts, name)
    }

    /// Says how far the job has come, 0 to 100 (more counts as 100), and what it is at: `hourhand job show ID` tells it while the job
    /// runs. The last word counts.
    pub fn progress(&self, percent: u8, message: impl Display) {
        host::progress(percent.min(100), &message.to_string());
    }

    /// Whether somebody has cancelled the job. A handler that asks every now and then has a second to end in good order once it
    /// was; the others are stopped at once. Whatever it returns after a `true`, the job is cancelled, and its effects are dropped.
    pub fn is_cancelled(&self) -> bool {
        host::is_cancelled()
    }

    /// The value of a secret that the manifest lets this handler read.
    ///
    /// # Errors
    /// [`Refused::Denied`] when it does not.
    pub fn secret(&self, name: impl AsRef<str>) -> Result<String, Refused> {
        host::secret(name.as_ref())
    }

    /// Adds a line to the job's log at [`Level::Error`].
    pub fn error(&self, message: impl Display) {
        log::log(Level::Error, message);
    }

    /// Adds a line to the job's log at [`Level::Warn`].
    pub fn warn(&self, message: impl Display) {
        log::log(Level::Warn, message);
    }

    /// Adds a line to the job's log at [`Level::Info`].
    pub fn info(&self, message: impl Display) {
        log::log(Level::Info, message);
    }

    /// Adds a line to the job's log at [`Level::Debug`].
    pub fn debug(&self, message: impl Display) {
        log::log(Level::Debug, message);
    }

    /// Adds a line to the job's log at [`Level::Trace`].
    pub fn trace(&self, message: impl Display) {
        log::log(Level::Trace, message);
    }
}

fn last<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
