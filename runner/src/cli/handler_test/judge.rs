//! What came against what was expected.

use serde::Serialize;
use serde_json::Value;

use super::case::Expect;
use crate::cli::local::report::child_value;
use crate::cli::local::trial::Trial;
use crate::cli::local::{content, span, state};
use crate::job::Due;
use crate::outcome::Outcome;
use crate::wire::units;

/// Something that is not as expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The key of `[expect]`.
    pub(super) what: &'static str,
    /// What it says.
    pub(super) expected: String,
    /// What came.
    pub(super) got: String,
}

/// All that is not as expected.
pub(super) fn differences(expect: &Expect, trial: &Trial) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut differ = |what, expected: String, got: String| found.push(Difference { what, expected, got });
    let outcome = trial.outcome.as_str();
    if let Some(expected) = expect.outcome.as_deref().filter(|expected| *expected != outcome) {
        differ("outcome", expected.to_owned(), crate::cli::local::report::outcome_words(&trial.outcome));
    }
    let (reason, message, delay_ms) = failure(&trial.outcome);
    if let Some(expected) = expect.reason.as_deref().filter(|expected| Some(*expected) != reason) {
        differ("reason", expected.to_owned(), reason.unwrap_or("none").to_owned());
    }
    if let Some(expected) =
        expect.message.as_deref().filter(|part| !message.is_some_and(|m| m.contains(part)))
    {
        differ(
            "message",
            format!("contains {expected:?}"),
            message.map_or("none".to_owned(), |m| format!("{m:?}")),
        );
    }
    if let Some(expected) = &expect.delay
        && units::duration_ms(expected).ok() != delay_ms
    {
        differ("delay", expected.clone(), delay_ms.map_or("none".to_owned(), span));
    }
    let result = trial.result.as_deref();
    if let Some((what, expected)) = other_result(expect, result) {
        differ(what, expected, result.map_or("none".to_owned(), shown));
    }
    if let Some(expected) = expect.requests.as_ref().filter(|expected| **expected != trial.requests) {
        differ("requests", format!("{expected:?}"), format!("{:?}", trial.requests));
    }
    for line in expect.logs.iter().filter(|part| !trial.log.contains(*part)) {
        differ("logs", format!("contains {line:?}"), format!("{:?}", trial.log));
    }
    if let Some(expected) = &expect.enqueued {
        let got: Vec<Value> =
            trial.children.iter().map(|child| comparable(child_value(child), child.due)).collect();
        let same = expected.len() == got.len() && expected.iter().zip(&got).all(|(e, g)| is_such(e, g));
        if !same {
            differ("enqueued", Value::from(expected.clone()).to_string(), Value::from(got).to_string());
        }
    }
    if let Some(expected) = &expect.state {
        let (expected, got) = (Value::from(expected.clone()), Value::from(state::values(&trial.state_after)));
        if !content::same(&expected, &got) {
            differ("state", expected.to_string(), got.to_string());
        }
    }
    found
}

/// Reason, message and delay of an outcome, as far as it has them.
pub(super) fn failure(outcome: &Outcome) -> (Option<&'static str>, Option<&str>, Option<u64>) {
    match outcome {
        Outcome::Retry { reason, message, delay_ms } => {
            (Some(reason.as_str()), Some(message), Some(*delay_ms))
        }
        Outcome::Dead { reason, message } => (Some(reason.as_str()), Some(message), None),
        Outcome::Snoozed { delay_ms } => (None, None, Some(*delay_ms)),
        Outcome::Released { message } => (None, message.as_deref(), None),
        Outcome::Completed { .. } | Outcome::Cancelled => (None, None, None),
    }
}

fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => content::value_of(bytes).to_string(),
    }
}

/// Which key of the result says something else, and what.
fn other_result(expect: &Expect, got: Option<&[u8]>) -> Option<(&'static str, String)> {
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    if let Some(expected) = &expect.result {
        // No result is what a handler gives that returns nothing.
        let same = got.and_then(json).is_some_and(|got| content::same(expected, &got));
        return (!same).then(|| ("result", expected.to_string()));
    }
    if let Some(expected) = &expect.result_text {
        let got = got.unwrap_or_default();
        let alike = || Some(content::same(&json(expected.as_bytes())?, &json(got)?));
        let same = got == expected.as_bytes() || alike().unwrap_or(false);
        return (!same).then(|| ("result_text", expected.clone()));
    }
    let expected = expect.result_base64.as_ref()?;
    let same = content::from_base64(expected).is_ok_and(|bytes| bytes == got.unwrap_or_default());
    (!same).then(|| ("result_base64", expected.clone()))
}

/// A job that would be enqueued, with its payload as a value and its delay as people write it.
fn comparable(mut child: Value, due: Due) -> Value {
    if let Value::Object(object) = &mut child {
        object.remove("delay_ms");
        if let Due::In(ms) = due {
            object.insert("delay".to_owned(), span(ms).into());
        }
        if let Some(Value::String(text)) = object.remove("payload") {
            object.insert("payload".to_owned(), content::value_of(text.as_bytes()));
        }
        object.retain(|_, value| !value.is_null());
    }
    child
}

/// Whether a job is of the kind that a text names, or all that a table says is so of it.
fn is_such(expected: &Value, got: &Value) -> bool {
    match expected {
        Value::String(kind) => got["kind"] == kind.as_str(),
        Value::Object(expected) => expected.iter().all(|(key, value)| {
            let got = &got[key.as_str()];
            let span_of = |value: &Value| value.as_str().and_then(|text| units::duration_ms(text).ok());
            content::same(value, got)
                || (key == "delay" && span_of(value).is_some() && span_of(value) == span_of(got))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_compared_as_values_or_as_text() {
        let expect = |key: &str, value: Value| -> Expect {
            serde_json::from_value(json!({ "outcome": "completed", key: value })).expect("expectations")
        };
        let same =
            |key: &str, value: Value, got: Option<&[u8]>| other_result(&expect(key, value), got).is_none();
        assert!(same("result", json!({"a": 1, "b": 2}), Some(b"{ \"b\": 2, \"a\": 1.0 }")));
        assert!(!same("result", json!("x"), Some(b"x")), "it is no JSON");
        assert!(!same("result", json!(1), None));
        assert!(same("result_text", json!("x"), Some(b"x")));
        assert!(same("result_text", json!("{\"a\":1}"), Some(b"{ \"a\": 1 }")));
        assert!(!same("result_text", json!("1"), Some(b"2")));
        assert!(same("result_text", json!(""), None));
        assert!(same("result_base64", json!("/w=="), Some(b"\xff")));
        assert!(!same("result_base64", json!("/w=="), Some(b"\xfe")));
        assert!(same("logs", json!([]), Some(b"anything")), "what is not said is not looked at");
    }

    #[test]
    fn an_enqueued_job_is_what_is_said_of_it() {
        let child = crate::job::NewJob {
            due: Due::In(300_000),
            payload: bytes::Bytes::from_static(b"{\"order\":7}"),
            ..crate::job::NewJob::new(crate::names::Name::new("notify").expect("a name"))
        };
        let got = comparable(child_value(&child), child.due);
        for expected in [
            json!("notify"),
            json!({"kind": "notify", "payload": {"order": 7}}),
            json!({"delay": "300s"}),
            json!({"queue": "notify"}),
        ] {
            assert!(is_such(&expected, &got), "{expected} {got}");
        }
        for expected in
            [json!("other"), json!({"payload": {"order": 8}}), json!({"delay": "6m"}), json!({"x": 1})]
        {
            assert!(!is_such(&expected, &got), "{expected} {got}");
        }
    }
}
