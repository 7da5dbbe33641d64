//! Handing jobs to a store, of which it may have some already: nothing is there twice.

use std::time::Duration;

use tokio::time::timeout;

use super::door::Door;
use crate::clock::monotonic;
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
    let until = monotonic() + within;
    let mut known = Vec::with_capacity(parcels.len());
    for parcel in parcels.iter() {
        let left = until.saturating_duration_since(monotonic());
        known.push(match timeout(left, taken_before(door, parcel)).await {
            Ok(taken) => taken?,
            Err(_) => return Err(no_answer(door, within)),
        });
    }
    let missing: Vec<NewJob> = parcels
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none())
        .map(|(parcel, _)| parcel.job.clone())
        .collect();
    let mut answers = Vec::new();
    if !missing.is_empty() {
        let left = until.saturating_duration_since(monotonic());
        let sent =
            timeout(left, door.enqueue(&missing)).await.unwrap_or_else(|_| Err(no_answer(door, within)));
        answers = sent.inspect_err(|error| {
            if matches!(error, StoreError::Unreachable(_)) {
                parcels.iter_mut().for_each(|parcel| parcel.unsure = true);
            }
        })?;
    }
    if answers.len() != missing.len() {
        return Err(StoreError::Refused("the store answered for other jobs".to_owned()));
    }
    let mut answers = answers.into_iter();
    Ok(known.into_iter().filter_map(|known| known.or_else(|| answers.next())).collect())
}

/// The answer for a job that an earlier call has brought in. Only for jobs that ask for more than `keep`: the store itself
/// knows a repeat of the others by its id.
async fn taken_before(door: &dyn Door, parcel: &Parcel) -> Result<Option<Enqueued>, StoreError> {
    let Parcel { job, unsure } = parcel;
    let Some(id) = job.id.as_ref().filter(|_| *unsure && job.on_conflict != OnConflict::Keep) else {
        return Ok(None);
    };
    let there = door.find(&job.queue, id).await?;
    // Its source bears a mark that no other job has.
    Ok(there.filter(|there| there.job.source == job.source).map(|there| Enqueued {
        id: id.clone(),
        disposition: Disposition::Created,
        state: there.state,
        due_ms: there.due_ms,
    }))
}

fn no_answer(door: &dyn Door, within: Duration) -> StoreError {
    let seconds = (within.as_secs_f32() * 10.0).round() / 10.0;
    StoreError::Unreachable(format!("no answer from {} within {seconds} s", door.address()))
}
