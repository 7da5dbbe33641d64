//! The jobs that this runner has in its hand: held for their moment, running, or waiting to be
//! settled. One lock, short critical sections, no IO.
//!
//! A job enters with its claim and leaves when the store has its outcome. Slots are counted here: a
//! running job has one, a held job has none, and a slot is free as soon as the guest returns.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::StoreClock;
use crate::names::Name;
use crate::queue::{ClaimedJob, Lease, Store};
use crate::sandbox::{JobLog, Stop, StopSignal};

use super::services::Told;

/// Outcomes that wait for the store may have so many bytes before claims pause: an outage must not fill the memory.
const ENDING_BYTES_MAX: usize = 32 << 20;

/// A claimed job and the clock by which its due time is read.
pub(crate) struct InHand {
    pub(crate) claimed: ClaimedJob,
    pub(crate) clock: StoreClock,
}

/// Where a job in hand is.
enum Place {
    Held(Box<InHand>),
    Running(Arc<Running>),
    Ending,
}

/// What others may reach of a running job, and what it may reach itself: see `services`.
pub(crate) struct Running {
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
    pub(crate) stop: StopSignal,
    pub(crate) log: Arc<JobLog>,
    pub(super) told: Told,
    pub(super) store: Arc<dyn Store>,
    /// Where the store's calls go on while all guest threads compute.
    pub(super) io: tokio::runtime::Handle,
}

struct Entry {
    record: u64,
    kind: Name,
    suspect: bool,
    /// What its outcome keeps in memory until the store has it.
    bytes: usize,
    place: Place,
}

/// See the module's text.
pub(crate) struct Hand {
    slots: usize,
    inner: Mutex<Inner>,
    /// Notified when a slot comes free or a job leaves the hand.
    pub(crate) changed: Notify,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<u64, Entry>,
    running: usize,
    held: usize,
    suspects: usize,
    /// Of all outcomes that wait for the store.
    ending_bytes: usize,
    /// Jobs of each kind that are held or run; a kind without any is not there.
    busy: HashMap<Name, u32>,
}

/// What may be claimed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) due: usize,
    pub(crate) ahead: usize,
    pub(crate) suspect: bool,
}

/// How many jobs are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandCounts {
    pub(crate) held: usize,
    pub(crate) running: usize,
    pub(crate) ending: usize,
}

/// A held job whose moment has come.
pub(crate) enum Moment {
    /// It has a slot now: start it.
    Start(Box<InHand>),
    /// There is no slot: give it back, somebody else may have one.
    NoSlot(Box<InHand>),
    /// It was taken out before.
    Gone,
}

impl Hand {
    pub(crate) fn new(slots: usize) -> Self {
        Self { slots, inner: Mutex::default(), changed: Notify::new() }
    }

    /// What may be claimed: as many due jobs as slots are free, and as many ahead as would then have a
    /// slot. Nothing while too many outcomes wait for the store.
    pub(crate) fn room(&self) -> Room {
        let inner = self.inner.lock();
        let ending = inner.entries.len() - inner.running - inner.held;
        if ending >= 4 * self.slots + 1_000 || inner.ending_bytes >= ENDING_BYTES_MAX {
            return Room { due: 0, ahead: 0, suspect: false };
        }
        let due = self.slots - inner.running.min(self.slots);
        Room { due, ahead: due.saturating_sub(inner.held), suspect: inner.suspects == 0 }
    }

    /// Jobs of a kind that are held or run.
    pub(crate) fn busy(&self, kind: &Name) -> u32 {
        self.inner.lock().busy.get(kind).copied().unwrap_or(0)
    }

    /// Takes a slot for a job that is due. False when held jobs took the slots while the claim was on
    /// its way: the job is then [`Place::Ending`], to be given back.
    pub(crate) fn start(&self, job: &ClaimedJob, running: Arc<Running>) -> bool {
        let mut inner = self.inner.lock();
        let has_slot = inner.running < self.slots;
        inner.running += usize::from(has_slot);
        if has_slot {
            inner.begin(&job.job.kind);
        }
        inner.add(job, if has_slot { Place::Running(running) } else { Place::Ending });
        has_slot
    }

    /// Holds a job for its moment.
    pub(crate) fn hold(&self, job: InHand) {
        let mut inner = self.inner.lock();
        inner.held += 1;
        inner.begin(&job.claimed.job.kind);
        let token = job.claimed.lease.token;
        inner.add(&job.claimed, Place::Ending);
        if let Some(entry) = inner.entries.get_mut(&token) {
            entry.place = Place::Held(Box::new(job));
        }
    }

    /// The moment of a held job: moves it into a slot, or out.
    pub(crate) fn moment(&self, token: u64, running: impl FnOnce(&InHand) -> Arc<Running>) -> Moment {
        let mut inner = self.inner.lock();
        let has_slot = inner.running < self.slots;
        let Some(job) = inner.take_held(token) else { return Moment::Gone };
        if !has_slot {
            return Moment::NoSlot(job);
        }
        inner.running += 1;
        inner.begin(&job.claimed.job.kind);
        if let Some(entry) = inner.entries.get_mut(&token) {
            entry.place = Place::Running(running(&job));
        }
        Moment::Start(job)
    }

    /// Takes out held jobs to give back: all of them, or those that match.
    pub(crate) fn take_held(&self, wanted: impl Fn(&ClaimedJob) -> bool) -> Vec<InHand> {
        let mut inner = self.inner.lock();
        let tokens: Vec<u64> = inner
            .entries
            .iter()
            .filter(|(_, e)| matches!(&e.place, Place::Held(job) if wanted(&job.claimed)))
            .map(|(token, _)| *token)
            .collect();
        tokens.into_iter().filter_map(|token| inner.take_held(token).map(|job| *job)).collect()
    }

    /// The guest has returned: its slot is free, its outcome of so many bytes on the way to the store.
    pub(crate) fn returned(&self, token: u64, bytes: usize) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.entries.get_mut(&token)
            && matches!(entry.place, Place::Running(_))
        {
            entry.place = Place::Ending;
            entry.bytes = bytes;
            let kind = entry.kind.clone();
            inner.ending_bytes += bytes;
            inner.running -= 1;
            inner.end(&kind);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// The store has answered: the jobs leave the hand.
    pub(crate) fn settled(&self, tokens: impl IntoIterator<Item = u64>) {
        let mut inner = self.inner.lock();
        for token in tokens {
            if let Some(entry) = inner.entries.remove(&token) {
                inner.suspects -= usize::from(entry.suspect);
                inner.ending_bytes -= entry.bytes;
                match entry.place {
                    Place::Held(_) => inner.held -= 1,
                    Place::Running(_) => inner.running -= 1,
                    Place::Ending => continue,
                }
                inner.end(&entry.kind);
            }
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Asks a running job to stop. False when it does not run here.
    pub(crate) fn stop(&self, record: u64, token: u64, stop: Stop) -> bool {
        match self.inner.lock().entries.get(&token) {
            Some(Entry { record: of, place: Place::Running(running), .. }) if *of == record => {
                running.stop.stop(stop);
                true
            }
            _ => false,
        }
    }

    /// Asks all running jobs to stop.
    pub(crate) fn stop_all(&self, stop: Stop) {
        for running in self.running() {
            running.stop.stop(stop);
        }
    }

    /// All running jobs.
    pub(crate) fn running(&self) -> Vec<Arc<Running>> {
        let inner = self.inner.lock();
        inner
            .entries
            .values()
            .filter_map(|entry| match &entry.place {
                Place::Running(running) => Some(Arc::clone(running)),
                _ => None,
            })
            .collect()
    }

    /// Whether a claim by this token is in the hand.
    pub(crate) fn has(&self, token: u64) -> bool {
        self.inner.lock().entries.contains_key(&token)
    }

    /// How many jobs are where.
    pub(crate) fn counts(&self) -> HandCounts {
        let inner = self.inner.lock();
        HandCounts {
            held: inner.held,
            running: inner.running,
            ending: inner.entries.len() - inner.running - inner.held,
        }
    }

    /// True when nothing is in the hand.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().entries.is_empty()
    }
}

impl Inner {
    fn add(&mut self, job: &ClaimedJob, place: Place) {
        let suspect = is_suspect(job);
        self.suspects += usize::from(suspect);
        let kind = job.job.kind.clone();
        let entry = Entry { record: job.lease.record, kind, suspect, bytes: 0, place };
        self.entries.insert(job.lease.token, entry);
    }

    /// A job of this kind is held or runs from now on.
    fn begin(&mut self, kind: &Name) {
        match self.busy.get_mut(kind) {
            Some(busy) => *busy += 1,
            None => _ = self.busy.insert(kind.clone(), 1),
        }
    }

    /// One of them is not any more.
    fn end(&mut self, kind: &Name) {
        if let Some(busy) = self.busy.get_mut(kind) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(kind);
            }
        }
    }

    fn take_held(&mut self, token: u64) -> Option<Box<InHand>> {
        let entry = self.entries.get_mut(&token)?;
        match std::mem::replace(&mut entry.place, Place::Ending) {
            Place::Held(job) => {
                self.held -= 1;
                self.end(&job.claimed.job.kind);
                Some(job)
            }
            other => {
                entry.place = other;
                None
            }
        }
    }
}

/// One crash may be a neighbour's doing; a job with two runs alone among its like (rule 11).
fn is_suspect(job: &ClaimedJob) -> bool {
    job.crashes + 1 >= crate::job::CRASHES_MAX
}
