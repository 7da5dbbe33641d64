//! The one rule for names (rule 10): kinds, queues, namespaces and ids, at every door.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest kind, queue or namespace, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest job id, in bytes.
pub const ID_BYTES_MAX: usize = 200;

/// A kind or a queue: `[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A job's id within its queue: 1 to 200 bytes of UTF-8 without control characters, and without
/// white space at either end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(Arc<str>);

/// Why a string is no name. Its message is the same at every door.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Not a kind, queue or namespace.
    #[error(
        "invalid name {got}: expected 1 to {NAME_BYTES_MAX} characters of A-Z a-z 0-9 _ . -, the first a letter, a digit or _"
    )]
    Name {
        /// What came, quoted and shortened.
        got: String,
    },
    /// Not a job id.
    #[error(
        "invalid id {got}: expected 1 to {ID_BYTES_MAX} bytes of UTF-8, no control characters, no white space at either end"
    )]
    Id {
        /// What came, quoted and shortened.
        got: String,
    },
}

impl Name {
    /// Checks `text` against the rule.
    ///
    /// # Errors
    /// [`InvalidName::Name`] when it does not match.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let bytes = text.as_bytes();
        let first_ok = bytes.first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        let rest_ok = bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if first_ok && rest_ok && bytes.len() <= NAME_BYTES_MAX {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::Name { got: shortened(text) })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl JobId {
    /// Checks `text` against the rule.
    ///
    /// # Errors
    /// [`InvalidName::Id`] when it does not match.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let fits = (1..=ID_BYTES_MAX).contains(&text.len());
        if fits && text.trim() == text && !text.chars().any(char::is_control) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName::Id { got: shortened(text) })
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `text` quoted with its control characters escaped, at most about 60 characters of it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}

macro_rules! text_type {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

text_type!(Name);
text_type!(JobId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_one_rule() {
        for good in ["a", "order_close", "A-1.b", "_x", "0", &"k".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in
            ["", "a b", "a*", "-a", ".a", "é", "e\u{301}", "😀", "a:b", "a/b", "{x}", "a\n", &"k".repeat(129)]
        {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ids_may_hold_any_text_but_control_characters_and_outer_white_space() {
        for good in ["1", "order 7", "Ünïcode/😀:{x}", &"i".repeat(200)] {
            assert!(JobId::new(good).is_ok(), "{good}");
        }
        for bad in ["", " a", "a ", "a\tb", "a\u{85}b", "\u{2003}a", &"i".repeat(201)] {
            assert!(JobId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_long_bad_name_is_shortened_in_the_message() {
        let message = Name::new(&"é".repeat(300)).unwrap_err().to_string();
        assert!(message.contains("(600 bytes)") && message.len() < 400, "{message}");
    }
}
