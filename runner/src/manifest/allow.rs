//! The table `[allow]` of a manifest: what a handler may reach.

use std::path::{Component, Path, PathBuf};

use crate::grants::DirGrant;
use crate::names::Name;

use super::document::Item;
use super::origin::origin;
use super::{Allow, EnqueueAsk, EnvAsk, EnvValue, HttpLimits, StateAsk, secret};

/// Bounds of the numbers in `[allow.http_limits]`.
const REQUESTS_MAX: u32 = 100_000;
const CONNECTIONS_MAX: u32 = 64;
const BODY_BYTES_MAX: u64 = 1 << 30;
const WAIT_MS_MAX: u64 = 3_600_000;
/// Bounds of `[allow.state]`.
const ENTRIES_MAX: u64 = 10_000_000;
const STATE_BYTES_MAX: u64 = 16 << 30;
/// Longest chain of jobs that enqueue jobs.
const DEPTH_MAX: u32 = 10_000;
/// Longest name and longest value of a variable, in bytes.
const ENV_NAME_BYTES_MAX: usize = 128;
const ENV_VALUE_BYTES_MAX: usize = 32 << 10;

/// Reads the table.
pub(super) fn read(item: Item<'_>) -> Option<Allow> {
    let keys = item.keys("a table, as in [allow]")?;
    let http = keys.take("http", origins).unwrap_or_default();
    let allow = Allow {
        http_limits: keys.take("http_limits", http_limits).unwrap_or_default(),
        env: keys.take("env", env).unwrap_or_default(),
        secrets: keys.take("secrets", |item| secret::read(item, &http)).unwrap_or_default(),
        state: keys.take("state", state).flatten(),
        enqueue: keys.take("enqueue", enqueue),
        dirs: keys.take("dirs", dirs).unwrap_or_default(),
        http,
    };
    keys.end();
    Some(allow)
}

/// A list of targets.
pub(super) fn origins(item: Item<'_>) -> Option<Vec<crate::grants::Origin>> {
    item.list("a list of targets such as [\"https://api.example.com\"]", |entry| {
        entry.parsed("a target such as \"https://api.example.com\"", origin)
    })
}

pub(super) fn http_limits(item: Item<'_>) -> Option<HttpLimits> {
    let keys = item.keys("a table with requests, connections, sent, received and timeout")?;
    let limits = HttpLimits {
        requests: keys.take("requests", |item| item.whole_u32(1..=REQUESTS_MAX)),
        connections: keys.take("connections", |item| item.whole_u32(1..=CONNECTIONS_MAX)),
        sent_bytes: keys.take("sent", |item| item.size_bytes(0..=BODY_BYTES_MAX)),
        received_bytes: keys.take("received", |item| item.size_bytes(0..=BODY_BYTES_MAX)),
        timeout_ms: keys.take("timeout", |item| item.duration_ms(1..=WAIT_MS_MAX)),
    };
    keys.end();
    Some(limits)
}

/// `["TZ"]` passes a variable through, a table gives values: `{ MODE = "live", ZONE = { from = "TZ" } }`.
fn env(item: Item<'_>) -> Option<Vec<EnvAsk>> {
    if item.is_list() {
        return item.list("a list of names", |entry| {
            let name = variable(&entry, entry.text("the name of a variable in quotes")?)?;
            Some(EnvAsk { value: EnvValue::Runner(name.clone()), name })
        });
    }
    let keys = item.keys("a table such as { MODE = \"live\" }, or a list of names to pass through")?;
    Some(keys.each(|key, entry| {
        let name = variable(&entry, key)?;
        let value = if entry.is_table() {
            let keys = entry.keys("a table")?;
            let from =
                keys.take("from", |item| variable(&item, item.text("the name of a variable in quotes")?));
            let said = keys.item("from").is_some();
            keys.end();
            if !said {
                return entry.wrong("expected { from = \"NAME\" }, got no from");
            }
            EnvValue::Runner(from?)
        } else {
            let text = entry
                .text("a text in quotes, or { from = \"NAME\" } to pass a variable of the runner through")?;
            if text.len() > ENV_VALUE_BYTES_MAX || text.contains('\0') {
                return entry.wrong("expected at most 32KiB without a NUL character");
            }
            EnvValue::Text(text.to_owned())
        };
        Some(EnvAsk { name, value })
    }))
}

/// The name of an environment variable. Not quoted when it is none: it may be somebody's value.
pub(super) fn variable(item: &Item<'_>, text: &str) -> Option<String> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good = !text.is_empty()
        && text.len() <= ENV_NAME_BYTES_MAX
        && text.bytes().all(letter)
        && !text.starts_with(|c: char| c.is_ascii_digit());
    if good {
        return Some(text.to_owned());
    }
    item.wrong("expected the name of a variable: at most 128 characters of A-Z a-z 0-9 _, the first no digit")
}

/// `true`, a bucket's name, or a table. `Some(None)` for `false`.
fn state(item: Item<'_>) -> Option<Option<StateAsk>> {
    const WHAT: &str = "true, the name of a bucket, or a table with bucket, entries and bytes";
    if item.is_text() {
        return Some(Some(StateAsk { bucket: Some(bucket(item)?), ..StateAsk::default() }));
    }
    if !item.is_table() {
        return match item.boolean_or(WHAT)? {
            true => Some(Some(StateAsk::default())),
            false => Some(None),
        };
    }
    let keys = item.keys(WHAT)?;
    let ask = StateAsk {
        bucket: keys.take("bucket", bucket),
        entries: keys.take("entries", |item| item.whole(1..=ENTRIES_MAX)),
        bytes: keys.take("bytes", |item| item.size_bytes(1..=STATE_BYTES_MAX)),
    };
    keys.end();
    Some(Some(ask))
}

fn bucket(item: Item<'_>) -> Option<Name> {
    item.parsed("the name of a bucket", |text| Name::new(text).map_err(|error| error.to_string()))
}

/// The bounds of state in a ceiling: entries and bytes.
pub(super) fn state_bounds(item: Item<'_>) -> Option<(bool, Option<u64>, Option<u64>)> {
    const WHAT: &str = "true, false, or a table with entries and bytes";
    if !item.is_table() {
        return item.boolean_or(WHAT).map(|granted| (granted, None, None));
    }
    let keys = item.keys(WHAT)?;
    let bounds = (
        true,
        keys.take("entries", |item| item.whole(1..=ENTRIES_MAX)),
        keys.take("bytes", |item| item.size_bytes(1..=STATE_BYTES_MAX)),
    );
    keys.end();
    Some(bounds)
}

/// A list of kinds, or a table with kinds, jobs and depth.
pub(super) fn enqueue(item: Item<'_>) -> Option<EnqueueAsk> {
    if !item.is_table() {
        return Some(EnqueueAsk { kinds: kind_patterns(item)?, ..EnqueueAsk::default() });
    }
    let keys = item.keys("a table")?;
    let ask = EnqueueAsk {
        kinds: keys.take("kinds", kind_patterns).unwrap_or_default(),
        jobs: keys.take("jobs", |item| item.whole_u32(1..=crate::effects::CHILDREN_MAX as u32)),
        depth: keys.take("depth", |item| item.whole_u32(1..=DEPTH_MAX)),
    };
    let said = keys.item("kinds").is_some();
    keys.end();
    if !said {
        return item.wrong("expected kinds, a list such as [\"order_notify\", \"report_*\"], got none");
    }
    Some(ask)
}

fn kind_patterns(item: Item<'_>) -> Option<Vec<String>> {
    let kinds = item.list("a list of kinds such as [\"order_notify\", \"report_*\"]", |entry| {
        entry.parsed("a kind in quotes, or a beginning and a star", kind_pattern)
    })?;
    if kinds.is_empty() {
        return item.wrong("expected one kind or more, got an empty list");
    }
    Some(kinds)
}

/// An exact kind, or `prefix*`; `*` alone is every kind.
pub(crate) fn kind_pattern(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if (text == "*") || Name::new(name).is_ok() {
        return Ok(text.to_owned());
    }
    let error = Name::new(name).err().map(|error| error.to_string()).unwrap_or_default();
    Err(format!("{error}; a star may stand at its end"))
}

fn dirs(item: Item<'_>) -> Option<Vec<DirGrant>> {
    let dirs = item.list("a list of tables such as { host = \"/srv/x\", guest = \"/data\" }", dir)?;
    let twice =
        dirs.iter().enumerate().find(|(n, dir)| dirs[..*n].iter().any(|d: &DirGrant| d.guest == dir.guest));
    if let Some((_, dir)) = twice {
        return item.wrong(&format!("the guest has {:?} more than once", dir.guest));
    }
    Some(dirs)
}

fn dir(item: Item<'_>) -> Option<DirGrant> {
    let keys = item.keys("a table such as { host = \"/srv/x\", guest = \"/data\", writable = false }")?;
    let host = keys.take("host", |item| item.parsed("an absolute path", absolute));
    let guest = keys.take("guest", |item| item.parsed("an absolute path", absolute));
    let writable = keys.take("writable", |item| item.boolean());
    let missing: Vec<&str> = ["host", "guest"].into_iter().filter(|key| keys.item(key).is_none()).collect();
    keys.end();
    if !missing.is_empty() {
        return item.wrong(&format!("expected host and guest, got no {}", missing.join(" and no ")));
    }
    let guest = guest?.to_str().map(str::to_owned)?;
    Some(DirGrant { host: host?, guest, writable: writable.unwrap_or(false) })
}

/// An absolute path without `..`, `.` and doubled slashes.
pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let up = text.split('/').any(|part| part == ".." || part == ".");
    if !path.is_absolute() || !plain || up || text.contains('\0') {
        return Err(format!("expected an absolute path without .. and ., got {text:?}"));
    }
    Ok(path.components().collect())
}
