//! wasmtime: compile a module, bound what it may use, run one job in a fresh instance.
//!
//! The only part that imports wasmtime. One [`Sandbox`] a process (one engine, one pool of
//! instances, one epoch ticker on an OS thread); one [`Module`] a version of a handler; one instance a
//! job, dropped after it whatever happened.

mod bindings;
mod bounds;
mod cache;
mod check;
mod child;
mod children;
mod classify;
mod command;
mod compile;
mod declared;
mod dirs;
mod engine;
mod facts;
mod guest;
mod host_calls;
mod http;
mod inspect;
mod kernel;
mod limiter;
mod load;
mod log;
mod remembered;
mod run;
mod sections;
mod services;
mod stop;
mod stranger;
mod ticker;
mod turns;
mod world;
mod wrap;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::effects::Effects;
use crate::grants::Origin;
use crate::names::Name;
use crate::outcome::{RunEnd, capped};
use crate::vitals::Vitals;

use cache::CodeCache;
use engine::Allocation;
use limiter::MemoryMeter;
use load::Loader;
use run::Ground;
use ticker::Ticker;
use turns::Turns;

pub use child::{COMMAND as COMPILE_COMMAND, compile_child};
pub use children::Incarnation;
pub(crate) use children::has_made_id;
pub use compile::compile_with;
pub use facts::{Form, Role};
pub use http::Resolver;
pub use inspect::{INTERFACE_VERSION, Inspection, declared_in, inspect, inspect_within};
pub use kernel::has_pagemap_scan;
pub use load::{Build, Module};
pub use log::JobLog;
pub use services::{HttpAnswers, Offer, Services};
pub use stop::{Stop, StopSignal};

/// What a handler may have, in bytes. Nobody can say otherwise yet, so that it is what the pool has for each
/// job and what a module may start with, in a runner and in `handler check` alike.
const MEMORY_BYTES_DEFAULT: u64 = 128 << 20;

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
    /// How long a module may take to compile.
    pub compile_time_max: Duration,
    /// Memory of the process that compiles, in bytes ([`compile_with`]).
    pub compile_memory_bytes_max: u64,
    /// Where input and output of guests go on (HTTP requests); where the guest runs when `None`.
    pub io: Option<tokio::runtime::Handle>,
    /// Who looks up the names in HTTP requests; this machine when `None`.
    pub resolver: Option<Arc<dyn Resolver>>,
    /// Where its thread shows that it lives.
    pub vitals: Vitals,
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
            memory_bytes: MEMORY_BYTES_DEFAULT,
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
    /// What it wants beside that.
    pub asks: Asks,
}

/// What a module says that one of its handlers wants. It says nothing of what is `None`, and takes what its manifest grants;
/// where it does say, it has no more than that.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asks {
    /// Memory of a job, in bytes.
    pub memory_bytes: Option<u64>,
    /// Where it wants to send HTTP requests.
    pub http: Option<Vec<Origin>>,
    /// Environment variables that it wants to see.
    pub env: Option<Vec<String>>,
    /// Secrets that it wants to use.
    pub secrets: Option<Vec<String>>,
    /// Whether it wants state.
    pub state: Option<bool>,
    /// Kinds that it wants to enqueue: names, or `prefix*`.
    pub enqueue: Option<Vec<String>>,
}

/// What the guest is told of its job.
#[derive(Debug, Clone, Default)]
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
    /// Which run of it this is; the guest is not told.
    pub incarnation: Incarnation,
}

/// Calls of the host that one attempt may make, but for lines of its log. Over it, it is stopped: reason `denied`.
pub const HOST_CALLS_MAX: u64 = 10_000_000;

/// What a run was.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// What it ended in.
    pub end: RunEnd,
    /// The most memory it had, in bytes.
    pub memory_bytes_peak: u64,
    /// What is to be written together with its completion. `None` for every other end.
    pub effects: Option<Box<Effects>>,
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self {
            concurrency: 128,
            memory_bytes_max: MEMORY_BYTES_DEFAULT,
            memory_bytes_total: 4 << 30,
            cache_dir: None,
            // It gives way to everything else: what takes 10 s by itself was seen to take over two minutes beside other work.
            compile_time_max: Duration::from_secs(600),
            compile_memory_bytes_max: 4 << 30,
            io: None,
            resolver: None,
            vitals: Vitals::default(),
        }
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine or one of its threads could not be made.
    #[error("the sandbox could not be set up: {0}")]
    Engine(String),
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The check at start found that a spinning guest goes on.
    #[error("the sandbox cannot stop a spinning guest on this machine: refusing to run any")]
    NotInterrupted,
}

/// Why a file is not loaded. The message says the cause and, where there is one, the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file ends in the middle: perhaps somebody still writes it.
    #[error("{0}")]
    Incomplete(String),
    /// It is not a module that this runner runs.
    #[error("{0}")]
    Refused(String),
    /// It does not compile.
    #[error("it does not compile: {0}")]
    Compile(String),
    /// The process that compiles could not be started, for want of something on this machine: nothing is known of the module,
    /// and it is worth trying again later.
    #[error("it does not compile: cannot start the process that compiles: {0}")]
    Unstarted(String),
}

/// Longest message of a [`LoadError`], in bytes.
const LOAD_MESSAGE_BYTES_MAX: usize = 1_000;

impl LoadError {
    /// The same, in one line of bounded length: a module's names go into messages, and it may have been
    /// made to write to an operator's terminal.
    fn tidied(self) -> Self {
        let tidy = |text: String| {
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let printable = line.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
            capped(printable, LOAD_MESSAGE_BYTES_MAX)
        };
        match self {
            Self::Incomplete(text) => Self::Incomplete(tidy(text)),
            Self::Refused(text) => Self::Refused(tidy(text)),
            Self::Compile(text) => Self::Compile(tidy(text)),
            Self::Unstarted(text) => Self::Unstarted(tidy(text)),
        }
    }
}

/// The process's sandbox: engine, pool, compile threads and memory cap.
pub struct Sandbox {
    ground: Ground,
    loader: Loader,
    pooled: bool,
    memory_bytes_max: u64,
}

/// How many threads guests should run on: one a core.
pub fn guest_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

impl Sandbox {
    /// Builds the engine and its pool, starts the ticker, and checks that a spinning guest is stopped.
    ///
    /// # Errors
    /// [`SandboxError`] when a setting makes no sense or the machine does not give what is needed.
    pub fn new(config: SandboxConfig) -> Result<Arc<Self>, SandboxError> {
        check_memory(&config)?;
        let (engine, settings) = engine::build(&config)?;
        let pooled = settings.allocation != Allocation::OnDemand;
        let ticker = Ticker::start(&engine, &config.vitals)?;
        engine::check_interruption(&engine)?;
        let cache = config.cache_dir.clone().and_then(|dir| match CodeCache::open(dir.clone(), &engine) {
            Ok(cache) => Some(cache),
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "no cache for compiled code: each start compiles anew");
                None
            }
        });
        let loader = Loader::new(&engine, settings, cache, &config, pooled).map_err(SandboxError::Engine)?;
        Ok(Arc::new(Self {
            ground: Ground {
                engine,
                meter: Arc::new(MemoryMeter::new(config.memory_bytes_total)),
                turns: Turns::new(guest_threads()),
                ticker,
                http: Arc::new(http::Client::new(config.io, config.resolver)),
            },
            loader,
            pooled,
            memory_bytes_max: config.memory_bytes_max,
        }))
    }

    /// Checks, wraps, compiles (or takes from the cache) and links a module; `name` is its file stem.
    /// Blocking, for seconds where the module is large: to be called off the runtimes. One module at a time is
    /// compiled; what is in the cache does not wait for that.
    ///
    /// # Errors
    /// [`LoadError`] with the cause and the fix.
    pub fn load(&self, name: &str, bytes: &[u8]) -> Result<Module, LoadError> {
        self.loader.load(name, bytes)
    }

    /// Runs one job in a fresh instance, in which it reaches nothing. Never panics, and outlives its time-out by a moment at most.
    /// To be called on the guest runtime: a computing guest holds its thread for 10 ms at a time.
    pub async fn run(
        &self,
        module: &Module,
        job: GuestJob,
        limits: &Limits,
        stop: StopSignal,
        log: Arc<JobLog>,
    ) -> RunReport {
        self.run_with(module, job, limits, Offer::default(), stop, log).await
    }

    /// The same for a job that may reach something.
    pub async fn run_with(
        &self,
        module: &Module,
        job: GuestJob,
        limits: &Limits,
        offer: Offer,
        stop: StopSignal,
        log: Arc<JobLog>,
    ) -> RunReport {
        run::run(&self.ground, module, job, limits, offer, stop, log).await
    }

    /// Lets guests' calls to the outside be made, which they may at first, or stops those that are under way and those to come: for a
    /// runner whose jobs may be somebody else's by now.
    pub fn allow_calls(&self, allowed: bool) {
        self.ground.http.set_open(allowed);
    }

    /// Guest memory that running jobs use, in bytes.
    pub fn memory_in_use(&self) -> u64 {
        self.ground.meter.in_use()
    }

    /// What they may use together, in bytes.
    pub fn memory_cap(&self) -> u64 {
        self.ground.meter.cap()
    }

    /// False when a guest that takes all that a handler may have by default would not fit beside those
    /// that run: claims should pause. Always true when none runs.
    pub fn has_room(&self) -> bool {
        let meter = &self.ground.meter;
        meter.has_room(MEMORY_BYTES_DEFAULT.min(self.memory_bytes_max).min(meter.cap()))
    }

    /// Resolves when a guest has ended, and given back its memory and its slot, after this call; at once
    /// when none runs. It counts from the call and not from the first poll: to ask [`Self::has_room`] between the
    /// two misses no end.
    pub fn room_freed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.ground.meter.freed()
    }

    /// False when the machine's address space is too small for a pool, and jobs are slower for it.
    pub fn pooled(&self) -> bool {
        self.pooled
    }

    /// The largest memory that any handler may have, in bytes.
    pub fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }
}

fn check_memory(config: &SandboxConfig) -> Result<(), SandboxError> {
    const PAGE: u64 = 64 << 10;
    for (what, bytes) in [
        ("memory of a handler", config.memory_bytes_max),
        ("memory of all guests", config.memory_bytes_total),
    ] {
        if bytes < PAGE {
            return Err(SandboxError::Setting(format!(
                "{what}: expected 64 KiB or more, got {}",
                size(bytes)
            )));
        }
    }
    if config.memory_bytes_max > 4 << 30 {
        let got = size(config.memory_bytes_max);
        return Err(SandboxError::Setting(format!("memory of a handler: expected at most 4 GiB, got {got}")));
    }
    Ok(())
}

/// `bytes` for people, exactly: `64 MiB`, `1.5 MiB`, `1048577 bytes`. Two sizes that differ never read alike.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        // No more than one digit after the point.
        if bytes >= unit && u128::from(bytes) * 10 % u128::from(unit) == 0 {
            return format!("{} {name}", bytes as f64 / unit as f64);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_said_exactly() {
        for (bytes, said) in [
            (0, "0 bytes"),
            (1_000, "1000 bytes"),
            (1 << 20, "1 MiB"),
            ((1 << 20) + 1, "1048577 bytes"),
            ((128 << 20) + (64 << 10), "131136 KiB"),
            (3 << 19, "1.5 MiB"),
            (4 << 30, "4 GiB"),
            (u64::MAX, "18446744073709551615 bytes"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
