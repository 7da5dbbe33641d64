//! The custom section `hourhand.handlers`: what a module says of its handlers, one JSON object a line.
//!
//! Unknown keys are ignored, so that an older runner reads a newer module.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::backoff::Backoff;
use crate::job::{MAX_ATTEMPTS_MAX, TIMEOUT_MS_MAX};
use crate::manifest;
use crate::names::Name;

use super::{Asks, Declared, LoadError};

/// Longest section, in bytes.
const SECTION_BYTES_MAX: usize = 256 << 10;
/// Handlers that a module may declare, and entries of each list that a handler asks for.
const HANDLERS_MAX: usize = 256;
const ENTRIES_MAX: usize = 256;

#[derive(Deserialize)]
struct Line {
    kind: String,
    timeout_ms: Option<u64>,
    max_attempts: Option<u32>,
    backoff: Option<BackoffLine>,
    #[serde(default)]
    keep_results: bool,
    memory_bytes: Option<u64>,
    http: Option<Vec<String>>,
    env: Option<Vec<String>>,
    secrets: Option<Vec<String>>,
    state: Option<bool>,
    enqueue: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct BackoffLine {
    base_ms: Option<u64>,
    max_ms: Option<u64>,
    jitter: Option<f64>,
}

/// Adds what a section declares to what others before it did: a module may have it many times.
///
/// # Errors
/// As [`parse`], and too many handlers in all.
pub(super) fn extend(declared: &mut Vec<Declared>, content: &[u8]) -> Result<(), LoadError> {
    declared.extend(parse(content)?);
    match declared.len() {
        0..=HANDLERS_MAX => Ok(()),
        _ => Err(too_many_handlers()),
    }
}

fn refused(what: impl std::fmt::Display) -> LoadError {
    LoadError::Refused(format!("its section hourhand.handlers is not valid: {what}"))
}

fn too_many_handlers() -> LoadError {
    refused(format!("expected at most {HANDLERS_MAX} handlers in a module, got more"))
}

/// Reads the section's content.
///
/// # Errors
/// [`LoadError::Refused`] with what is wrong: no JSON, an invalid kind, a value out of range.
pub(super) fn parse(content: &[u8]) -> Result<Vec<Declared>, LoadError> {
    if content.len() > SECTION_BYTES_MAX {
        return Err(refused(format!("expected at most {SECTION_BYTES_MAX} bytes, got {}", content.len())));
    }
    let text = std::str::from_utf8(content).map_err(|_| refused("not UTF-8"))?;
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if lines().nth(HANDLERS_MAX).is_some() {
        return Err(too_many_handlers());
    }
    lines()
        .map(|line| {
            let line: Line = serde_json::from_str(line).map_err(refused)?;
            checked(line).map_err(refused)
        })
        .collect()
}

/// Refuses a module that declares a kind more than once.
pub(super) fn no_kind_twice(declared: &[Declared]) -> Result<(), LoadError> {
    let mut seen = BTreeSet::new();
    match declared.iter().find(|d| !seen.insert(&d.kind)) {
        Some(twice) => Err(LoadError::Refused(format!("it declares kind {} more than once", twice.kind))),
        None => Ok(()),
    }
}

fn checked(line: Line) -> Result<Declared, String> {
    let kind = Name::new(&line.kind).map_err(|error| error.to_string())?;
    if let Some(ms) = line.timeout_ms
        && !(1..=TIMEOUT_MS_MAX).contains(&ms)
    {
        return Err(format!("timeout_ms of {kind}: expected 1 to {TIMEOUT_MS_MAX}, got {ms}"));
    }
    if let Some(attempts) = line.max_attempts
        && !(1..=MAX_ATTEMPTS_MAX).contains(&attempts)
    {
        return Err(format!("max_attempts of {kind}: expected 1 to {MAX_ATTEMPTS_MAX}, got {attempts}"));
    }
    let backoff = line.backoff.as_ref().map(|b| backoff(&kind, b)).transpose()?;
    let asks = asks(&kind, &line)?;
    Ok(Declared {
        kind,
        timeout_ms: line.timeout_ms,
        max_attempts: line.max_attempts,
        backoff,
        keep_results: line.keep_results,
        asks,
    })
}

fn asks(kind: &Name, line: &Line) -> Result<Asks, String> {
    let (least, most) = manifest::MEMORY_BYTES;
    if let Some(bytes) = line.memory_bytes
        && !(least..=most).contains(&bytes)
    {
        return Err(format!("memory_bytes of {kind}: expected {least} to {most}, got {bytes}"));
    }
    let lists =
        [("http", &line.http), ("env", &line.env), ("secrets", &line.secrets), ("enqueue", &line.enqueue)];
    for (key, list) in lists {
        let entries = list.as_ref().map_or(0, Vec::len);
        if entries > ENTRIES_MAX {
            return Err(format!("{key} of {kind}: expected at most {ENTRIES_MAX} entries, got {entries}"));
        }
    }
    let each = |key: &str, list: &Option<Vec<String>>, check: fn(&str) -> Result<String, String>| {
        let list =
            list.as_ref().map(|list| list.iter().map(|text| check(text)).collect::<Result<Vec<_>, _>>());
        list.transpose().map_err(|error| format!("{key} of {kind}: {error}"))
    };
    let http = line.http.as_ref().map(|list| list.iter().map(|text| manifest::origin(text)).collect());
    Ok(Asks {
        memory_bytes: line.memory_bytes,
        http: http.transpose().map_err(|error: String| format!("http of {kind}: {error}"))?,
        env: each("env", &line.env, plain_name)?,
        secrets: each("secrets", &line.secrets, plain_name)?,
        state: line.state,
        enqueue: each("enqueue", &line.enqueue, manifest::kind_pattern)?,
    })
}

/// A name of a variable or a secret, which is compared with others and shown to people.
fn plain_name(text: &str) -> Result<String, String> {
    Name::new(text).map(String::from).map_err(|error| error.to_string())
}

fn backoff(kind: &Name, line: &BackoffLine) -> Result<Backoff, String> {
    let default = Backoff::default();
    let backoff = Backoff {
        base_ms: line.base_ms.unwrap_or(default.base_ms),
        max_ms: line.max_ms.unwrap_or(default.max_ms),
        jitter: line.jitter.unwrap_or(default.jitter),
    };
    if !(0.0..=1.0).contains(&backoff.jitter) {
        return Err(format!("backoff.jitter of {kind}: expected 0.0 to 1.0, got {}", backoff.jitter));
    }
    Ok(backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_declares_a_handler_and_unknown_keys_are_for_newer_runners() {
        let content = br#"{"kind":"order_close","timeout_ms":3000,"max_attempts":5,"backoff":{"base_ms":1},"keep_results":true}
{"kind":"order_notify","colour":"green"}
"#;
        let declared = parse(content).unwrap();
        assert_eq!(declared.len(), 2);
        assert_eq!(declared[0].timeout_ms, Some(3000));
        assert_eq!(declared[0].backoff, Some(Backoff { base_ms: 1, ..Backoff::default() }));
        assert!(declared[0].keep_results);
        assert_eq!(declared[1].kind.as_str(), "order_notify");
        assert_eq!((declared[1].timeout_ms, declared[1].max_attempts), (None, None));
    }

    #[test]
    fn a_module_says_what_it_wants_to_reach_or_nothing() {
        let all = br#"{"kind":"a","memory_bytes":1048576,"http":["https://*.example.com"],"env":["TZ"],"secrets":["s"],"state":false,"enqueue":["b_*"]}"#;
        let expected = Asks {
            memory_bytes: Some(1 << 20),
            http: Some(vec![manifest::origin("https://*.example.com").unwrap()]),
            env: Some(vec!["TZ".to_owned()]),
            secrets: Some(vec!["s".to_owned()]),
            state: Some(false),
            enqueue: Some(vec!["b_*".to_owned()]),
        };
        assert_eq!(parse(all).unwrap()[0].asks, expected);
        assert_eq!(parse(br#"{"kind":"a"}"#).unwrap()[0].asks, Asks::default());
    }

    #[test]
    fn a_module_cannot_declare_without_end() {
        let lines = |kinds: std::ops::Range<usize>| -> String {
            kinds.map(|n| format!("{{\"kind\":\"k{n}\"}}\n")).collect()
        };
        let mut declared = Vec::new();
        extend(&mut declared, lines(0..200).as_bytes()).unwrap();
        extend(&mut declared, lines(200..256).as_bytes()).unwrap();
        assert_eq!(declared.len(), 256);
        let more = extend(&mut declared, lines(256..257).as_bytes()).unwrap_err().to_string();
        assert!(more.contains("at most 256 handlers"), "{more}");
        let at_once = parse(lines(0..257).as_bytes()).unwrap_err().to_string();
        assert!(at_once.contains("at most 256 handlers"), "{at_once}");
        let long = parse(" ".repeat(SECTION_BYTES_MAX + 1).as_bytes()).unwrap_err().to_string();
        assert!(long.contains("at most 262144 bytes, got 262145"), "{long}");
        assert_eq!(parse(" ".repeat(SECTION_BYTES_MAX).as_bytes()).unwrap(), []);
        for key in ["http", "env", "secrets", "enqueue"] {
            let list =
                |entries: usize| format!(r#"{{"kind":"a","{key}":{:?}}}"#, vec!["https://a.b"; entries]);
            let message = parse(list(257).as_bytes()).unwrap_err().to_string();
            assert!(
                message.contains(&format!("{key} of a: expected at most 256 entries, got 257")),
                "{message}"
            );
            let allowed = parse(list(256).as_bytes()).map_err(|error| error.to_string());
            assert!(!allowed.is_err_and(|message| message.contains("entries")));
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (line, named) in [
            (r#"{"kind":"a b"}"#, "invalid name"),
            (r#"{"kind":"a","timeout_ms":0}"#, "timeout_ms of a"),
            (r#"{"kind":"a","max_attempts":0}"#, "max_attempts of a"),
            (r#"{"kind":"a","backoff":{"jitter":1.5}}"#, "backoff.jitter of a"),
            (r#"{"kind":"a","memory_bytes":1}"#, "memory_bytes of a"),
            (r#"{"kind":"a","http":["https://a.b/c"]}"#, "http of a"),
            (r#"{"kind":"a","env":["A B"]}"#, "env of a"),
            (r#"{"kind":"a","secrets":[""]}"#, "secrets of a"),
            (r#"{"kind":"a","enqueue":["a*b"]}"#, "enqueue of a"),
            ("order_close", "expected value"),
        ] {
            let message = parse(line.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(named), "{line}: {message}");
        }
    }
}
