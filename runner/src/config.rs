//! Settings: one struct per concern, read from [`layers`] once at start, all problems reported together.
//!
//! A problem always reads `where it was said: expected X to be so, got Y`. Where the store is, and what keeps its
//! password out of every message, is in [`store`]. What a setting defaults to on this machine (memory, folders,
//! names) comes from [`machine`].

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::manifest::OperatorSettings;
use crate::names::Name;
use crate::queue::{IdMemory, Retention};
use crate::wire::units;

pub mod layers;
pub mod machine;
mod reader;
pub mod spool;
pub mod store;
#[cfg(test)]
mod tests;
mod values;

pub use layers::Layers;
use machine::Machine;
use reader::Reader;
pub use spool::SpoolSettings;
pub use store::{StoreSettings, StoreUrl};
use values::{between, concurrency, dir, dir_or_off, memory_total, names, on_or_off, runner_name};
pub(crate) use values::{limit, whole};

/// The namespace when nobody names one.
pub const NAMESPACE_DEFAULT: &str = "hourhand";
/// Most slots of one runner.
pub const CONCURRENCY_MAX: u32 = 4_096;

/// Everything that is wrong with the settings, one message a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<String>);

impl Problems {
    /// A single problem.
    pub fn one(message: String) -> Self {
        Self(vec![message])
    }

    /// Notes a problem and goes on.
    pub fn push(&mut self, message: String) {
        self.0.push(message);
    }

    /// `value` if there is no problem.
    ///
    /// # Errors
    /// The problems, if there are any.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}

/// How a process writes its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A level (`off`, `error`, `warn`, `info`, `debug`, `trace`), or directives as `tracing` has them.
    pub filter: String,
    /// For people or for programs.
    pub format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line a message, for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("expected text or json, got {text:?}")),
        }
    }
}

impl LogSettings {
    /// Reads how to log; `level` and `format` count when nobody says.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers, level: &str, format: LogFormat) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let filter = reader.take("log", crate::telemetry::checked_filter).unwrap_or_else(|| level.to_owned());
        let format = reader.take("log_format", str::parse).unwrap_or(format);
        reader.problems.or(Self { filter, format })
    }
}

/// How long what has finished is kept (rule 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Completed and cancelled jobs.
    pub finished: Retention,
    /// Dead letters.
    pub dead: Retention,
    /// Explicit ids of jobs that are gone.
    pub id_memory: IdMemory,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self { finished: Retention::FINISHED, dead: Retention::DEAD, id_memory: IdMemory::default() }
    }
}

/// Everything that `hourhand run` is told.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Where the jobs are.
    pub store: StoreSettings,
    /// The handlers folder.
    pub handlers: PathBuf,
    /// How often it is scanned, whatever the file system says.
    pub handlers_scan: Duration,
    /// Whether events of the file system bring a scan forward.
    pub handlers_events: bool,
    /// Who this runner is, in records and lists: `host:pid` unless somebody names it. Proves nothing.
    pub name: String,
    /// This machine's name.
    pub host: String,
    /// Slots: jobs that run at once.
    pub concurrency: u32,
    /// How long a runner may be out of touch; what a crash costs in delay.
    pub lease: Duration,
    /// How long running jobs may take to finish after SIGTERM.
    pub grace: Duration,
    /// Only these kinds; all that have a handler when `None`.
    pub kinds: Option<BTreeSet<Name>>,
    /// Only these queues; all when `None`.
    pub queues: Option<BTreeSet<Name>>,
    /// Whether to end once there is nothing left to do.
    pub until_idle: bool,
    /// How long what has finished is kept.
    pub retention: RetentionSettings,
    /// What all guests may use together, in bytes.
    pub memory_bytes_total: u64,
    /// Where compiled handlers are kept between starts; nowhere when `None`.
    pub cache_dir: Option<PathBuf>,
    /// Where this host's sessions hold their locks.
    pub state_dir: PathBuf,
    /// Where jobs wait that could not be enqueued.
    pub spool: SpoolSettings,
    /// What the operator says for all handlers.
    pub operator: OperatorSettings,
}

impl RunSettings {
    /// Reads the settings of a runner.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers, machine: &Machine, until_idle: bool) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let store = store::read(&mut reader);
        let handlers = read_handlers(&mut reader);
        let handlers_scan = reader.take("handlers_scan", |t| between(t, 1_000, 3_600_000)).unwrap_or(2_000);
        let handlers_events = reader.take("handlers_events", on_or_off).unwrap_or(true);
        let name = reader.take("name", runner_name).unwrap_or_else(|| machine.runner_name());
        let concurrency = reader.take("concurrency", concurrency).unwrap_or(128);
        let lease = reader.take("lease", |t| between(t, 1_000, 3_600_000)).unwrap_or(5_000);
        let grace = reader.take("grace", |t| between(t, 0, 86_400_000)).unwrap_or(25_000);
        let kinds = reader.take("kinds", names);
        let queues = reader.take("queues", names);
        let retention = read_retention(&mut reader);
        let memory_bytes_total =
            reader.take("memory_total", memory_total).unwrap_or(machine.memory_bytes / 2);
        let cache_dir =
            reader.take("cache_dir", dir_or_off).unwrap_or_else(|| Some(machine.cache_dir.clone()));
        let state_dir = reader.take("state_dir", dir).unwrap_or_else(|| machine.state_dir.clone());
        let spool = spool::read(&mut reader, &state_dir);
        reader.problems.or(())?;
        Ok(Self {
            store: store.expect("without a problem there is a store"),
            handlers,
            handlers_scan: Duration::from_millis(handlers_scan),
            handlers_events,
            name,
            host: machine.host.clone(),
            concurrency,
            lease: Duration::from_millis(lease),
            grace: Duration::from_millis(grace),
            kinds,
            queues,
            until_idle,
            retention,
            memory_bytes_total,
            cache_dir,
            state_dir,
            spool,
            operator: layers.operator().clone(),
        })
    }
}

/// Everything that is wrong with the settings, of which something is: also with those that a command does not
/// need, so that a file is mended in one go.
pub fn all_problems(layers: &Layers, machine: &Machine) -> Problems {
    let log = LogSettings::resolve(layers, "", LogFormat::Text).err();
    let run = RunSettings::resolve(layers, machine, false).err();
    let mut all = Problems::default();
    for problem in log.into_iter().chain(run).flat_map(|problems| problems.0) {
        if !all.0.contains(&problem) {
            all.push(problem);
        }
    }
    all
}

/// The handlers folder, and where compiled handlers are kept, of a command that needs no store.
///
/// # Errors
/// All that is wrong with them.
pub fn handlers(layers: &Layers, machine: &Machine) -> Result<(PathBuf, Option<PathBuf>), Problems> {
    let mut reader = Reader::new(layers);
    let handlers = read_handlers(&mut reader);
    let cache_dir = read_cache_dir(&mut reader, machine);
    reader.problems.or((handlers, cache_dir))
}

/// How long an operator's cancel keeps the record: the same settings as a runner's.
///
/// # Errors
/// All that is wrong with them.
pub fn retention(layers: &Layers) -> Result<RetentionSettings, Problems> {
    let mut reader = Reader::new(layers);
    let retention = read_retention(&mut reader);
    reader.problems.or(retention)
}

fn read_handlers(reader: &mut Reader<'_>) -> PathBuf {
    reader.take("handlers", dir).unwrap_or_else(|| PathBuf::from("handlers"))
}

fn read_cache_dir(reader: &mut Reader<'_>, machine: &Machine) -> Option<PathBuf> {
    reader.take("cache_dir", dir_or_off).unwrap_or_else(|| Some(machine.cache_dir.clone()))
}

fn read_retention(reader: &mut Reader<'_>) -> RetentionSettings {
    let default = RetentionSettings::default();
    let age = |t: &str| limit(t, units::duration_ms);
    let bytes = |t: &str| limit(t, units::size_bytes);
    let count = |t: &str| limit(t, whole);
    RetentionSettings {
        finished: Retention {
            age_ms: reader.take("completed_age", age).unwrap_or(default.finished.age_ms),
            count: reader.take("completed_count", count).unwrap_or(default.finished.count),
            bytes: reader.take("completed_bytes", bytes).unwrap_or(default.finished.bytes),
        },
        dead: Retention {
            age_ms: reader.take("dead_age", age).unwrap_or(default.dead.age_ms),
            count: reader.take("dead_count", count).unwrap_or(default.dead.count),
            bytes: reader.take("dead_bytes", bytes).unwrap_or(default.dead.bytes),
        },
        id_memory: IdMemory {
            age_ms: reader.take("id_memory_age", units::duration_ms).unwrap_or(default.id_memory.age_ms),
            bytes: reader.take("id_memory_bytes", units::size_bytes).unwrap_or(default.id_memory.bytes),
        },
    }
}
