//! What the operator says for all handlers: the tables `[ceiling]` and `[secrets]` of `hourhand.toml`.
//!
//! A ceiling caps what manifests may grant. What it does not name is not capped, except what reaches into the machine: a
//! private network, a variable of the runner and a folder are only to be had where the ceiling lists them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::config::Problems;
use crate::grants::{Origin, SecretText};
use crate::job::MAX_ATTEMPTS_MAX;

use super::document::Item;
use super::{CONCURRENCY_MAX, EnqueueAsk, HttpLimits, allow, secret};

const EXPECTED_PATH: &str = "expected an absolute path without .. and ., got something else";
/// Largest secret, in bytes.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// The most that any handler may have. `None` does not cap.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ceiling {
    /// Wall time of an attempt, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Memory of a job, in bytes. The sandbox's pool is made for this much; 128 MiB unless somebody says.
    pub memory_bytes: Option<u64>,
    /// A result, in bytes.
    pub output_bytes: Option<u64>,
    /// The log of an attempt, in bytes.
    pub log_bytes: Option<u64>,
    /// Jobs of one kind at once on one runner.
    pub concurrency: Option<u32>,
    /// Attempts of a job, whoever asks for them.
    pub attempts: Option<u32>,
    /// Private networks that HTTP may reach; none unless listed.
    pub private: Vec<IpNet>,
    /// Variables of the runner's environment that manifests may pass through; none unless listed.
    pub env: Vec<String>,
    /// Folders below which handlers may have folders; none unless listed.
    pub dirs: Vec<PathBuf>,
    /// Caps of what manifests allow.
    pub allow: CeilingAllow,
}

/// The table `[ceiling.allow]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CeilingAllow {
    /// Where HTTP requests may go.
    pub http: Option<Vec<Origin>>,
    /// How much of it.
    pub http_limits: HttpLimits,
    /// Names of secrets that manifests may use.
    pub secrets: Option<Vec<String>>,
    /// Whether there is state at all, how many entries, and how many bytes.
    pub state: Option<(bool, Option<u64>, Option<u64>)>,
    /// Jobs that handlers may enqueue.
    pub enqueue: Option<EnqueueAsk>,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In this variable of the runner's environment.
    Variable(String),
    /// In this file; a line end at its end is not part of it.
    File(PathBuf),
}

/// What the operator wrote, before any secret is looked up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperatorSettings {
    /// The most that any handler may have.
    pub ceiling: Ceiling,
    /// Secrets by name, each with the place where it was named.
    pub secrets: BTreeMap<String, (SecretSource, String)>,
}

/// What the operator says, ready for use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Operator {
    /// The most that any handler may have.
    pub ceiling: Ceiling,
    /// Secrets by name. `None` is one that whoever asks does not need to know (`handler list`).
    pub secrets: BTreeMap<String, Option<SecretText>>,
    /// Those variables that the ceiling lets through and that are set.
    pub environment: BTreeMap<String, String>,
}

impl OperatorSettings {
    /// Looks up secrets and variables. `variable` asks the environment, `read` a file.
    ///
    /// # Errors
    /// All secrets that are not to be had. No message has a value in it.
    pub fn resolve(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> std::io::Result<Vec<u8>>,
    ) -> Result<Operator, Problems> {
        let mut problems = Problems::default();
        let mut operator = self.without_secrets(&variable);
        for (name, (source, origin)) in &self.secrets {
            let found = match source {
                SecretSource::Variable(of) => {
                    variable(of).ok_or_else(|| format!("the variable {of} is not set, or not UTF-8"))
                }
                SecretSource::File(path) => match read(path) {
                    Ok(bytes) => String::from_utf8(bytes)
                        .map(without_line_end)
                        .map_err(|_| format!("{} is not UTF-8", path.display())),
                    Err(error) => Err(format!("cannot read {}: {error}", path.display())),
                },
            };
            let found = found.and_then(|text| match text.len() {
                0 => Err("it is empty".to_owned()),
                len if len > SECRET_BYTES_MAX => {
                    Err(format!("it has {len} bytes, expected at most {SECRET_BYTES_MAX}"))
                }
                _ => Ok(text),
            });
            match found {
                Ok(text) => _ = operator.secrets.insert(name.clone(), Some(SecretText(text))),
                Err(message) => problems.push(format!("{origin}: {message}")),
            }
        }
        problems.or(operator)
    }

    /// The same for whoever does not run jobs: names of secrets, and no values.
    pub fn without_secrets(&self, variable: impl Fn(&str) -> Option<String>) -> Operator {
        let environment = self.ceiling.env.iter();
        let environment = environment.filter_map(|name| Some((name.clone(), variable(name)?))).collect();
        let secrets = self.secrets.keys().map(|name| (name.clone(), None)).collect();
        Operator { ceiling: self.ceiling.clone(), secrets, environment }
    }
}

impl Operator {
    /// The same with each folder as `real` has it, links resolved. One that is not there stays as it is.
    pub fn with_real_dirs(mut self, real: impl Fn(&Path) -> std::io::Result<PathBuf>) -> Self {
        for dir in &mut self.ceiling.dirs {
            if let Ok(found) = real(dir) {
                *dir = found;
            }
        }
        self
    }
}

fn without_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// Reads the table `[ceiling]`.
pub(crate) fn read(item: Item<'_>) -> Option<Ceiling> {
    let keys = item.keys("a table, as in [ceiling]")?;
    let ceiling = Ceiling {
        timeout_ms: keys.take("timeout", super::read_timeout),
        memory_bytes: keys.take("memory", super::read_memory),
        output_bytes: keys.take("output", super::read_output),
        log_bytes: keys.take("logs", super::read_logs),
        concurrency: keys.take("concurrency", |item| item.whole_u32(1..=CONCURRENCY_MAX)),
        attempts: keys.take("attempts", |item| item.whole_u32(1..=MAX_ATTEMPTS_MAX)),
        private: keys.take("private", networks).unwrap_or_default(),
        env: keys
            .take("env", |item| {
                item.list("a list of variables of the runner", |entry| {
                    allow::variable(&entry, entry.text("the name of a variable in quotes")?)
                })
            })
            .unwrap_or_default(),
        dirs: keys
            .take("dirs", |item| {
                item.list("a list of folders", |entry| entry.parsed("a folder in quotes", allow::absolute))
            })
            .unwrap_or_default(),
        allow: keys.take("allow", read_allow).unwrap_or_default(),
    };
    keys.end();
    Some(ceiling)
}

fn read_allow(item: Item<'_>) -> Option<CeilingAllow> {
    let keys = item.keys("a table, as in [ceiling.allow]")?;
    let allow = CeilingAllow {
        http: keys.take("http", allow::origins),
        http_limits: keys.take("http_limits", allow::http_limits).unwrap_or_default(),
        secrets: keys.take("secrets", |item| {
            item.list("a list of names of secrets", |entry| {
                secret::name(&entry, entry.text("the name of a secret in quotes")?)
            })
        }),
        state: keys.take("state", allow::state_bounds),
        enqueue: keys.take("enqueue", |item| {
            // Nobody may enqueue anything.
            if item.is_empty_list() { Some(EnqueueAsk::default()) } else { allow::enqueue(item) }
        }),
    };
    keys.end();
    Some(allow)
}

fn networks(item: Item<'_>) -> Option<Vec<IpNet>> {
    item.list("a list of networks such as [\"10.1.0.0/16\"]", |entry| {
        entry.parsed("a network in quotes", |text| {
            let address = || text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
            let network = text.parse::<IpNet>().ok().or_else(address);
            let network = network.ok_or_else(|| {
                format!("expected a network such as 10.1.0.0/16, 127.0.0.1 or fd00::/8, got {text:?}")
            })?;
            if network != network.trunc() {
                return Err(format!(
                    "expected the network {}, got {text:?}: an address within it",
                    network.trunc()
                ));
            }
            Ok(network)
        })
    })
}

/// Reads the table `[secrets]`.
pub(crate) fn read_secrets(item: Item<'_>) -> Option<BTreeMap<String, (SecretSource, String)>> {
    const WHAT: &str = "{ env = \"VARIABLE\" } or { file = \"/path\" }";
    let keys = item.keys("a table, as in [secrets]")?;
    let secrets = keys.each(|key, entry| {
        let name = secret::name(&entry, key)?;
        let keys = entry.keys(WHAT)?;
        let variable =
            keys.take("env", |item| allow::variable(&item, item.text("the name of a variable in quotes")?));
        let file = keys.take("file", |item| {
            // Not quoted: somebody may have put the secret itself here.
            let absolute = |text: &str| allow::absolute(text).map_err(|_| EXPECTED_PATH.to_owned());
            item.parsed("an absolute path", absolute)
        });
        let said = ["env", "file"].into_iter().filter(|key| keys.item(key).is_some()).count();
        keys.end();
        if said != 1 {
            return entry
                .wrong(&format!("expected {WHAT}, got {}", if said == 0 { "neither" } else { "both" }));
        }
        let source = variable.map(SecretSource::Variable).or(file.map(SecretSource::File))?;
        Some((name, (source, entry.origin())))
    });
    Some(secrets.into_iter().collect())
}
