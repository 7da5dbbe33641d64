//! Where the jobs are: the URL of the store, the namespace in it, and what the embedded store promises.
//!
//! A URL may hold a password: [`StoreUrl`] keeps it out of every message.

use std::fmt;
use std::path::{Path, PathBuf};

use super::reader::Reader;
use super::{Layers, NAMESPACE_DEFAULT, Problems};
use crate::names::Name;
use crate::queue::redis;
use crate::queue::sqlite::{self, Durability};

/// The store when nobody names one: a file in the working directory.
pub const STORE_DEFAULT: &str = "sqlite://hourhand.db";

/// What the URL of an embedded store looks like.
const SQLITE_FORM: &str = "sqlite://path";
/// What the URL of a Redis looks like.
const REDIS_FORM: &str = "redis://host:port/db or rediss://host:port/db";
/// What the URL of sentinels looks like.
const SENTINEL_FORM: &str = "redis+sentinel://host:port,host:port/master-name/db";
/// Most replicas that an enqueue may wait for.
const REPLICAS_MAX: u32 = 100;

/// Where a store is, with whatever password its URL holds. Printing it leaves user and password out.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    /// Of an embedded store.
    file: Option<PathBuf>,
}

impl StoreUrl {
    /// Checks that this is a store that this version knows.
    ///
    /// # Errors
    /// What was expected; the message never holds user or password.
    pub fn new(text: &str) -> Result<Self, String> {
        let shown = redacted(text);
        let (form, read) = match text.split_once("://") {
            Some(("sqlite", "")) => (SQLITE_FORM, Err("there is no path")),
            Some(("sqlite", _)) => (SQLITE_FORM, sqlite::path_of(text).map(Some)),
            Some(("redis" | "rediss", "")) => (REDIS_FORM, Err("there is no host")),
            Some(("redis" | "rediss", _)) => (REDIS_FORM, redis::check_url(text).map(|()| None)),
            Some(("redis+sentinel" | "rediss+sentinel", _)) => {
                (SENTINEL_FORM, redis::check_url(text).map(|()| None))
            }
            _ => {
                return Err(format!(
                    "expected {SQLITE_FORM}, {REDIS_FORM} or {SENTINEL_FORM}, got {shown:?}"
                ));
            }
        };
        let file = read.map_err(|problem| format!("expected {form}, got {shown:?}: {problem}"))?;
        Ok(Self { text: text.to_owned(), file })
    }

    /// The whole URL, for whoever connects.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The file of an embedded store, relative to the working directory unless it is absolute; `None` for Redis.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// True when it holds a user or a password.
    pub fn has_secret(&self) -> bool {
        self.shown() != self.text
    }

    /// A path holds no password, whatever characters are in it.
    fn shown(&self) -> String {
        if self.file.is_some() { self.text.clone() } else { redacted(&self.text) }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({})", self.shown())
    }
}

/// `text` without what may be a secret: all before the last `@`, a query and a fragment. Where a password holds
/// what ends a host, its end cannot be told from the rest, so that without `://` all behind the scheme goes.
pub fn redacted(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.split_once(':') {
            Some((scheme, rest)) if !rest.is_empty() && !rest.bytes().all(|b| b.is_ascii_digit()) => {
                format!("{scheme}:***")
            }
            _ if text.contains('@') => "***".to_owned(),
            _ => text.to_owned(),
        };
    };
    // A query may hold a password of its own, with whatever in it.
    if scheme.ends_with("+sentinel") && rest.find('?').is_some_and(|at| rest[at..].contains('@')) {
        return format!("{scheme}://***");
    }
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => rest.to_owned(),
    };
    let shown = match rest.find(['?', '#']) {
        Some(at) => format!("{}{}***", &rest[..at], &rest[at..=at]),
        None => rest,
    };
    if scheme.ends_with("+sentinel") {
        // The query of a mistyped URL may stand in its path, or where its hosts are.
        let shown = clean(&shown);
        return if shown.contains("password") {
            format!("{scheme}://***")
        } else {
            format!("{scheme}://{shown}")
        };
    }
    format!("{scheme}://{shown}")
}

/// Hosts and path, up to what stands in none of sentinels' URLs. What is shown of a query stays.
fn clean(rest: &str) -> String {
    let path = rest.find('/').unwrap_or(rest.len());
    let fits = |at: usize, c: char| {
        c.is_ascii_alphanumeric() || "._/-".contains(c) || at < path && "*@:,[]%".contains(c)
    };
    match rest.char_indices().find(|(at, c)| !fits(*at, *c)) {
        Some((at, c)) if !['?', '#'].contains(&c) => format!("{}***", &rest[..at]),
        _ => rest.to_owned(),
    }
}

/// Which jobs a command works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Where the store is.
    pub url: StoreUrl,
    /// The deployment's own world in it.
    pub namespace: Name,
    /// What an acknowledged job survives in the embedded store. Redis has settings of its own for that, and
    /// nobody can give this one with it.
    pub durability: Durability,
    /// How many replicas of a Redis must have an enqueue before it is acknowledged. The embedded store has none, and nobody
    /// can give this one with it.
    pub wait_replicas: u32,
}

impl StoreSettings {
    /// Reads the settings that every command has.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let store = read(&mut reader);
        reader.problems.or(store).map(|store| store.expect("without a problem there is a store"))
    }

    /// Reads the settings of two stores that are named by flags of their own, `--from` and `--to`.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn pair(layers: &Layers, from: &str, to: &str) -> Result<(Self, Self), Problems> {
        let mut reader = Reader::new(layers);
        let namespace = reader.take("namespace", |t| Name::new(t).map_err(|e| e.to_string()));
        let durability = reader.take("durability", durability).unwrap_or_default();
        let mut url = |flag: &str, text: &str| {
            StoreUrl::new(text).map_err(|message| reader.problems.push(format!("{flag}: {message}"))).ok()
        };
        let urls = url("--from", from).zip(url("--to", to));
        for (key, why) in
            [("store", "has --from and --to instead"), ("durability", "copies into no embedded store")]
        {
            let beside = key == "store" || urls.as_ref().is_some_and(|(_, to)| to.file().is_none());
            if beside && reader.origin(key).is_some_and(|origin| origin.starts_with("--")) {
                reader.problems.push(format!("--{key}: store copy {why}"));
            }
        }
        let (from, to) = reader.problems.or(urls)?.expect("without a problem there are two");
        let namespace = namespace.unwrap_or_else(|| Name::new(NAMESPACE_DEFAULT).expect("a name"));
        let settings = |url| Self { url, namespace: namespace.clone(), durability, wait_replicas: 0 };
        Ok((settings(from), settings(to)))
    }

    /// The file of an embedded store, as an absolute path, if nobody has made it yet. What cannot be looked at
    /// counts as there: whoever opens it finds out why.
    pub fn missing_file(&self) -> Option<PathBuf> {
        let file = std::path::absolute(self.url.file()?).ok()?;
        matches!(file.try_exists(), Ok(false)).then_some(file)
    }
}

/// `None` comes with a problem.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<StoreSettings> {
    let namespace = reader.take("namespace", |t| Name::new(t).map_err(|e| e.to_string()));
    let namespace = namespace.or_else(|| Name::new(NAMESPACE_DEFAULT).ok())?;
    let durability = reader.take("durability", durability);
    let wait_replicas = reader.take("wait_replicas", replicas).unwrap_or(0);
    let url = match reader.origin("store") {
        Some(_) => reader.take("store", StoreUrl::new)?,
        None => StoreUrl::new(STORE_DEFAULT).ok()?,
    };
    if url.file().is_none()
        && let Some(origin) = reader.origin("durability")
    {
        reader.problems.push(format!(
            "{origin}: only the embedded store (sqlite://path) has it, and the store is {url} (by {}): Redis is told \
             by its own settings, appendonly and appendfsync",
            reader.origin("store").unwrap_or_default()
        ));
        return None;
    }
    if url.file().is_some()
        && wait_replicas > 0
        && let Some(origin) = reader.origin("wait_replicas")
    {
        reader.problems.push(format!(
            "{origin}: only a Redis store has replicas, and the store is {url} (by {}): the embedded store is told by \
             durability what an acknowledged job survives",
            reader.origin("store").unwrap_or_else(|| "default".to_owned())
        ));
        return None;
    }
    Some(StoreSettings { url, namespace, durability: durability.unwrap_or_default(), wait_replicas })
}

fn replicas(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number <= REPLICAS_MAX);
    number
        .ok_or_else(|| format!("expected a whole number of replicas from 0 to {REPLICAS_MAX}, got {text:?}"))
}

fn durability(text: &str) -> Result<Durability, String> {
    text.parse().map_err(|_| format!("expected full or normal, got {text:?}"))
}
