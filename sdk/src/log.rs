//! The job's log: what `hourhand job logs ID` shows.
//!
//! [`Context`](crate::Context) has the same functions as methods; these are for code that has no
//! context at hand. Outside a runner and a [`TestHost`](crate::testing::TestHost) they do nothing.
//!
//! ```
//! hourhand_sdk::log::warn("the cache is cold");
//! hourhand_sdk::log::info(format_args!("{} of {} done", 3, 7));
//! ```

use std::fmt::Display;

use crate::host;

/// How much a line of the log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is off, but the work goes on.
    Warn,
    /// What an operator wants to read.
    Info,
    /// What helps to find a fault.
    Debug,
    /// Every step.
    Trace,
}

/// Adds a line to the job's log.
pub fn log(level: Level, message: impl Display) {
    host::log(level, &message.to_string());
}

/// Adds a line at [`Level::Error`].
pub fn error(message: impl Display) {
    log(Level::Error, message);
}

/// Adds a line at [`Level::Warn`].
pub fn warn(message: impl Display) {
    log(Level::Warn, message);
}

/// Adds a line at [`Level::Info`].
pub fn info(message: impl Display) {
    log(Level::Info, message);
}

/// Adds a line at [`Level::Debug`].
pub fn debug(message: impl Display) {
    log(Level::Debug, message);
}

/// Adds a line at [`Level::Trace`].
pub fn trace(message: impl Display) {
    log(Level::Trace, message);
}
