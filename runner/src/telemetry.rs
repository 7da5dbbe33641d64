//! Logging: `tracing` to stderr, for people or as JSON, and a guard against floods.
//!
//! stdout belongs to a command's answer; nothing here writes to it.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::clock::{self, Monotonic};
use crate::config::{LogFormat, LogSettings};
use crate::wire::units;

/// Levels that stand alone.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging for this process. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let base = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(&settings.filter)))
        .with_writer(std::io::stderr)
        .with_timer(UtcMillis);
    // An error means that a subscriber is there already, as in tests.
    let _ = match settings.format {
        LogFormat::Json => base.json().flatten_event(true).try_init(),
        LogFormat::Text => base.with_ansi(colours_wanted()).try_init(),
    };
}

/// `text` if it is a level or directives as `tracing` has them (`hourhand=debug,redis=warn`).
///
/// # Errors
/// What was expected.
pub fn checked_filter(text: &str) -> Result<String, String> {
    let expected = || {
        format!(
            "expected off, error, warn, info, debug, trace or directives such as hourhand=debug, got {text:?}"
        )
    };
    // A bare word that is no level would be read as the name of a module.
    let plain = text.split(',').all(|d| d.contains('=') || LEVELS.contains(&d));
    if text.is_empty() || !plain || EnvFilter::builder().parse(text).is_err() {
        return Err(expected());
    }
    Ok(text.to_owned())
}

/// A bare level is ours: the libraries below speak up only when something is wrong.
fn directives(filter: &str) -> String {
    match filter {
        "off" | "error" | "warn" => filter.to_owned(),
        level if LEVELS.contains(&level) => format!("warn,hourhand={level}"),
        directives => directives.to_owned(),
    }
}

fn colours_wanted() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// RFC 3339 in UTC with milliseconds, as everywhere.
struct UtcMillis;

impl FormatTime for UtcMillis {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        w.write_str(&units::rfc3339(clock::wall_ms()))
    }
}

/// Lets at most one message in a while through, and counts what it held back.
///
/// ```
/// use hourhand::telemetry::Throttled;
///
/// let mut outage = Throttled::new();
/// let now = hourhand::clock::monotonic();
/// assert_eq!(outage.admit(now), Some(0));
/// assert_eq!(outage.admit(now), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Throttled {
    last: Option<Monotonic>,
    left_out: u64,
}

impl Throttled {
    /// The time between two messages.
    pub const PERIOD: std::time::Duration = std::time::Duration::from_secs(3);

    /// Lets the first message through.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to write a message at `now`: if so, how many were left out since the last one.
    pub fn admit(&mut self, now: Monotonic) -> Option<u64> {
        let open = self.last.is_none_or(|last| now.saturating_duration_since(last) >= Self::PERIOD);
        if !open {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_message_in_three_seconds_passes_and_the_rest_is_counted() {
        let start = clock::monotonic();
        let mut throttled = Throttled::new();
        let mut passed = Vec::new();
        for tenth in 0..100 {
            if let Some(left_out) = throttled.admit(start + Duration::from_millis(tenth * 100)) {
                passed.push((tenth, left_out));
            }
        }
        assert_eq!(passed, [(0, 0), (30, 29), (60, 29), (90, 29)]);
    }

    #[test]
    fn a_level_or_directives_are_taken_and_a_misspelt_level_is_not() {
        for good in ["info", "off", "hourhand=debug", "warn,hourhand=trace", "hourhand::worker=debug"] {
            assert_eq!(checked_filter(good).as_deref(), Ok(good));
        }
        for bad in ["", "inf", "verbose", "hourhand=loud", "info,", "=", "debug info"] {
            assert!(checked_filter(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_bare_level_is_about_our_own_lines() {
        assert_eq!(directives("debug"), "warn,hourhand=debug");
        assert_eq!(directives("error"), "error");
        assert_eq!(directives("redis=debug"), "redis=debug");
    }
}
