//! Outcomes on their way to the store: batched, kept while the store is away, never dropped.
//!
//! The log of an attempt is written just before its outcome, while the lease is still valid.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::mpsc;

use super::outage::Pace;
use super::{Running, Worker};
use crate::effects::StateChange;
use crate::job::NewJob;
use crate::outcome::{MESSAGE_BYTES_MAX, Outcome, Reason, capped};
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

/// As many outcomes as one call takes: by what is written, and by bytes. One that is too large for any company travels alone.
fn next_batch(waiting: &mut VecDeque<Ended>) -> Vec<Ended> {
    let mut batch = Vec::new();
    let (mut writes, mut bytes) = (0, 0);
    while let Some(next) = waiting.front() {
        let (its_writes, its_bytes) = size(&next.settlement);
        let fits = writes + its_writes <= BATCH_MAX && bytes + its_bytes <= BATCH_PAYLOAD_BYTES_MAX;
        if !fits && !batch.is_empty() {
            break;
        }
        writes += its_writes;
        bytes += its_bytes;
        batch.extend(waiting.pop_front());
    }
    batch
}

/// How many things a settlement writes or checks, and how many bytes.
fn size(settlement: &Settlement) -> (usize, usize) {
    let (mut writes, mut bytes) = (1, result_bytes(&settlement.outcome));
    if let Some(effects) = &settlement.effects {
        writes += effects.children.len();
        bytes += effects.children.iter().map(child_bytes).sum::<usize>();
        if let Some(state) = &effects.state {
            writes += state.reads.len() + state.changes.len();
            bytes +=
                state.changes.iter().map(|(key, change)| key.len() + change_bytes(change)).sum::<usize>();
        }
    }
    (writes, bytes)
}

fn child_bytes(child: &NewJob) -> usize {
    let meta: usize = child.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    child.payload.len() + meta
}

fn change_bytes(change: &StateChange) -> usize {
    match change {
        StateChange::Set(value) => value.len(),
        StateChange::Delete | StateChange::Add(_) => 0,
    }
}

fn result_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed { result: Some(result) } => result.len(),
        Outcome::Retry { message, .. } | Outcome::Dead { message, .. } => message.len(),
        _ => 0,
    }
}

/// The last word of each log in the batch, and of each progress. A log that cannot be written does not keep its outcome
/// waiting: the outcome is what people bet on.
async fn write_logs(worker: &Worker, batch: &[Ended]) {
    let logs: Vec<LogWrite> = batch
        .iter()
        .filter_map(|e| e.running.as_ref())
        .filter(|running| running.version() > 0)
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
    let mut settlements: Vec<Settlement> = batch.into_iter().map(|ended| ended.settlement).collect();
    let mut pace = Pace::default();
    loop {
        worker.progress.settle();
        match worker.store.settle(&settlements).await {
            Ok(answers) => {
                worker.outage.succeeded("settle");
                // Normal after a reclaim: nothing was changed, and the store counts them.
                worker.outage.late(answers.iter().filter(|a| **a == Settled::Stale).count() as u64);
                say_conflicts(worker, &settlements, &answers);
                worker.hand.settled(settlements.iter().map(|s| s.lease.token));
                return;
            }
            Err(StoreError::Invalid(message))
                if settlements.len() == 1 && settlements[0].effects.is_some() =>
            {
                without_effects(worker, &mut settlements[0], &message);
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

/// What a job did cannot be written, and could not the next time either: it has not completed.
fn without_effects(worker: &Worker, settlement: &mut Settlement, why: &str) {
    tracing::warn!(kind = %settlement.lane.kind, record = settlement.lease.record, why, "the store does not take what a job did");
    let message = capped(format!("the store does not take what it did: {why}"), MESSAGE_BYTES_MAX);
    settlement.outcome = Outcome::Dead { reason: Reason::Error, message };
    settlement.retention = worker.config.retention_dead;
    settlement.effects = None;
}

/// Runs that are done again, because somebody changed meanwhile what they had read. Normal, unless it does not end.
fn say_conflicts(worker: &Worker, settlements: &[Settlement], answers: &[Settled]) {
    for (settlement, _) in settlements.iter().zip(answers).filter(|(_, answer)| **answer == Settled::Conflict)
    {
        let total = worker.conflicts.fetch_add(1, Relaxed) + 1;
        let (kind, record) = (&settlement.lane.kind, settlement.lease.record);
        tracing::debug!(%kind, record, total, "the state that a job had read has changed: it runs again");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::effects::Effects;
    use crate::names::Name;
    use crate::queue::{IdMemory, Lane, Lease, Retention, SessionId};

    fn ended(token: u64, children: usize, child_bytes: usize) -> Ended {
        let kind = Name::new("k").unwrap();
        let child = NewJob { payload: Bytes::from(vec![0; child_bytes]), ..NewJob::new(kind.clone()) };
        let effects = Effects { children: vec![child; children], state: None };
        let settlement = Settlement {
            lease: Lease { record: 1, session: SessionId(Arc::from("s")), token },
            lane: Lane { queue: kind.clone(), kind },
            outcome: Outcome::Completed { result: None },
            run: None,
            retention: Retention::FINISHED,
            id_memory: IdMemory::default(),
            effects: (children > 0).then(|| Box::new(effects)),
        };
        Ended { settlement, running: None }
    }

    fn batches(sizes: &[(usize, usize)]) -> Vec<usize> {
        let mut waiting: VecDeque<Ended> = sizes
            .iter()
            .enumerate()
            .map(|(n, (children, bytes))| ended(n as u64, *children, *bytes))
            .collect();
        let mut sizes = Vec::new();
        while !waiting.is_empty() {
            sizes.push(next_batch(&mut waiting).len());
        }
        sizes
    }

    #[test]
    fn plain_outcomes_travel_by_the_batch() {
        assert_eq!(batches(&vec![(0, 0); 2 * BATCH_MAX + 1]), [BATCH_MAX, BATCH_MAX, 1]);
    }

    #[test]
    fn children_count_and_many_of_them_travel_alone() {
        assert_eq!(batches(&[(0, 0), (1_000, 0), (0, 0), (0, 0)]), [1, 1, 2]);
        assert_eq!(batches(&[(100, 0), (100, 0), (100, 0)]), [2, 1]);
        assert_eq!(batches(&[(2, 100 << 10), (1, 50 << 10), (1, 50 << 10)]), [2, 1]);
        assert_eq!(batches(&[(2, 1 << 20), (0, 0)]), [1, 1]);
    }
}
