//! Settings: one struct per concern, read from [`layers`] once at start, all problems reported together.
//!
//! A problem always reads `where it was said: expected X to be so, got Y`. A store's URL may hold a
//! password: [`StoreUrl`] keeps it out of every message. What a setting defaults to on this machine
//! (memory, folders, names) comes from [`machine`].

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::names::Name;
use crate::queue::{IdMemory, Retention};
use crate::wire::units;

pub mod layers;
pub mod machine;
mod reader;
#[cfg(test)]
mod tests;
mod values;

pub use layers::Layers;
use machine::Machine;
use reader::Reader;
use values::{between, concurrency, dir, dir_or_off, limit, memory_total, names, runner_name, whole};

/// The namespace when nobody names one.
pub const NAMESPACE_DEFAULT: &str = "hourhand";
/// Most slots of one runner.
pub const CONCURRENCY_MAX: u32 = 4_096;

/// What is said when nobody names a store.
const STORE_MISSING: &str = "expected a store: give --store redis://host:port, set HOURHAND_STORE or REDIS_URL, or write store = \"...\" in \
         hourhand.toml (the embedded store, which needs none, is not in this version)";

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

/// Where a store is, with whatever password its URL holds. Printing it leaves user and password out.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// Checks that this is a store that this version knows.
    ///
    /// # Errors
    /// What was expected; the message never holds user or password.
    pub fn new(text: &str) -> Result<Self, String> {
        let known = "redis://host:port/db or rediss://host:port/db";
        let shown = redacted(text);
        match text.split_once("://") {
            Some(("redis" | "rediss", "")) => Err(format!("expected {known}, got {shown:?} without a host")),
            Some(("redis" | "rediss", _)) => match crate::queue::check_url(text) {
                Ok(()) => Ok(Self(text.to_owned())),
                Err(problem) => Err(format!("expected {known}, got {shown:?}: {problem}")),
            },
            Some(("sqlite", _)) => {
                Err(format!("expected {known}, got {shown:?}: the embedded store is not in this version"))
            }
            _ => Err(format!("expected {known}, got {shown:?}")),
        }
    }

    /// The whole URL, for whoever connects.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True when it holds a user or a password.
    pub fn has_secret(&self) -> bool {
        redacted(&self.0) != self.0
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({})", redacted(&self.0))
    }
}

/// `text` without what may be a secret: all before the last `@`, a query and a fragment. Where a password holds
/// what ends a host, its end cannot be told from the rest, so that without `://` all behind the scheme goes.
pub fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.split_once(':') {
            Some((scheme, rest)) if !rest.is_empty() && !rest.bytes().all(|b| b.is_ascii_digit()) => {
                format!("{scheme}:***")
            }
            _ if text.contains('@') => "***".to_owned(),
            _ => text.to_owned(),
        };
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => rest.to_owned(),
    };
    match rest.find(['?', '#']) {
        Some(at) => format!("{scheme}://{}{}***", &rest[..at], &rest[at..=at]),
        None => format!("{scheme}://{rest}"),
    }
}

/// Which jobs a command works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Where the store is.
    pub url: StoreUrl,
    /// The deployment's own world in it.
    pub namespace: Name,
}

impl StoreSettings {
    /// Reads the settings that every command has.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let store = read_store(&mut reader);
        reader.problems.or(store).map(|store| store.expect("a store that is missing is a problem"))
    }
}

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
}

impl RunSettings {
    /// Reads the settings of a runner.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers, machine: &Machine, until_idle: bool) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let store = read_store(&mut reader);
        let handlers = read_handlers(&mut reader);
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
        reader.problems.or(())?;
        Ok(Self {
            store: store.expect("a store that is missing is a problem"),
            handlers,
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
        })
    }
}

/// Everything that is wrong with the settings, of which something is: also with those that a command does not
/// need, so that a file is mended in one go. A missing store is one of them for a command that `wants_store`.
pub fn all_problems(layers: &Layers, machine: &Machine, wants_store: bool) -> Problems {
    let log = LogSettings::resolve(layers, "", LogFormat::Text).err();
    let run = RunSettings::resolve(layers, machine, false).err();
    let mut all = Problems::default();
    for problem in log.into_iter().chain(run).flat_map(|problems| problems.0) {
        if !all.0.contains(&problem) && (wants_store || problem != STORE_MISSING) {
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

fn read_store(reader: &mut Reader<'_>) -> Option<StoreSettings> {
    let namespace = reader.take("namespace", |t| Name::new(t).map_err(|e| e.to_string()));
    let namespace = namespace.or_else(|| Name::new(NAMESPACE_DEFAULT).ok())?;
    let url = reader.require("store", StoreUrl::new, STORE_MISSING)?;
    Some(StoreSettings { url, namespace })
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
