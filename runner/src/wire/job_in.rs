//! A job as JSON, as it comes in: one line of NDJSON, one element of a request.
//!
//! Keys are the names of the command line's options. `payload` is the JSON value's own text, byte for byte:
//! it is never parsed and printed again, so that white space, the order of keys and repeated keys in it
//! survive. Whatever is not known, given twice or of the wrong type is an error that names the key.
//! `null` means "not given" for every key but `payload`, where it is the text `null`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::units;
use crate::job::{Due, NewJob, PAYLOAD_BYTES_MAX};
use crate::names::{JobId, Name};

/// Every key, in the order in which help texts list them.
pub const KEYS: [&str; 13] = [
    "kind",
    "payload",
    "payload_base64",
    "delay",
    "at",
    "id",
    "on_conflict",
    "queue",
    "priority",
    "max_attempts",
    "timeout",
    "meta",
    "traceparent",
];

/// The raw values of one object, by the position of their key in [`KEYS`].
type Fields<'a> = [Option<&'a RawValue>; KEYS.len()];

/// Reads one job. `now_ms` (since 1970) bounds how far ahead an instant may be; `source` is who enqueues.
///
/// # Errors
/// A message that names the key, what was expected and what came.
pub fn parse(text: &[u8], now_ms: u64, source: &str) -> Result<NewJob, String> {
    let text = std::str::from_utf8(text)
        .map_err(|e| format!("not UTF-8 at byte {}: expected one JSON object", e.valid_up_to() + 1))?;
    let fields = fields(text)?;
    let field = |key: &str| position(key).and_then(|at| fields[at]).map(RawValue::get);
    let given = |key: &str| field(key).filter(|raw| *raw != "null");

    let kind = given("kind").ok_or_else(|| "kind: expected the kind of the job, got none".to_owned())?;
    let kind = Name::new(&string("kind", kind)?).map_err(|e| format!("kind: {e}"))?;
    let mut job = NewJob { source: source.to_owned(), ..NewJob::new(kind) };

    if let Some(raw) = given("queue") {
        job.queue = Name::new(&string("queue", raw)?).map_err(|e| format!("queue: {e}"))?;
    }
    if let Some(raw) = given("id") {
        job.id = Some(JobId::new(&string("id", raw)?).map_err(|e| format!("id: {e}"))?);
    }
    if let Some(raw) = given("on_conflict") {
        job.on_conflict = parsed("on_conflict", raw, str::parse)?;
        if job.id.is_none() {
            return Err("on_conflict: expected an id beside it, got none".to_owned());
        }
    }
    if let Some(raw) = given("priority") {
        job.priority = parsed("priority", raw, str::parse)?;
    }
    if let Some(raw) = given("timeout") {
        job.timeout_ms = Some(parsed("timeout", raw, units::duration_ms)?);
    }
    if let Some(raw) = given("max_attempts") {
        let number =
            raw.parse().map_err(|_| format!("max_attempts: expected a whole number, got {}", shown(raw)))?;
        job.max_attempts = Some(number);
    }
    if let Some(raw) = given("traceparent") {
        job.traceparent = Some(string("traceparent", raw)?);
    }
    if let Some(raw) = given("meta") {
        job.meta = meta(raw)?;
    }
    job.due = due(given("delay"), given("at"), now_ms)?;
    job.payload = payload(field("payload"), given("payload_base64"))?;
    job.validate()?;
    Ok(job)
}

/// When a job is due that says `delay`, or `at`, or neither.
fn due(delay: Option<&str>, at: Option<&str>, now_ms: u64) -> Result<Due, String> {
    match (delay, at) {
        (None, None) => Ok(Due::NOW),
        (Some(_), Some(_)) => Err("at: expected either delay or at, got both".to_owned()),
        (Some(raw), None) => parsed("delay", raw, |t| units::delay_ms(t, now_ms)).map(Due::In),
        (None, Some(raw)) => parsed("at", raw, |t| units::due_instant_ms(t, now_ms)).map(Due::At),
    }
}

fn payload(text: Option<&str>, base64: Option<&str>) -> Result<Bytes, String> {
    match (text, base64) {
        (None, None) => Ok(Bytes::new()),
        (Some(_), Some(_)) => {
            Err("payload_base64: expected either payload or payload_base64, got both".to_owned())
        }
        (Some(raw), None) if raw.len() > PAYLOAD_BYTES_MAX => Err(too_large("payload", raw.len())),
        (Some(raw), None) => Ok(Bytes::copy_from_slice(raw.as_bytes())),
        (None, Some(raw)) => {
            let text = string("payload_base64", raw)?;
            // Four characters are three bytes: what cannot fit is not decoded.
            if text.len() / 4 * 3 > PAYLOAD_BYTES_MAX + 2 {
                return Err(too_large("payload_base64", text.len() / 4 * 3));
            }
            let bytes = BASE64.decode(&text).map_err(|e| {
                format!("payload_base64: expected base64 with the standard alphabet and padding: {e}")
            })?;
            Ok(bytes.into())
        }
    }
}

fn too_large(key: &str, bytes: usize) -> String {
    format!("{key}: payload of {bytes} bytes: expected at most {PAYLOAD_BYTES_MAX} (1 MiB)")
}

fn meta(raw: &str) -> Result<Vec<(String, String)>, String> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    let pairs = serde_json::Deserializer::from_str(raw)
        .deserialize_map(Pairs)
        .map_err(|_| format!("meta: expected an object of texts, got {}", shown(raw)))?;
    let mut meta: Vec<(String, String)> = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        if meta.iter().any(|(k, _)| *k == key) {
            return Err(format!("meta: expected each key once, got {key:?} twice"));
        }
        let value = string("meta", value.get()).map_err(|e| format!("{e} for {key:?}"))?;
        meta.push((key, value));
    }
    Ok(meta)
}

/// A JSON string's text.
fn string(key: &str, raw: &str) -> Result<String, String> {
    serde_json::from_str(raw).map_err(|_| format!("{key}: expected a text in quotes, got {}", shown(raw)))
}

fn parsed<T>(key: &str, raw: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
    parse(&string(key, raw)?).map_err(|e| format!("{key}: {e}"))
}

/// The start of a value, for a message.
fn shown(raw: &str) -> String {
    match raw.char_indices().nth(60) {
        Some((end, _)) => format!("{}... ({} bytes)", &raw[..end], raw.len()),
        None => raw.to_owned(),
    }
}

fn position(key: &str) -> Option<usize> {
    KEYS.iter().position(|k| *k == key)
}

/// The object's values as they stand in `text`.
fn fields(text: &str) -> Result<Fields<'_>, String> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = Result<Fields<'de>, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields: Fields<'de> = [None; KEYS.len()];
            // The rest of the object is read even after a problem: broken JSON is the more basic news.
            let mut problem = None;
            while let Some(key) = map.next_key::<Key>()? {
                let raw: &'de RawValue = map.next_value()?;
                match key {
                    Key::Known(at) if fields[at].is_none() => fields[at] = Some(raw),
                    Key::Known(at) => {
                        problem.get_or_insert_with(|| format!("{}: expected once, got it twice", KEYS[at]));
                    }
                    Key::Unknown(key) => {
                        problem.get_or_insert_with(|| {
                            format!("unknown key {key:?}: expected one of {}", KEYS.join(", "))
                        });
                    }
                }
            }
            Ok(problem.map_or(Ok(fields), Err))
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let fields = deserializer.deserialize_map(Object).and_then(|f| deserializer.end().map(|()| f));
    fields.map_err(|e| format!("expected one JSON object: {}", without_line(&e)))?
}

/// A key without an allocation when it is known.
enum Key {
    Known(usize),
    Unknown(String),
}

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Key, E> {
                Ok(position(text).map_or_else(|| Key::Unknown(shown(text)), Key::Known))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// The reader of lines knows the line; within it only the column says something.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    format!("{message} at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{OnConflict, Priority};

    const NOW: u64 = 1_790_000_000_000;

    fn job(text: &str) -> Result<NewJob, String> {
        parse(text.as_bytes(), NOW, "test")
    }

    #[test]
    fn every_key_counts() {
        let job = job(concat!(
            r#"{"kind":"k","payload":{"a":1},"delay":"1h30m","id":"7","on_conflict":"replace","queue":"q","#,
            r#""priority":"low","max_attempts":3,"timeout":"2s","meta":{"b":"1","a":"é"},"traceparent":"00-ab-cd-01"}"#
        ))
        .expect("valid");
        assert_eq!((job.kind.as_str(), job.queue.as_str()), ("k", "q"));
        assert_eq!(&job.payload[..], br#"{"a":1}"#);
        assert_eq!(job.due, Due::In(5_400_000));
        assert_eq!(job.id.expect("id").as_str(), "7");
        assert_eq!(job.on_conflict, OnConflict::Replace);
        assert_eq!(job.priority, Priority::Low);
        assert_eq!((job.max_attempts, job.timeout_ms), (Some(3), Some(2_000)));
        assert_eq!(job.meta, [("b".to_owned(), "1".to_owned()), ("a".to_owned(), "é".to_owned())]);
        assert_eq!(job.traceparent.as_deref(), Some("00-ab-cd-01"));
        assert_eq!(job.source, "test");
    }

    #[test]
    fn a_kind_is_enough_and_null_is_not_given() {
        let plain = job(r#"{"kind":"k"}"#).expect("valid");
        assert_eq!((plain.queue.as_str(), plain.due, plain.payload.len()), ("k", Due::NOW, 0));
        let nulls = job(
            r#"{"kind":"k","delay":null,"at":null,"id":null,"on_conflict":null,"queue":null,"priority":null,"max_attempts":null,"timeout":null,"meta":null,"traceparent":null,"payload_base64":null}"#,
        );
        assert_eq!(nulls, Ok(plain));
    }

    #[test]
    fn the_payload_is_the_values_own_text() {
        for text in [
            "[]",
            "{}",
            r#"{"x":[],"y":{}}"#,
            r#"{"b":1,"a":2,"a":3}"#,
            "[ 1 ]",
            r#""""#,
            "null",
            "0",
            "1e400",
            "18446744073709551616",
            "0.1000",
            r#""\u0041\/é""#,
            "{ \"a\" :\t1 }",
        ] {
            let line = format!("{{\"kind\":\"k\", \"payload\" : {text} }}");
            assert_eq!(&job(&line).expect(text).payload[..], text.as_bytes());
        }
        assert_eq!(&job(r#"{"kind":"k","payload_base64":"/wA="}"#).expect("valid").payload[..], b"\xff\x00");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        for (line, part) in [
            (r#"{"kind":"k","payload":1"#, "expected one JSON object"),
            (r#"["k"]"#, "expected one JSON object"),
            (r#"{"kind":"k"} {"kind":"k"}"#, "trailing characters at column 14"),
            (r#"{"kind":"k","payload":{"a":}}"#, "at column 28"),
            (r#"{"kind":"k","paylod":1}"#, r#"unknown key "paylod": expected one of kind, payload"#),
            (r#"{"kind":"k","kind":"k"}"#, "kind: expected once, got it twice"),
            (r#"{"kind":"k","id":null,"id":"7"}"#, "id: expected once"),
            (r#"{"payload":1}"#, "kind: expected the kind"),
            (r#"{"kind":null}"#, "kind: expected the kind"),
            (r#"{"kind":7}"#, "kind: expected a text in quotes, got 7"),
            (r#"{"kind":"a b"}"#, "kind: invalid name"),
            (r#"{"kind":""}"#, "kind: invalid name"),
            (r#"{"kind":"k","queue":"a*"}"#, "queue: invalid name"),
            (r#"{"kind":"k","id":" 7"}"#, "id: invalid id"),
            (r#"{"kind":"k","id":7}"#, "id: expected a text"),
            (r#"{"kind":"k","on_conflict":"keep"}"#, "on_conflict: expected an id beside it"),
            (r#"{"kind":"k","id":"7","on_conflict":"maybe"}"#, "on_conflict: invalid value"),
            (r#"{"kind":"k","delay":5}"#, "delay: expected a text in quotes, got 5"),
            (r#"{"kind":"k","delay":"5"}"#, "as in 5s"),
            (r#"{"kind":"k","delay":"-1s"}"#, "negative"),
            (r#"{"kind":"k","delay":"1s","at":"2026-12-01T09:00:00Z"}"#, "either delay or at"),
            (r#"{"kind":"k","at":"1969-12-31T23:59:59Z"}"#, "before 1970"),
            (r#"{"kind":"k","priority":1}"#, "priority: expected a text"),
            (r#"{"kind":"k","max_attempts":"5"}"#, "max_attempts: expected a whole number"),
            (r#"{"kind":"k","max_attempts":5.0}"#, "max_attempts: expected a whole number"),
            (r#"{"kind":"k","max_attempts":-1}"#, "max_attempts: expected a whole number"),
            (r#"{"kind":"k","max_attempts":0}"#, "max_attempts of 0"),
            (r#"{"kind":"k","timeout":"0s"}"#, "timeout of 0 ms"),
            (r#"{"kind":"k","meta":["a"]}"#, "meta: expected an object of texts"),
            (r#"{"kind":"k","meta":{"a":1}}"#, r#"meta: expected a text in quotes, got 1 for "a""#),
            (r#"{"kind":"k","meta":{"a":"1","a":"2"}}"#, r#"got "a" twice"#),
            (r#"{"kind":"k","meta":{"":"1"}}"#, "empty meta key"),
            (r#"{"kind":"k","payload":1,"payload_base64":"MQ=="}"#, "either payload or payload_base64"),
            (r#"{"kind":"k","payload_base64":"MQ"}"#, "expected base64"),
            (r#"{"kind":"k","payload_base64":"M Q=="}"#, "expected base64"),
        ] {
            let message = job(line).expect_err(line);
            assert!(message.contains(part), "{line}: {message}");
        }
        assert!(parse(b"{\"kind\":\"k\xff\"}", NOW, "").expect_err("bytes").contains("not UTF-8 at byte 11"));
    }

    #[test]
    fn a_payload_may_have_a_mebibyte_and_not_a_byte_more() {
        let line = |bytes: usize| format!(r#"{{"kind":"k","payload":"{}"}}"#, "x".repeat(bytes - 2));
        assert!(job(&line(PAYLOAD_BYTES_MAX)).is_ok());
        assert!(job(&line(PAYLOAD_BYTES_MAX + 1)).expect_err("too large").contains("1048577 bytes"));
        let line = |bytes: usize| {
            format!(r#"{{"kind":"k","payload_base64":"{}"}}"#, BASE64.encode(vec![0xff; bytes]))
        };
        assert!(job(&line(PAYLOAD_BYTES_MAX)).is_ok());
        assert!(job(&line(PAYLOAD_BYTES_MAX + 1)).expect_err("too large").contains("1 MiB"));
        assert!(job(&line(4 * PAYLOAD_BYTES_MAX)).expect_err("too large").contains("1 MiB"));
    }

    #[test]
    fn a_nest_of_brackets_is_a_payload_as_any_other() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let line = format!(r#"{{"kind":"k","payload":{deep}}}"#);
        assert_eq!(job(&line).expect("valid").payload.len(), 400_000);
    }
}
