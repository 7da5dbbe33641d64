//! Outcomes on their way to the store: batched, kept while the store is away, never dropped.
//!
//! The log of an attempt is written just before its outcome, while the lease is still valid.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::outage::Pace;
use super::{Running, Worker};
use crate::outcome::Outcome;
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, LogWrite, Settled, Settlement, StoreError};

/// An outcome, and the run whose log goes with it.
pub(super) struct Ended {
    pub(super) settlement: Settlement,
    pub(super) running: Option<Arc<Running>>,
}

/// Settles until every sender is gone and all is written. One batch is in flight at a time; what
/// comes in meanwhile makes the next one.
pub(super) async fn settle_loop(worker: Arc<Worker>, mut ended: mpsc::UnboundedReceiver<Ended>) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match ended.recv().await {
                Some(first) => waiting.push_back(first),
                None => return,
            }
        }
        while let Ok(more) = ended.try_recv() {
            waiting.push_back(more);
        }
        let batch = next_batch(&mut waiting);
        write_logs(&worker, &batch).await;
        write_outcomes(&worker, batch).await;
    }
}

/// As many outcomes as one call takes: by count, and by bytes of results.
fn next_batch(waiting: &mut VecDeque<Ended>) -> Vec<Ended> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
        let size = result_bytes(&next.settlement.outcome);
        if batch.len() == BATCH_MAX || (!batch.is_empty() && bytes + size > BATCH_PAYLOAD_BYTES_MAX) {
            break;
        }
        bytes += size;
        batch.extend(waiting.pop_front());
    }
    batch
}

fn result_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed { result: Some(result) } => result.len(),
        Outcome::Retry { message, .. } | Outcome::Dead { message, .. } => message.len(),
        _ => 0,
    }
}

/// The last word of each log in the batch. A log that cannot be written does not keep its outcome
/// waiting: the outcome is what people bet on.
async fn write_logs(worker: &Worker, batch: &[Ended]) {
    let logs: Vec<LogWrite> = batch
        .iter()
        .filter_map(|e| e.running.as_ref())
        .filter(|running| running.log.version() > 0)
        .map(|running| super::logs::log_write(running))
        .collect();
    for chunk in super::logs::chunks(logs) {
        worker.progress.settle();
        if let Err(error) = worker.store.write_logs(&chunk).await {
            worker.outage.failed("write_logs", &error);
            return;
        }
    }
    worker.outage.succeeded("write_logs");
}

/// Tries until the store has answered for every outcome.
async fn write_outcomes(worker: &Worker, batch: Vec<Ended>) {
    let settlements: Vec<Settlement> = batch.into_iter().map(|ended| ended.settlement).collect();
    let mut pace = Pace::default();
    loop {
        worker.progress.settle();
        match worker.store.settle(&settlements).await {
            Ok(answers) => {
                worker.outage.succeeded("settle");
                // Normal after a reclaim: nothing was changed, and the store counts them.
                worker.outage.late(answers.iter().filter(|a| **a == Settled::Stale).count() as u64);
                worker.hand.settled(settlements.iter().map(|s| s.lease.token));
                return;
            }
            Err(StoreError::Invalid(message)) if settlements.len() == 1 => {
                // Waiting cannot mend it. The lease stays until this session ends: the job runs again then.
                tracing::error!(%message, "the store does not take an outcome");
                worker.hand.settled(settlements.iter().map(|s| s.lease.token));
                return;
            }
            Err(StoreError::Invalid(_)) => {
                // One of them is at fault: find it by writing each alone.
                for settlement in settlements {
                    let alone = Ended { settlement, running: None };
                    Box::pin(write_outcomes(worker, vec![alone])).await;
                }
                return;
            }
            Err(error) => {
                worker.outage.failed("settle", &error);
                tokio::time::sleep(pace.failed()).await;
            }
        }
    }
}
