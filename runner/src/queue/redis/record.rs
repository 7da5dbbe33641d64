//! What a job looks like in Redis, read: its record, its past and its lease as the scripts write
//! them, and the view of a job that follows from the three. Reading never fails on odd bytes of a
//! foreign program: what cannot be read is left out.

use bytes::Bytes;

use crate::job::{Job, JobView, MAX_ATTEMPTS_DEFAULT, Priority, State};
use crate::names::{JobId, Name};
use crate::outcome::{Failure, HISTORY_FIRST, HISTORY_LAST, HistoryEvent, Reason};

/// Separates the parts of a record and of an event.
const UNIT: u8 = 0x1f;
/// Separates the options of a record, and marks a generated id.
const MARK: char = '\u{1e}';
/// Events in a job's past that are kept from its beginning, as the scripts do.
const EVENTS_KEPT: usize = HISTORY_FIRST + HISTORY_LAST;

/// A record id: the value of the sequence at the enqueue, 14 digits in Redis.
pub(super) fn rid_text(record: u64) -> String {
    format!("{record:014}")
}

/// A job's record, and its due time as it was enqueued.
pub(super) fn read_record(rid: u64, bytes: &[u8]) -> Option<(Job, u64)> {
    let mut parts = bytes.splitn(8, |b| *b == UNIT);
    let mut part = || std::str::from_utf8(parts.next()?).ok();
    let max_attempts = part()?;
    let queue = Name::new(part()?).ok()?;
    let kind = part()?;
    let kind = if kind.is_empty() { queue.clone() } else { Name::new(kind).ok()? };
    let id = part()?;
    let id = match id.strip_prefix(MARK) {
        Some(random) => JobId::new(&format!("{rid}-{random}")).ok()?,
        None => JobId::new(id).ok()?,
    };
    let enqueued_ms = u64::from_str_radix(part()?, 36).ok()?;
    let delay = part()?;
    let delay_ms = if delay.is_empty() { 0 } else { u64::from_str_radix(delay, 36).ok()? };
    let options = part()?;
    let payload = Bytes::copy_from_slice(parts.next()?);
    let mut job = Job {
        id,
        kind,
        queue,
        priority: Priority::Normal,
        enqueued_ms,
        max_attempts: max_attempts.parse().ok(),
        timeout_ms: None,
        meta: Vec::new(),
        traceparent: None,
        source: String::new(),
        payload,
    };
    for option in options.split(MARK) {
        read_option(&mut job, option);
    }
    Some((job, enqueued_ms + delay_ms))
}

fn read_option(job: &mut Job, option: &str) {
    let mut letters = option.chars();
    let letter = letters.next();
    let value = letters.as_str();
    match letter {
        Some('p') if value == "h" => job.priority = Priority::High,
        Some('p') => job.priority = Priority::Low,
        Some('t') => job.timeout_ms = value.parse().ok(),
        Some('w') => job.traceparent = Some(value.to_owned()),
        Some('m') => job.meta = serde_json::from_str(value).unwrap_or_default(),
        Some('s') => job.source = value.to_owned(),
        _ => {}
    }
}

/// A lease of the `running` hash: see lua/includes/lease.lua.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseText {
    pub(super) session: String,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) claimed_ms: u64,
    pub(super) due_ms: u64,
    pub(super) queue: Name,
    pub(super) kind: Name,
}

pub(super) fn read_lease(bytes: &[u8]) -> Option<LeaseText> {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split(' ');
    let mut part = || parts.next();
    let session = part()?.to_owned();
    let token = part()?.parse().ok()?;
    let attempt = part()?.parse().ok()?;
    let max_attempts = part()?.parse().ok()?;
    let crashes = part()?.parse().ok()?;
    let due_ms = part()?.parse().ok()?;
    let _order = part()?;
    let claimed_ms = part()?.parse().ok()?;
    let _member = part()?;
    let queue = Name::new(part()?).ok()?;
    let kind = Name::new(part()?).ok()?;
    Some(LeaseText { session, token, attempt, max_attempts, crashes, claimed_ms, due_ms, queue, kind })
}

/// One stored event: see lua/includes/past.lua. A run is stored as one and read as two.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Run {
        attempt: u32,
        started_us: u64,
        duration_us: u64,
        lateness_us: u64,
        runner: String,
        handler: String,
        /// An outcome's word; empty when the run left nothing to say.
        outcome: String,
        reason: Option<Reason>,
        message: Option<String>,
    },
    Other {
        attempt: u32,
        at_us: u64,
        event: String,
        runner: Option<String>,
        reason: Option<Reason>,
        message: Option<String>,
    },
}

/// The `past` of a job.
#[derive(Debug)]
struct Past {
    state: u8,
    attempt: u32,
    max_attempts: u32,
    crashes: u32,
    due_ms: u64,
    result: Bytes,
    events: Vec<Event>,
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn read_event(bytes: &[u8]) -> Option<Event> {
    let text = String::from_utf8_lossy(bytes);
    let (letter, rest) = text.split_at_checked(1)?;
    let unit = char::from(UNIT);
    if letter == "R" {
        let parts: Vec<&str> = rest.splitn(9, unit).collect();
        let [attempt, started, duration, lateness, runner, handler, outcome, reason, message] = parts[..]
        else {
            return None;
        };
        return Some(Event::Run {
            attempt: attempt.parse().ok()?,
            started_us: started.parse().ok()?,
            duration_us: duration.parse().ok()?,
            lateness_us: lateness.parse().ok()?,
            runner: runner.to_owned(),
            handler: handler.to_owned(),
            outcome: outcome.to_owned(),
            reason: reason.parse().ok(),
            message: some(message),
        });
    }
    let parts: Vec<&str> = rest.splitn(6, unit).collect();
    let [attempt, at, event, runner, reason, message] = parts[..] else { return None };
    Some(Event::Other {
        attempt: attempt.parse().ok()?,
        at_us: at.parse().ok()?,
        event: event.to_owned(),
        runner: some(runner),
        reason: reason.parse().ok(),
        message: some(message),
    })
}

/// Takes one netstring from the front of `bytes`.
fn netstring<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let colon = bytes.iter().position(|b| *b == b':')?;
    let length: usize = std::str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
    let end = (colon + 1).checked_add(length)?;
    let text = bytes.get(colon + 1..end)?;
    *bytes = bytes.get(end + 1..)?;
    Some(text)
}

fn read_past(bytes: &[u8]) -> Option<Past> {
    let line = bytes.iter().position(|b| *b == b'\n')?;
    let header = std::str::from_utf8(&bytes[..line]).ok()?;
    let parts: Vec<&str> = header.split(' ').collect();
    let [state, attempt, max, crashes, due, _order, _bytes, _expire, _forget, _session, _token, _events] =
        parts[..]
    else {
        return None;
    };
    let mut rest = &bytes[line + 1..];
    let result = Bytes::copy_from_slice(netstring(&mut rest)?);
    let mut list = Vec::new();
    while let Some(event) = netstring(&mut rest) {
        list.extend(read_event(event));
    }
    Some(Past {
        state: *state.as_bytes().first()?,
        attempt: attempt.parse().ok()?,
        max_attempts: max.parse().ok()?,
        crashes: crashes.parse().ok()?,
        due_ms: due.parse().ok()?,
        result,
        events: list,
    })
}

/// What view.lua returns of one job, as it is: empty where there is nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) record: &'a [u8],
    pub(super) past: &'a [u8],
    pub(super) lease: &'a [u8],
    /// The name of the runner that has the lease.
    pub(super) runner: &'a str,
}

/// A job as it is at `now_ms`. `None` when there is no record.
pub(super) fn read_view(rid: u64, raw: Raw<'_>, now_ms: u64) -> Option<JobView> {
    let (job, enqueued_due_ms) = read_record(rid, raw.record)?;
    let past = read_past(raw.past);
    let lease = read_lease(raw.lease);
    let runner = raw.runner;
    let mut view = JobView {
        state: State::Scheduled,
        attempt: 0,
        max_attempts: job.max_attempts.unwrap_or(MAX_ATTEMPTS_DEFAULT),
        crashes: 0,
        due_ms: enqueued_due_ms,
        started_us: None,
        ended_us: None,
        lateness_us: None,
        runner: None,
        handler: None,
        error: None,
        result: None,
        history: vec![enqueued_event(&job)],
        job,
    };
    let mut letter = b'w';
    if let Some(past) = past {
        letter = past.state;
        view.attempt = past.attempt;
        view.crashes = past.crashes;
        view.due_ms = past.due_ms;
        if past.max_attempts > 0 {
            view.max_attempts = past.max_attempts;
        }
        if letter == b'c' && !past.result.is_empty() {
            view.result = Some(past.result.clone());
        }
        tell_life(&mut view, &past);
    }
    let held = lease.as_ref().is_some_and(|lease| lease.due_ms > now_ms);
    if let Some(lease) = lease.filter(|_| !held) {
        view.attempt = lease.attempt;
        view.max_attempts = lease.max_attempts;
        view.crashes = lease.crashes;
        view.due_ms = lease.due_ms;
        view.state = State::Running;
        view.started_us = Some(lease.claimed_ms.max(lease.due_ms) * 1_000);
        (view.ended_us, view.lateness_us, view.handler) = (None, None, None);
        view.runner = some(runner);
        return Some(view);
    }
    view.state = match letter {
        b'c' => State::Completed,
        b'x' => State::Cancelled,
        b'd' => State::Dead,
        _ if view.due_ms <= now_ms => State::Ready,
        _ => State::Scheduled,
    };
    Some(view)
}

fn enqueued_event(job: &Job) -> HistoryEvent {
    HistoryEvent {
        at_us: job.enqueued_ms * 1_000,
        event: "enqueued".to_owned(),
        attempt: 0,
        runner: None,
        handler: None,
        reason: None,
        message: None,
    }
}

/// Adds what the past tells: the history, and the facts of the last attempt.
fn tell_life(view: &mut JobView, past: &Past) {
    for event in &past.events {
        match event {
            Event::Run { started_us, duration_us, lateness_us, runner, handler, .. } => {
                tell_run(view, event);
                view.started_us = Some(*started_us);
                view.ended_us = Some(started_us + duration_us);
                view.lateness_us = Some(*lateness_us);
                (view.runner, view.handler) = (some(runner), some(handler));
            }
            Event::Other { .. } => tell_other(view, event),
        }
    }
    let events = view.history.len();
    if events > EVENTS_KEPT {
        view.history.drain(HISTORY_FIRST..events - HISTORY_LAST);
    }
}

fn tell_run(view: &mut JobView, event: &Event) {
    let Event::Run { attempt, started_us, duration_us, runner, handler, outcome, reason, message, .. } =
        event
    else {
        return;
    };
    let told = |at_us, word: &str, reason, message| HistoryEvent {
        at_us,
        event: word.to_owned(),
        attempt: *attempt,
        runner: some(runner),
        handler: some(handler),
        reason,
        message,
    };
    view.history.push(told(*started_us, "started", None, None));
    if outcome.is_empty() {
        return;
    }
    let ended_us = started_us + duration_us;
    view.history.push(told(ended_us, outcome, *reason, message.clone()));
    match (outcome.as_str(), reason) {
        ("completed", _) => view.error = None,
        (_, Some(reason)) => {
            view.error = Some(failure(*reason, message, *attempt, ended_us));
        }
        _ => {}
    }
}

fn tell_other(view: &mut JobView, event: &Event) {
    let Event::Other { attempt, at_us, event, runner, reason, message } = event else { return };
    view.history.push(HistoryEvent {
        at_us: *at_us,
        event: event.clone(),
        attempt: *attempt,
        runner: runner.clone(),
        handler: None,
        reason: *reason,
        message: message.clone(),
    });
    match event.as_str() {
        "requeued" => {
            view.error = None;
            (view.started_us, view.ended_us, view.lateness_us) = (None, None, None);
            (view.runner, view.handler) = (None, None);
        }
        "cancelled" => {
            view.error = Some(failure(Reason::Cancelled, message, *attempt, *at_us));
            view.ended_us = Some(*at_us);
        }
        "reclaimed" => {
            view.error = Some(failure(Reason::Lost, message, *attempt, *at_us));
            (view.started_us, view.lateness_us, view.handler) = (None, None, None);
            (view.ended_us, view.runner) = (Some(*at_us), runner.clone());
        }
        "dead" => {
            if let Some(reason) = reason {
                view.error = Some(failure(*reason, message, *attempt, *at_us));
            }
            view.ended_us = Some(*at_us);
        }
        _ => {}
    }
}

fn failure(reason: Reason, message: &Option<String>, attempt: u32, at_us: u64) -> Failure {
    Failure { reason, message: message.clone().unwrap_or_default(), attempt, at_us }
}
