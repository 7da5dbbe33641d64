//! The three layers put together: what the module asks, what the manifest grants, and the operator's ceiling. The narrower wins.

use crate::backoff::Backoff;
use crate::config::Problems;
use crate::grants::Grants;
use crate::job::MAX_ATTEMPTS_DEFAULT;
use crate::names::Name;
use crate::sandbox::{Asks, Declared, Limits};

use super::ceiling::{Ceiling, Operator};
use super::document::{units_of_bytes, units_of_ms};
use super::{Keep, Manifest};

/// What a handler gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// What a job may use.
    pub limits: Limits,
    /// Attempts of jobs that do not say.
    pub max_attempts: u32,
    /// Attempts of any job.
    pub attempts_cap: Option<u32>,
    /// How long failed jobs wait.
    pub backoff: Backoff,
    /// Keep results over 4 KiB.
    pub keep_results: bool,
    /// What it may reach.
    pub grants: Grants,
    /// Jobs of the kind that one runner runs at once.
    pub concurrency: Option<u32>,
    /// Turns for each turn of a kind of weight 1.
    pub weight: u32,
    /// How long completed and cancelled jobs are kept.
    pub retention_finished: Keep,
    /// How long dead letters are kept.
    pub retention_dead: Keep,
    /// What one layer wanted and another did not grant, for people.
    pub notes: Vec<String>,
}

/// The kinds that a module serves: those of its manifest, else those that it declares, else the one that its file is named after.
///
/// # Errors
/// Why it serves none, or not those.
pub fn kinds(stem: &str, declared: &[Declared], manifest: Option<&Manifest>) -> Result<Vec<Name>, Problems> {
    let named = manifest.and_then(|manifest| manifest.kinds.as_ref());
    if let Some((kinds, origin)) = named {
        let unknown = |kind: &&Name| !declared.is_empty() && !declared.iter().any(|d| d.kind == **kind);
        return match kinds.iter().find(unknown) {
            None => Ok(kinds.clone()),
            Some(unknown) => {
                let there: Vec<&str> = declared.iter().map(|d| d.kind.as_str()).collect();
                let there = there.join(", ");
                Err(Problems::one(format!(
                    "{origin}: expected kinds that the module has handlers for ({there}), got {unknown}"
                )))
            }
        };
    }
    if !declared.is_empty() {
        return Ok(declared.iter().map(|d| d.kind.clone()).collect());
    }
    let kind = Name::new(stem);
    kind.map(|kind| vec![kind]).map_err(|error| {
        Problems::one(format!(
            "it declares no kind, and its file name is none: {error}; name one in its manifest"
        ))
    })
}

/// What the handler of `kind` gets. `declared` is what the module says of it.
///
/// # Errors
/// What the manifest names and the operator does not have.
pub fn effective(
    kind: &Name,
    declared: Option<&Declared>,
    manifest: Option<&Manifest>,
    operator: &Operator,
) -> Result<Effective, Problems> {
    let nothing = Manifest::default();
    let written = manifest.unwrap_or(&nothing);
    let no_asks = Asks::default();
    let mut layers = Layers {
        file: manifest.map(|manifest| manifest.file.as_str()),
        kind,
        asks: declared.map_or(&no_asks, |declared| &declared.asks),
        operator,
        notes: Vec::new(),
        problems: Problems::default(),
    };
    let ceiling = &operator.ceiling;
    let limits = layers.limits(declared, written, ceiling);
    let asked = written.retry.attempts.or(declared.and_then(|d| d.max_attempts)).map(u64::from);
    let attempts_cap = ceiling.attempts.map(u64::from);
    // The job's own number comes before both, so that the manifest's need not be the smaller one.
    let max_attempts =
        layers.limit("attempts", (None, asked), MAX_ATTEMPTS_DEFAULT.into(), attempts_cap, |n| n.to_string());
    let concurrency = match (written.concurrency, ceiling.concurrency) {
        (Some(asked), cap) => {
            Some(layers.cap("concurrency", u64::from(asked), cap.map(u64::from), |n| n.to_string()) as u32)
        }
        (None, cap) => cap,
    };
    let grants = layers.grants(&written.allow);
    let effective = Effective {
        limits,
        max_attempts: max_attempts as u32,
        attempts_cap: ceiling.attempts,
        backoff: backoff(declared, written),
        keep_results: written.results.unwrap_or_else(|| declared.is_some_and(|d| d.keep_results)),
        grants,
        concurrency,
        weight: written.weight.unwrap_or(1),
        retention_finished: written.retention_finished,
        retention_dead: written.retention_dead,
        notes: layers.notes,
    };
    layers.problems.or(effective)
}

/// The manifest's, else the module's, part by part.
fn backoff(declared: Option<&Declared>, written: &Manifest) -> Backoff {
    let module = declared.and_then(|d| d.backoff).unwrap_or_default();
    Backoff {
        base_ms: written.retry.base_ms.unwrap_or(module.base_ms),
        max_ms: written.retry.max_ms.unwrap_or(module.max_ms),
        jitter: written.retry.jitter.unwrap_or(module.jitter),
    }
}

/// The three layers, and what is to be said of them.
pub(super) struct Layers<'a> {
    pub(super) file: Option<&'a str>,
    pub(super) kind: &'a Name,
    pub(super) asks: &'a Asks,
    pub(super) operator: &'a Operator,
    pub(super) notes: Vec<String>,
    pub(super) problems: Problems,
}

impl Layers<'_> {
    pub(super) fn note(&mut self, text: String) {
        let file = self.file.unwrap_or("the module");
        self.notes.push(format!("{file}: {text}"));
    }

    /// What the module asks for and nobody grants.
    pub(super) fn ungranted(&mut self, key: &str, what: &str) {
        let place = match self.file {
            Some(file) => format!("{file} does not grant it in {key}"),
            None => format!("it has no manifest that grants it in {key}"),
        };
        self.notes.push(format!("the module of {} asks for {what}: {place}", self.kind));
    }

    fn cap(&mut self, key: &str, asked: u64, cap: Option<u64>, shown: fn(u64) -> String) -> u64 {
        let Some(cap) = cap.filter(|cap| asked > *cap) else { return asked };
        self.note(format!(
            "{key}: {} is more than the ceiling's {}, which counts (see [ceiling] in hourhand.toml)",
            shown(asked),
            shown(cap)
        ));
        cap
    }

    /// The smallest of what the module and the manifest say, or the default, under the ceiling.
    pub(super) fn limit(
        &mut self,
        key: &str,
        (module, manifest): (Option<u64>, Option<u64>),
        default: u64,
        cap: Option<u64>,
        shown: fn(u64) -> String,
    ) -> u64 {
        match module.into_iter().chain(manifest).min() {
            Some(asked) => self.cap(key, asked, cap, shown),
            // Nobody asked for so much: nothing to say.
            None => default.min(cap.unwrap_or(default)),
        }
    }

    fn limits(&mut self, declared: Option<&Declared>, written: &Manifest, ceiling: &Ceiling) -> Limits {
        let default = Limits::default();
        let memory_cap = Some(ceiling.memory_bytes.unwrap_or(default.memory_bytes));
        let timeout = (declared.and_then(|d| d.timeout_ms), written.timeout_ms);
        let memory = (self.asks.memory_bytes, written.memory_bytes);
        let (output, logs) = ((None, written.output_bytes), (None, written.log_bytes));
        let bytes = |n: usize| n as u64;
        Limits {
            timeout_ms: self.limit("timeout", timeout, default.timeout_ms, ceiling.timeout_ms, units_of_ms),
            memory_bytes: self.limit("memory", memory, default.memory_bytes, memory_cap, units_of_bytes),
            output_bytes: self.limit(
                "output",
                output,
                bytes(default.output_bytes),
                ceiling.output_bytes,
                units_of_bytes,
            ) as usize,
            log_bytes: self.limit("logs", logs, bytes(default.log_bytes), ceiling.log_bytes, units_of_bytes)
                as usize,
        }
    }
}
