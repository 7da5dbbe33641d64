//! How a command ends: the exit codes, and an error with the code that it leads to.

use std::fmt;

use crate::client::{EnqueueError, SpoolError};
use crate::config::Problems;
use crate::queue::StoreError;

/// Exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Code {
    /// Done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// Wrong use or invalid input.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// In conflict with what is there, or ambiguous.
    Conflict = 4,
    /// The store is out of reach: the same command may succeed later.
    Away = 5,
}

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command did not do what it was asked. The message goes to stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The exit code.
    pub(super) code: Code,
    /// What happened, for people; lines are separate problems.
    pub(super) message: String,
}

impl Fault {
    /// It failed.
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { code: Code::Failed, message: message.into() }
    }

    /// Wrong use or invalid input.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self { code: Code::Usage, message: message.into() }
    }

    /// There is no such thing.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self { code: Code::NotFound, message: message.into() }
    }

    /// What a failed call means for `what`: when the reply may have got lost, it may have been `done`.
    pub(super) fn unsure(error: StoreError, what: &str, done: &str) -> Self {
        let lost = matches!(error, StoreError::Unreachable(_));
        let mut fault = Self::from(error);
        if lost {
            fault.message = format!("{}\n{what} may or may not have been {done}", fault.message);
        }
        fault
    }

    /// In conflict with what is there, or ambiguous.
    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self { code: Code::Conflict, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Problems> for Fault {
    fn from(problems: Problems) -> Self {
        Self::usage(problems.to_string())
    }
}

impl From<SpoolError> for Fault {
    fn from(error: SpoolError) -> Self {
        let code = match &error {
            SpoolError::Full(_) | SpoolError::Busy(_) => Code::Away,
            SpoolError::Unusable(_) => Code::Failed,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<EnqueueError> for Fault {
    fn from(error: EnqueueError) -> Self {
        let message = error.to_string();
        let fault = match error {
            EnqueueError::Store(error) => Self::from(error),
            EnqueueError::Spool(spool) | EnqueueError::Neither { spool, .. } => Self::from(spool),
        };
        Self { message, ..fault }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Invalid(_) => Code::Usage,
            StoreError::Unreachable(_)
            | StoreError::Unreplicated(_)
            | StoreError::NotReady(_)
            | StoreError::Full(_) => Code::Away,
            // A store that does not let us in is out of reach with these settings: passwords and certificates are
            // changed under scripts that run, and those try again.
            StoreError::Refused(_) if error.is_locked_out() => Code::Away,
            StoreError::Refused(_) => Code::Failed,
        };
        Self { code, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_speaks_of_passwords_does_not_put_the_store_out_of_reach() {
        let code = |text: &str| Fault::from(StoreError::Refused(text.to_owned())).code;
        assert_eq!(code("redis://h:6379/0 wants a password"), Code::Away);
        assert_eq!(code("redis://h:6379/0 does not accept the user name or password"), Code::Away);
        assert_eq!(code("redis://h:6379/0: no TLS with it: invalid peer certificate: Expired"), Code::Away);
        assert_eq!(
            code("redis://h:6379/0: key hourhand:{0}:q:password_reset is not ours: it holds a string"),
            Code::Failed
        );
    }
}
