//! Jobs that a handler enqueues.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::{Context, Raw, Refused, host};

/// How urgent a job is among the jobs of its queue and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// Before all others.
    High,
    /// What a job has unless somebody says otherwise.
    #[default]
    Normal,
    /// After all others.
    Low,
}

/// When an enqueued job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So long after the job that enqueues it has completed.
    In(Duration),
    /// At this instant; one in the past means at once.
    At(SystemTime),
}

/// A job on its way to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewJob {
    pub(crate) kind: String,
    pub(crate) queue: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) priority: Priority,
    pub(crate) due: Due,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) meta: Vec<(String, String)>,
    pub(crate) payload: Vec<u8>,
}

/// What can be a job's payload: whatever serde writes as JSON, or [`Raw`] for bytes as they are. `()` is an empty payload.
#[diagnostic::on_unimplemented(
    message = "a job cannot have `{Self}` as its payload",
    note = "derive `Serialize` for it, or pass `Raw(bytes)` to give the bytes as they are"
)]
pub trait IntoPayload {
    /// The payload's bytes.
    ///
    /// # Errors
    /// [`Refused::Invalid`] when the value cannot be written as JSON.
    fn into_payload(self) -> Result<Vec<u8>, Refused>;
}

impl<T: Serialize> IntoPayload for T {
    fn into_payload(self) -> Result<Vec<u8>, Refused> {
        let bytes = serde_json::to_vec(&self)
            .map_err(|error| Refused::Invalid(format!("the payload cannot be written as JSON: {error}")))?;
        // `()` and unit structs say nothing.
        Ok(if size_of::<T>() == 0 && bytes == b"null" { Vec::new() } else { bytes })
    }
}

impl IntoPayload for Raw {
    fn into_payload(self) -> Result<Vec<u8>, Refused> {
        Ok(self.0)
    }
}

/// A job that is being described; [`send`](Self::send) enqueues it.
///
/// It comes into being together with this job's completion, or not at all: an attempt that fails enqueues nothing.
#[derive(Debug, Clone)]
#[must_use = "nothing is enqueued until `.send()`"]
pub struct Enqueue {
    job: NewJob,
    /// Why the payload is none.
    broken: Option<Refused>,
}

impl Context {
    /// A job of `kind` for later, which [`Enqueue::send`] enqueues. The manifest says which kinds may be enqueued, and how many jobs.
    ///
    /// ```
    /// use hourhand_sdk::prelude::*;
    ///
    /// #[derive(Serialize)]
    /// struct Notify {
    ///     order_id: u64,
    /// }
    ///
    /// #[handler]
    /// fn order_close(ctx: &Context, order_id: u64) -> Result<(), Failure> {
    ///     ctx.enqueue("order_notify", &Notify { order_id }).delay(minutes(5)).send()?;
    ///     ctx.enqueue("picture_scale", Raw(vec![0xff, 0xd8])).priority(Priority::Low).send()?;
    ///     Ok(())
    /// }
    ///
    /// let run = TestHost::new().run::<order_close>("7");
    /// assert_eq!(run.enqueued[0].payload, br#"{"order_id":7}"#);
    /// assert_eq!(run.enqueued[0].due, Due::In(minutes(5)));
    /// assert_eq!(run.enqueued[1].kind, "picture_scale");
    /// ```
    pub fn enqueue(&self, kind: impl Into<String>, payload: impl IntoPayload) -> Enqueue {
        let (payload, broken) = match payload.into_payload() {
            Ok(bytes) => (bytes, None),
            Err(refused) => (Vec::new(), Some(refused)),
        };
        let job = NewJob {
            kind: kind.into(),
            queue: None,
            id: None,
            priority: Priority::Normal,
            due: Due::In(Duration::ZERO),
            max_attempts: None,
            timeout: None,
            meta: Vec::new(),
            payload,
        };
        Enqueue { job, broken }
    }
}

impl Enqueue {
    /// Lets it start so long after this job has completed; at once when nobody says otherwise.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.job.due = Due::In(delay);
        self
    }

    /// Lets it start at this instant.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.job.due = Due::At(time);
        self
    }

    /// Chooses its id. A job of the same queue that has the id already, or had it within the last day, is kept as it is and this one is not enqueued.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.job.id = Some(id.into());
        self
    }

    /// Names the queue in which it waits; its kind's own name when nobody says otherwise.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.job.queue = Some(queue.into());
        self
    }

    /// Sets how urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.job.priority = priority;
        self
    }

    /// Sets how many attempts it has, 1 to 1,000; its handler's number when nobody says otherwise.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.job.max_attempts = Some(attempts);
        self
    }

    /// Sets the wall time of an attempt, 1 ms to 24 h, which its handler's may shorten.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.job.timeout = Some(timeout);
        self
    }

    /// Attaches a fact for its handler and for people. Keys that begin with `hourhand.` are the runner's own.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.job.meta.push((key.into(), value.into()));
        self
    }

    /// Enqueues it, and returns its id.
    ///
    /// # Errors
    /// [`Refused`]: the manifest does not grant it, there are too many, or something of it is not valid.
    pub fn send(self) -> Result<String, Refused> {
        match self.broken {
            Some(refused) => Err(refused),
            None => host::enqueue(self.job),
        }
    }
}
