//! Why the runner did not do what a handler asked of it.

use std::error::Error;
use std::fmt;

/// Why the runner did not do what the handler asked of it.
///
/// With `?` it is a retry like any error: an operator may grant what is missing, and a store that is away comes back. What was
/// [denied](Self::Denied), or over a [limit](Self::Limit), is also the reason in the job's record, `denied`, when the attempt
/// fails after it.
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// #[handler]
/// fn remind(ctx: &Context, address: String) -> Result<(), Failure> {
///     match ctx.secret("mail_key") {
///         Ok(_key) => Ok(()),
///         // Without the key there is nothing to try again.
///         Err(Refused::Denied(what)) => Err(Failure::permanent(what)),
///         Err(other) => Err(other.into()),
///     }
/// }
///
/// let run = TestHost::new().run::<remind>(r#""ada@example.com""#);
/// assert!(matches!(run.outcome, Outcome::Failed(Failure::Permanent(_))));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The manifest does not grant it. The text names the line that is missing, and the file that it belongs into.
    Denied(String),
    /// It is over one of the job's limits.
    Limit(String),
    /// It makes no sense. The text says what was expected and what came.
    Invalid(String),
    /// The runner could not ask its store; a later attempt may.
    Unavailable(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(text) | Self::Limit(text) | Self::Invalid(text) | Self::Unavailable(text) => {
                f.write_str(text)
            }
        }
    }
}

impl Error for Refused {}
