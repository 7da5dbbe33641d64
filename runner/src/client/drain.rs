//! Draining: what waits in the spool goes to the store, batch by batch, in order.

use std::collections::HashSet;
use std::time::Duration;

use super::blocking;
use super::deliver::{Parcel, deliver};
use super::door::Door;
use crate::clock::{Monotonic, monotonic};
use crate::job::{NewJob, OnConflict};
use crate::queue::sqlite::spool::{Drainer, RowKey, Spool, SpoolError, Waiting};
use crate::queue::{BATCH_MAX, Disposition, Enqueued, StoreError};

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
    let drainer = blocking(spool, move |spool| match foreign {
        true => spool.drainer_of_all(&of),
        false => spool.drainer(&of),
    });
    let Some(mut drainer) = drainer.await? else {
        return Err(DrainError::Busy);
    };
    let mut pace = Pace { jobs: 1, most: BATCH_MAX };
    loop {
        let jobs = pace.jobs;
        let (lock, batch) =
            blocking(spool, move |spool| spool.next(&drainer, jobs).map(|batch| (drainer, batch))).await?;
        drainer = lock;
        if batch.is_empty() {
            break;
        }
        // The first batch goes whatever the time: it tells whether the store answers.
        if drained.sent + drained.set_aside > 0 && is_over(until) {
            drained.left = true;
            break;
        }
        let jobs = batch.len();
        let times = Times { until, patience };
        let (lock, sent) = send(door, spool, drainer, batch, times, &mut drained).await?;
        drainer = lock;
        match sent {
            Ok(()) => pace.faster(),
            // It may have been too much for a slow way. The store has answered before, unless this was the first.
            Err(StoreError::Unreachable(_)) if jobs > 1 => pace.slower(jobs),
            Err(error) => return Err(error.into()),
        }
    }
    if drained.sent > 0 {
        // It answers: what was said of it before is over.
        blocking(spool, move |spool| spool.answered(&address)).await?;
    }
    Ok(drained)
}

/// How many jobs go at once. A batch that takes longer than its patience would never be through, so a drain begins with a
/// single job, doubles after each success, and begins anew, with a bound, after a batch that was not answered.
struct Pace {
    jobs: usize,
    most: usize,
}

impl Pace {
    fn faster(&mut self) {
        self.jobs = (self.jobs * 2).min(self.most);
    }

    /// After so many jobs were too many.
    fn slower(&mut self, jobs: usize) {
        *self = Self { jobs: 1, most: (jobs / 2).max(1) };
    }
}

/// When a drain ends, and how long a batch may take.
#[derive(Clone, Copy)]
struct Times {
    until: Option<Monotonic>,
    patience: Duration,
}

fn is_over(until: Option<Monotonic>) -> bool {
    until.is_some_and(|until| monotonic() >= until)
}

/// What became of the jobs of a batch: their rows, and the reasons of those that were refused.
#[derive(Default)]
struct Fate {
    done: Vec<RowKey>,
    refused: Vec<(RowKey, String)>,
}

/// Sends a batch, and writes down what came of it: the store's word, once the spool knows.
async fn send(
    door: &dyn Door,
    spool: &Spool,
    drainer: Drainer,
    batch: Vec<Waiting>,
    times: Times,
    drained: &mut Drained,
) -> Result<(Drainer, Result<(), StoreError>), SpoolError> {
    let mut fate = Fate::default();
    let mut keys = Vec::with_capacity(batch.len());
    let mut parcels = Vec::with_capacity(batch.len());
    for Waiting { key, job, unsure, later } in batch {
        match job {
            Ok(job) => {
                keys.push(key);
                parcels.push(Parcel { job, unsure, later });
            }
            Err(problem) => fate.refused.push((key, format!("its row is damaged: {problem}"))),
        }
    }
    let drainer = note_unsure(spool, drainer, &keys, &parcels).await?;
    let sent = deliver_all(door, &keys, &mut parcels, times, &mut fate).await;
    let drainer = note_sure(spool, drainer, &keys, &parcels, &fate).await?;
    // What is settled is settled, whatever came after it.
    drained.sent += fate.done.len() as u64;
    drained.set_aside += fate.refused.len() as u64;
    let Fate { done, refused } = fate;
    let drainer =
        blocking(spool, move |spool| spool.settle(&drainer, &done, &refused).map(|()| drainer)).await?;
    Ok((drainer, sent))
}

/// Writes down, before they are sent, which jobs would harm themselves by a repeat: a crash may come between the store's
/// answer and what the spool makes of it.
async fn note_unsure(
    spool: &Spool,
    drainer: Drainer,
    keys: &[RowKey],
    parcels: &[Parcel],
) -> Result<Drainer, SpoolError> {
    note(spool, drainer, fresh(keys, parcels).collect(), true).await
}

/// Takes the note back for those that were not sent, or that the store has certainly not taken.
async fn note_sure(
    spool: &Spool,
    drainer: Drainer,
    keys: &[RowKey],
    parcels: &[Parcel],
    fate: &Fate,
) -> Result<Drainer, SpoolError> {
    let settled: HashSet<&RowKey> = fate.done.iter().chain(fate.refused.iter().map(|(key, _)| key)).collect();
    let sure = fresh(keys, parcels).filter(|key| !settled.contains(key)).collect();
    note(spool, drainer, sure, false).await
}

/// The rows of jobs that want more than `keep`, and that the store cannot have.
fn fresh(keys: &[RowKey], parcels: &[Parcel]) -> impl Iterator<Item = RowKey> {
    let both = keys.iter().zip(parcels);
    both.filter(|(_, parcel)| !parcel.unsure && parcel.job.on_conflict != OnConflict::Keep)
        .map(|(key, _)| key.clone())
}

async fn note(
    spool: &Spool,
    drainer: Drainer,
    keys: Vec<RowKey>,
    unsure: bool,
) -> Result<Drainer, SpoolError> {
    if keys.is_empty() {
        return Ok(drainer);
    }
    blocking(spool, move |spool| spool.unsure(&drainer, &keys, unsure).map(|()| drainer)).await
}

/// Delivers a batch; one that the store refuses whole because of a single job goes one by one, as long as there is time.
async fn deliver_all(
    door: &dyn Door,
    keys: &[RowKey],
    parcels: &mut [Parcel],
    times: Times,
    fate: &mut Fate,
) -> Result<(), StoreError> {
    if parcels.is_empty() {
        return Ok(());
    }
    match deliver(door, parcels, times.patience).await {
        Ok(answers) => {
            for ((key, parcel), answer) in keys.iter().zip(parcels.iter()).zip(answers) {
                settle(key.clone(), parcel, &answer, fate);
            }
            Ok(())
        }
        Err(StoreError::Invalid(text)) if parcels.len() == 1 => {
            let why = text.trim_start_matches("job 0: ").to_owned();
            say(&parcels[0].job, &why);
            fate.refused.push((keys[0].clone(), why));
            Ok(())
        }
        Err(StoreError::Invalid(_)) => {
            for (at, (key, parcel)) in keys.iter().zip(parcels).enumerate() {
                if at > 0 && is_over(times.until) {
                    break;
                }
                let (key, parcel) = (std::slice::from_ref(key), std::slice::from_mut(parcel));
                Box::pin(deliver_all(door, key, parcel, times, fate)).await?;
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn settle(key: RowKey, parcel: &Parcel, answer: &Enqueued, fate: &mut Fate) {
    let Parcel { job, unsure, .. } = parcel;
    if answer.disposition != Disposition::Conflict {
        fate.done.push(key);
        return;
    }
    if *unsure && job.on_conflict == OnConflict::Reschedule {
        // A reschedule leaves no mark on a job that was there. What is most likely has happened: it was done, and the job
        // began when it was due.
        tracing::warn!(
            id = %answer.id, queue = %job.queue, state = %answer.state,
            "a reschedule from the spool, whose answer was lost, may have been done: its job waits no more"
        );
        fate.done.push(key);
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
    fate.refused.push((key, why));
}

fn say(job: &NewJob, why: &str) {
    let id = job.id.as_ref().map(ToString::to_string).unwrap_or_default();
    tracing::warn!(
        id, queue = %job.queue, why,
        "the store refused a job from the spool: it is set aside there, see hourhand spool list"
    );
}
