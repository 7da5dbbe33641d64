//! What of a manifest's `[allow]` is left under the ceiling and within what the module asks for.

use crate::effects::CHILDREN_MAX;
use crate::grants::{
    DirGrant, EnqueueGrant, Grants, HttpGrant, Injection, SecretGrant, SecretText, StateGrant,
};

use super::document::{units_of_bytes, units_of_ms};
use super::effective::Layers;
use super::origin::common_of;
use super::{Allow, EnqueueAsk, EnvValue, SecretAsk};

/// What a bucket of state may have unless the manifest says: entries, and bytes.
const STATE_DEFAULT: (u64, u64) = (10_000, 16 << 20);
/// Jobs that one attempt may enqueue unless the manifest says, and the longest chain of them.
const ENQUEUE_DEFAULT: (u32, u32) = (1_000, 10);

impl Layers<'_> {
    pub(super) fn grants(&mut self, allow: &Allow) -> Grants {
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
                injections.push(Injection { to, ..injection.clone() });
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
