//! Handing jobs to a store, of which it may have some already: nothing is there twice.

use std::time::Duration;

use tokio::time::timeout;

use super::door::Door;
use crate::job::{NewJob, OnConflict};
use crate::queue::{Disposition, Enqueued, StoreError};

/// A job on its way.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    /// The job; it has an id.
    pub(super) job: NewJob,
    /// Whether the store may have it.
    pub(super) unsure: bool,
}

/// Hands jobs to the store in one call, and answers for each in order. After an error that leaves open whether they were
/// taken, they are marked.
pub(super) async fn deliver(
    door: &dyn Door,
    parcels: &mut [Parcel],
    within: Duration,
) -> Result<Vec<Enqueued>, StoreError> {
    let call = async {
        let mut jobs = Vec::with_capacity(parcels.len());
        let mut ours = Vec::with_capacity(parcels.len());
        for parcel in parcels.iter() {
            let mut job = parcel.job.clone();
            let is_there = is_there(door, parcel).await?;
            if is_there {
                // So that the store answers for it as for any repeat, replicas included.
                job.on_conflict = OnConflict::Keep;
            }
            jobs.push(job);
            ours.push(is_there);
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

/// Whether an earlier call has brought a job in. Only asked for jobs that want more than `keep`: the store itself knows a
/// repeat of the others by its id.
async fn is_there(door: &dyn Door, parcel: &Parcel) -> Result<bool, StoreError> {
    let Parcel { job, unsure } = parcel;
    let Some(id) = job.id.as_ref().filter(|_| *unsure && job.on_conflict != OnConflict::Keep) else {
        return Ok(false);
    };
    // Its source bears a mark that no other job has.
    let there = door.find(&job.queue, id).await?;
    Ok(there.is_some_and(|there| there.job.source == job.source))
}

fn no_answer(door: &dyn Door, within: Duration) -> StoreError {
    let seconds = (within.as_secs_f32() * 10.0).round() / 10.0;
    StoreError::Unreachable(format!("no answer from {} within {seconds} s", door.address()))
}
