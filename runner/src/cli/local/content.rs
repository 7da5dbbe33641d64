//! Bytes as people write them into fixtures and read them in answers: JSON where they are JSON, text where they are
//! text, else base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// What is no JSON is written as an object with one of these keys.
const TEXT: &str = "$text";
const BASE64: &str = "$base64";

/// The bytes that a value stands for: its JSON, without white space; of `{"$text": "..."}` the text itself, and of
/// `{"$base64": "..."}` what that encodes.
///
/// # Errors
/// What is wrong with the base64.
pub(in crate::cli) fn bytes_of(value: &Value) -> Result<Bytes, String> {
    if let Some((key, Value::String(text))) = only_entry(value) {
        if key == TEXT {
            return Ok(Bytes::from(text.clone()));
        }
        if key == BASE64 {
            return from_base64(text);
        }
    }
    Ok(Bytes::from(value.to_string()))
}

fn only_entry(value: &Value) -> Option<(&String, &Value)> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.iter().next()
}

/// The value that stands for these bytes; [`bytes_of`] reads it.
pub(in crate::cli) fn value_of(bytes: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes)
        && only_entry(&value).is_none_or(|(key, _)| key != TEXT && key != BASE64)
    {
        return value;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ TEXT: text }),
        Err(_) => json!({ BASE64: STANDARD.encode(bytes) }),
    }
}

/// The bytes of a text in base64.
///
/// # Errors
/// What is wrong with it.
pub(in crate::cli) fn from_base64(text: &str) -> Result<Bytes, String> {
    STANDARD.decode(text).map(Bytes::from).map_err(|error| format!("expected base64, got {text:?}: {error}"))
}

/// Adds the bytes to an answer as a text under `key`, or in base64 under `key_base64`; nothing is `null`.
pub(in crate::cli) fn put(object: &mut Map<String, Value>, key: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => object.insert(key.to_owned(), Value::Null),
        Some((_, Ok(text))) => object.insert(key.to_owned(), text.into()),
        Some((bytes, Err(_))) => object.insert(format!("{key}_base64"), STANDARD.encode(bytes).into()),
    };
}

/// Whether two values are the same, where 1 and 1.0 are.
pub(in crate::cli) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.as_f64() == b.as_f64() && !both_whole(a, b)),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Two whole numbers are compared exactly: 2^53 and its neighbour are the same only as floating-point numbers.
fn both_whole(a: &serde_json::Number, b: &serde_json::Number) -> bool {
    !a.is_f64() && !b.is_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_through_their_value_and_back() {
        for bytes in
            [&b"3"[..], b"\"Bob\"", b"{\"a\":[1,null]}", b"no json", b"\xff\x00", b"", b"{\"$text\":\"x\"}"]
        {
            assert_eq!(bytes_of(&value_of(bytes)).expect("a value"), bytes, "{bytes:?}");
        }
        assert!(bytes_of(&json!({ "$base64": "%" })).expect_err("no base64").contains("expected base64"));
    }

    #[test]
    fn numbers_are_compared_by_their_value() {
        assert!(same(&json!({"a": [1, 2.5]}), &json!({"a": [1.0, 2.5]})));
        assert!(!same(&json!(1), &json!(true)));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": 2})));
        assert!(!same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64)));
    }
}
