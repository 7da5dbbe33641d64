//! What an operator says of one module: the file `<name>.toml` beside `<name>.wasm`. Pure, no IO.
//!
//! Three layers make what a handler gets, and the narrower wins: what its module asks (the custom section that the SDK's macro
//! writes), what the manifest grants, and the operator's ceiling in `hourhand.toml`. [`parse`] reads a manifest, [`ceiling`]
//! what the operator says for all of them, and [`effective`] puts the three together.

mod allow;
pub mod ceiling;
pub(crate) mod document;
mod effective;
mod granted;
mod origin;
mod secret;
#[cfg(test)]
mod tests;

use crate::config::Problems;
use crate::grants::{DirGrant, Injection, Origin};
use crate::job::{MAX_ATTEMPTS_MAX, TIMEOUT_MS_MAX};
use crate::names::Name;
use crate::queue::Retention;
use crate::wire::units;

use document::{Document, Item, Keys};

pub(crate) use allow::kind_pattern;
pub use ceiling::{Ceiling, Operator, OperatorSettings, SecretSource};
pub use effective::{Effective, effective, kinds};
pub use origin::origin;

/// Largest manifest, in bytes: whatever is larger is not one.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 10;
/// Most jobs of a kind at once that anybody may name.
pub const CONCURRENCY_MAX: u32 = 4_096;
/// Largest weight of a kind.
pub const WEIGHT_MAX: u32 = 100;
/// Bounds of a handler's memory, in bytes.
pub const MEMORY_BYTES: (u64, u64) = (64 << 10, 4 << 30);
/// Bounds of a result, in bytes.
pub const OUTPUT_BYTES: (u64, u64) = (1, 16 << 20);
/// Bounds of an attempt's log, in bytes.
pub const LOG_BYTES: (u64, u64) = (1 << 10, 1 << 20);
/// Longest wait of a backoff, in milliseconds: 366 days.
const BACKOFF_MS_MAX: u64 = 366 * 86_400_000;

/// A manifest as it was written. What it does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    /// How messages name the file.
    pub file: String,
    /// The kinds that the module serves, and where that was said.
    pub kinds: Option<(Vec<Name>, String)>,
    /// Wall time of an attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Memory of a job, in bytes.
    pub memory_bytes: Option<u64>,
    /// Its result, in bytes.
    pub output_bytes: Option<u64>,
    /// The log of an attempt, in bytes.
    pub log_bytes: Option<u64>,
    /// Jobs of each kind that one runner runs at once.
    pub concurrency: Option<u32>,
    /// Turns of each kind for each turn of a kind of weight 1.
    pub weight: Option<u32>,
    /// Keep results over 4 KiB.
    pub results: Option<bool>,
    /// How long completed and cancelled jobs are kept.
    pub retention_finished: Keep,
    /// How long dead letters are kept.
    pub retention_dead: Keep,
    /// When and how often failed attempts are repeated.
    pub retry: Retry,
    /// What it may reach.
    pub allow: Allow,
}

/// Changes to a [`Retention`]: what is `None` stays as the runner's settings have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// In milliseconds from the end of the job; `Some(None)` is no limit.
    pub age_ms: Option<Option<u64>>,
    /// Jobs a queue and state.
    pub count: Option<Option<u64>>,
    /// Bytes of records a queue and state.
    pub bytes: Option<Option<u64>>,
}

impl Keep {
    /// `settings` with these changes.
    pub fn over(self, settings: Retention) -> Retention {
        Retention {
            age_ms: self.age_ms.unwrap_or(settings.age_ms),
            count: self.count.unwrap_or(settings.count),
            bytes: self.bytes.unwrap_or(settings.bytes),
        }
    }
}

/// A retry policy, part by part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Retry {
    /// Attempts of jobs that do not say.
    pub attempts: Option<u32>,
    /// What the first retry waits, in milliseconds.
    pub base_ms: Option<u64>,
    /// The longest wait, in milliseconds.
    pub max_ms: Option<u64>,
    /// The largest change of a wait, as a part of it.
    pub jitter: Option<f64>,
}

/// The table `[allow]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allow {
    /// Where HTTP requests may go.
    pub http: Vec<Origin>,
    /// How much of it.
    pub http_limits: HttpLimits,
    /// Environment variables.
    pub env: Vec<EnvAsk>,
    /// The operator's secrets.
    pub secrets: Vec<SecretAsk>,
    /// State that outlives jobs.
    pub state: Option<StateAsk>,
    /// Jobs to enqueue.
    pub enqueue: Option<EnqueueAsk>,
    /// Folders, each with the place where it was named.
    pub dirs: Vec<DirGrant>,
}

/// Limits of HTTP of one attempt; see [`HttpGrant`](crate::grants::HttpGrant).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HttpLimits {
    /// Requests.
    pub requests: Option<u32>,
    /// Connections at once.
    pub connections: Option<u32>,
    /// Bytes of request bodies.
    pub sent_bytes: Option<u64>,
    /// Bytes of response bodies.
    pub received_bytes: Option<u64>,
    /// Longest single wait, in milliseconds.
    pub timeout_ms: Option<u64>,
}

/// A variable that the guest is to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvAsk {
    /// Its name for the guest.
    pub name: String,
    /// What it is.
    pub value: EnvValue,
}

/// Where a variable's value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// The manifest.
    Text(String),
    /// This variable of the runner's environment, if the operator's ceiling lets it through.
    Runner(String),
}

/// A secret that the handler is to use.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretAsk {
    /// Its name in the operator's settings.
    pub name: String,
    /// Whether the guest may read it.
    pub readable: bool,
    /// Where the host puts it.
    pub injections: Vec<Injection>,
    /// Where it was named, as messages begin.
    pub origin: String,
}

/// State that the handler is to have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateAsk {
    /// The bucket; the kind's own name when none.
    pub bucket: Option<Name>,
    /// Entries that the bucket may have.
    pub entries: Option<u64>,
    /// Bytes of keys and values that it may have.
    pub bytes: Option<u64>,
}

/// Jobs that the handler may enqueue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnqueueAsk {
    /// Their kinds: names, or `prefix*`.
    pub kinds: Vec<String>,
    /// Jobs of one attempt.
    pub jobs: Option<u32>,
    /// The longest chain of jobs that enqueue jobs.
    pub depth: Option<u32>,
}

/// Reads a manifest; `shown` is how messages name the file.
///
/// # Errors
/// All that is wrong with it, each with file, line and key. Values of variables are not quoted.
pub fn parse(shown: &str, text: &str) -> Result<Manifest, Problems> {
    let text = document::without_mark(text);
    let table = Document::table(text, shown)?;
    let document = Document::new(shown, text);
    let keys = document.keys(&table);
    let retention = keys.take("retention", read_retention).unwrap_or_default();
    let manifest = Manifest {
        file: shown.to_owned(),
        kinds: keys.take("kinds", read_kinds),
        timeout_ms: keys.take("timeout", read_timeout),
        memory_bytes: keys.take("memory", read_memory),
        output_bytes: keys.take("output", read_output),
        log_bytes: keys.take("logs", read_logs),
        concurrency: keys.take("concurrency", |item| item.whole_u32(1..=CONCURRENCY_MAX)),
        weight: keys.take("weight", |item| item.whole_u32(1..=WEIGHT_MAX)),
        results: retention.results,
        retention_finished: retention.finished,
        retention_dead: retention.dead,
        retry: keys.take("retry", read_retry).unwrap_or_default(),
        allow: keys.take("allow", allow::read).unwrap_or_default(),
    };
    keys.end();
    document.problems().or(manifest)
}

fn read_kinds(item: Item<'_>) -> Option<(Vec<Name>, String)> {
    let kinds = item.list("a list of kinds", |kind| {
        kind.parsed("a kind in quotes", |text| Name::new(text).map_err(|error| error.to_string()))
    })?;
    if kinds.is_empty() {
        return item.wrong("expected one kind or more, got an empty list");
    }
    if let Some(twice) = kinds.iter().enumerate().find(|(n, kind)| kinds[..*n].contains(kind)) {
        return item.wrong(&format!("{} is there more than once", twice.1));
    }
    Some((kinds, item.origin()))
}

pub(crate) fn read_timeout(item: Item<'_>) -> Option<u64> {
    item.duration_ms(1..=TIMEOUT_MS_MAX)
}

pub(crate) fn read_memory(item: Item<'_>) -> Option<u64> {
    item.size_bytes(MEMORY_BYTES.0..=MEMORY_BYTES.1)
}

pub(crate) fn read_output(item: Item<'_>) -> Option<u64> {
    item.size_bytes(OUTPUT_BYTES.0..=OUTPUT_BYTES.1)
}

pub(crate) fn read_logs(item: Item<'_>) -> Option<u64> {
    item.size_bytes(LOG_BYTES.0..=LOG_BYTES.1)
}

#[derive(Default)]
struct RetentionRead {
    finished: Keep,
    dead: Keep,
    results: Option<bool>,
}

fn read_retention(item: Item<'_>) -> Option<RetentionRead> {
    let keys = item.keys("a table, as in [retention]")?;
    let age = |key| keys.take(key, |item| item.limit(units::duration_ms));
    let count = |key| keys.take(key, |item| item.limit(crate::config::whole));
    let bytes = |key| keys.take(key, |item| item.limit(units::size_bytes));
    let read = RetentionRead {
        finished: Keep {
            age_ms: age("completed_age"),
            count: count("completed_count"),
            bytes: bytes("completed_bytes"),
        },
        dead: Keep { age_ms: age("dead_age"), count: count("dead_count"), bytes: bytes("dead_bytes") },
        results: keys.take("results", |item| item.boolean()),
    };
    keys.end();
    Some(read)
}

fn read_retry(item: Item<'_>) -> Option<Retry> {
    let keys = item.keys("a table, as in [retry]")?;
    let wait = |keys: &Keys<'_>, key| keys.take(key, |item| item.duration_ms(0..=BACKOFF_MS_MAX));
    let retry = Retry {
        attempts: keys.take("attempts", |item| item.whole_u32(1..=MAX_ATTEMPTS_MAX)),
        base_ms: wait(&keys, "base"),
        max_ms: wait(&keys, "max"),
        jitter: keys.take("jitter", |item| item.part()),
    };
    keys.end();
    if let (Some(base), Some(max)) = (retry.base_ms, retry.max_ms)
        && base > max
    {
        let (base, max) = (document::units_of_ms(base), document::units_of_ms(max));
        return item.wrong(&format!("expected base not to be longer than max, got {base} and {max}"));
    }
    Some(retry)
}
