//! What has happened to a job of the model: its history, and the facts of its last attempt.

use anyhow::{Result, ensure};
use hourhand::job::JobView;
use hourhand::outcome::{HISTORY_FIRST, HISTORY_LAST, HistoryEvent, Outcome, Reason};
use hourhand::queue::RunFacts;

use super::window::Window;

/// What a store says for people: its own words are its own.
#[derive(Debug, Clone, PartialEq)]
enum Message {
    Exactly(Option<String>),
    Any,
}

impl Message {
    fn fits(&self, told: Option<&str>) -> bool {
        match self {
            Self::Exactly(expected) => expected.as_deref() == told,
            Self::Any => true,
        }
    }
}

/// One event, of which the moment may not be known exactly.
#[derive(Debug, Clone)]
struct Told {
    word: String,
    attempt: u32,
    at_us: Window,
    runner: Option<String>,
    handler: Option<String>,
    reason: Option<Reason>,
    message: Message,
}

impl Told {
    fn agree(&mut self, seen: &HistoryEvent) -> Result<()> {
        let same = self.word == seen.event
            && self.attempt == seen.attempt
            && self.runner == seen.runner
            && self.handler == seen.handler
            && self.reason == seen.reason
            && self.message.fits(seen.message.as_deref());
        ensure!(same, "an event is {seen:?}, expected {self:?}");
        self.at_us.pin("the moment of an event", seen.at_us)
    }
}

#[derive(Debug, Clone)]
struct Fault {
    reason: Reason,
    message: Message,
    attempt: u32,
    at_us: Window,
}

/// The past of one job.
#[derive(Debug, Clone)]
pub(super) struct Life {
    told: Vec<Told>,
    started_us: Option<u64>,
    ended_us: Option<Window>,
    lateness_us: Option<u64>,
    runner: Option<String>,
    handler: Option<String>,
    error: Option<Fault>,
}

impl Life {
    /// The life of a job that was enqueued, in milliseconds since 1970.
    pub(super) fn new(enqueued: Window) -> Self {
        let mut life = Self {
            told: Vec::new(),
            started_us: None,
            ended_us: None,
            lateness_us: None,
            runner: None,
            handler: None,
            error: None,
        };
        let enqueued_us = Window { lo: enqueued.lo * 1_000, hi: enqueued.hi * 1_000 };
        life.tell("enqueued", 0, enqueued_us);
        life
    }

    fn tell(&mut self, word: &str, attempt: u32, at_us: Window) -> &mut Told {
        self.told.push(Told {
            word: word.to_owned(),
            attempt,
            at_us,
            runner: None,
            handler: None,
            reason: None,
            message: Message::Exactly(None),
        });
        if self.told.len() > HISTORY_FIRST + HISTORY_LAST {
            self.told.remove(HISTORY_FIRST);
        }
        self.told.last_mut().expect("it was just told")
    }

    /// A run and what it ended in.
    pub(super) fn run(&mut self, run: &RunFacts, attempt: u32, outcome: &Outcome) {
        let ended_us = run.started_us + run.duration_us;
        let (runner, handler) = (Some(run.runner.clone()), Some(run.handler.clone()));
        let started = self.tell("started", attempt, Window::exact(run.started_us));
        (started.runner, started.handler) = (runner.clone(), handler.clone());
        self.started_us = Some(run.started_us);
        self.ended_us = Some(Window::exact(ended_us));
        self.lateness_us = Some(run.lateness_us);
        (self.runner, self.handler) = (runner.clone(), handler.clone());
        let (reason, message) = reason_of(outcome);
        if matches!(outcome, Outcome::Released { message: None }) {
            return;
        }
        let ended = self.tell(outcome.as_str(), attempt, Window::exact(ended_us));
        (ended.runner, ended.handler) = (runner, handler);
        (ended.reason, ended.message) = (reason, Message::Exactly(message.clone()));
        if let Some(reason) = reason {
            let message = Message::Exactly(message);
            self.error = Some(Fault { reason, message, attempt, at_us: Window::exact(ended_us) });
        } else if matches!(outcome, Outcome::Completed { .. }) {
            self.error = None;
        }
    }

    /// The end of a job that was held and never started.
    pub(super) fn given_back(&mut self, attempt: u32, outcome: &Outcome, now: Window) {
        match outcome {
            Outcome::Released { message: Some(message) } => {
                self.tell("released", attempt, now.micros()).message =
                    Message::Exactly(Some(message.clone()));
            }
            Outcome::Cancelled => self.cancelled(attempt, now),
            _ => {}
        }
    }

    /// The last event has a message of the store's own.
    pub(super) fn in_the_stores_words(&mut self) {
        if let Some(told) = self.told.last_mut() {
            told.message = Message::Any;
        }
    }

    pub(super) fn cancelled(&mut self, attempt: u32, now: Window) {
        self.tell("cancelled", attempt, now.micros()).message = Message::Any;
        self.error =
            Some(Fault { reason: Reason::Cancelled, message: Message::Any, attempt, at_us: now.micros() });
        self.ended_us = Some(now.micros());
    }

    pub(super) fn rescheduled(&mut self, attempt: u32, now: Window) {
        self.tell("rescheduled", attempt, now.micros());
    }

    /// It was lost and made again.
    pub(super) fn restored(&mut self, attempt: u32, now: Window) {
        self.tell("restored", attempt, now.micros()).message = Message::Any;
    }

    pub(super) fn requeued(&mut self, now: Window) {
        self.tell("requeued", 0, now.micros());
        (self.started_us, self.ended_us, self.lateness_us) = (None, None, None);
        (self.runner, self.handler, self.error) = (None, None, None);
    }

    /// Its runner went away; `runner` is its name, where it is still known.
    pub(super) fn reclaimed(&mut self, attempt: u32, runner: Option<String>, now: Window) {
        let told = self.tell("reclaimed", attempt, now.micros());
        (told.runner, told.reason, told.message) = (runner.clone(), Some(Reason::Lost), Message::Any);
        self.lost(attempt, now);
        (self.started_us, self.lateness_us, self.handler) = (None, None, None);
        self.runner = runner;
    }

    /// And that was once too often.
    pub(super) fn given_up(&mut self, attempt: u32, now: Window) {
        let told = self.tell("dead", attempt, now.micros());
        (told.reason, told.message) = (Some(Reason::Lost), Message::Any);
        self.lost(attempt, now);
    }

    fn lost(&mut self, attempt: u32, now: Window) {
        let at_us = now.micros();
        self.error = Some(Fault { reason: Reason::Lost, message: Message::Any, attempt, at_us });
        self.ended_us = Some(at_us);
    }

    /// When the last attempt ended, in milliseconds since 1970.
    pub(super) fn ended_ms(&self) -> Option<Window> {
        self.ended_us.map(|at| Window { lo: at.lo / 1_000, hi: at.hi / 1_000 })
    }

    /// The bytes of its events, at most: those of its messages, and what a store needs for each.
    pub(super) fn bytes_max(&self) -> usize {
        self.told.len() * 600
    }

    /// Whether the last failure has this text in its reason or message; `None` when the store's own words
    /// decide.
    pub(super) fn error_has(&self, text: &str) -> Option<bool> {
        let Some(error) = &self.error else { return Some(false) };
        match &error.message {
            _ if error.reason.as_str().contains(text) => Some(true),
            Message::Exactly(message) => Some(message.as_deref().unwrap_or_default().contains(text)),
            Message::Any => None,
        }
    }

    /// Whether the store tells the same life. `running` is true for a job that runs: it shows its present
    /// attempt, and only the rest of its past.
    pub(super) fn agree(&mut self, seen: &JobView, running: bool) -> Result<()> {
        ensure!(
            self.told.len() == seen.history.len(),
            "{} events, expected {}: {:?}, expected {:?}",
            seen.history.len(),
            self.told.len(),
            seen.history,
            self.told
        );
        for (told, seen) in self.told.iter_mut().zip(&seen.history) {
            told.agree(seen)?;
        }
        match (&mut self.error, &seen.error) {
            (None, None) => {}
            (Some(error), Some(seen)) => {
                let same = error.reason == seen.reason
                    && error.attempt == seen.attempt
                    && (error.message.fits(Some(&seen.message))
                        || (seen.message.is_empty() && error.message.fits(None)));
                ensure!(same, "the error is {seen:?}, expected {error:?}");
                error.at_us.pin("the moment of the error", seen.at_us)?;
            }
            (expected, seen) => anyhow::bail!("the error is {seen:?}, expected {expected:?}"),
        }
        if running {
            return Ok(());
        }
        let got = (seen.started_us, seen.lateness_us, &seen.runner, &seen.handler);
        let expected = (self.started_us, self.lateness_us, &self.runner, &self.handler);
        ensure!(got == expected, "start, lateness, runner, handler are {got:?}, expected {expected:?}");
        match (&mut self.ended_us, seen.ended_us) {
            (None, None) => Ok(()),
            (Some(at), Some(seen)) => at.pin("the end", seen),
            (expected, seen) => anyhow::bail!("the end is {seen:?}, expected {expected:?}"),
        }
    }
}

fn reason_of(outcome: &Outcome) -> (Option<Reason>, Option<String>) {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    match outcome {
        Outcome::Retry { reason, message, .. } | Outcome::Dead { reason, message } => {
            (Some(*reason), some(message))
        }
        Outcome::Released { message } => (None, message.as_ref().and_then(some)),
        _ => (None, None),
    }
}
