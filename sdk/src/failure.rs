//! How a handler says that its attempt did not succeed, and what is to become of the job.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The shortest snooze that hosts grant.
const SNOOZE_MIN: Duration = Duration::from_secs(1);

/// Why an attempt did not succeed, and what is to become of the job.
///
/// `?` turns any [`std::error::Error`] into a retry:
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// #[handler]
/// fn count(text: Raw) -> Result<usize, Failure> {
///     let text = String::from_utf8(text.0)?; // not UTF-8: a retry
///     if text.is_empty() {
///         return Err(Failure::permanent("nothing to count"));
///     }
///     Ok(text.split_whitespace().count())
/// }
///
/// assert_eq!(count(Raw(b"one two".to_vec())).unwrap(), 2);
/// assert_eq!(count(Raw(Vec::new())).unwrap_err(), Failure::permanent("nothing to count"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Try again while attempts are left.
    Retry {
        /// What happened, for people.
        message: String,
        /// Wait this long instead of what the backoff says.
        after: Option<Duration>,
    },
    /// Trying again cannot help: to the dead letters. Holds what happened.
    Permanent(String),
    /// Not now: come back after so long (a second at least); uses no attempt.
    Snooze(Duration),
    /// The payload is not what this handler takes: to the dead letters. Holds what is wrong with it.
    Decode(String),
}

impl Failure {
    /// Try again by the backoff policy, while attempts are left.
    pub fn retry(message: impl fmt::Display) -> Self {
        Self::Retry { message: message.to_string(), after: None }
    }

    /// Trying again cannot help: to the dead letters at once.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::Permanent(message.to_string())
    }

    /// Not now: come back after `span`. Uses no attempt. Less than a second counts as one.
    pub fn snooze(span: Duration) -> Self {
        Self::Snooze(span.max(SNOOZE_MIN))
    }

    /// The payload is not what this handler takes: to the dead letters, with the reason `decode`. For
    /// handlers that read raw bytes; a typed payload that does not decode ends so by itself.
    pub fn decode(message: impl fmt::Display) -> Self {
        Self::Decode(message.to_string())
    }

    /// Sets how long the job waits: a retry instead of what the backoff says, a snooze instead of its
    /// own span. A job on its way to the dead letters waits for nothing, so there it changes nothing.
    ///
    /// ```
    /// use hourhand_sdk::prelude::*;
    ///
    /// let failure = Failure::retry("the bank is closed").after(hours(2));
    /// # assert!(matches!(failure, Failure::Retry { after: Some(wait), .. } if wait == hours(2)));
    /// ```
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        match self {
            Self::Retry { message, .. } => Self::Retry { message, after: Some(span) },
            Self::Snooze(_) => Self::snooze(span),
            dead @ (Self::Permanent(_) | Self::Decode(_)) => dead,
        }
    }
}

/// Any error is a retry; its message is the error's with those of its sources.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(chain(&error))
    }
}

/// Says at the `?` that an error is to be something else than a plain retry.
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// fn port(text: &str) -> Result<u16, Failure> {
///     Ok(text.parse::<u16>().or_permanent()?)
/// }
///
/// assert_eq!(port("80"), Ok(80));
/// assert!(matches!(port("x"), Err(Failure::Permanent(_))));
/// ```
pub trait FailureExt<T> {
    /// The error is permanent: to the dead letters.
    ///
    /// # Errors
    /// [`Failure::Permanent`] with the error's message.
    fn or_permanent(self) -> Result<T, Failure>;

    /// The error is a retry after `span`, whatever the backoff says.
    ///
    /// # Errors
    /// [`Failure::Retry`] with the error's message.
    fn or_retry_after(self, span: Duration) -> Result<T, Failure>;
}

impl<T, E: Error> FailureExt<T> for Result<T, E> {
    fn or_permanent(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Permanent(chain(&error)))
    }

    fn or_retry_after(self, span: Duration) -> Result<T, Failure> {
        self.map_err(|error| Failure::from(error).after(span))
    }
}

/// The error's text, and those of its sources that it does not repeat already.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|layer| layer as &(dyn Error + 'static))
        }
    }

    #[test]
    fn an_error_is_a_retry_that_names_its_sources_once() {
        let root = Layer("refused", None);
        let middle = Layer("connect: refused", Some(Box::new(root)));
        let failure = Failure::from(Layer("no bank", Some(Box::new(middle))));
        assert_eq!(failure, Failure::retry("no bank: connect: refused"));
    }

    #[test]
    fn a_snooze_is_a_second_at_least() {
        assert_eq!(Failure::snooze(Duration::ZERO), Failure::Snooze(Duration::from_secs(1)));
        assert_eq!(Failure::snooze(SNOOZE_MIN * 90).after(Duration::ZERO), Failure::Snooze(SNOOZE_MIN));
    }

    #[test]
    fn a_dead_letter_waits_for_nothing() {
        assert_eq!(Failure::permanent("no").after(SNOOZE_MIN), Failure::permanent("no"));
        assert_eq!(Failure::decode("no").after(SNOOZE_MIN), Failure::decode("no"));
    }
}
