//! Where a setting comes from: flag, `HOURHAND_*`, `hourhand.toml`, and for the store `REDIS_URL`.
//!
//! Each setting has one key (`completed_age`), from which its flag (`--completed-age`), its variable
//! (`HOURHAND_COMPLETED_AGE`) and its line in the file follow. The file is strict: a key that is not
//! known is an error that names file, line, key and what is allowed. An empty variable counts as unset.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::Problems;
use crate::manifest::OperatorSettings;
use crate::manifest::ceiling;
use crate::manifest::document::{Document, sort_of, without_mark};

/// The settings file that is read from the working directory when it is there.
pub const FILE_DEFAULT: &str = "hourhand.toml";

/// Largest settings file, in bytes: whatever is larger is not one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Every setting that may stand in a file or a variable.
pub const KEYS: [&str; 30] = [
    "cache_dir",
    "completed_age",
    "completed_bytes",
    "completed_count",
    "concurrency",
    "dead_age",
    "dead_bytes",
    "dead_count",
    "durability",
    "grace",
    "handlers",
    "handlers_events",
    "handlers_scan",
    "id_memory_age",
    "id_memory_bytes",
    "kinds",
    "lease",
    "log",
    "log_format",
    "memory_total",
    "name",
    "namespace",
    "queues",
    "spool",
    "spool_bytes",
    "spool_dir",
    "spool_jobs",
    "state_dir",
    "store",
    "wait_replicas",
];

/// Tables of the file: they hold what no flag and no variable says.
pub const TABLES: [&str; 2] = ["ceiling", "secrets"];

/// Keys that take a list.
const LIST_KEYS: [&str; 2] = ["kinds", "queues"];

/// One setting as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it says.
    pub text: String,
    /// Where it says so, for messages: `--lease`, `HOURHAND_LEASE`, `hourhand.toml:3: lease`.
    pub origin: String,
}

/// Flags, variables and file of one invocation.
#[derive(Default, Clone)]
pub struct Layers {
    flags: BTreeMap<&'static str, String>,
    variables: BTreeMap<String, String>,
    file: BTreeMap<&'static str, Found>,
    /// The file's tables.
    operator: OperatorSettings,
    /// What the file holds that is no setting: reported together with what is wrong with the settings.
    strays: Problems,
    /// Where the file is looked for again: the name that was given, and the folder of the one that is not named.
    source: (Option<String>, PathBuf),
}

impl fmt::Debug for Layers {
    /// Values may hold a password: only the keys are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("flags", &self.flags.keys()).field("file", &self.file.keys()).finish()
    }
}

impl Layers {
    /// What was given on the command line and in the environment. Variables that are not UTF-8 are
    /// reported only when they are ours.
    ///
    /// # Errors
    /// When a variable of ours is not UTF-8.
    pub fn new(
        flags: BTreeMap<&'static str, String>,
        variables: impl IntoIterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut ours = BTreeMap::new();
        for (key, value) in variables {
            let Some(key) = key.to_str().filter(|k| k.starts_with("HOURHAND_") || *k == "REDIS_URL") else {
                continue;
            };
            match value.into_string() {
                Ok(value) if value.is_empty() => {}
                Ok(value) => {
                    ours.insert(key.to_owned(), value);
                }
                Err(_) => problems.push(format!("{key}: expected UTF-8 text, got other bytes")),
            }
        }
        problems.or(Self { flags, variables: ours, ..Self::default() })
    }

    /// Adds the settings file: the one that flag or variable names, else [`FILE_DEFAULT`] in `dir` if it is there.
    ///
    /// # Errors
    /// When a named file is missing, or the file cannot be read or is not TOML. Whatever in it is not a setting is
    /// reported by everybody who reads a setting.
    pub fn with_file(mut self, named: Option<&str>, dir: &Path) -> Result<Self, Problems> {
        let named = named.map(str::to_owned).or_else(|| self.variables.get("HOURHAND_CONFIG").cloned());
        self.source = (named.clone(), dir.to_owned());
        let path = named.as_ref().map_or_else(|| dir.join(FILE_DEFAULT), PathBuf::from);
        let shown = named.as_deref().unwrap_or(FILE_DEFAULT);
        if named.is_none() && !path.exists() {
            return Ok(self);
        }
        let text = read(&path).map_err(|e| Problems::one(format!("{shown}: cannot be read: {e}")))?;
        let parsed = parse(shown, &text)?;
        (self.file, self.operator, self.strays) = (parsed.found, parsed.operator, parsed.problems);
        Ok(self)
    }

    /// The same flags and variables, and the file as it is now.
    ///
    /// # Errors
    /// As [`with_file`](Self::with_file).
    pub fn reread(&self) -> Result<Self, Problems> {
        let (named, dir) = &self.source;
        let bare = Self { flags: self.flags.clone(), variables: self.variables.clone(), ..Self::default() };
        bare.with_file(named.as_deref(), dir)
    }

    /// What is said in one of the two and not in the other, or otherwise: keys and tables.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let text = |layers: &Self, key| layers.find(key).map(|found| found.text);
        let keys = KEYS.into_iter().filter(|key| text(self, key) != text(other, key));
        let [ceiling, secrets] = TABLES;
        let tables = [
            (ceiling, self.operator.ceiling != other.operator.ceiling),
            (secrets, self.operator.secrets != other.operator.secrets),
        ];
        keys.chain(tables.into_iter().filter_map(|(table, differs)| differs.then_some(table))).collect()
    }

    /// What the file says for all handlers.
    pub fn operator(&self) -> &OperatorSettings {
        &self.operator
    }

    /// What the file holds that is no setting.
    pub(super) fn strays(&self) -> &Problems {
        &self.strays
    }

    /// The setting, from the first layer that has it.
    pub fn find(&self, key: &'static str) -> Option<Found> {
        debug_assert!(KEYS.contains(&key), "{key} is missing in KEYS");
        if let Some(text) = self.flags.get(key) {
            return Some(Found { text: text.clone(), origin: flag_of(key) });
        }
        let variable = variable_of(key);
        if let Some(text) = self.variables.get(&variable) {
            return Some(Found { text: text.clone(), origin: variable });
        }
        if let Some(found) = self.file.get(key) {
            return Some(found.clone());
        }
        let shared = (key == "store").then(|| self.variables.get("REDIS_URL")).flatten()?;
        Some(Found { text: shared.clone(), origin: "REDIS_URL".to_owned() })
    }
}

/// The flag of a key.
pub fn flag_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The environment variable of a key.
pub fn variable_of(key: &str) -> String {
    format!("HOURHAND_{}", key.to_ascii_uppercase())
}

fn read(path: &Path) -> Result<String, String> {
    let facts = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !facts.is_file() {
        return Err("it is not a file".to_owned());
    }
    if facts.len() > FILE_BYTES_MAX {
        return Err(format!("it has {} bytes, expected at most {FILE_BYTES_MAX}", facts.len()));
    }
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// What a file holds.
struct Parsed {
    found: BTreeMap<&'static str, Found>,
    operator: OperatorSettings,
    problems: Problems,
}

fn parse(shown: &str, text: &str) -> Result<Parsed, Problems> {
    let text = without_mark(text);
    let table = Document::table(text, shown)?;
    let document = Document::new(shown, text);
    let mut found = BTreeMap::new();
    let mut operator = OperatorSettings::default();
    for (key, value) in &table {
        let name: &str = key.get_ref();
        let item = document.item(name, key, value);
        if let Some(known) = KEYS.iter().find(|k| **k == name) {
            match text_of(known, value.get_ref()) {
                Ok(text) => _ = found.insert(*known, Found { text, origin: item.origin() }),
                Err(message) => _ = item.wrong::<()>(&message),
            }
        } else if name == TABLES[0] {
            operator.ceiling = ceiling::read(item).unwrap_or_default();
        } else if name == TABLES[1] {
            operator.secrets = ceiling::read_secrets(item).unwrap_or_default();
        } else {
            let allowed = [KEYS.join(", "), TABLES.map(|table| format!("[{table}]")).join(", ")].join(", ");
            document.stray(key, &format!("unknown key {name:?}: expected one of {allowed}"));
        }
    }
    Ok(Parsed { found, operator, problems: document.problems() })
}

/// A value of the file as the text that a flag would carry.
fn text_of(key: &str, value: &DeValue<'_>) -> Result<String, String> {
    let list = LIST_KEYS.contains(&key);
    let got = match value {
        DeValue::String(text) => return Ok(text.to_string()),
        DeValue::Integer(number) if !list => return Ok(number.to_string()),
        DeValue::Array(items) if list => {
            let texts: Option<Vec<&str>> = items.iter().map(|i| i.get_ref().as_str()).collect();
            match texts {
                Some(texts) => return Ok(texts.join(",")),
                None => "a list with other things in it",
            }
        }
        other => sort_of(other),
    };
    Err(format!(
        "expected {}, got {got}",
        if list { "a list of texts" } else { "a text in quotes or a whole number" }
    ))
}
