//! Handing jobs to a store, of which it may have some already: nothing is there twice.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::timeout;

use super::door::Door;
use crate::job::{NewJob, OnConflict};
use crate::queue::{Disposition, Enqueued, StoreError};

/// So many jobs are looked for at the same time.
const FINDS_AT_ONCE: usize = 16;

/// A job on its way.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    /// The job; it has an id.
    pub(super) job: NewJob,
    /// Whether the store may have it.
    pub(super) unsure: bool,
    /// The sources of later jobs of its queue and id: if one of them is there, this one was, or is out of date.
    pub(super) later: Vec<String>,
}

/// Jobs that are sent for the first time.
pub(super) fn parcels(jobs: &[NewJob]) -> Vec<Parcel> {
    let later = |at: usize, job: &NewJob| {
        let same = |other: &&NewJob| other.queue == job.queue && other.id == job.id;
        let marked = |other: &&NewJob| other.on_conflict != OnConflict::Keep;
        jobs[at + 1..].iter().filter(same).filter(marked).map(|other| other.source.clone()).collect()
    };
    jobs.iter()
        .enumerate()
        .map(|(at, job)| Parcel {
            job: job.clone(),
            unsure: false,
            later: if job.on_conflict == OnConflict::Keep { Vec::new() } else { later(at, job) },
        })
        .collect()
}

/// Hands jobs to the store in one call, and answers for each in order. After an error that leaves open whether they were
/// taken, they are marked.
pub(super) async fn deliver(
    door: &dyn Door,
    parcels: &mut [Parcel],
    within: Duration,
) -> Result<Vec<Enqueued>, StoreError> {
    let call = async {
        let looks: Vec<_> = parcels.iter().map(|parcel| is_there(door, parcel)).collect();
        let ours: Vec<bool> = stream::iter(looks).buffered(FINDS_AT_ONCE).try_collect().await?;
        let mut jobs: Vec<NewJob> = parcels.iter().map(|parcel| parcel.job.clone()).collect();
        for (job, _) in jobs.iter_mut().zip(&ours).filter(|(_, ours)| **ours) {
            // So that the store answers for it as for any repeat, replicas included.
            job.on_conflict = OnConflict::Keep;
        }
        let mut answers = door.enqueue(&jobs).await?;
        if answers.len() != jobs.len() {
            return Err(StoreError::Refused("the store answered for other jobs".to_owned()));
        }
        for (answer, _) in answers.iter_mut().zip(ours).filter(|(_, ours)| *ours) {
            answer.disposition = Disposition::Created;
        }
        Ok(answers)
    };
    let sent = timeout(within, call).await.unwrap_or_else(|_| Err(no_answer(door, within)));
    sent.inspect_err(|error| {
        if matches!(error, StoreError::Unreachable(_) | StoreError::Unreplicated(_)) {
            parcels.iter_mut().for_each(|parcel| parcel.unsure = true);
        }
    })
}

/// Whether an earlier call has brought a job in, or a later one in its stead: both went in one call, or the later one came
/// first, and the earlier one must not replace it. Only asked for jobs that want more than `keep`: the store itself knows a
/// repeat of the others by its id.
async fn is_there(door: &dyn Door, parcel: &Parcel) -> Result<bool, StoreError> {
    let Parcel { job, unsure, later } = parcel;
    let wanted = match job.on_conflict {
        OnConflict::Keep => false,
        // One that was never sent is in conflict with any other.
        OnConflict::Reject => *unsure,
        OnConflict::Replace | OnConflict::Reschedule => *unsure || !later.is_empty(),
    };
    let Some(id) = job.id.as_ref().filter(|_| wanted) else {
        return Ok(false);
    };
    // Its source bears a mark that no other job has.
    let there = door.find(&job.queue, id).await?;
    Ok(there.is_some_and(|there| there.job.source == job.source || later.contains(&there.job.source)))
}

fn no_answer(door: &dyn Door, within: Duration) -> StoreError {
    let seconds = (within.as_secs_f32() * 10.0).round() / 10.0;
    StoreError::Unreachable(format!("no answer from {} within {seconds} s", door.address()))
}
