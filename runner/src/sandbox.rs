//! wasmtime: compile a module, bound what it may use, run one job in a fresh instance.
//!
//! The only part that imports wasmtime. One [`Sandbox`] a process (one engine, one pool of
//! instances, one epoch ticker on an OS thread); one [`Module`] a version of a handler; one instance a
//! job, dropped after it whatever happened.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::names::Name;
use crate::outcome::RunEnd;

/// What a sandbox is built with.
#[derive(Debug, Clone)]
pub struct SandboxConfig {
    /// Jobs that run at once; sizes the pool.
    pub concurrency: u32,
    /// The largest memory that any handler may have, in bytes.
    pub memory_bytes_max: u64,
    /// What all guests of this process may use together, in bytes.
    pub memory_bytes_total: u64,
    /// Where compiled code is kept between starts; nowhere when `None`.
    pub cache_dir: Option<PathBuf>,
}

/// What one job may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Wall time from instantiation to the end, waiting included, in milliseconds.
    pub timeout_ms: u64,
    /// All memories and tables together, in bytes.
    pub memory_bytes: u64,
    /// The result, in bytes.
    pub output_bytes: usize,
    /// stdout, stderr and log lines together, in bytes; more is dropped from the middle.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms: crate::job::TIMEOUT_MS_DEFAULT,
            memory_bytes: 128 << 20,
            output_bytes: 1 << 20,
            log_bytes: 64 << 10,
        }
    }
}

/// What a module says of one of its handlers, in the custom section that the SDK's macro writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The kind that it serves.
    pub kind: Name,
    /// Wall time of an attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Attempts for jobs that do not say.
    pub max_attempts: Option<u32>,
    /// How long failed jobs wait.
    pub backoff: Option<Backoff>,
    /// Keep results over 4 KiB.
    pub keep_results: bool,
}

/// What the guest is told of its job.
#[derive(Debug, Clone)]
pub struct GuestJob {
    /// The job's id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Counts from 1.
    pub attempt: u32,
    /// The effective cap.
    pub max_attempts: u32,
    /// In milliseconds since 1970.
    pub enqueued_ms: u64,
    /// In milliseconds since 1970.
    pub due_ms: u64,
    /// What the enqueuing side attached.
    pub meta: Vec<(String, String)>,
    /// `traceparent` and what else has no field of its own.
    pub facts: Vec<(String, String)>,
    /// The bytes that were enqueued.
    pub payload: Bytes,
}

/// Why a run is to stop before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Somebody cancelled the job: ends as [`RunEnd::Cancelled`].
    Cancel,
    /// The runner stops and cannot wait: ends as [`RunEnd::Released`].
    Release,
}

/// What a run was.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// What it ended in.
    pub end: RunEnd,
    /// The most memory it had, in bytes.
    pub memory_bytes_peak: u64,
}
