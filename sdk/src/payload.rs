//! From a job's bytes to what the handler takes.
//!
//! `Vec<u8>`, `&[u8]` and [`Raw`] take the bytes as they are, everything else is read as JSON. The
//! choice is made by type and not by how the type is written, so aliases work: an inherent method of
//! [`Slot`] for the byte types goes before the trait method that all types have.

use std::marker::PhantomData;

use serde::Deserialize;

use crate::Failure;

/// Bytes as they are: a payload that is not JSON, or a result that is not.
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// #[handler]
/// fn reverse(mut bytes: Raw) -> Raw {
///     bytes.0.reverse();
///     bytes
/// }
///
/// assert_eq!(TestHost::new().run::<reverse>("abc").result_text(), "cba");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Raw(
    /// The bytes.
    pub Vec<u8>,
);

impl From<Vec<u8>> for Raw {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// What a handler can take as its payload: whatever serde reads from JSON, or [`Raw`].
#[diagnostic::on_unimplemented(
    message = "a handler cannot take `{Self}` as its payload",
    note = "derive `Deserialize` for it, or take `Raw` to get the bytes as they are"
)]
pub trait FromPayload<'a>: Sized {
    /// Reads the payload; may take the bytes away.
    ///
    /// # Errors
    /// [`Failure::Decode`] when the bytes are not such a payload.
    fn from_payload(bytes: &'a mut Vec<u8>) -> Result<Self, Failure>;
}

impl<'a, T: Deserialize<'a>> FromPayload<'a> for T {
    fn from_payload(bytes: &'a mut Vec<u8>) -> Result<Self, Failure> {
        if bytes.is_empty() {
            return serde_json::from_slice(b"null").map_err(|error| {
                Failure::decode(format_args!("the payload is empty, read as null: {error}"))
            });
        }
        serde_json::from_slice(bytes).map_err(Failure::decode)
    }
}

impl FromPayload<'_> for Raw {
    fn from_payload(bytes: &mut Vec<u8>) -> Result<Self, Failure> {
        Ok(Self(std::mem::take(bytes)))
    }
}

/// The place of a payload of type `T`: tells how it is filled.
#[doc(hidden)]
pub struct Slot<T>(PhantomData<fn() -> T>);

#[doc(hidden)]
pub struct OwnedBytes;
#[doc(hidden)]
pub struct LentBytes;
#[doc(hidden)]
pub struct Decoded;

impl<T> Slot<T> {
    #[allow(clippy::new_without_default, reason = "only generated code makes one")]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl Slot<Vec<u8>> {
    pub fn how(&self) -> OwnedBytes {
        OwnedBytes
    }
}

impl Slot<&[u8]> {
    pub fn how(&self) -> LentBytes {
        LentBytes
    }
}

#[doc(hidden)]
pub trait AnySlot {
    fn how(&self) -> Decoded {
        Decoded
    }
}

impl<T> AnySlot for Slot<T> {}

impl OwnedBytes {
    pub fn take(self, bytes: &mut Vec<u8>) -> Result<Vec<u8>, Failure> {
        Ok(std::mem::take(bytes))
    }
}

impl LentBytes {
    pub fn take(self, bytes: &mut [u8]) -> Result<&[u8], Failure> {
        Ok(bytes)
    }
}

impl Decoded {
    pub fn take<'a, T: FromPayload<'a>>(self, bytes: &'a mut Vec<u8>) -> Result<T, Failure> {
        T::from_payload(bytes)
    }
}
