//! Enqueuing for programs: a store, and a spool for the time in which it does not answer.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use hourhand::client::{Accepted, Client, Spool, SpoolOptions};
//! use hourhand::job::NewJob;
//! use hourhand::names::Name;
//! use hourhand::queue::redis::{RedisOptions, RedisStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let namespace = Name::new("hourhand")?;
//! let store = RedisStore::connect("redis://127.0.0.1:6379", &namespace, RedisOptions::default())?;
//! let client = Client::new(Arc::new(store));
//! client.set_spool(Some(Spool::new(Path::new("/var/spool/orders"), SpoolOptions::default())));
//!
//! let job = NewJob { payload: "{\"id\":7}".into(), ..NewJob::new(Name::new("order_close")?) };
//! match &client.enqueue(&[job]).await?[0] {
//!     Accepted::Stored(answer) => println!("{} is {}", answer.id, answer.state),
//!     Accepted::Spooled(spooled) => println!("{} waits on this machine: {}", spooled.id, spooled.why),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A job that is spooled is on this machine's disk, with an id that it keeps and the moment of its acceptance. The next call,
//! `hourhand spool drain` or a runner that is given the folder hands it to the store, in order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use self::deliver::{deliver, parcels};
use self::door::{Door, StoreDoor};
use crate::clock::{Monotonic, monotonic, wall_ms};
use crate::job::NewJob;
use crate::names::JobId;
use crate::queue::checks::check_batch;
pub use crate::queue::sqlite::spool::{Spool, SpoolDeleted, SpoolEntry, SpoolError, SpoolOptions, SpoolRest};
use crate::queue::{Disposition, Enqueued, Store, StoreError};

mod deliver;
mod door;
mod drain;
#[cfg(test)]
mod fake;
mod prepare;
#[cfg(test)]
mod tests;

pub use self::drain::{DrainError, Drained};

/// How long a store may take to answer before a job goes to the spool.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The pause between two tries within that time.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How long a call that finds jobs in the spool drains it before it goes behind them.
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// Enqueues, by way of a spool if it has one.
pub struct Client {
    door: Arc<dyn Door>,
    spool: RwLock<Option<Spool>>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The store has it.
    Stored(Enqueued),
    /// It waits in the spool.
    Spooled(Spooled),
}

/// A job that waits in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// The id that it has from now on.
    pub id: JobId,
    /// How many jobs for its store waited when it had come, itself counted: 1 is the next.
    pub position: u64,
    /// When it is due by this machine's wall clock, in milliseconds since 1970.
    pub due_ms: u64,
    /// Why it is there.
    pub why: Arc<str>,
}

/// Why jobs were not taken, all of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// The store's word: neither it nor the spool has them, but for [`StoreError::Unreachable`] and
    /// [`StoreError::Unreplicated`], which leave open whether the store has them. With a spool there is the former when an
    /// answer was lost and the next one was a refusal.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The spool cannot be used, and the store was not asked.
    #[error("{0}")]
    Spool(#[from] SpoolError),
    /// They were to go to the spool, which did not take them. With `unsure` the store may have them.
    #[error("{why}, and {spool}")]
    Neither {
        /// Why they were to go there.
        why: Arc<str>,
        /// Why it has not taken them.
        spool: SpoolError,
        /// Whether the store may have them all the same.
        unsure: bool,
    },
}

impl EnqueueError {
    /// Whether the store may have the jobs all the same.
    pub fn is_unsure(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Unreachable(_) | StoreError::Unreplicated(_))
                | Self::Neither { unsure: true, .. }
        )
    }
}

/// Why a call goes to the spool.
struct Detour {
    why: Arc<str>,
    /// Whether the store may have the jobs.
    unsure: bool,
    /// Whether it was asked in vain.
    failed: bool,
}

impl Detour {
    /// The store was not asked for these jobs.
    fn unasked(why: &str) -> Self {
        Self { why: why.into(), unsure: false, failed: false }
    }

    /// The store did not take them.
    fn away(error: &StoreError, unsure: bool) -> Self {
        let text = error.text();
        Self { why: format!("the store is out of reach ({text})").into(), unsure, failed: true }
    }
}

impl Client {
    /// A client without a spool: what the store says is what callers get.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::at(Arc::new(StoreDoor(store)))
    }

    fn at(door: Arc<dyn Door>) -> Self {
        Self { door, spool: RwLock::new(None) }
    }

    /// Uses another spool, or none, from the next call on. What is in the old one stays there until somebody drains it.
    pub fn set_spool(&self, spool: Option<Spool>) {
        *self.spool.write() = spool;
    }

    /// Takes up to [`BATCH_MAX`](crate::queue::BATCH_MAX) jobs, all or none, and answers for each in order.
    ///
    /// With a spool, jobs without an id get one, and the store has [`ANSWER_WITHIN`] to answer; after five calls in vain it is
    /// not asked for 30 s. While jobs for this store wait in the spool they are sent first, for a second at most, and what comes
    /// meanwhile goes behind them.
    ///
    /// # Errors
    /// When neither the store nor the spool has taken them.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Accepted>, EnqueueError> {
        let spool = self.spool.read().clone();
        let Some(spool) = spool else {
            return Ok(stored(self.door.enqueue(jobs).await?));
        };
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        check_batch(jobs)?;
        let made: Vec<bool> = jobs.iter().map(|job| job.id.is_none()).collect();
        let jobs = prepare::with_ids(jobs)?;
        match self.send(&spool, &jobs).await? {
            Ok(mut answers) => {
                // An id that was made here and is there came with an earlier try.
                for answer in answers.iter_mut().zip(made).filter_map(|(answer, made)| made.then_some(answer))
                {
                    answer.disposition = Disposition::Created;
                }
                Ok(stored(answers))
            }
            Err(detour) => self.put_aside(spool, jobs, detour).await,
        }
    }

    /// Hands the jobs to the store, behind those that wait; the reason why they go to the spool.
    async fn send(
        &self,
        spool: &Spool,
        jobs: &[NewJob],
    ) -> Result<Result<Vec<Enqueued>, Detour>, EnqueueError> {
        let address = self.door.address();
        let outlook = blocking(spool, move |spool| spool.outlook(&address)).await?;
        if outlook.resting {
            return Ok(Err(Detour::unasked(
                "the store is out of reach (it did not answer five times in a row, and is not asked for 30 s)",
            )));
        }
        if outlook.waiting
            && let Some(detour) = self.drain_before(spool).await?
        {
            return Ok(Err(detour));
        }
        let sent = self.try_for_a_while(jobs).await?;
        if sent.is_ok() && outlook.failures > 0 {
            let address = self.door.address();
            // The jobs are there: that the note fails is no failure of theirs.
            let _ = blocking(spool, move |spool| spool.answered(&address)).await;
        }
        Ok(sent)
    }

    /// Sends what waits, as far as it goes within a moment; the reason why what comes now goes behind it.
    async fn drain_before(&self, spool: &Spool) -> Result<Option<Detour>, EnqueueError> {
        let until = monotonic() + DRAIN_FOR;
        loop {
            match drain::drain(&*self.door, spool, Some(until), ANSWER_WITHIN, false).await {
                Ok(drained) if drained.left => {
                    return Ok(Some(Detour::unasked("jobs before it still wait in the spool")));
                }
                Ok(_) => return Ok(None),
                Err(DrainError::Busy) => {
                    return Ok(Some(Detour::unasked("jobs before it are on their way from the spool")));
                }
                Err(DrainError::Store(error)) if !error.is_passing() => return Err(error.into()),
                Err(DrainError::Store(error)) if is_over(&error, until) => {
                    return Ok(Some(Detour::away(&error, false)));
                }
                Err(DrainError::Store(_)) => tokio::time::sleep(TRY_EVERY).await,
                Err(DrainError::Spool(error)) => return Err(error.into()),
            }
        }
    }

    /// Asks the store until it answers or the time is over.
    async fn try_for_a_while(&self, jobs: &[NewJob]) -> Result<Result<Vec<Enqueued>, Detour>, StoreError> {
        let until = monotonic() + ANSWER_WITHIN;
        let mut parcels = parcels(jobs);
        loop {
            let left = until.saturating_duration_since(monotonic());
            match deliver(&*self.door, &mut parcels, left).await {
                Ok(answers) => return Ok(Ok(answers)),
                Err(error) if !error.is_passing() && parcels.iter().any(|parcel| parcel.unsure) => {
                    // What it says now says nothing of the try before.
                    return Err(StoreError::Unreachable(format!("an answer was lost, and now: {error}")));
                }
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) if is_over(&error, until) => {
                    return Ok(Err(Detour::away(&error, parcels.iter().any(|parcel| parcel.unsure))));
                }
                Err(_) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    }

    async fn put_aside(
        &self,
        spool: Spool,
        jobs: Vec<NewJob>,
        detour: Detour,
    ) -> Result<Vec<Accepted>, EnqueueError> {
        let Detour { why, unsure, failed } = detour;
        let (address, batch) = (self.door.address(), jobs.clone());
        let put = blocking(&spool, move |spool| spool.append(&address, &batch, unsure, failed)).await;
        let waiting = put.map_err(|spool| EnqueueError::Neither { why: Arc::clone(&why), spool, unsure })?;
        let now_ms = wall_ms();
        let first = (waiting + 1).saturating_sub(jobs.len() as u64);
        Ok(jobs
            .into_iter()
            .zip(first..)
            .filter_map(|(job, position)| {
                let due_ms = job.times(now_ms).1;
                Some(Accepted::Spooled(Spooled { id: job.id?, position, due_ms, why: Arc::clone(&why) }))
            })
            .collect())
    }

    /// Hands what waits in the spool to the store, in order, until `until` if there is one, and as long as the store answers. With
    /// `foreign`, jobs for stores by other names go to this one too: for a store that was known by another name.
    ///
    /// # Errors
    /// When another process is at it, the store does not answer, or the spool cannot be used. What was sent before is
    /// sent, and what was not is still in the spool.
    pub async fn drain(&self, until: Option<Monotonic>, foreign: bool) -> Result<Drained, DrainError> {
        let spool = self.spool.read().clone();
        match spool {
            Some(spool) => drain::drain(&*self.door, &spool, until, drain::PATIENCE, foreign).await,
            None => Ok(Drained::default()),
        }
    }
}

/// Whether it is of no use to ask again before `until`.
fn is_over(error: &StoreError, until: Monotonic) -> bool {
    matches!(error, StoreError::Full(_)) || monotonic() + TRY_EVERY >= until
}

fn stored(answers: Vec<Enqueued>) -> Vec<Accepted> {
    answers.into_iter().map(Accepted::Stored).collect()
}

/// Works on the spool's file where waiting for a disk holds nobody up.
async fn blocking<T: Send + 'static>(
    spool: &Spool,
    work: impl FnOnce(&Spool) -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    let spool = spool.clone();
    tokio::task::spawn_blocking(move || work(&spool))
        .await
        .unwrap_or_else(|error| Err(SpoolError::Busy(format!("the work on it was given up: {error}"))))
}
