//! What a run ended in, why it failed, and the events of a job's life. Pure, no IO.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Longest failure message that is kept, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Results above this are kept only if the kind asks, in bytes.
pub const RESULT_KEPT_BYTES: usize = 4 << 10;
/// Events that a job's history keeps from its beginning.
pub const HISTORY_FIRST: usize = 10;
/// Events that a job's history keeps from its end.
pub const HISTORY_LAST: usize = 40;

/// Why an attempt failed. The word is the same in records, JSON and metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The handler said so, and asks for another try.
    Error,
    /// The handler said that trying again cannot help.
    Permanent,
    /// The handler panicked.
    Panic,
    /// The module trapped: unreachable, out-of-bounds access, division by zero.
    Trap,
    /// It ran longer than its time-out.
    Timeout,
    /// It wanted more memory than it may have.
    Memory,
    /// Its stack overflowed.
    Stack,
    /// Its result is larger than it may be.
    Output,
    /// It ended the process with a non-zero code.
    Exit,
    /// Its payload is not what the handler takes.
    Decode,
    /// It did what its manifest does not grant.
    Denied,
    /// Its runner went away.
    Lost,
    /// Somebody cancelled it.
    Cancelled,
    /// It was not started in time.
    Expired,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Error,
        Self::Permanent,
        Self::Panic,
        Self::Trap,
        Self::Timeout,
        Self::Memory,
        Self::Stack,
        Self::Output,
        Self::Exit,
        Self::Decode,
        Self::Denied,
        Self::Lost,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Permanent => "permanent",
            Self::Panic => "panic",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Stack => "stack",
            Self::Output => "output",
            Self::Exit => "exit",
            Self::Decode => "decode",
            Self::Denied => "denied",
            Self::Lost => "lost",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|r| r.as_str() == text).ok_or_else(|| format!("unknown reason {text:?}"))
    }
}

/// The last failure in a job's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub reason: Reason,
    /// What happened, for people. At most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// Which attempt failed.
    pub attempt: u32,
    /// When, in microseconds since 1970.
    pub at_us: u64,
}

/// What one run in the sandbox ended in, before any policy.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    /// The handler returned; empty bytes are no result.
    Completed(Bytes),
    /// The attempt failed and may be tried again, after `after_ms` if the handler named a delay.
    Failed {
        /// The kind of failure.
        reason: Reason,
        /// What happened.
        message: String,
        /// The delay that the handler asks for, in milliseconds.
        after_ms: Option<u64>,
    },
    /// The attempt failed for good ([`Reason::Permanent`] or [`Reason::Decode`], exit code 65).
    Permanent {
        /// The kind of failure.
        reason: Reason,
        /// What happened.
        message: String,
    },
    /// The handler asks to run later; uses no attempt. In milliseconds.
    Snoozed(u64),
    /// The run was stopped for a reason that is not the job's: shut-down. Uses no attempt.
    Released(String),
    /// The run did not happen, or was stopped, because the runner has no memory or no slot left for it.
    /// Uses no attempt. To run it again before another guest has ended would end the same way.
    NoRoom(String),
    /// Somebody cancelled the job while it ran.
    Cancelled,
}

/// What is to become of a claimed job: [`RunEnd`] after the retry policy.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done. The result, if any is kept.
    Completed {
        /// What the handler returned.
        result: Option<Bytes>,
    },
    /// Another attempt after the delay.
    Retry {
        /// Why this one failed.
        reason: Reason,
        /// What happened.
        message: String,
        /// From the store's now, in milliseconds.
        delay_ms: u64,
    },
    /// To the dead letters.
    Dead {
        /// Why it gave up.
        reason: Reason,
        /// What happened.
        message: String,
    },
    /// Later; the attempt is not used.
    Snoozed {
        /// From the store's now, in milliseconds.
        delay_ms: u64,
    },
    /// Back to where it was, at once; the attempt is not used.
    Released {
        /// Why, for the history; `None` leaves no event (a held job given back).
        message: Option<String>,
    },
    /// Cancelled while it ran or was held.
    Cancelled,
}

impl Outcome {
    /// The word for it, everywhere.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Snoozed { .. } => "snoozed",
            Self::Released { .. } => "released",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One event of a job's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEvent {
    /// When, in microseconds since 1970 on the store's clock.
    pub at_us: u64,
    /// `enqueued`, `started`, an outcome's word, `reclaimed`, `rescheduled`, `requeued` or `restored`.
    pub event: String,
    /// The attempt that it belongs to; 0 before the first.
    pub attempt: u32,
    /// Who ran it.
    pub runner: Option<String>,
    /// First 12 hex digits of the sha256 of the module that ran it.
    pub handler: Option<String>,
    /// Why, when it was a failure.
    pub reason: Option<Reason>,
    /// What happened, for people.
    pub message: Option<String>,
}

/// `text` cut to at most `bytes_max` bytes at a character boundary, and marked where it was cut.
pub fn capped(mut text: String, bytes_max: usize) -> String {
    const MARK: &str = "... (cut)";
    if text.len() > bytes_max {
        let mut end = bytes_max.saturating_sub(MARK.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character_and_marked() {
        let cut = capped("é".repeat(40), 30);
        assert!(cut.len() <= 30 && cut.ends_with("(cut)"), "{cut}");
        assert_eq!(capped("short".to_owned(), 30), "short");
    }

    #[test]
    fn every_reason_reads_back() {
        for reason in Reason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(reason));
        }
    }
}
