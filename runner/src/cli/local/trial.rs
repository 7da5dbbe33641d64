//! One job in the real sandbox, with no store: the steps of a runner's `run_job`, on this machine alone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::answers::{AnswerSaid, Answers};
use super::state::{self, Entries, LocalServices};
use crate::clock;
use crate::effects::Progress;
use crate::job::{MAX_ATTEMPTS_MAX, NewJob};
use crate::names::{JobId, Name};
use crate::outcome::{Outcome, RunEnd};
use crate::registry::Handler;
use crate::sandbox::{GuestJob, Incarnation, JobLog, Offer, Sandbox, StopSignal};
use crate::worker::{Attempt, decide};

/// A draw that changes no delay: what is shown is the backoff without its jitter.
const NO_JITTER: f64 = 0.5;

/// What a job is to be.
#[derive(Debug, Clone)]
pub(in crate::cli) struct TrialJob {
    /// Its id.
    pub(in crate::cli) id: JobId,
    /// Where it waited; the kind's own name when none.
    pub(in crate::cli) queue: Option<Name>,
    /// Counts from 1.
    pub(in crate::cli) attempt: u32,
    /// The handler's when none.
    pub(in crate::cli) max_attempts: Option<u32>,
    /// In milliseconds; never more than the handler's.
    pub(in crate::cli) timeout_ms: Option<u64>,
    /// When it was due, in milliseconds since 1970; now when none.
    pub(in crate::cli) due_ms: Option<u64>,
    /// What whoever enqueued it attached.
    pub(in crate::cli) meta: Vec<(String, String)>,
    /// What was enqueued.
    pub(in crate::cli) payload: Bytes,
    /// The handler's state before it.
    pub(in crate::cli) state: Entries,
    /// What answers its HTTP requests; the network when none.
    pub(in crate::cli) http: Option<Vec<AnswerSaid>>,
}

impl TrialJob {
    /// Checks what an enqueue would check.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub(in crate::cli) fn validate(&self, kind: &Name) -> Result<(), String> {
        for (at, (key, _)) in self.meta.iter().enumerate() {
            if self.meta[..at].iter().any(|(before, _)| before == key) {
                return Err(format!("meta: expected each key once, got {key:?} twice"));
            }
        }
        if !(1..=MAX_ATTEMPTS_MAX).contains(&self.attempt) {
            return Err(format!("attempt: expected 1 to {MAX_ATTEMPTS_MAX}, got {}", self.attempt));
        }
        let job = NewJob {
            max_attempts: self.max_attempts,
            timeout_ms: self.timeout_ms,
            meta: self.meta.clone(),
            payload: self.payload.clone(),
            ..NewJob::new(kind.clone())
        };
        job.validate()
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Trial {
    /// What ran.
    pub(in crate::cli) handler: Arc<Handler>,
    /// Which attempt it was, and of how many.
    pub(in crate::cli) attempt: (u32, u32),
    /// What is to become of the job, delays without their jitter.
    pub(in crate::cli) outcome: Outcome,
    /// What it returned, also where a record would not keep it.
    pub(in crate::cli) result: Option<Bytes>,
    /// What it wrote and logged.
    pub(in crate::cli) log: String,
    /// From its start to its end.
    pub(in crate::cli) duration: Duration,
    /// The most memory that it had, in bytes.
    pub(in crate::cli) memory_bytes_peak: u64,
    /// What would have been enqueued together with its completion.
    pub(in crate::cli) children: Vec<NewJob>,
    /// Its state before.
    pub(in crate::cli) state_before: Entries,
    /// Its state after.
    pub(in crate::cli) state_after: Entries,
    /// HTTP requests that fixtures answered, or did not.
    pub(in crate::cli) requests: Vec<String>,
    /// What it said of how far it had come.
    pub(in crate::cli) progress: Vec<Progress>,
}

/// Runs the job. Returns a moment after its time-out at the latest.
///
/// # Errors
/// When an answer to an HTTP request makes no sense.
pub(in crate::cli) async fn run(
    sandbox: &Sandbox,
    handler: &Arc<Handler>,
    job: TrialJob,
) -> Result<Trial, String> {
    let answers = job.http.as_deref().map(Answers::new).transpose()?.map(Arc::new);
    let mut limits = handler.limits.clone();
    if let Some(timeout_ms) = job.timeout_ms {
        limits.timeout_ms = limits.timeout_ms.min(timeout_ms);
    }
    let max_attempts = job.max_attempts.unwrap_or(handler.max_attempts);
    let max_attempts = handler.attempts_cap.map_or(max_attempts, |cap| max_attempts.min(cap));
    let services = Arc::new(LocalServices::new(job.state.clone()));
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let offer = offer(handler, &services, answers.as_ref());
    let guest_job = guest_job(&handler.kind, &job, max_attempts);
    let started = clock::monotonic();
    let report = sandbox
        .run_with(&handler.module, guest_job, &limits, offer, StopSignal::new(), Arc::clone(&log))
        .await;
    let duration = clock::monotonic().duration_since(started);

    let mut end = report.end;
    let effects = report.effects.filter(|_| matches!(end, RunEnd::Completed(_))).unwrap_or_default();
    let state_after = match effects.state.as_ref().map(|effects| state::changed(&job.state, effects)) {
        None => job.state.clone(),
        Some(Ok(after)) => after,
        // A store would give it back, and it would end like this each time.
        Some(Err(conflict)) => {
            end = RunEnd::Released(conflict);
            job.state.clone()
        }
    };
    let (result, children) = match &end {
        RunEnd::Completed(result) => {
            (Some(result.clone()).filter(|bytes| !bytes.is_empty()), effects.children)
        }
        _ => (None, Vec::new()),
    };
    let policy = Attempt {
        number: job.attempt,
        max: max_attempts,
        backoff: handler.backoff,
        keep_results: handler.keep_results,
    };
    Ok(Trial {
        handler: Arc::clone(handler),
        attempt: (job.attempt, max_attempts),
        outcome: decide(end, policy, || NO_JITTER),
        result,
        log: log.text(),
        duration,
        memory_bytes_peak: report.memory_bytes_peak,
        children,
        state_before: job.state,
        state_after,
        requests: answers.map(|answers| answers.requests()).unwrap_or_default(),
        progress: services.progress(),
    })
}

fn offer(handler: &Handler, services: &Arc<LocalServices>, answers: Option<&Arc<Answers>>) -> Offer {
    Offer {
        grants: Arc::clone(&handler.grants),
        services: Some(Arc::clone(services) as Arc<dyn crate::sandbox::Services>),
        http_answers: answers.map(|answers| Arc::clone(answers) as Arc<dyn crate::sandbox::HttpAnswers>),
    }
}

fn guest_job(kind: &Name, job: &TrialJob, max_attempts: u32) -> GuestJob {
    let now_ms = clock::wall_ms();
    let due_ms = job.due_ms.unwrap_or(now_ms);
    GuestJob {
        // The ids of the jobs that it enqueues follow from it: the same each time.
        incarnation: Incarnation { record: 1, session: Arc::from("local"), token: 1 },
        id: job.id.to_string(),
        kind: kind.to_string(),
        queue: job.queue.as_ref().unwrap_or(kind).to_string(),
        attempt: job.attempt,
        max_attempts,
        enqueued_ms: due_ms.min(now_ms),
        due_ms,
        meta: job.meta.clone(),
        facts: Vec::new(),
        payload: job.payload.clone(),
    }
}
