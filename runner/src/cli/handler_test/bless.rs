//! Writes what came into a case as what is expected from now on.

use std::fmt::Write;

use serde_json::Value;

use super::case::Case;
use super::judge::{differences, failure};
use crate::cli::local::report::child_value;
use crate::cli::local::trial::Trial;
use crate::cli::local::{content, span, state};

/// The case's text with the table `[expect]` for what came. Everything else in it stays.
///
/// # Errors
/// When the new text would not say just that: the case is better changed by hand.
pub(super) fn blessed(case: &Case, trial: &Trial) -> Result<String, String> {
    let text = with_expect(&case.text, &expect_table(case, trial));
    let by_hand = "the case is written in a way that cannot be changed safely: put [expect] at its end, or change it by hand";
    let again = Case::parse(&case.file, text.clone()).map_err(|_| by_hand.to_owned())?;
    let same_job = format!("{:?}", again.job) == format!("{:?}", case.job) && again.kind == case.kind;
    let passes = again.expect.is_some_and(|expect| differences(&expect, trial).is_empty());
    if same_job && passes { Ok(text) } else { Err(by_hand.to_owned()) }
}

/// `text` with its table of this name, and what is below it, replaced, or added at the end.
fn with_expect(text: &str, table: &str) -> String {
    let header = |line: &str| {
        let name = line.trim().strip_prefix('[')?.trim_start_matches('[').trim();
        Some(name == "expect]" || name.starts_with("expect.") || name.starts_with("expect]"))
    };
    let (mut kept, mut inside, mut written) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        if let Some(ours) = header(line) {
            inside = ours;
        }
        if !inside {
            kept.push_str(line);
        } else if !written {
            written = true;
            kept.push_str(table);
        }
    }
    if !written {
        if !kept.is_empty() && !kept.ends_with('\n') {
            kept.push('\n');
        }
        if !kept.is_empty() {
            kept.push('\n');
        }
        kept.push_str(table);
    }
    kept
}

fn expect_table(case: &Case, trial: &Trial) -> String {
    let mut table = String::from("[expect]\n");
    let mut say = |key: &str, value: String| {
        let _ = writeln!(table, "{key} = {value}");
    };
    let before = case.expect.clone().unwrap_or_default();
    let (reason, message, delay_ms) = failure(&trial.outcome);
    say("outcome", string(trial.outcome.as_str()));
    if let Some(reason) = reason {
        say("reason", string(reason));
    }
    if let Some(message) = message {
        // What was enough of it before is enough still.
        let kept = before.message.filter(|part| message.contains(part));
        say("message", string(kept.as_deref().unwrap_or(message)));
    }
    if let Some(delay_ms) = delay_ms {
        say("delay", string(&span(delay_ms)));
    }
    if let Some(result) = &trial.result {
        let (key, value) = result_line(result);
        say(key, value);
    }
    if before.enqueued.is_some() || !trial.children.is_empty() {
        let children = trial.children.iter().map(|child| {
            let value = child_value(child);
            let payload = content::value_of(&child.payload);
            match inline(&payload) {
                Some(payload) => format!("{{ kind = {}, payload = {payload} }}", string(child.kind.as_str())),
                None => string(value["kind"].as_str().unwrap_or_default()),
            }
        });
        say("enqueued", format!("[{}]", children.collect::<Vec<_>>().join(", ")));
    }
    if before.requests.is_some() || !trial.requests.is_empty() {
        let requests: Vec<String> = trial.requests.iter().map(|request| string(request)).collect();
        say("requests", format!("[{}]", requests.join(", ")));
    }
    let logs: Vec<String> =
        before.logs.iter().filter(|part| trial.log.contains(*part)).map(|part| string(part)).collect();
    if !logs.is_empty() {
        say("logs", format!("[{}]", logs.join(", ")));
    }
    let state = state::values(&trial.state_after);
    if (before.state.is_some() || trial.state_after != trial.state_before)
        && let Some(state) = inline(&Value::Object(state))
    {
        say("state", state);
    }
    table
}

fn result_line(result: &[u8]) -> (&'static str, String) {
    let json = serde_json::from_slice::<Value>(result).ok();
    if let Some(value) = json.as_ref().and_then(inline) {
        return ("result", value);
    }
    match std::str::from_utf8(result) {
        Ok(text) => ("result_text", string(text)),
        Err(_) => {
            let encoded = content::value_of(result);
            ("result_base64", string(encoded["$base64"].as_str().unwrap_or_default()))
        }
    }
}

/// A value on one line of TOML; none for what TOML cannot say: `null`, and numbers beyond its own.
fn inline(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => value.to_string(),
        Value::Number(number) if number.is_i64() => number.to_string(),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
        }
        Value::Number(_) => return None,
        Value::String(text) => string(text),
        Value::Array(values) => {
            let values: Option<Vec<String>> = values.iter().map(inline).collect();
            format!("[{}]", values?.join(", "))
        }
        Value::Object(object) if object.is_empty() => "{}".to_owned(),
        Value::Object(object) => {
            let entry =
                |(key, value): (&String, &Value)| Some(format!("{} = {}", key_of(key), inline(value)?));
            let entries: Option<Vec<String>> = object.iter().map(entry).collect();
            format!("{{ {} }}", entries?.join(", "))
        }
    })
}

fn key_of(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { string(key) }
}

/// A text in TOML, on one line.
fn string(text: &str) -> String {
    if text.contains(['"', '\\']) && !text.contains('\'') && !text.chars().any(char::is_control) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_in_toml_reads_back() {
        for value in [
            json!("it's \"so\" \\ \n\t\u{1}\u{7f}é"),
            json!("{\"a\":1}"),
            json!([1, -2.5, 1e300, true, [], {}]),
            json!({"a b": {"c": "x"}, "": "empty", "π": 3.0}),
            json!(i64::MIN),
        ] {
            let text = format!("value = {}", inline(&value).expect("TOML"));
            let read: Value = toml::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read["value"], value, "{text}");
        }
        assert_eq!(inline(&json!({"a": [null]})), None);
        assert_eq!(inline(&json!(u64::MAX)), None);
    }

    #[test]
    fn only_the_table_changes() {
        let new = "[expect]\noutcome = \"dead\"\n";
        for (before, after) in [
            ("", "[expect]\noutcome = \"dead\"\n"),
            ("payload = 1", "payload = 1\n\n[expect]\noutcome = \"dead\"\n"),
            (
                "# c\npayload = 1\n[expect]\na = 1\n[expect.state]\nb = 1\n",
                "# c\npayload = 1\n[expect]\noutcome = \"dead\"\n",
            ),
            ("[expect]\na = 1\n[state]\nb = 1\n", "[expect]\noutcome = \"dead\"\n[state]\nb = 1\n"),
        ] {
            assert_eq!(with_expect(before, new), after, "{before:?}");
        }
    }
}
