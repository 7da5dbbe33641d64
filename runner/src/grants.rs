//! What a handler may reach beyond its own memory: what its manifest grants, within the operator's ceiling. Pure, no IO.
//!
//! The default grants nothing. `manifest` makes these from what was written; the sandbox keeps to them.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::names::Name;

/// Everything that one handler may reach.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grants {
    /// Where HTTP requests may go.
    pub http: HttpGrant,
    /// Environment variables that the guest sees.
    pub env: Vec<(String, String)>,
    /// Secrets that it may use.
    pub secrets: Vec<SecretGrant>,
    /// State that outlives its jobs; none when `None`.
    pub state: Option<StateGrant>,
    /// Jobs that it may enqueue; none when `None`.
    pub enqueue: Option<EnqueueGrant>,
    /// Folders that it sees.
    pub dirs: Vec<DirGrant>,
}

/// Where HTTP requests may go, and how much of it.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpGrant {
    /// Allowed targets; nothing is reached when empty.
    pub allow: Vec<Origin>,
    /// Private networks that may be reached all the same: the operator's list, never the manifest's.
    pub private: Vec<IpNet>,
    /// Requests of one attempt.
    pub requests_max: u32,
    /// Connections that one attempt has at once. A response has one until its body is read to its end or dropped.
    pub connections_max: u32,
    /// Bytes of all request bodies of one attempt.
    pub sent_bytes_max: u64,
    /// Bytes of all responses of one attempt: their bodies, and their header fields with 64 bytes for each.
    pub received_bytes_max: u64,
    /// Longest wait for a connection, for the first byte, and between two bytes, in milliseconds. What is left of the job's
    /// time-out counts as well.
    pub timeout_ms: u64,
}

impl Default for HttpGrant {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            private: Vec::new(),
            requests_max: 100,
            connections_max: 4,
            sent_bytes_max: 16 << 20,
            received_bytes_max: 16 << 20,
            timeout_ms: 30_000,
        }
    }
}

/// `http` or `https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The word for it, in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port when a URL names none.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A target that is allowed: scheme, host and port, and nothing else of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// How.
    pub scheme: Scheme,
    /// A host name or address in lower case, no brackets; `*.example.com` stands for every name below `example.com` and not
    /// for itself.
    pub host: String,
    /// Where.
    pub port: u16,
}

impl Origin {
    /// Whether a request by `scheme` to `host` and `port` is meant. `host` is in lower case, without brackets and without
    /// a dot at its end.
    pub fn allows(&self, scheme: Scheme, host: &str, port: u16) -> bool {
        let address = host.parse::<IpAddr>().ok();
        let named = match self.host.strip_prefix('*') {
            Some(suffix) => address.is_none() && host.len() > suffix.len() && host.ends_with(suffix),
            // An IPv6 address has many texts.
            None => self.host == host || (address.is_some() && self.host.parse().ok() == address),
        };
        named && self.scheme == scheme && self.port == port
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.scheme.as_str(), &self.host);
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]")?
        } else {
            write!(f, "{scheme}://{host}")?
        }
        if self.port == self.scheme.port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A secret that a handler may use.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretGrant {
    /// Its name in the operator's settings.
    pub name: String,
    /// What it is.
    pub value: SecretText,
    /// Whether the guest may read it (`ctx.secret`).
    pub readable: bool,
    /// Where the host puts it into requests, which the guest never sees.
    pub injections: Vec<Injection>,
}

/// A secret that the host puts into a header of each request to one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Injection {
    /// Only of requests to this target.
    pub to: Origin,
    /// The header's name, in lower case. What the guest puts there itself is replaced.
    pub header: String,
    /// The header's value, with `{}` for the secret.
    pub format: String,
}

/// State that outlives a handler's jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct StateGrant {
    /// The bucket: the kind's own name unless the manifest names another, which handlers may share.
    pub bucket: Name,
    /// Entries that the bucket may have.
    pub entries_max: u64,
    /// Bytes of keys and values that it may have.
    pub bytes_max: u64,
}

/// Jobs that a handler may enqueue.
#[derive(Debug, Clone, PartialEq)]
pub struct EnqueueGrant {
    /// Their kinds: exact names, or `prefix*`.
    pub kinds: Vec<String>,
    /// Jobs of one attempt.
    pub jobs_max: u32,
    /// How long a chain of jobs that enqueue jobs may be: a job that somebody else enqueued has depth 0, its children 1.
    pub depth_max: u32,
}

impl EnqueueGrant {
    /// Whether jobs of this kind may be enqueued.
    pub fn allows(&self, kind: &str) -> bool {
        self.kinds.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => kind.starts_with(prefix),
            None => allowed == kind,
        })
    }
}

/// A folder that a handler sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// Where it is on this machine.
    pub host: PathBuf,
    /// Where the guest finds it: an absolute path.
    pub guest: String,
    /// Whether it may write there.
    pub writable: bool,
}
