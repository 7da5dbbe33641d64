//! From what a handler returns to a job's result, or its failure.
//!
//! A handler may return a plain value or a `Result` of one with any error. `Vec<u8>`, `&[u8]` and
//! [`Raw`] are the result as they are, everything else becomes JSON, and `()` is no result. As with
//! payloads the choice is made by type: the generated code asks [`Returned`], [`Value`] and
//! [`Problem`], whose inherent methods go before those of the traits that all types have.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;

use serde::Serialize;

use crate::failure::chain;
use crate::{Failure, Raw};

/// What a handler can return as the job's result: whatever serde writes as JSON, or [`Raw`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}` as the job's result",
    note = "derive `Serialize` for it, or return `Raw` to give the bytes as they are"
)]
pub trait IntoResult {
    /// The job's result; empty is none.
    ///
    /// # Errors
    /// [`Failure::Permanent`] when the value cannot be written as JSON.
    fn into_result(self) -> Result<Vec<u8>, Failure>;
}

impl<T: Serialize> IntoResult for T {
    fn into_result(self) -> Result<Vec<u8>, Failure> {
        // The work is done, and another attempt would write the same value.
        let bytes = serde_json::to_vec(&self).map_err(|error| {
            Failure::permanent(format_args!("the result cannot be written as JSON: {error}"))
        })?;
        // `()` and unit structs say nothing; `None` does.
        let is_unit = size_of::<T>() == 0 && bytes == b"null";
        Ok(if is_unit { Vec::new() } else { bytes })
    }
}

impl IntoResult for Raw {
    fn into_result(self) -> Result<Vec<u8>, Failure> {
        Ok(self.0)
    }
}

/// What a handler can return as its error: [`Failure`], or whatever has a text; that is a retry.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}` as its error",
    note = "return `Failure`, or an error that implements `std::error::Error` or `Display`"
)]
pub trait IntoFailure {
    /// The failure that it means.
    fn into_failure(self) -> Failure;
}

impl<E: Display> IntoFailure for E {
    fn into_failure(self) -> Failure {
        // The alternate form is how anyhow and eyre print an error with its causes.
        Failure::retry(format_args!("{self:#}"))
    }
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

/// What the handler returned: a `Result`, or a plain value?
#[doc(hidden)]
pub struct Returned<'a, T>(pub &'a T);

#[doc(hidden)]
pub struct Fallible;
#[doc(hidden)]
pub struct Plain;

impl<T, E> Returned<'_, Result<T, E>> {
    pub fn how(&self) -> Fallible {
        Fallible
    }
}

#[doc(hidden)]
pub trait AnyReturned {
    fn how(&self) -> Plain {
        Plain
    }
}

impl<T> AnyReturned for Returned<'_, T> {}

impl Fallible {
    pub fn split<T, E>(self, returned: Result<T, E>) -> Result<T, E> {
        returned
    }
}

impl Plain {
    pub fn split<T>(self, returned: T) -> Result<T, Infallible> {
        Ok(returned)
    }
}

/// What the handler gave on success: bytes, or a value?
#[doc(hidden)]
pub struct Value<'a, T>(pub &'a T);

#[doc(hidden)]
pub struct AsBytes;
#[doc(hidden)]
pub struct Encoded;

impl Value<'_, Vec<u8>> {
    pub fn how(&self) -> AsBytes {
        AsBytes
    }
}

impl Value<'_, &[u8]> {
    pub fn how(&self) -> AsBytes {
        AsBytes
    }
}

#[doc(hidden)]
pub trait AnyValue {
    fn how(&self) -> Encoded {
        Encoded
    }
}

impl<T> AnyValue for Value<'_, T> {}

impl AsBytes {
    pub fn encode(self, bytes: impl Into<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        Ok(bytes.into())
    }
}

impl Encoded {
    pub fn encode<T: IntoResult>(self, value: T) -> Result<Vec<u8>, Failure> {
        value.into_result()
    }
}

/// What the handler gave on failure: an error with sources, or something else with a text?
#[doc(hidden)]
pub struct Problem<'a, E>(pub &'a E);

#[doc(hidden)]
pub struct WithSources;
#[doc(hidden)]
pub struct WithText;

#[doc(hidden)]
pub trait ErrorProblem {
    fn how(&self) -> WithSources {
        WithSources
    }
}

impl<E: Error> ErrorProblem for Problem<'_, E> {}

/// One reference further away, so that it is asked last.
#[doc(hidden)]
pub trait AnyProblem {
    fn how(&self) -> WithText {
        WithText
    }
}

impl<E> AnyProblem for &Problem<'_, E> {}

impl WithSources {
    pub fn failure<E: Error>(self, error: E) -> Failure {
        Failure::retry(chain(&error))
    }
}

impl WithText {
    pub fn failure<E: IntoFailure>(self, error: E) -> Failure {
        error.into_failure()
    }
}
