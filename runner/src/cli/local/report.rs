//! A trial as an answer: lines for people, and JSON.

use serde_json::{Map, Value, json};

use super::trial::Trial;
use super::{brief, content, span, state};
use crate::cli::output::{Out, plain};
use crate::effects::Progress;
use crate::job::{Due, NewJob};
use crate::outcome::{Outcome, RESULT_KEPT_BYTES};
use crate::wire::job_out::ms_of_us;
use crate::wire::units::rfc3339;

/// Characters of a payload, a result or a value on a line.
const SHOWN_MAX: usize = 400;

/// What became of the job in a few words: `retry in 15s: error: no bank`.
pub(in crate::cli) fn outcome_words(outcome: &Outcome) -> String {
    let word = outcome.as_str();
    match outcome {
        Outcome::Completed { .. } | Outcome::Cancelled => word.to_owned(),
        Outcome::Retry { reason, message, delay_ms } => {
            format!("{word} in {}: {reason}: {}", span(*delay_ms), plain(message))
        }
        Outcome::Dead { reason, message } => format!("{word}: {reason}: {}", plain(message)),
        Outcome::Snoozed { delay_ms } => format!("{word} for {}", span(*delay_ms)),
        Outcome::Released { message: Some(message) } => format!("{word}: {}", plain(message)),
        Outcome::Released { message: None } => word.to_owned(),
    }
}

/// Milliseconds and bytes as one remark: `0.371 ms, 1.1 MiB of memory`.
pub(in crate::cli) fn cost(trial: &Trial) -> (String, String) {
    let ms = ms_of_us(trial.duration.as_micros() as u64);
    (format!("{ms:.3} ms"), format!("{:.1} MiB", trial.memory_bytes_peak as f64 / f64::from(1 << 20)))
}

/// Writes all of it, for people.
pub(in crate::cli) fn show(out: &mut Out, trial: &Trial) {
    let (time, memory) = cost(trial);
    let (attempt, max) = trial.attempt;
    let handler = &trial.handler;
    let mut lines = vec![
        ("outcome", outcome_words(&trial.outcome)),
        ("time", time),
        ("memory", memory),
        ("attempt", format!("{attempt} of {max}, time-out {}", span(handler.limits.timeout_ms))),
        ("handler", format!("{} {}", handler.kind, handler.hash)),
    ];
    lines.extend(trial.progress.last().map(|last| ("progress", progress_words(last))));
    lines.extend(trial.requests.iter().map(|request| ("request", plain(request))));
    lines.extend(trial.children.iter().map(|child| ("enqueued", child_words(child))));
    lines.extend(state_lines(trial).into_iter().map(|line| ("state", line)));
    if let Some(result) = &trial.result {
        lines.push(("result", result_words(trial, result)));
    }
    for (name, text) in lines {
        out.line(&format!("{name:9} {text}"));
    }
    if !trial.log.is_empty() {
        out.line("log");
        for line in trial.log.lines() {
            out.line(&format!("  {}", plain(line)));
        }
    }
}

fn progress_words(progress: &Progress) -> String {
    format!("{} % {}", progress.percent, plain(&progress.message))
}

fn result_words(trial: &Trial, result: &[u8]) -> String {
    let text = match std::str::from_utf8(result) {
        Ok(text) => brief(text, SHOWN_MAX),
        Err(_) => format!("({} bytes that are no text: --json has them)", result.len()),
    };
    if result.len() > RESULT_KEPT_BYTES && !trial.handler.keep_results {
        return format!("{text} (over {RESULT_KEPT_BYTES} bytes: a runner keeps it only with keep_results)");
    }
    text
}

fn child_words(child: &NewJob) -> String {
    let id = child.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
    let queue = if child.queue == child.kind { String::new() } else { format!(" in {}", child.queue) };
    let due = match child.due {
        Due::NOW => "now".to_owned(),
        Due::In(ms) => format!("in {}", span(ms)),
        Due::At(ms) => format!("at {}", rfc3339(ms)),
    };
    let payload = brief(&String::from_utf8_lossy(&child.payload), SHOWN_MAX);
    format!("{}{}{queue}, due {due}: {payload}", child.kind, plain(&id))
}

/// A line for each entry that is not what it was.
fn state_lines(trial: &Trial) -> Vec<String> {
    let (before, after) = (state::values(&trial.state_before), state::values(&trial.state_after));
    let shown = |value: &Value| brief(&value.to_string(), SHOWN_MAX);
    let mut lines = Vec::new();
    for (key, value) in &after {
        match before.get(key) {
            Some(was) if was == value => {}
            Some(was) => lines.push(format!("{} = {} (was {})", plain(key), shown(value), shown(was))),
            None => lines.push(format!("{} = {} (new)", plain(key), shown(value))),
        }
    }
    for (key, was) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        lines.push(format!("{} deleted (was {})", plain(key), shown(was)));
    }
    lines
}

/// All of it, for programs.
pub(in crate::cli) fn value(trial: &Trial) -> Value {
    let (error, delay_ms) = match &trial.outcome {
        Outcome::Retry { reason, message, delay_ms } => {
            (json!({"reason": reason.as_str(), "message": message}), Some(*delay_ms))
        }
        Outcome::Dead { reason, message } => (json!({"reason": reason.as_str(), "message": message}), None),
        Outcome::Snoozed { delay_ms } => (Value::Null, Some(*delay_ms)),
        Outcome::Released { message } => (json!({"reason": null, "message": message}), None),
        Outcome::Completed { .. } | Outcome::Cancelled => (Value::Null, None),
    };
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("kind", trial.handler.kind.as_str().into());
    put("handler", trial.handler.hash.as_str().into());
    put("outcome", trial.outcome.as_str().into());
    put("error", error);
    put("delay_ms", delay_ms.into());
    put("attempt", trial.attempt.0.into());
    put("max_attempts", trial.attempt.1.into());
    put("duration_ms", ms_of_us(trial.duration.as_micros() as u64).into());
    put("memory_bytes_peak", trial.memory_bytes_peak.into());
    put("log", trial.log.as_str().into());
    let progress = |p: &Progress| json!({"percent": p.percent, "message": p.message});
    put("progress", trial.progress.iter().map(progress).collect());
    put("requests", trial.requests.clone().into());
    put("enqueued", trial.children.iter().map(child_value).collect());
    put("state", state::values(&trial.state_after).into());
    content::put(&mut object, "result", trial.result.as_deref());
    Value::Object(object)
}

/// A job that would have been enqueued, with the names that NDJSON has.
pub(in crate::cli) fn child_value(child: &NewJob) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("kind", child.kind.as_str().into());
    put("queue", child.queue.as_str().into());
    put("id", child.id.as_ref().map(|id| id.as_str()).into());
    put("priority", child.priority.as_str().into());
    let (delay_ms, at) = match child.due {
        Due::In(ms) => (Some(ms), None),
        Due::At(ms) => (None, Some(rfc3339(ms))),
    };
    put("delay_ms", delay_ms.into());
    put("at", at.into());
    put("max_attempts", child.max_attempts.into());
    put("timeout_ms", child.timeout_ms.into());
    let meta: Map<String, Value> = child.meta.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
    put("meta", meta.into());
    content::put(&mut object, "payload", Some(&child.payload));
    Value::Object(object)
}
