//! What a run of a handler was.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::SentRequest;
use crate::{Due, Failure, Level, Priority};

/// What a run of a handler was.
#[derive(Debug, Clone, PartialEq)]
pub struct TestRun {
    /// What it ended in.
    pub outcome: Outcome,
    /// What it logged, in order.
    pub logs: Vec<LogLine>,
    /// What it said of how far it has come, in order.
    pub progress: Vec<Progress>,
    /// The jobs that it enqueued, in order. None when it did not complete, for then nothing comes into being.
    pub enqueued: Vec<EnqueuedJob>,
    /// The HTTP requests that it sent, in order, redirects among them. What was sent is sent, also when it did not complete.
    pub requests: Vec<SentRequest>,
    /// All state after it: as it was before when it did not complete.
    pub state: BTreeMap<String, Vec<u8>>,
}

/// How far a job had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// What it was at.
    pub message: String,
}

/// A job that a handler enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnqueuedJob {
    /// Chosen, or made by the host.
    pub id: String,
    /// What it is.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// How urgent it is.
    pub priority: Priority,
    /// When it may start.
    pub due: Due,
    /// Its attempts, where the handler said.
    pub max_attempts: Option<u32>,
    /// Its time-out, where the handler said.
    pub timeout: Option<Duration>,
    /// What the handler attached.
    pub meta: Vec<(String, String)>,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl EnqueuedJob {
    /// The payload, read as JSON.
    ///
    /// # Panics
    /// When it is something else: the test has failed.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        read(&self.payload, "payload")
    }
}

/// What a run of a handler ended in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It returned a result; empty is none.
    Completed(Vec<u8>),
    /// It returned a failure, or its payload did not decode.
    Failed(Failure),
    /// It panicked, with this text. To a runner that is a retry with the reason `panic`.
    Panicked(String),
    /// It was told that it is cancelled: whatever it returned then counts for nothing.
    Cancelled,
}

/// A line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// The text.
    pub message: String,
}

impl TestRun {
    /// The result, read as JSON.
    ///
    /// # Panics
    /// When the run did not complete, or its result is something else: the test has failed.
    pub fn result<T: DeserializeOwned>(&self) -> T {
        read(self.result_bytes(), "result")
    }

    /// The state entry under `key` after the run, read as JSON; `None` when there is none.
    ///
    /// # Panics
    /// When it is something else: the test has failed.
    pub fn state_value<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.state.get(key).map(|bytes| read(bytes, key))
    }

    /// The result as text.
    ///
    /// # Panics
    /// When the run did not complete, or its result is not UTF-8: the test has failed.
    pub fn result_text(&self) -> &str {
        let bytes = self.result_bytes();
        std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("the result is no text: {error}"))
    }

    /// The result's bytes.
    ///
    /// # Panics
    /// When the run did not complete: the test has failed.
    pub fn result_bytes(&self) -> &[u8] {
        match &self.outcome {
            Outcome::Completed(bytes) => bytes,
            other => panic!("the handler did not complete: {other:?}, logs {:?}", self.logs),
        }
    }
}

pub(super) fn read<T: DeserializeOwned>(bytes: &[u8], what: &str) -> T {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{what} {:?}: {error}", String::from_utf8_lossy(bytes)))
}
