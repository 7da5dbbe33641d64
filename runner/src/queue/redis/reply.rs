//! Taking replies of scripts apart. A reply of an unexpected shape is an error, never a panic: another
//! program may have written under our names.

use bytes::Bytes;
use redis::Value;

use crate::queue::StoreError;

/// The items of an array reply, taken from the front.
#[derive(Debug)]
pub(super) struct Items(std::vec::IntoIter<Value>);

/// The error for a reply that is not what the script returns.
pub(super) fn unexpected(what: &str) -> StoreError {
    StoreError::Refused(format!("unexpected data in the store: {what}"))
}

impl Items {
    pub(super) fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(items) | Value::Set(items) => Ok(Self(items.into_iter())),
            Value::Nil => Ok(Self(Vec::new().into_iter())),
            _ => Err(unexpected("not a list")),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn value(&mut self) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(|| unexpected("a list that ends early"))
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        bytes(self.value()?)
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        text(self.value()?)
    }

    pub(super) fn number<N: TryFrom<u64>>(&mut self) -> Result<N, StoreError> {
        number(self.value()?)
    }

    pub(super) fn list(&mut self) -> Result<Self, StoreError> {
        Self::of(self.value()?)
    }
}

pub(super) fn bytes(value: Value) -> Result<Bytes, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        Value::Int(number) => Ok(number.to_string().into()),
        Value::Nil => Ok(Bytes::new()),
        _ => Err(unexpected("not a string")),
    }
}

pub(super) fn text(value: Value) -> Result<String, StoreError> {
    Ok(String::from_utf8_lossy(&bytes(value)?).into_owned())
}

pub(super) fn number<N: TryFrom<u64>>(value: Value) -> Result<N, StoreError> {
    let bytes = bytes(value)?;
    std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .and_then(|number| N::try_from(number).ok())
        .ok_or_else(|| unexpected("not a whole number"))
}
