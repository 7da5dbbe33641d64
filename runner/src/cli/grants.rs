//! What a handler may reach, for people and programs: never the value of a secret or of a variable.

use serde::Serialize;

use crate::grants::{DirGrant, EnqueueGrant, Grants, HttpGrant, SecretGrant, StateGrant};

/// What a handler may reach.
#[derive(Debug, Serialize)]
pub(super) struct GrantsOut<'a> {
    http: Option<HttpOut>,
    /// Names of variables.
    env: Vec<&'a str>,
    secrets: Vec<SecretOut<'a>>,
    state: Option<StateOut<'a>>,
    enqueue: Option<EnqueueOut<'a>>,
    dirs: Vec<DirOut<'a>>,
}

#[derive(Debug, Serialize)]
struct HttpOut {
    allow: Vec<String>,
    private: Vec<String>,
    requests_max: u32,
    connections_max: u32,
    sent_bytes_max: u64,
    received_bytes_max: u64,
    timeout_ms: u64,
}

#[derive(Debug, Serialize)]
struct SecretOut<'a> {
    name: &'a str,
    readable: bool,
    injected: Vec<InjectionOut<'a>>,
}

#[derive(Debug, Serialize)]
struct InjectionOut<'a> {
    to: String,
    header: &'a str,
}

#[derive(Debug, Serialize)]
struct StateOut<'a> {
    bucket: &'a str,
    entries_max: u64,
    bytes_max: u64,
}

#[derive(Debug, Serialize)]
struct EnqueueOut<'a> {
    kinds: &'a [String],
    jobs_max: u32,
    depth_max: u32,
}

#[derive(Debug, Serialize)]
struct DirOut<'a> {
    host: String,
    guest: &'a str,
    writable: bool,
}

impl<'a> From<&'a Grants> for GrantsOut<'a> {
    fn from(grants: &'a Grants) -> Self {
        Self {
            http: http(&grants.http),
            env: grants.env.iter().map(|(name, _)| name.as_str()).collect(),
            secrets: grants.secrets.iter().map(secret).collect(),
            state: grants.state.as_ref().map(state),
            enqueue: grants.enqueue.as_ref().map(enqueue),
            dirs: grants.dirs.iter().map(dir).collect(),
        }
    }
}

fn http(grant: &HttpGrant) -> Option<HttpOut> {
    (!grant.allow.is_empty()).then(|| HttpOut {
        allow: grant.allow.iter().map(ToString::to_string).collect(),
        private: grant.private.iter().map(ToString::to_string).collect(),
        requests_max: grant.requests_max,
        connections_max: grant.connections_max,
        sent_bytes_max: grant.sent_bytes_max,
        received_bytes_max: grant.received_bytes_max,
        timeout_ms: grant.timeout_ms,
    })
}

fn secret(grant: &SecretGrant) -> SecretOut<'_> {
    let injected = grant.injections.iter().map(|i| InjectionOut { to: i.to.to_string(), header: &i.header });
    SecretOut { name: &grant.name, readable: grant.readable, injected: injected.collect() }
}

fn state(grant: &StateGrant) -> StateOut<'_> {
    StateOut { bucket: grant.bucket.as_str(), entries_max: grant.entries_max, bytes_max: grant.bytes_max }
}

fn enqueue(grant: &EnqueueGrant) -> EnqueueOut<'_> {
    EnqueueOut { kinds: &grant.kinds, jobs_max: grant.jobs_max, depth_max: grant.depth_max }
}

fn dir(grant: &DirGrant) -> DirOut<'_> {
    DirOut { host: grant.host.display().to_string(), guest: &grant.guest, writable: grant.writable }
}

/// The same in one line: `http https://api.example.com; state orders`. Empty when nothing is granted.
pub(super) fn in_short(grants: &Grants) -> String {
    let out = GrantsOut::from(grants);
    let mut parts = Vec::new();
    let mut part = |key: &str, of: Vec<String>| {
        if !of.is_empty() {
            parts.push(format!("{key} {}", of.join(", ")));
        }
    };
    part("http", out.http.map(|http| http.allow).unwrap_or_default());
    part("env", out.env.iter().map(ToString::to_string).collect());
    part("secrets", out.secrets.iter().map(|secret| secret.name.to_owned()).collect());
    part("state", out.state.iter().map(|state| state.bucket.to_owned()).collect());
    part("enqueue", out.enqueue.map(|enqueue| enqueue.kinds.to_vec()).unwrap_or_default());
    part("dirs", out.dirs.iter().map(|dir| dir.guest.to_owned()).collect());
    parts.join("; ")
}
