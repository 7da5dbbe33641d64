//! Where a setting comes from: flag, `HOURHAND_*`, `hourhand.toml`, and for the store `REDIS_URL`.
//!
//! Each setting has one key (`completed_age`), from which its flag (`--completed-age`), its variable
//! (`HOURHAND_COMPLETED_AGE`) and its line in the file follow. The file is strict: a key that is not
//! known is an error that names file, line, key and what is allowed. An empty variable counts as unset.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::Problems;

/// The settings file that is read from the working directory when it is there.
pub const FILE_DEFAULT: &str = "hourhand.toml";

/// Largest settings file, in bytes: whatever is larger is not one.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Every setting that may stand in a file or a variable.
pub const KEYS: [&str; 25] = [
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
    "state_dir",
    "store",
];

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
#[derive(Default)]
pub struct Layers {
    flags: BTreeMap<&'static str, String>,
    variables: BTreeMap<String, String>,
    file: BTreeMap<&'static str, Found>,
    /// What the file holds that is no setting: reported together with what is wrong with the settings.
    strays: Problems,
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
        problems.or(Self { flags, variables: ours, file: BTreeMap::new(), strays: Problems::default() })
    }

    /// Adds the settings file: the one that flag or variable names, else [`FILE_DEFAULT`] in `dir` if it is there.
    ///
    /// # Errors
    /// When a named file is missing, or the file cannot be read or is not TOML. Whatever in it is not a setting is
    /// reported by everybody who reads a setting.
    pub fn with_file(mut self, named: Option<&str>, dir: &Path) -> Result<Self, Problems> {
        let named = named.map(str::to_owned).or_else(|| self.variables.get("HOURHAND_CONFIG").cloned());
        let path = named.as_ref().map_or_else(|| dir.join(FILE_DEFAULT), PathBuf::from);
        let shown = named.as_deref().unwrap_or(FILE_DEFAULT);
        if named.is_none() && !path.exists() {
            return Ok(self);
        }
        let text = read(&path).map_err(|e| Problems::one(format!("{shown}: cannot be read: {e}")))?;
        (self.file, self.strays) = parse(shown, &text)?;
        Ok(self)
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

fn parse(shown: &str, text: &str) -> Result<(BTreeMap<&'static str, Found>, Problems), Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line_of =
        |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1;
    // Only the message is used: the error's own form quotes the line, which may hold a password.
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |s| line_of(s.start));
        Problems::one(format!("{shown}:{line}: not valid TOML: {}", e.message()))
    })?;
    let mut problems = Problems::default();
    let mut found = BTreeMap::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let name: &str = key.get_ref();
        let known = KEYS.iter().find(|k| **k == name);
        let Some(known) = known else {
            let allowed = KEYS.join(", ");
            problems.push(format!("{shown}:{line}: unknown key {name:?}: expected one of {allowed}"));
            continue;
        };
        match text_of(known, value.get_ref()) {
            Ok(text) => {
                found.insert(*known, Found { text, origin: format!("{shown}:{line}: {name}") });
            }
            Err(message) => problems.push(format!("{shown}:{line}: {name}: {message}")),
        }
    }
    Ok((found, problems))
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
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    Err(format!(
        "expected {}, got {got}",
        if list { "a list of texts" } else { "a text in quotes or a whole number" }
    ))
}
