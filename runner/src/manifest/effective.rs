//! The three layers put together: what the module asks, what the manifest grants, and the operator's ceiling. The narrower wins.

use crate::backoff::Backoff;
use crate::config::Problems;
use crate::effects::CHILDREN_MAX;
use crate::grants::{DirGrant, EnqueueGrant, Grants, HttpGrant, SecretGrant, SecretText, StateGrant};
use crate::job::MAX_ATTEMPTS_DEFAULT;
use crate::names::Name;
use crate::sandbox::{Asks, Declared, Limits};

use super::ceiling::{Ceiling, Operator};
use super::document::{units_of_bytes, units_of_ms};
use super::origin::common_of;
use super::{Allow, EnqueueAsk, EnvValue, Keep, Manifest, SecretAsk};

/// What a bucket of state may have unless the manifest says: entries, and bytes.
const STATE_DEFAULT: (u64, u64) = (10_000, 16 << 20);
/// Jobs that one attempt may enqueue unless the manifest says, and the longest chain of them.
const ENQUEUE_DEFAULT: (u32, u32) = (1_000, 10);

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
    let asked =
        written.retry.attempts.or(declared.and_then(|d| d.max_attempts)).unwrap_or(MAX_ATTEMPTS_DEFAULT);
    let max_attempts =
        layers.cap("attempts", u64::from(asked), ceiling.attempts.map(u64::from), |n| n.to_string());
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

struct Layers<'a> {
    file: Option<&'a str>,
    kind: &'a Name,
    asks: &'a Asks,
    operator: &'a Operator,
    notes: Vec<String>,
    problems: Problems,
}

impl Layers<'_> {
    fn note(&mut self, text: String) {
        let file = self.file.unwrap_or("the module");
        self.notes.push(format!("{file}: {text}"));
    }

    /// What the module asks for and nobody grants.
    fn ungranted(&mut self, key: &str, what: &str) {
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
    fn limit(
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

    fn grants(&mut self, allow: &Allow) -> Grants {
        let http = self.http(allow);
        let grants = Grants {
            env: self.env(allow),
            secrets: allow.secrets.iter().filter_map(|ask| self.secret(ask, &http)).collect(),
            state: self.state(allow),
            enqueue: self.enqueue(allow),
            dirs: allow.dirs.iter().filter(|dir| self.dir(dir)).cloned().collect(),
            http,
        };
        for name in self.asks.secrets.iter().flatten() {
            if !allow.secrets.iter().any(|ask| ask.name == *name) {
                self.ungranted("allow.secrets", &format!("the secret {name}"));
            }
        }
        grants
    }

    fn http(&mut self, allow: &Allow) -> HttpGrant {
        let mut targets = allow.http.clone();
        if let Some(cap) = &self.operator.ceiling.allow.http {
            for target in &allow.http {
                let left = common_of(std::slice::from_ref(target), cap);
                if left != [target.clone()] {
                    self.note(format!(
                        "allow.http: {target} is beyond [ceiling.allow] http{}",
                        narrowed_to(&left)
                    ));
                }
            }
            targets = common_of(&targets, cap);
        }
        if let Some(asked) = &self.asks.http {
            for target in asked {
                if common_of(&allow.http, std::slice::from_ref(target)).is_empty() {
                    self.ungranted("allow.http", &target.to_string());
                }
            }
            targets = common_of(&targets, asked);
        }
        let (default, asked) = (HttpGrant::default(), allow.http_limits);
        let cap = self.operator.ceiling.allow.http_limits;
        let number = |asked: Option<u32>| asked.map(u64::from);
        let mut limit = |key: &str, asked, default, cap, shown| {
            self.limit(&format!("allow.http_limits.{key}"), (None, asked), default, cap, shown)
        };
        let count = |n: u64| n.to_string();
        let requests = limit(
            "requests",
            number(asked.requests),
            default.requests_max.into(),
            number(cap.requests),
            count,
        );
        let connections = limit(
            "connections",
            number(asked.connections),
            default.connections_max.into(),
            number(cap.connections),
            count,
        );
        let sent = limit("sent", asked.sent_bytes, default.sent_bytes_max, cap.sent_bytes, units_of_bytes);
        let received = limit(
            "received",
            asked.received_bytes,
            default.received_bytes_max,
            cap.received_bytes,
            units_of_bytes,
        );
        let timeout = limit("timeout", asked.timeout_ms, default.timeout_ms, cap.timeout_ms, units_of_ms);
        HttpGrant {
            allow: targets,
            private: self.operator.ceiling.private.clone(),
            requests_max: requests as u32,
            connections_max: connections as u32,
            sent_bytes_max: sent,
            received_bytes_max: received,
            timeout_ms: timeout,
        }
    }

    fn env(&mut self, allow: &Allow) -> Vec<(String, String)> {
        let mut env = Vec::new();
        for ask in &allow.env {
            let name = &ask.name;
            if self.asks.env.as_ref().is_some_and(|asked| !asked.contains(name)) {
                continue;
            }
            match &ask.value {
                EnvValue::Text(text) => env.push((name.clone(), text.clone())),
                EnvValue::Runner(from) if !self.operator.ceiling.env.contains(from) => {
                    self.note(format!(
                        "allow.env.{name}: {from} is not passed through: [ceiling] env does not list it"
                    ));
                }
                EnvValue::Runner(from) => match self.operator.environment.get(from) {
                    Some(text) => env.push((name.clone(), text.clone())),
                    None => {
                        self.note(format!("allow.env.{name}: {from} is not set in the runner's environment"))
                    }
                },
            }
        }
        for name in self.asks.env.iter().flatten() {
            if !allow.env.iter().any(|ask| ask.name == *name) {
                self.ungranted("allow.env", &format!("the variable {name}"));
            }
        }
        env
    }

    fn secret(&mut self, ask: &SecretAsk, http: &HttpGrant) -> Option<SecretGrant> {
        let name = &ask.name;
        let Some(value) = self.operator.secrets.get(name) else {
            let there: Vec<&str> = self.operator.secrets.keys().map(String::as_str).collect();
            let there = if there.is_empty() { "it has none".to_owned() } else { there.join(", ") };
            self.problems.push(format!(
                "{}: expected one of the operator's secrets, which [secrets] in hourhand.toml names ({there}), got {name}",
                ask.origin
            ));
            return None;
        };
        let cap = self.operator.ceiling.allow.secrets.as_ref();
        if cap.is_some_and(|cap| !cap.contains(name)) {
            self.note(format!("allow.secrets: {name} is beyond [ceiling.allow] secrets"));
            return None;
        }
        if self.asks.secrets.as_ref().is_some_and(|asked| !asked.contains(name)) {
            return None;
        }
        if let Some(SecretText(text)) = value
            && !ask.injections.is_empty()
            && !text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))
        {
            self.problems.push(format!(
                "{}: expected a secret of printable ASCII, which a header can carry, got one with other characters",
                ask.origin
            ));
            return None;
        }
        let mut injections = Vec::new();
        for injection in &ask.injections {
            // What is not to be reached any more needs no secret.
            for to in common_of(std::slice::from_ref(&injection.to), &http.allow) {
                injections.push(crate::grants::Injection { to, ..injection.clone() });
            }
        }
        let value = value.clone().unwrap_or_else(|| SecretText(String::new()));
        let useful = ask.readable || !injections.is_empty();
        useful.then(|| SecretGrant { name: name.clone(), value, readable: ask.readable, injections })
    }

    fn state(&mut self, allow: &Allow) -> Option<StateGrant> {
        let Some(ask) = &allow.state else {
            if self.asks.state == Some(true) {
                self.ungranted("allow.state", "state");
            }
            return None;
        };
        let (granted, entries_cap, bytes_cap) =
            self.operator.ceiling.allow.state.unwrap_or((true, None, None));
        if !granted {
            self.note("allow.state: [ceiling.allow] state forbids it".to_owned());
            return None;
        }
        if self.asks.state == Some(false) {
            return None;
        }
        let (entries, bytes) = STATE_DEFAULT;
        Some(StateGrant {
            bucket: ask.bucket.clone().unwrap_or_else(|| self.kind.clone()),
            entries_max: self
                .limit("allow.state.entries", (None, ask.entries), entries, entries_cap, |n| n.to_string()),
            bytes_max: self.limit("allow.state.bytes", (None, ask.bytes), bytes, bytes_cap, units_of_bytes),
        })
    }

    fn enqueue(&mut self, allow: &Allow) -> Option<EnqueueGrant> {
        let granted: &[String] = allow.enqueue.as_ref().map_or(&[], |ask| &ask.kinds);
        let mut kinds = granted.to_vec();
        let cap = self.operator.ceiling.allow.enqueue.as_ref();
        if let Some(cap) = cap {
            for kind in granted {
                let left = common_kinds(std::slice::from_ref(kind), &cap.kinds);
                if left != [kind.clone()] {
                    self.note(format!(
                        "allow.enqueue: {kind} is beyond [ceiling.allow] enqueue{}",
                        narrowed_to(&left)
                    ));
                }
            }
            kinds = common_kinds(&kinds, &cap.kinds);
        }
        if let Some(asked) = &self.asks.enqueue {
            for kind in asked {
                if common_kinds(granted, std::slice::from_ref(kind)).is_empty() {
                    self.ungranted("allow.enqueue", &format!("enqueuing {kind}"));
                }
            }
            kinds = common_kinds(&kinds, asked);
        }
        let ask = allow.enqueue.as_ref().filter(|_| !kinds.is_empty())?;
        let bound = |of: fn(&EnqueueAsk) -> Option<u32>| (of(ask), cap.and_then(of));
        let (jobs, depth) = (bound(|ask| ask.jobs), bound(|ask| ask.depth));
        let mut limit = |key: &str, (asked, cap): (Option<u32>, Option<u32>), default: u32| {
            let wide = (None, asked.map(u64::from));
            self.limit(&format!("allow.enqueue.{key}"), wide, default.into(), cap.map(u64::from), |n| {
                n.to_string()
            }) as u32
        };
        Some(EnqueueGrant {
            kinds,
            jobs_max: limit("jobs", jobs, ENQUEUE_DEFAULT.0).min(CHILDREN_MAX as u32),
            depth_max: limit("depth", depth, ENQUEUE_DEFAULT.1),
        })
    }

    /// Whether the folder is below one that the operator lists.
    fn dir(&mut self, dir: &DirGrant) -> bool {
        let below = self.operator.ceiling.dirs.iter().any(|top| dir.host.starts_with(top));
        if !below {
            self.note(format!(
                "allow.dirs: {} is not granted: [ceiling] dirs does not list it or a folder above it",
                dir.host.display()
            ));
        }
        below
    }
}

fn narrowed_to<T: ToString>(left: &[T]) -> String {
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    if left.is_empty() { String::new() } else { format!(", which leaves {}", left.join(", ")) }
}

/// The kinds that two lists of names and `prefix*` have in common.
fn common_kinds(a: &[String], b: &[String]) -> Vec<String> {
    let covers = |pattern: &str, other: &str| match pattern.strip_suffix('*') {
        Some(prefix) => other.starts_with(prefix),
        None => pattern == other,
    };
    let mut all: Vec<String> = Vec::new();
    for (a, b) in a.iter().flat_map(|a| b.iter().map(move |b| (a, b))) {
        let common = if covers(b, a) { Some(a) } else { Some(b).filter(|b| covers(a, b)) };
        if let Some(common) = common.filter(|common| !all.contains(common)) {
            all.push(common.clone());
        }
    }
    all
}
