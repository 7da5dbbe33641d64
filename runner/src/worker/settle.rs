//! Outcomes on their way to the store: batched, kept while the store is away, never dropped.
//!
//! The log of an attempt is written just before its outcome, while the lease is still valid, and is tried again with it.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::outage::Pace;
use super::run_job::retention_dead;
use super::waiting::{Company, Ended, Waiting};
use super::{Running, Worker};
use crate::clock::monotonic;
use crate::outcome::{MESSAGE_BYTES_MAX, Outcome, Reason, capped};
use crate::queue::{Settled, Settlement, StoreError};
use crate::telemetry::Throttled;
use crate::vitals::Vital;

/// Settles until every sender is gone and all is written. One batch is in flight at a time; what
/// comes in meanwhile makes the next one.
pub(super) async fn settle_loop(
    worker: Arc<Worker>,
    vital: Vital,
    mut ended: mpsc::UnboundedReceiver<Ended>,
) {
    let mut waiting = Waiting::default();
    loop {
        let rest = vital.rest();
        let Some(company) = next(&mut waiting, &mut ended).await else { return };
        drop(rest);
        let (settlements, runs): (Vec<_>, Vec<_>) =
            company.outcomes.into_iter().map(|ended| (ended.settlement, ended.running)).unzip();
        let refused =
            write_outcomes(&worker, &vital, settlements, runs.into_iter().flatten().collect()).await;
        if company.again && refused.is_empty() {
            waiting.mended();
        }
        for settlement in refused {
            waiting.refused(settlement, monotonic());
        }
        if !waiting.has_refused() {
            worker.outage.succeeded("settle_alone");
        }
    }
}

/// What is to be written next; `None` when nothing is left and nothing will come.
async fn next(waiting: &mut Waiting, ended: &mut mpsc::UnboundedReceiver<Ended>) -> Option<Company> {
    loop {
        while let Ok(more) = ended.try_recv() {
            waiting.push(more);
        }
        if let Some(company) = waiting.next(monotonic()) {
            return Some(company);
        }
        match waiting.again_at() {
            None => waiting.push(ended.recv().await?),
            Some(at) => {
                let pause = tokio::time::sleep(at.saturating_duration_since(monotonic()));
                tokio::select! {
                    Some(more) = ended.recv() => waiting.push(more),
                    () = pause => {}
                }
            }
        }
    }
}

/// The last word of each log, and of each progress. False when the store did not do it: that does not keep outcomes waiting, which
/// are what people bet on, but is tried again with them.
async fn write_logs(worker: &Worker, vital: &Vital, runs: &[Arc<Running>]) -> bool {
    let offered = worker.times_offered();
    match write_logs_once(worker, vital, runs).await {
        // Refused for want of a lease: that may be there again.
        Ok(true) if has_lost_data(worker, vital, offered).await => {
            write_logs_once(worker, vital, runs).await.is_ok()
        }
        written => written.is_ok(),
    }
}

/// Whether the store refused one of them.
async fn write_logs_once(worker: &Worker, vital: &Vital, runs: &[Arc<Running>]) -> Result<bool, StoreError> {
    let spoken = runs.iter().filter(|running| running.version() > 0);
    let mut refused = false;
    for chunk in super::logs::chunks(spoken.map(|running| super::logs::log_write(running)).collect()) {
        vital.step();
        let written = worker.store.write_logs(&chunk).await;
        let answers = written.inspect_err(|error| worker.outage.failed("write_logs", error))?;
        refused |= answers.contains(&Settled::Stale);
    }
    worker.outage.succeeded("write_logs");
    Ok(refused)
}

/// Tries until the store has answered for every outcome, and writes the logs of their runs before. Returns those that it refused, each
/// for itself.
async fn write_outcomes(
    worker: &Worker,
    vital: &Vital,
    mut settlements: Vec<Settlement>,
    mut runs: Vec<Arc<Running>>,
) -> Vec<Settlement> {
    let mut pace = Pace::default();
    let mut logs_written = false;
    loop {
        logs_written = logs_written || write_logs(worker, vital, &runs).await;
        vital.step();
        let offered = worker.times_offered();
        match settle_once(worker, vital, &mut settlements).await {
            Ok(answers) => {
                worker.outage.succeeded("settle");
                say_conflicts(worker, &settlements, &answers);
                let refused = stale(settlements, &answers);
                if refused.is_empty() || !has_lost_data(worker, vital, offered).await {
                    // Normal after a reclaim: nothing was changed, and the store counts them.
                    worker.outage.late(refused.len() as u64);
                    worker.hand.settled(refused.iter().map(|s| s.lease.token));
                    return Vec::new();
                }
                settlements = refused;
                let is_left =
                    |run: &Arc<Running>| settlements.iter().any(|s| s.lease.token == run.claimed.lease.token);
                runs.retain(is_left);
                logs_written = false;
            }
            Err(StoreError::Invalid(message))
                if settlements.len() == 1
                    && matches!(
                        settlements[0].outcome,
                        Outcome::Completed { .. } | Outcome::Retry { .. }
                    ) =>
            {
                without_effects(worker, &mut settlements[0], &message);
            }
            Err(StoreError::Invalid(message)) if settlements.len() == 1 => {
                // Nothing can mend it. Its lease is in nobody's hand from now on, and is given back.
                tracing::error!(%message, "the store does not take an outcome");
                worker.claim_lost();
                worker.hand.settled(settlements.iter().map(|s| s.lease.token));
                return Vec::new();
            }
            Err(error @ StoreError::Refused(_)) if settlements.len() == 1 => {
                // Only a person can mend it: it holds up nobody meanwhile.
                worker.outage.failed("settle_alone", &error);
                return settlements;
            }
            Err(StoreError::Invalid(_) | StoreError::Refused(_)) => {
                // One of them may be at fault: find it by writing each alone.
                let mut refused = Vec::new();
                for settlement in settlements {
                    refused
                        .extend(Box::pin(write_outcomes(worker, vital, vec![settlement], Vec::new())).await);
                }
                return refused;
            }
            Err(error) => {
                worker.outage.failed("settle", &error);
                tokio::time::sleep(pace.failed()).await;
            }
        }
    }
}

/// One call, while nobody offers jobs. What it settled has left the hand before that may begin.
async fn settle_once(
    worker: &Worker,
    vital: &Vital,
    settlements: &mut [Settlement],
) -> Result<Vec<Settled>, StoreError> {
    let rest = vital.rest();
    let _nobody_offers = worker.memory.undisturbed().await;
    drop(rest);
    worker.hand.name_records(settlements);
    let answers = worker.store.settle(settlements).await?;
    let done = settlements.iter().zip(&answers).filter(|(_, answer)| **answer != Settled::Stale);
    worker.hand.settled(done.map(|(settlement, _)| settlement.lease.token));
    Ok(answers)
}

/// Those that were refused.
fn stale(settlements: Vec<Settlement>, answers: &[Settled]) -> Vec<Settlement> {
    let answered = settlements.into_iter().zip(answers);
    answered.filter(|(_, answer)| **answer == Settled::Stale).map(|(settlement, _)| settlement).collect()
}

/// Whether the hand was offered to the store since `offered` times, because it has lost data: then its leases are there again.
/// Asks with a heartbeat, until there is an answer.
async fn has_lost_data(worker: &Worker, vital: &Vital, offered: u64) -> bool {
    let mut pace = Pace::default();
    while worker.times_offered() == offered {
        vital.step();
        match worker.beat(Some(vital)).await {
            Ok(_) => break,
            Err(error) => {
                worker.outage.failed("heartbeat", &error);
                tokio::time::sleep(pace.failed()).await;
            }
        }
    }
    worker.times_offered() != offered
}

/// What a job did cannot be written, and could not the next time either: it has not completed.
fn without_effects(worker: &Worker, settlement: &mut Settlement, why: &str) {
    tracing::warn!(kind = %settlement.lane.kind, record = settlement.lease.record, why, "the store does not take what a job did");
    let message = capped(format!("the store does not take what it did: {why}"), MESSAGE_BYTES_MAX);
    settlement.outcome = Outcome::Dead { reason: Reason::Error, message };
    let snapshot = worker.registry.snapshot();
    let handler = snapshot.handlers.get(&settlement.lane.kind);
    settlement.retention = retention_dead(worker, handler.map(AsRef::as_ref));
    settlement.effects = None;
}

/// Runs whose effects met a change of what they had read.
#[derive(Default)]
pub(super) struct Conflicts {
    total: u64,
    said: Throttled,
}

/// Runs that are done again, because somebody changed meanwhile what they had read. Normal, unless it does not end: so it is said,
/// but not each time.
fn say_conflicts(worker: &Worker, settlements: &[Settlement], answers: &[Settled]) {
    for (settlement, _) in settlements.iter().zip(answers).filter(|(_, answer)| **answer == Settled::Conflict)
    {
        let (total, said) = {
            let mut conflicts = worker.conflicts.lock();
            conflicts.total += 1;
            (conflicts.total, conflicts.said.admit(monotonic()))
        };
        let (kind, record) = (&settlement.lane.kind, settlement.lease.record);
        match said {
            Some(left_out) => {
                tracing::warn!(%kind, record, total, left_out, "the state that a job had read has changed: it runs again");
            }
            None => {
                tracing::debug!(%kind, record, total, "the state that a job had read has changed: it runs again")
            }
        }
    }
}
