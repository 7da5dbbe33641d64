//! One job, from its slot to its outcome: a pipeline of named steps.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::policy::{Attempt, decide};
use super::{InHand, Running, Worker, random_unit};
use crate::backoff::Backoff;
use crate::clock::{Monotonic, monotonic};
use crate::job::Job;
use crate::outcome::{Outcome, Reason, RunEnd};
use crate::queue::{ClaimedJob, IdMemory, Lane, Retention, RunFacts, Settlement};
use crate::registry::Handler;
use crate::sandbox::{GuestJob, Incarnation, Limits, Offer, Services, has_made_id};

/// A job that has a slot.
pub(super) struct Slot {
    pub(super) worker: Arc<Worker>,
    pub(super) job: InHand,
    pub(super) running: Arc<Running>,
}

/// Runs a job that has a slot, and hands its outcome over to be settled. On the guest runtime. A fault
/// of the runner itself costs the job an attempt, never the slot.
pub(super) async fn run_in_slot(Slot { worker, job, running }: Slot) {
    let onlooker = worker.config.onlooker.as_deref();
    onlooker.inspect(|onlooker| onlooker.begun(&job.claimed, &running.log));
    let run = AssertUnwindSafe(run_job(&worker, &job, &running)).catch_unwind();
    let settlement = run.await.unwrap_or_else(|_| after_panic(&worker, &job.claimed));
    onlooker.inspect(|onlooker| onlooker.ended(&settlement));
    let bytes = running.log.bytes() + super::waiting::bytes(&settlement);
    worker.hand.returned(job.claimed.lease.token, bytes);
    worker.settle(settlement, Some(running));
}

async fn run_job(worker: &Worker, job: &InHand, running: &Arc<Running>) -> Settlement {
    match pick_handler(worker, &job.claimed) {
        // Refused by the store if somebody has it, and claimed again by whoever may if not.
        _ if worker.is_out_of_touch() => give_back(worker, &job.claimed),
        Some(handler) => run_on(worker, job, running, &handler).await,
        None => give_back(worker, &job.claimed),
    }
}

/// The settlement of a job during which the runner panicked.
fn after_panic(worker: &Worker, claimed: &ClaimedJob) -> Settlement {
    tracing::error!(job.id = %claimed.job.id, job.kind = %claimed.job.kind, "the runner panicked while it ran a job");
    let end = RunEnd::Failed {
        reason: Reason::Trap,
        message: "the runner failed while it ran this job; its log says why".to_owned(),
        after_ms: None,
    };
    let attempt = Attempt {
        number: claimed.attempt,
        max: claimed.max_attempts,
        backoff: Backoff::default(),
        keep_results: false,
    };
    let handler = pick_handler(worker, claimed);
    settlement(worker, claimed, handler.as_deref(), decide(end, attempt, random_unit), None)
}

/// The version that serves the kind at this moment; it is the job's for the whole run.
pub(super) fn pick_handler(worker: &Worker, job: &ClaimedJob) -> Option<Arc<Handler>> {
    worker.registry.snapshot().handlers.get(&job.job.kind).cloned()
}

async fn run_on(worker: &Worker, job: &InHand, running: &Arc<Running>, handler: &Handler) -> Settlement {
    let limits = prepare_limits(&job.claimed, handler);
    let guest_job = decode(&job.claimed);
    let started = monotonic();
    let log = Arc::clone(&running.log);
    let offer = offer(running, handler);
    let stop = running.stop.clone();
    let report = worker.sandbox.run_with(&handler.module, guest_job, &limits, offer, stop, log).await;
    if let RunEnd::NoRoom(why) = &report.end {
        worker.shortage.refused(why);
    }
    let facts = facts(worker, job, handler, started);
    let outcome = classify(report.end, &job.claimed, handler);
    let settlement = settlement(worker, &job.claimed, Some(handler), outcome, Some(facts));
    Settlement { effects: report.effects, ..settlement }
}

/// What it may reach: the handler's grants, through this runner.
fn offer(running: &Arc<Running>, handler: &Handler) -> Offer {
    let services: Arc<dyn Services> = Arc::<Running>::clone(running);
    Offer { grants: Arc::clone(&handler.grants), services: Some(services), http_answers: None }
}

/// What the guest is told.
fn decode(claimed: &ClaimedJob) -> GuestJob {
    let job = &claimed.job;
    let facts = job.traceparent.iter().map(|t| ("traceparent".to_owned(), t.clone())).collect();
    GuestJob {
        id: job.id.to_string(),
        kind: job.kind.to_string(),
        queue: job.queue.to_string(),
        attempt: claimed.attempt,
        max_attempts: claimed.max_attempts,
        enqueued_ms: job.enqueued_ms,
        due_ms: claimed.due_ms,
        meta: job.meta.clone(),
        facts,
        payload: job.payload.clone(),
        incarnation: Incarnation {
            record: claimed.lease.record,
            session: Arc::clone(&claimed.lease.session.0),
            token: claimed.lease.token,
        },
    }
}

/// The handler's limits; the time-out is the smaller of the job's and the handler's.
fn prepare_limits(claimed: &ClaimedJob, handler: &Handler) -> Limits {
    let mut limits = handler.limits.clone();
    if let Some(timeout_ms) = claimed.job.timeout_ms {
        limits.timeout_ms = limits.timeout_ms.min(timeout_ms);
    }
    limits
}

/// When it ran, on the store's clock.
fn facts(worker: &Worker, job: &InHand, handler: &Handler, started: Monotonic) -> RunFacts {
    let started_us = job.clock.us_at(started);
    RunFacts {
        started_us,
        duration_us: monotonic().duration_since(started).as_micros() as u64,
        lateness_us: started_us.saturating_sub(job.claimed.due_ms.saturating_mul(1_000)),
        runner: worker.config.name.clone(),
        handler: handler.hash.clone(),
    }
}

/// Applies the retry policy.
fn classify(end: RunEnd, claimed: &ClaimedJob, handler: &Handler) -> Outcome {
    let attempt = Attempt {
        number: claimed.attempt,
        max: claimed.max_attempts,
        backoff: handler.backoff,
        keep_results: handler.keep_results,
    };
    decide(end, attempt, random_unit)
}

/// The settlement of a job that never started: back to its place, attempt unspent.
pub(super) fn give_back(worker: &Worker, claimed: &ClaimedJob) -> Settlement {
    settlement(worker, claimed, None, Outcome::Released { message: None }, None)
}

/// How long a dead letter of a kind is kept.
pub(super) fn retention_dead(worker: &Worker, handler: Option<&Handler>) -> Retention {
    let keep = handler.map(|handler| handler.retention_dead).unwrap_or_default();
    keep.over(worker.config.retention_dead)
}

/// How long a job's id is remembered. One that the sandbox made need not be: a job with it comes with its parent's completion, and
/// that counts once. What may be remembered is for those that people chose.
fn id_memory(settings: IdMemory, job: &Job) -> IdMemory {
    if has_made_id(job) { IdMemory { age_ms: 0, ..settings } } else { settings }
}

/// A settlement under the runner's retention, with what the handler's manifest changes of it.
pub(super) fn settlement(
    worker: &Worker,
    claimed: &ClaimedJob,
    handler: Option<&Handler>,
    outcome: Outcome,
    run: Option<RunFacts>,
) -> Settlement {
    let retention = match outcome {
        Outcome::Dead { .. } => retention_dead(worker, handler),
        _ => {
            let keep = handler.map(|handler| handler.retention_finished).unwrap_or_default();
            keep.over(worker.config.retention_finished)
        }
    };
    Settlement {
        lease: claimed.lease.clone(),
        lane: Lane { queue: claimed.job.queue.clone(), kind: claimed.job.kind.clone() },
        outcome,
        run,
        retention,
        id_memory: id_memory(worker.config.id_memory, &claimed.job),
        effects: None,
        receipt: claimed.receipt.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::META_PARENT;
    use crate::job::Priority;
    use crate::names::{JobId, Name};

    #[test]
    fn ids_that_people_chose_are_remembered_and_made_ones_are_not() {
        let kind = Name::new("part").unwrap();
        let job = |id: &str| Job {
            id: JobId::new(id).unwrap(),
            kind: kind.clone(),
            queue: kind.clone(),
            priority: Priority::Normal,
            enqueued_ms: 1,
            max_attempts: None,
            timeout_ms: None,
            meta: vec![(META_PARENT.to_owned(), "report/7".to_owned())],
            traceparent: None,
            source: String::new(),
            payload: bytes::Bytes::new(),
        };
        let settings = IdMemory { age_ms: 5_000, bytes: 77 };
        assert_eq!(id_memory(settings, &job("c-7")), settings);
        assert_eq!(id_memory(settings, &job("42-abcdefghijkl-0")), IdMemory { age_ms: 0, bytes: 77 });
    }
}
