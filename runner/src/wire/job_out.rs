//! The JSON of a job, of its history and of lists, as everybody outside reads it.
//!
//! What is not known is `null`, never left out. Payload and result are text when their bytes are UTF-8,
//! else they come as `payload_base64` and `result_base64`. `lateness_ms` and `duration_ms` are decimal numbers
//! with microseconds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::units::rfc3339;
use crate::client::Spooled;
use crate::effects::ProgressSeen;
use crate::job::{JobView, Priority, State};
use crate::outcome::{Failure, HistoryEvent, Reason};
use crate::queue::{Disposition, Enqueued};

/// A list, or a page of one.
#[derive(Debug, Serialize)]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub cursor: Option<String>,
}

/// A job.
#[derive(Debug, Serialize)]
pub struct JobOut<'a> {
    id: &'a str,
    kind: &'a str,
    queue: &'a str,
    state: State,
    priority: Priority,
    attempt: u32,
    max_attempts: u32,
    crashes: u32,
    enqueued_at: String,
    due_at: String,
    started_at: Option<String>,
    finished_at: Option<String>,
    lateness_ms: Option<f64>,
    duration_ms: Option<f64>,
    runner: Option<&'a str>,
    handler: Option<&'a str>,
    error: Option<FailureOut<'a>>,
    progress: Option<ProgressOut<'a>>,
    source: &'a str,
    #[serde(flatten)]
    payload: PayloadOut<'a>,
    #[serde(flatten)]
    result: ResultOut<'a>,
    #[serde(serialize_with = "pairs")]
    meta: &'a [(String, String)],
    traceparent: Option<&'a str>,
    history: Vec<EventOut<'a>>,
}

#[derive(Debug, Serialize)]
struct FailureOut<'a> {
    reason: Reason,
    message: &'a str,
    attempt: u32,
    at: String,
}

#[derive(Debug, Serialize)]
struct ProgressOut<'a> {
    percent: u8,
    message: &'a str,
    at: String,
}

#[derive(Debug, Serialize)]
struct EventOut<'a> {
    at: String,
    event: &'a str,
    attempt: u32,
    runner: Option<&'a str>,
    handler: Option<&'a str>,
    reason: Option<Reason>,
    message: Option<&'a str>,
}

#[derive(Debug, Serialize)]
enum PayloadOut<'a> {
    #[serde(rename = "payload")]
    Text(&'a str),
    #[serde(rename = "payload_base64")]
    Bytes(String),
}

#[derive(Debug, Serialize)]
enum ResultOut<'a> {
    #[serde(rename = "result")]
    Text(Option<&'a str>),
    #[serde(rename = "result_base64")]
    Bytes(String),
}

impl<'a> From<&'a JobView> for JobOut<'a> {
    fn from(view: &'a JobView) -> Self {
        let job = &view.job;
        Self {
            id: job.id.as_str(),
            kind: job.kind.as_str(),
            queue: job.queue.as_str(),
            state: view.state,
            priority: job.priority,
            attempt: view.attempt,
            max_attempts: view.max_attempts,
            crashes: view.crashes,
            enqueued_at: rfc3339(job.enqueued_ms),
            due_at: rfc3339(view.due_ms),
            started_at: view.started_us.map(rfc3339_us),
            finished_at: finished_us(view).map(rfc3339_us),
            lateness_ms: view.lateness_us.map(ms_of_us),
            duration_ms: duration_us(view).map(ms_of_us),
            runner: view.runner.as_deref(),
            handler: view.handler.as_deref(),
            error: view.error.as_ref().map(FailureOut::from),
            progress: view.progress.as_ref().map(ProgressOut::from),
            source: &job.source,
            payload: match std::str::from_utf8(&job.payload) {
                Ok(text) => PayloadOut::Text(text),
                Err(_) => PayloadOut::Bytes(BASE64.encode(&job.payload)),
            },
            result: match view.result.as_deref().map(|r| std::str::from_utf8(r).map_err(|_| r)) {
                None => ResultOut::Text(None),
                Some(Ok(text)) => ResultOut::Text(Some(text)),
                Some(Err(bytes)) => ResultOut::Bytes(BASE64.encode(bytes)),
            },
            meta: &job.meta,
            traceparent: job.traceparent.as_deref(),
            history: view.history.iter().map(EventOut::from).collect(),
        }
    }
}

impl<'a> From<&'a Failure> for FailureOut<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self {
            reason: failure.reason,
            message: &failure.message,
            attempt: failure.attempt,
            at: rfc3339_us(failure.at_us),
        }
    }
}

impl<'a> From<&'a ProgressSeen> for ProgressOut<'a> {
    fn from(seen: &'a ProgressSeen) -> Self {
        Self { percent: seen.percent, message: &seen.message, at: rfc3339_us(seen.at_us) }
    }
}

impl<'a> From<&'a HistoryEvent> for EventOut<'a> {
    fn from(event: &'a HistoryEvent) -> Self {
        Self {
            at: rfc3339_us(event.at_us),
            event: &event.event,
            attempt: event.attempt,
            runner: event.runner.as_deref(),
            handler: event.handler.as_deref(),
            reason: event.reason,
            message: event.message.as_deref(),
        }
    }
}

/// When the job ended for good, in microseconds since 1970: not the end of an attempt that is retried.
pub fn finished_us(view: &JobView) -> Option<u64> {
    view.ended_us.filter(|_| view.state.is_finished())
}

/// How long the last attempt took, in microseconds; `None` while it runs and before the first.
pub fn duration_us(view: &JobView) -> Option<u64> {
    let ended = view.ended_us.filter(|_| view.state != State::Running)?;
    ended.checked_sub(view.started_us?)
}

/// The answer to one enqueue.
#[derive(Debug, Serialize)]
pub struct EnqueuedOut<'a> {
    id: &'a str,
    created: bool,
    /// A state, or `spooled`.
    state: &'static str,
    due_at: String,
}

impl<'a> From<&'a Enqueued> for EnqueuedOut<'a> {
    fn from(enqueued: &'a Enqueued) -> Self {
        Self {
            id: enqueued.id.as_str(),
            created: enqueued.disposition == Disposition::Created,
            state: enqueued.state.as_str(),
            due_at: rfc3339(enqueued.due_ms),
        }
    }
}

impl<'a> From<&'a Spooled> for EnqueuedOut<'a> {
    fn from(spooled: &'a Spooled) -> Self {
        Self { id: spooled.id.as_str(), created: true, state: "spooled", due_at: rfc3339(spooled.due_ms) }
    }
}

/// Microseconds as milliseconds with a fraction.
pub fn ms_of_us(us: u64) -> f64 {
    us as f64 / 1_000.0
}

fn rfc3339_us(us: u64) -> String {
    rfc3339(us / 1_000)
}

/// An object that keeps the order of its pairs.
fn pairs<S: Serializer>(pairs: &&[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in *pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::job::Job;
    use crate::names::{JobId, Name};

    /// A job that has seen everything.
    pub(crate) fn sample() -> JobView {
        JobView {
            job: Job {
                id: JobId::new("order 7").expect("an id"),
                kind: Name::new("order_close").expect("a name"),
                queue: Name::new("orders").expect("a name"),
                priority: Priority::High,
                enqueued_ms: 1_796_115_600_000,
                max_attempts: None,
                timeout_ms: None,
                meta: vec![("b".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())],
                traceparent: None,
                source: "cli:me@here".to_owned(),
                payload: Bytes::from_static(b" {\"a\": 1,\"a\":[]} \n"),
            },
            state: State::Dead,
            attempt: 2,
            max_attempts: 2,
            crashes: 1,
            due_ms: 1_796_115_601_000,
            started_us: Some(1_796_115_601_001_234),
            ended_us: Some(1_796_115_601_003_300),
            lateness_us: Some(1_234),
            runner: Some("host:7".to_owned()),
            handler: Some("0123456789ab".to_owned()),
            error: Some(Failure {
                reason: Reason::Panic,
                message: "bad id 7".to_owned(),
                attempt: 2,
                at_us: 1_796_115_601_003_300,
            }),
            result: None,
            progress: Some(ProgressSeen {
                percent: 40,
                message: "2 of 5".to_owned(),
                attempt: 2,
                at_us: 1_796_115_601_002_000,
            }),
            history: vec![HistoryEvent {
                at_us: 1_796_115_600_000_000,
                event: "enqueued".to_owned(),
                attempt: 0,
                runner: None,
                handler: None,
                reason: None,
                message: None,
            }],
        }
    }

    #[test]
    fn the_json_of_a_job_has_every_field_in_its_order() {
        let json = serde_json::to_string_pretty(&JobOut::from(&sample())).expect("serialises");
        assert_eq!(json, include_str!("job_out.snap.json").trim_end());
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64() {
        let mut view = sample();
        view.job.payload = Bytes::from_static(b"\xff\x00");
        view.result = Some(Bytes::from_static(b"\xfe"));
        let json = serde_json::to_value(JobOut::from(&view)).expect("serialises");
        assert_eq!(json["payload_base64"], "/wA=");
        assert_eq!(json["result_base64"], "/g==");
        assert!(json.get("payload").is_none() && json.get("result").is_none());
        view.result = Some(Bytes::from_static(b"{}"));
        assert_eq!(serde_json::to_value(JobOut::from(&view)).expect("serialises")["result"], "{}");
    }

    #[test]
    fn a_retry_has_not_finished_and_a_running_job_has_no_duration() {
        let mut view = sample();
        view.state = State::Scheduled;
        assert_eq!(finished_us(&view), None);
        assert_eq!(duration_us(&view), Some(2_066));
        view.state = State::Running;
        assert_eq!(duration_us(&view), None);
        view.started_us = None;
        view.state = State::Cancelled;
        assert_eq!(duration_us(&view), None, "cancelled before it ever started");
    }

    #[test]
    fn the_answer_to_an_enqueue() {
        let enqueued = Enqueued {
            id: JobId::new("1-abcde").expect("an id"),
            disposition: Disposition::Kept,
            state: State::Completed,
            due_ms: 0,
        };
        assert_eq!(
            serde_json::to_string(&EnqueuedOut::from(&enqueued)).expect("serialises"),
            r#"{"id":"1-abcde","created":false,"state":"completed","due_at":"1970-01-01T00:00:00.000Z"}"#
        );
    }
}
