//! A job's life as the stores keep it, and the view that follows: events are written once as text, which every
//! store keeps alike, and told as history when somebody asks. Reading never fails on odd bytes: what cannot be
//! read is left out.

use std::borrow::Cow;

use bytes::Bytes;

use super::RunFacts;
use crate::effects::ProgressSeen;
use crate::job::{Job, JobView, MAX_ATTEMPTS_DEFAULT, State};
use crate::outcome::{Failure, HISTORY_FIRST, HISTORY_LAST, HistoryEvent, Outcome, Reason};

/// Separates the parts of an event.
const UNIT: char = '\u{1f}';
/// Events in a job's past that are kept from its beginning and its end.
const EVENTS_KEPT: usize = HISTORY_FIRST + HISTORY_LAST;

/// One stored event: a run, which is stored as one and read as two, or something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
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

/// Whose a lease is or was: session and token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) session: String,
    pub(super) token: u64,
}

/// What a job has last said of its progress, and under which lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) by: Owner,
    pub(super) seen: ProgressSeen,
}

/// What has happened to a job since its enqueue, up to its last event.
#[derive(Debug)]
pub(super) struct Past {
    /// `w` waiting, `c` completed, `x` cancelled, `d` dead.
    pub(super) state: u8,
    pub(super) attempt: u32,
    /// 0 until a claim has said.
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    /// The lease that was settled last; `None` before the first, and after a reclaim.
    pub(super) settled: Option<Owner>,
    pub(super) result: Bytes,
    pub(super) events: Vec<Event>,
}

/// The lease of a job that a runner has.
#[derive(Debug, Clone)]
pub(super) struct LeaseFacts {
    pub(super) owner: Owner,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) claimed_ms: u64,
    pub(super) due_ms: u64,
}

/// What a store knows of one job, before it is told as a life.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) job: Job,
    /// As it was enqueued.
    pub(super) due_ms: u64,
    pub(super) past: Option<Past>,
    pub(super) lease: Option<LeaseFacts>,
    /// The name of the runner that has the lease.
    pub(super) runner: &'a str,
    pub(super) told: Option<Told>,
}

impl Told {
    /// What is shown of it: what the attempt that runs has said, else what the last one has. Attempts may have the same number: what
    /// tells them apart is the lease, and after a reclaim, which forgets that, the number.
    pub(super) fn shown(
        self,
        attempt: u32,
        running: Option<&Owner>,
        settled: Option<&Owner>,
    ) -> Option<ProgressSeen> {
        let current = match running.or(settled) {
            Some(owner) => self.by == *owner,
            None => true,
        };
        (current && self.seen.attempt == attempt).then_some(self.seen)
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reads one event as [`event_text`] and the stores write it: `R` or `E`, the attempt, and its parts joined by \31.
pub(super) fn read_event(bytes: &[u8]) -> Option<Event> {
    let text = String::from_utf8_lossy(bytes);
    let (letter, rest) = text.split_at_checked(1)?;
    if letter == "R" {
        let parts: Vec<&str> = rest.splitn(9, UNIT).collect();
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
    let parts: Vec<&str> = rest.splitn(6, UNIT).collect();
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
pub(super) fn netstring<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let colon = bytes.iter().position(|b| *b == b':')?;
    let length: usize = std::str::from_utf8(&bytes[..colon]).ok()?.parse().ok()?;
    let end = (colon + 1).checked_add(length)?;
    let text = bytes.get(colon + 1..end)?;
    *bytes = bytes.get(end + 1..)?;
    Some(text)
}

/// Adds an event to a history; drops the eleventh when there are more than the first 10 and the last 40.
pub(super) fn add_event(history: &mut Vec<u8>, events: &mut u32, event: &str) {
    if *events as usize >= EVENTS_KEPT {
        let mut rest = &history[..];
        for _ in 0..HISTORY_FIRST {
            netstring(&mut rest);
        }
        let from = history.len() - rest.len();
        netstring(&mut rest);
        let to = history.len() - rest.len();
        history.drain(from..to);
    } else {
        *events += 1;
    }
    history.extend(format!("{}:{event},", event.len()).bytes());
}

/// A job as it is at `now_ms`.
pub(super) fn view(known: Known<'_>, now_ms: u64) -> JobView {
    let Known { job, due_ms: enqueued_due_ms, past, lease, runner, told } = known;
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
        progress: None,
        history: vec![enqueued_event(&job)],
        job,
    };
    let (mut letter, mut settled) = (b'w', None);
    if let Some(mut past) = past {
        letter = past.state;
        settled = past.settled.take();
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
        view.progress = told.and_then(|told| told.shown(view.attempt, Some(&lease.owner), None));
        return view;
    }
    view.progress = told.and_then(|told| told.shown(view.attempt, None, settled.as_ref()));
    view.state = match letter {
        b'c' => State::Completed,
        b'x' => State::Cancelled,
        b'd' => State::Dead,
        _ if view.due_ms <= now_ms => State::Ready,
        _ => State::Scheduled,
    };
    view
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

/// What a settlement adds to a job's past: `R` or `E`, and what follows the attempt (and, for `E`, its time), which
/// the store knows better. Empty when it leaves no trace.
pub(super) fn event_text(run: Option<&RunFacts>, outcome: &Outcome) -> String {
    let (reason, message) = match outcome {
        Outcome::Retry { reason, message, .. } | Outcome::Dead { reason, message } => {
            (reason.as_str(), message.as_str())
        }
        Outcome::Released { message } => ("", message.as_deref().unwrap_or_default()),
        _ => ("", ""),
    };
    let silent = matches!(outcome, Outcome::Released { message: None });
    let word = if silent { "" } else { outcome.as_str() };
    match run {
        Some(run) => {
            let (runner, handler) = (plain(&run.runner), plain(&run.handler));
            let (started, took, late) = (run.started_us, run.duration_us, run.lateness_us);
            format!(
                "R{started}{UNIT}{took}{UNIT}{late}{UNIT}{runner}{UNIT}{handler}{UNIT}{word}{UNIT}{reason}{UNIT}{message}"
            )
        }
        None if silent => String::new(),
        None => format!("E{word}{UNIT}{UNIT}{reason}{UNIT}{message}"),
    }
}

/// A name without the characters that separate parts.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => text.replace(char::is_control, "?").into(),
        false => text.into(),
    }
}
