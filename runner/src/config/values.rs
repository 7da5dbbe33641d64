//! Single settings, from text: what is expected of each, and the message when it is not so.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::CONCURRENCY_MAX;
use crate::names::Name;
use crate::wire::units;

/// A limit that `none` (or `off`) lifts.
pub(crate) fn limit(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Option<u64>, String> {
    if text == "none" || text == "off" {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|e| format!("{e} (or none for no limit)"))
}

pub(crate) fn whole(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| format!("expected a whole number of 0 or more, got {text:?}"))
}

pub(super) fn concurrency(text: &str) -> Result<u32, String> {
    let number = whole(text).ok().and_then(|n| u32::try_from(n).ok());
    number
        .filter(|n| (1..=CONCURRENCY_MAX).contains(n))
        .ok_or_else(|| format!("expected a number of slots from 1 to {CONCURRENCY_MAX}, got {text:?}"))
}

/// A duration within bounds, all in milliseconds.
pub(super) fn between(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let ms = units::duration_ms(text)?;
    if !(min..=max).contains(&ms) {
        return Err(format!("expected {}s to {}s, got {text:?}", min / 1_000, max / 1_000));
    }
    Ok(ms)
}

/// One page of one handler's memory is the least that makes sense.
pub(super) fn memory_total(text: &str) -> Result<u64, String> {
    const MIN: u64 = 16 << 20;
    let bytes = units::size_bytes(text)?;
    if bytes < MIN {
        return Err(format!("expected at least 16MiB for all guests together, got {text:?}"));
    }
    Ok(bytes)
}

pub(super) fn names(text: &str) -> Result<BTreeSet<Name>, String> {
    let names: Result<BTreeSet<Name>, _> = text.split(',').map(|t| Name::new(t.trim())).collect();
    names.map_err(|e| format!("{e}; several are written a,b"))
}

pub(super) fn runner_name(text: &str) -> Result<String, String> {
    if text.len() > 128 || text.chars().any(char::is_control) || text.trim() != text {
        return Err(format!("expected at most 128 bytes without control characters, got {text:?}"));
    }
    Ok(text.to_owned())
}

pub(super) fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("expected on or off, got {text:?}")),
    }
}

pub(super) fn dir(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected a folder, got nothing".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub(super) fn dir_or_off(text: &str) -> Result<Option<PathBuf>, String> {
    if text == "off" || text == "none" { Ok(None) } else { dir(text).map(Some) }
}
