//! Draining: what waits in the spool goes to the store, batch by batch, in order.

use std::time::Duration;

use super::blocking;
use super::deliver::{Parcel, deliver};
use super::door::Door;
use crate::clock::{Monotonic, monotonic};
use crate::job::{NewJob, OnConflict};
use crate::queue::sqlite::spool::{Drainer, Spool, SpoolError, Waiting};
use crate::queue::{Disposition, Enqueued, StoreError};

/// How long a store may take for a batch where nobody waits for the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a drain did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Jobs that the store has.
    pub sent: u64,
    /// Jobs that it refused for good: they are set aside in the spool.
    pub set_aside: u64,
    /// Whether the time was over before all was sent.
    pub left: bool,
}

/// Why a drain ended before its time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// Another process drains for this store right now.
    #[error("another process drains the spool right now")]
    Busy,
    /// The store's word. The spool has what was not sent.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The spool cannot be used.
    #[error("{0}")]
    Spool(#[from] SpoolError),
}

/// Sends what waits, until `until` if there is one. A batch has `patience`.
pub(super) async fn drain(
    door: &dyn Door,
    spool: &Spool,
    until: Option<Monotonic>,
    patience: Duration,
    foreign: bool,
) -> Result<Drained, DrainError> {
    let mut drained = Drained::default();
    if !spool.exists() {
        return Ok(drained);
    }
    let address = door.address();
    let of = address.clone();
    let Some(mut drainer) = blocking(spool, move |spool| spool.drainer(&of)).await? else {
        return Err(DrainError::Busy);
    };
    loop {
        let of = (!foreign).then(|| address.clone());
        let (lock, batch) =
            blocking(spool, move |spool| spool.next(&drainer, of.as_deref()).map(|batch| (drainer, batch)))
                .await?;
        drainer = lock;
        if batch.is_empty() {
            break;
        }
        // The first batch goes whatever the time: it tells whether the store answers.
        if drained.sent + drained.set_aside > 0 && until.is_some_and(|until| monotonic() >= until) {
            drained.left = true;
            break;
        }
        drainer = send(door, spool, drainer, batch, patience, &mut drained).await?;
    }
    if drained.sent > 0 {
        // It answers: what was said of it before is over.
        blocking(spool, move |spool| spool.answered(&address)).await?;
    }
    Ok(drained)
}

/// What became of the jobs of a batch: where they were, and the reasons of those that were refused.
#[derive(Default)]
struct Fate {
    done: Vec<u64>,
    refused: Vec<(u64, String)>,
}

async fn send(
    door: &dyn Door,
    spool: &Spool,
    drainer: Drainer,
    batch: Vec<Waiting>,
    patience: Duration,
    drained: &mut Drained,
) -> Result<Drainer, DrainError> {
    let mut fate = Fate::default();
    let mut places = Vec::with_capacity(batch.len());
    let mut parcels = Vec::with_capacity(batch.len());
    for Waiting { place, job, unsure } in batch {
        match job {
            Ok(job) => {
                places.push(place);
                parcels.push(Parcel { job, unsure });
            }
            Err(problem) => fate.refused.push((place, format!("its row is damaged: {problem}"))),
        }
    }
    let drainer = note_unsure(spool, drainer, &places, &parcels).await?;
    let sent = deliver_all(door, &places, &mut parcels, patience, &mut fate).await;
    // What is settled is settled, whatever came after it.
    drained.sent += fate.done.len() as u64;
    drained.set_aside += fate.refused.len() as u64;
    let Fate { done, refused } = fate;
    let drainer =
        blocking(spool, move |spool| spool.settle(&drainer, &done, &refused).map(|()| drainer)).await?;
    sent?;
    Ok(drainer)
}

/// Writes down, before they are sent, which jobs would harm themselves by a repeat: a crash may come between the store's
/// answer and what the spool makes of it.
async fn note_unsure(
    spool: &Spool,
    drainer: Drainer,
    places: &[u64],
    parcels: &[Parcel],
) -> Result<Drainer, SpoolError> {
    let delicate: Vec<u64> = places
        .iter()
        .zip(parcels)
        .filter(|(_, parcel)| !parcel.unsure && parcel.job.on_conflict != OnConflict::Keep)
        .map(|(place, _)| *place)
        .collect();
    if delicate.is_empty() {
        return Ok(drainer);
    }
    blocking(spool, move |spool| spool.unsure(&drainer, &delicate).map(|()| drainer)).await
}

/// Delivers a batch; one that the store refuses whole because of a single job goes one by one.
async fn deliver_all(
    door: &dyn Door,
    places: &[u64],
    parcels: &mut [Parcel],
    patience: Duration,
    fate: &mut Fate,
) -> Result<(), StoreError> {
    if parcels.is_empty() {
        return Ok(());
    }
    match deliver(door, parcels, patience).await {
        Ok(answers) => {
            for ((place, parcel), answer) in places.iter().zip(parcels.iter()).zip(answers) {
                settle(*place, &parcel.job, &answer, fate);
            }
            Ok(())
        }
        Err(StoreError::Invalid(text)) if parcels.len() == 1 => {
            let why = text.trim_start_matches("job 0: ").to_owned();
            say(&parcels[0].job, &why);
            fate.refused.push((places[0], why));
            Ok(())
        }
        Err(StoreError::Invalid(_)) => {
            for (place, parcel) in places.iter().zip(parcels) {
                Box::pin(deliver_all(door, &[*place], std::slice::from_mut(parcel), patience, fate)).await?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn settle(place: u64, job: &NewJob, answer: &Enqueued, fate: &mut Fate) {
    if answer.disposition != Disposition::Conflict {
        fate.done.push(place);
        return;
    }
    let why = format!(
        "{} exists in queue {} and is {}: {} cannot be done",
        answer.id,
        job.queue,
        answer.state,
        job.on_conflict.as_str()
    );
    say(job, &why);
    fate.refused.push((place, why));
}

fn say(job: &NewJob, why: &str) {
    let id = job.id.as_ref().map(ToString::to_string).unwrap_or_default();
    tracing::warn!(
        id, queue = %job.queue, why,
        "the store refused a job from the spool: it is set aside there, see hourhand spool list"
    );
}
