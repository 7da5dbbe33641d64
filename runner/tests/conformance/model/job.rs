//! A job of the model, and whether what the store shows of it is that.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hourhand::effects::Progress;
use hourhand::job::{CRASHES_MAX, Job, JobView, MAX_ATTEMPTS_DEFAULT, NewJob, State};
use hourhand::names::JobId;
use hourhand::queue::{ClaimedJob, Lane, Lease, RecallAction, SessionId};

use super::life::Life;
use super::window::Window;

/// Crashes from which on a job is claimed alone among its like.
pub(super) const SUSPECT_CRASHES: u32 = CRASHES_MAX - 1;
/// Attempts of which the log is kept.
const LOGS_KEPT: usize = 20;

/// Where a job is.
#[derive(Debug, Clone)]
pub(super) enum Spot {
    Waiting,
    Leased(Taken),
    Finished(Finished),
}

/// A lease, and what the claim said.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) lease: Lease,
    pub(super) attempt: u32,
    pub(super) max: u32,
    pub(super) claimed_ms: u64,
    /// What an operator wants of whoever has it.
    pub(super) recall: Option<RecallAction>,
    /// It may have been held, and so wanted back, when its queue was paused or purged: the next heartbeat tells.
    pub(super) maybe_recalled: bool,
}

/// An end, and how long it is kept. All in milliseconds since 1970.
#[derive(Debug, Clone)]
pub(super) struct Finished {
    pub(super) state: State,
    pub(super) ended: Window,
    /// `None` for never.
    pub(super) expire: Option<Window>,
    pub(super) forget: Window,
}

#[derive(Debug, Clone)]
pub(super) struct ModelJob {
    pub(super) job: Job,
    enqueued: Window,
    /// Whether the caller chose the id.
    pub(super) explicit: bool,
    /// Known since the first claim.
    pub(super) record: Option<u64>,
    /// Its place among the jobs that are due with it.
    pub(super) order: u64,
    pub(super) spot: Spot,
    due: Window,
    /// Attempts used.
    pub(super) attempt: u32,
    /// What the last claim said of attempts.
    pub(super) max: Option<u32>,
    pub(super) crashes: u32,
    /// The lease that was settled last: to settle it again is no mistake.
    pub(super) last: Option<(SessionId, u64)>,
    /// How often its effects were in conflict, up to then and in a row.
    pub(super) conflicts: u32,
    /// What was last said of its progress, and under which lease.
    pub(super) progress: Option<(Progress, u32, (SessionId, u64))>,
    pub(super) life: Life,
    pub(super) result: Option<Bytes>,
    pub(super) logs: Vec<(u32, String)>,
}

impl ModelJob {
    /// A new job that the store took at `now`, due at `due_ms`.
    pub(super) fn new(asked: &NewJob, id: &JobId, due_ms: u64, order: u64, now: Window) -> Self {
        let job = Job {
            id: id.clone(),
            kind: asked.kind.clone(),
            queue: asked.queue.clone(),
            priority: asked.priority,
            enqueued_ms: now.lo,
            max_attempts: asked.max_attempts,
            timeout_ms: asked.timeout_ms,
            meta: asked.meta.clone(),
            traceparent: asked.traceparent.clone(),
            source: asked.source.clone(),
            payload: asked.payload.clone(),
        };
        Self {
            job,
            enqueued: now,
            explicit: asked.id.is_some(),
            record: None,
            order,
            spot: Spot::Waiting,
            due: Window::exact(due_ms),
            attempt: 0,
            max: None,
            crashes: 0,
            last: None,
            conflicts: 0,
            progress: None,
            life: Life::new(now),
            result: None,
            logs: Vec::new(),
        }
    }

    /// A job that a runner had in its hand and the store did not know any more.
    pub(super) fn made_again(offered: &ClaimedJob, record: u64, order: u64, now: Window) -> Self {
        let asked = NewJob::new(offered.job.kind.clone());
        let enqueued = Window::exact(offered.job.enqueued_ms);
        let mut job = Self::new(&asked, &offered.job.id, offered.due_ms, order, enqueued);
        job.job = offered.job.clone();
        let made = format!("{record}-");
        job.explicit = !offered.job.id.as_str().starts_with(&made);
        (job.attempt, job.max) = (offered.attempt - 1, Some(offered.max_attempts));
        job.crashes = offered.crashes;
        job.life.restored(job.attempt, now);
        job
    }

    pub(super) fn lane(&self) -> Lane {
        Lane { queue: self.job.queue.clone(), kind: self.job.kind.clone() }
    }

    /// Its due time, in milliseconds since 1970.
    pub(super) fn due(&self) -> u64 {
        self.due.lo
    }

    /// Moves it; the store's own view pins the time.
    pub(super) fn set_due(&mut self, due: Window) {
        self.due = due;
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.crashes >= SUSPECT_CRASHES
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.spot, Spot::Waiting)
    }

    pub(super) fn taken(&self) -> Option<&Taken> {
        if let Spot::Leased(taken) = &self.spot { Some(taken) } else { None }
    }

    pub(super) fn finished(&self) -> Option<&Finished> {
        if let Spot::Finished(finished) = &self.spot { Some(finished) } else { None }
    }

    /// Whether this lease may settle it.
    pub(super) fn is_under(&self, lease: &Lease) -> bool {
        self.taken().is_some_and(|taken| taken.lease == *lease)
    }

    /// Whether its due time has come, for a moment at which that is certain.
    pub(super) fn is_due(&self, now: Window) -> bool {
        now.reached(self.due()).unwrap_or(true)
    }

    /// The states in which it may show itself at a moment.
    pub(super) fn states(&self, now: Window) -> Vec<State> {
        let mut states = Vec::new();
        if let Spot::Finished(finished) = &self.spot {
            return vec![finished.state];
        }
        let due = Window::reached(now, self.due());
        if due != Some(false) {
            states.push(if self.waits() { State::Ready } else { State::Running });
        }
        if due != Some(true) {
            states.push(State::Scheduled);
        }
        states
    }

    /// What is shown of its progress while it is at this attempt.
    fn shown_progress(&self, attempt: u32, running: bool) -> Option<(u8, &str, u32)> {
        let (progress, of, by) = self.progress.as_ref()?;
        let current = match (self.taken().filter(|_| running), &self.last) {
            (Some(taken), _) => *by == (taken.lease.session.clone(), taken.lease.token),
            (None, Some(last)) => by == last && self.conflicts == 0,
            (None, None) => true,
        };
        (current && *of == attempt).then_some((progress.percent, progress.message.as_str(), *of))
    }

    pub(super) fn write_log(&mut self, attempt: u32, text: &str) {
        match self.logs.iter_mut().find(|(of, _)| *of == attempt) {
            Some((_, kept)) => text.clone_into(kept),
            None => self.logs.push((attempt, text.to_owned())),
        }
        if self.logs.len() > LOGS_KEPT {
            self.logs.remove(0);
        }
    }

    /// Whether the store, which looked at the job at some moment of `now`, shows what is expected. What
    /// could not be known exactly is known afterwards. `runner` is the name of whoever has the lease.
    pub(super) fn agree(&mut self, seen: &JobView, runner: Option<&str>, now: Window) -> Result<()> {
        self.enqueued.pin("the time of the enqueue", seen.job.enqueued_ms)?;
        self.job.enqueued_ms = seen.job.enqueued_ms;
        ensure!(self.job == seen.job, "the job is {:?}, expected {:?}", seen.job, self.job);
        self.due.pin("the due time", seen.due_ms)?;
        let states = self.states(now);
        ensure!(states.contains(&seen.state), "the state is {}, expected {states:?}", seen.state);
        let running = seen.state == State::Running;
        let own = self.max.or(self.job.max_attempts).unwrap_or(MAX_ATTEMPTS_DEFAULT);
        let (attempt, maxes) = match self.taken() {
            Some(taken) if running => (taken.attempt, [taken.max; 2]),
            Some(taken) => (self.attempt, [own, taken.max]),
            None => (self.attempt, [own; 2]),
        };
        ensure!(seen.attempt == attempt, "the attempt is {}, expected {attempt}", seen.attempt);
        ensure!(
            maxes.contains(&seen.max_attempts),
            "max_attempts is {}, not of {maxes:?}",
            seen.max_attempts
        );
        ensure!(seen.crashes == self.crashes, "crashes are {}, expected {}", seen.crashes, self.crashes);
        ensure!(seen.result == self.result, "the result is {:?}, expected {:?}", seen.result, self.result);
        let told = seen.progress.as_ref().map(|told| (told.percent, told.message.as_str(), told.attempt));
        let expected = self.shown_progress(seen.attempt, running);
        ensure!(told == expected, "the progress is {told:?}, expected {expected:?}");
        if let Some(taken) = self.taken().filter(|_| running) {
            let started_us = taken.claimed_ms.max(self.due()) * 1_000;
            let got = (seen.started_us, seen.ended_us, seen.lateness_us, seen.runner.as_deref());
            let expected = (Some(started_us), None, None, runner);
            ensure!(got == expected, "start, end, lateness, runner are {got:?}, expected {expected:?}");
            ensure!(seen.handler.is_none(), "a handler is named before the run has ended");
        }
        self.life.agree(seen, running).with_context(|| format!("in {}", seen.state))
    }
}
