//! The module's side of `wit/job.wit`: takes a job from the host, runs its handler, answers.

use std::panic::PanicHookInfo;
use std::time::{Duration, SystemTime};

use crate::bindings;
use crate::bindings::exports::hourhand::job::handler::{Failure as WitFailure, Guest, Job};
use crate::bindings::hourhand::job::{host, jobs, state, types};
use crate::enqueue::NewJob;
use crate::handler::find;
use crate::log::Level;
use crate::{Context, Due, Failure, Priority, Refused};

/// Longest text that goes to the host, in bytes. The host keeps less; this bounds the copy.
const TEXT_BYTES_MAX: usize = 8 << 10;

struct Module;

bindings::export!(Module with_types_in bindings);

impl Guest for Module {
    fn handle(job: Job) -> Result<Vec<u8>, WitFailure> {
        std::panic::set_hook(Box::new(report_panic));
        let (ctx, payload) = opened(job);
        let outcome = match find(&ctx.kind) {
            Ok(run) => run(&ctx, payload),
            Err(kinds) => Err(Failure::retry(format_args!(
                "this module has no handler for the kind {:?}, only for {kinds:?}",
                ctx.kind
            ))),
        };
        outcome.map_err(lowered)
    }
}

/// Adds a line to the job's log.
pub(crate) fn log(level: Level, message: &str) {
    let level = match level {
        Level::Error => host::Level::Error,
        Level::Warn => host::Level::Warn,
        Level::Info => host::Level::Info,
        Level::Debug => host::Level::Debug,
        Level::Trace => host::Level::Trace,
    };
    host::log(level, message);
}

pub(crate) fn progress(percent: u8, message: &str) {
    host::progress(percent, head(message));
}

pub(crate) fn is_cancelled() -> bool {
    host::is_cancelled()
}

pub(crate) fn secret(name: &str) -> Result<String, Refused> {
    host::secret(name).map_err(refused)
}

pub(crate) fn enqueue(job: NewJob) -> Result<String, Refused> {
    let due = match job.due {
        Due::In(delay) => jobs::Due::In(milliseconds(delay)),
        // What is before 1970 is in the past.
        Due::At(time) => {
            jobs::Due::At(milliseconds(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
        }
    };
    let priority = match job.priority {
        Priority::High => jobs::Priority::High,
        Priority::Normal => jobs::Priority::Normal,
        Priority::Low => jobs::Priority::Low,
    };
    let job = jobs::NewJob {
        kind: job.kind,
        queue: job.queue,
        id: job.id,
        priority,
        due,
        max_attempts: job.max_attempts,
        timeout_ms: job.timeout.map(milliseconds),
        meta: job.meta,
        payload: job.payload,
    };
    jobs::enqueue(&job).map_err(refused)
}

pub(crate) fn state_get(key: &str) -> Result<Option<Vec<u8>>, Refused> {
    state::get(key).map_err(refused)
}

pub(crate) fn state_set(key: &str, value: &[u8]) -> Result<(), Refused> {
    state::set(key, value).map_err(refused)
}

pub(crate) fn state_delete(key: &str) -> Result<(), Refused> {
    state::delete(key).map_err(refused)
}

pub(crate) fn state_increment(key: &str, by: i64) -> Result<i64, Refused> {
    state::increment(key, by).map_err(refused)
}

fn refused(refusal: types::Refusal) -> Refused {
    match refusal {
        types::Refusal::Denied(text) => Refused::Denied(text),
        types::Refusal::Limit(text) => Refused::Limit(text),
        types::Refusal::Invalid(text) => Refused::Invalid(text),
        types::Refusal::Unavailable(text) => Refused::Unavailable(text),
    }
}

/// Tells the host why this instance is about to trap.
fn report_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a panic without a text");
    let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    host::report_panic(head(message), file, line);
}

fn opened(job: Job) -> (Context, Vec<u8>) {
    let ctx = Context {
        id: job.id,
        kind: job.kind,
        queue: job.queue,
        attempt: job.attempt,
        max_attempts: job.max_attempts,
        enqueued_at: time(job.enqueued_at),
        due_at: time(job.due_at),
        deadline: time(job.deadline),
        meta: job.meta,
        facts: job.facts,
    };
    (ctx, job.payload)
}

fn lowered(failure: Failure) -> WitFailure {
    match failure {
        Failure::Retry { message, after } => WitFailure::Retry(types::Retry {
            message: head(&message).to_owned(),
            after_ms: after.map(milliseconds),
        }),
        Failure::Permanent(message) => WitFailure::Permanent(head(&message).to_owned()),
        Failure::Snooze(span) => WitFailure::Snooze(milliseconds(span)),
        Failure::Decode(message) => WitFailure::Decode(head(&message).to_owned()),
    }
}

fn time(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
}

/// Rounded up, so that a job never comes back early.
fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The beginning of `text` that is sent.
fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}
