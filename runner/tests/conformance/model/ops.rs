//! The steps of a run: what is asked of the store, and what it may answer.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use bytes::Bytes;
use hourhand::effects::StateFound;
use hourhand::job::{Due, JobView, NewJob};
use hourhand::names::{JobId, Name};
use hourhand::queue::{
    AttemptLog, ClaimRequest, Claimed, ClaimedJob, Enqueued, JobRef, Lane, LeaseSeen, ListQuery, LogWrite,
    Offered, Pruned, Pulse, Reclaimed, Retention, SessionId, Settled, Settlement, Store, StoreError, Verdict,
};

use super::generate::{KINDS, MIXED};
use crate::bed::{info, leases, list_all, name};

/// Most calls that one purge or prune of a small store takes.
const CALLS_MAX: usize = 50;

/// One step.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Enqueue(Vec<NewJob>),
    Claim(ClaimRequest),
    Settle(Vec<Settlement>),
    WriteLogs(Vec<LogWrite>),
    Heartbeat(SessionId),
    EndSession(SessionId),
    Reclaim(Vec<LeaseSeen>, Retention),
    Offer(Vec<ClaimedJob>),
    Cancel(Vec<JobRef>, Retention),
    Reschedule(JobRef, Due),
    Requeue(Vec<JobRef>),
    Delete(Vec<JobRef>),
    Pause(Name),
    Resume(Name),
    /// Until the store says that there is no more, or has only what is in runners' hands.
    Purge(Name),
    /// Until nothing more goes.
    Prune,
    Find(Option<Name>, JobId),
    List(ListQuery),
    Logs(JobRef),
    ReadState(Name, Vec<String>),
    SetState(Name, String, Bytes),
    DeleteState(Name, String),
    EmptyBucket(Name),
    /// Sets the wall clock of the store's machine by so many milliseconds, where that can be done.
    StepClock(i64),
    /// Lets time pass there, in milliseconds, where that can be done.
    PassTime(u64),
    /// Against the rules: the store must say so and change nothing.
    Refused(Box<Op>),
}

/// What the store answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Nothing,
    Enqueued(Vec<Enqueued>),
    Claimed(Claimed),
    Settled(Vec<Settled>),
    Pulse(Pulse),
    Reclaimed(Reclaimed),
    /// With all leases as they were a moment later.
    Offered(Vec<Offered>, Vec<LeaseSeen>),
    Verdicts(Vec<Verdict>),
    Purged(u64, bool),
    Pruned(Pruned),
    Views(Vec<JobView>),
    Logs(Vec<AttemptLog>),
    State(StateFound),
    Version(u64),
    Deleted(bool),
    Emptied(u64, bool),
}

/// Asks the store.
pub(super) async fn perform(store: &dyn Store, op: &Op) -> Result<Answer> {
    if let Op::Refused(op) = op {
        return match ask(store, op).await {
            Err(StoreError::Invalid(_)) => Ok(Answer::Nothing),
            Err(error) => bail!("expected to be refused as invalid, got {error:?}"),
            Ok(answer) => bail!("expected to be refused, got {answer:?}"),
        };
    }
    match ask(store, op).await {
        Ok(answer) => Ok(answer),
        Err(error) => bail!("the store failed: {error:?}"),
    }
}

async fn ask(store: &dyn Store, op: &Op) -> Result<Answer, StoreError> {
    Ok(match op {
        Op::Enqueue(jobs) => Answer::Enqueued(store.enqueue(jobs).await?),
        Op::Claim(request) => Answer::Claimed(store.claim(request).await?),
        Op::Settle(settlements) => Answer::Settled(store.settle(settlements).await?),
        Op::WriteLogs(logs) => Answer::Settled(store.write_logs(logs).await?),
        Op::Heartbeat(session) => {
            let lanes: Vec<Lane> = lanes().into_iter().collect();
            Answer::Pulse(store.heartbeat(session, &info(session), 0, &lanes).await?)
        }
        Op::EndSession(session) => {
            store.end_session(session).await?;
            Answer::Nothing
        }
        Op::Reclaim(leases, dead) => Answer::Reclaimed(store.reclaim(leases, *dead).await?),
        Op::Offer(jobs) => {
            let offered = store.offer(jobs).await?;
            Answer::Offered(offered, leases(store).await)
        }
        Op::Cancel(jobs, retention) => Answer::Verdicts(store.cancel(jobs, *retention).await?),
        Op::Reschedule(job, due) => Answer::Verdicts(vec![store.reschedule(job, *due).await?]),
        Op::Requeue(jobs) => Answer::Verdicts(store.requeue(jobs).await?),
        Op::Delete(jobs) => Answer::Verdicts(store.delete(jobs).await?),
        Op::Pause(queue) => {
            store.pause(queue).await?;
            Answer::Nothing
        }
        Op::Resume(queue) => {
            store.resume(queue).await?;
            Answer::Nothing
        }
        Op::Purge(queue) => purge(store, queue).await?,
        Op::Prune => Answer::Pruned(prune(store).await?),
        Op::Find(queue, id) => Answer::Views(store.find(queue.as_ref(), id).await?),
        Op::List(query) => list(store, query).await?,
        Op::Logs(job) => Answer::Logs(store.logs(job).await?),
        Op::ReadState(bucket, keys) => Answer::State(store.read_state(bucket, keys).await?),
        Op::SetState(bucket, key, value) => Answer::Version(store.set_state(bucket, key, value).await?),
        Op::DeleteState(bucket, key) => Answer::Deleted(store.delete_state(bucket, key).await?),
        Op::EmptyBucket(bucket) => {
            let (deleted, more) = store.empty_bucket(bucket).await?;
            Answer::Emptied(deleted, more)
        }
        Op::StepClock(_) | Op::PassTime(_) | Op::Refused(_) => Answer::Nothing,
    })
}

async fn purge(store: &dyn Store, queue: &Name) -> Result<Answer, StoreError> {
    let mut purged = 0;
    for _ in 0..CALLS_MAX {
        let (some, more) = store.purge(queue).await?;
        purged += some;
        if !more || some == 0 {
            return Ok(Answer::Purged(purged, more));
        }
    }
    panic!("purge never ends");
}

/// What heartbeats ask about: all lanes that a run may have.
pub(super) fn lanes() -> BTreeSet<Lane> {
    let queues = KINDS.iter().chain(&[MIXED]);
    let lane = |queue: &str, kind: &str| Lane { queue: name(queue), kind: name(kind) };
    queues.flat_map(|queue| KINDS.iter().map(|kind| lane(queue, kind))).collect()
}

async fn prune(store: &dyn Store) -> Result<Pruned, StoreError> {
    let (mut total, mut idle) = (Pruned::default(), 0);
    for _ in 0..CALLS_MAX {
        let pruned = store.prune().await?;
        total.jobs += pruned.jobs;
        total.ids += pruned.ids;
        // One that found nothing may have been the first half of a sweep.
        idle = if pruned.jobs == 0 && pruned.ids == 0 && !pruned.more { idle + 1 } else { 0 };
        if idle == 2 {
            return Ok(total);
        }
    }
    panic!("prune never ends");
}

/// The first page alone when it is refused, else all.
async fn list(store: &dyn Store, query: &ListQuery) -> Result<Answer, StoreError> {
    store.list(query).await?;
    Ok(Answer::Views(list_all(store, query).await))
}
