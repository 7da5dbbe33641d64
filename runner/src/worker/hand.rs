//! The jobs that this runner has in its hand: held for their moment, running, or waiting to be
//! settled. One lock, short critical sections, no IO.
//!
//! A job enters with its claim and leaves when the store has its outcome. Slots are counted here: a
//! running job has one, a held job has none, and a slot is free as soon as the guest returns. The whole job stays, so that
//! it can be offered to a store that has lost it.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::StoreClock;
use crate::names::Name;
use crate::queue::{ClaimedJob, Lease, Settlement, Store};
use crate::sandbox::{JobLog, Stop, StopSignal};

use super::services::Told;

#[cfg(test)]
mod tests;

/// Payloads and outcomes of jobs that have ended, in bytes, above which nothing more is claimed until the store has them: an outage
/// must not fill the memory.
const ENDING_BYTES_MAX: usize = 64 << 20;

/// A job as it was claimed.
pub(crate) struct Claim {
    job: ClaimedJob,
    /// Its record now: a store that has lost it may have given it another.
    record: AtomicU64,
    /// What its outcome keeps in memory, in bytes, once it has one.
    outcome_bytes: AtomicUsize,
}

impl Claim {
    pub(crate) fn new(job: ClaimedJob) -> Arc<Self> {
        let record = AtomicU64::new(job.lease.record);
        Arc::new(Self { job, record, outcome_bytes: AtomicUsize::new(0) })
    }

    /// What it keeps in memory while it waits for the store, in bytes.
    fn ending_bytes(&self) -> usize {
        self.job.job.payload.len() + self.outcome_bytes.load(SeqCst)
    }

    /// Its lease now.
    pub(crate) fn lease(&self) -> Lease {
        Lease { record: self.record.load(SeqCst), ..self.job.lease.clone() }
    }
}

impl Deref for Claim {
    type Target = ClaimedJob;

    fn deref(&self) -> &ClaimedJob {
        &self.job
    }
}

/// A claimed job and the clock by which its due time is read.
pub(crate) struct InHand {
    pub(crate) claimed: Arc<Claim>,
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
    pub(crate) claimed: Arc<Claim>,
    pub(crate) stop: StopSignal,
    pub(crate) log: Arc<JobLog>,
    pub(super) told: Told,
    pub(super) store: Arc<dyn Store>,
    /// Where the store's calls go on while all guest threads compute.
    pub(super) io: tokio::runtime::Handle,
}

struct Entry {
    claimed: Arc<Claim>,
    place: Place,
}

/// See the module's text.
pub(crate) struct Hand {
    slots: usize,
    inner: Mutex<Inner>,
    /// Notified when a slot comes free or a job leaves the hand.
    pub(crate) changed: Notify,
    /// Slots that are to be free before a returning guest notifies.
    free_wanted: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<u64, Entry>,
    running: usize,
    held: usize,
    suspects: usize,
    /// Payloads and outcomes of those that are ending.
    ending_bytes: usize,
    /// Jobs of each kind that are held or run; a kind without any is not there.
    busy: HashMap<Name, u32>,
    /// Whether any job has another record than it was claimed with.
    renumbered: bool,
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
        Self { slots, inner: Mutex::default(), changed: Notify::new(), free_wanted: AtomicUsize::new(1) }
    }

    /// What may be claimed: as many due jobs as slots are free, and as many ahead as would then have a
    /// slot. Nothing while too many outcomes wait for the store.
    pub(crate) fn room(&self) -> Room {
        let inner = self.inner.lock();
        if inner.ending() >= 4 * self.slots + 1_000 || inner.ending_bytes >= ENDING_BYTES_MAX {
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
    pub(crate) fn start(&self, job: &Arc<Claim>, running: Arc<Running>) -> bool {
        let mut inner = self.inner.lock();
        let has_slot = inner.running < self.slots;
        inner.add(job, if has_slot { Place::Running(running) } else { Place::Ending });
        has_slot
    }

    /// Holds a job for its moment.
    pub(crate) fn hold(&self, job: InHand) {
        let claimed = Arc::clone(&job.claimed);
        self.inner.lock().add(&claimed, Place::Held(Box::new(job)));
    }

    /// The moment of a held job: moves it into a slot, or out.
    pub(crate) fn moment(&self, token: u64, running: impl FnOnce(&InHand) -> Arc<Running>) -> Moment {
        let mut inner = self.inner.lock();
        let has_slot = inner.running < self.slots;
        let Some(job) = inner.take_held(token) else { return Moment::Gone };
        if !has_slot {
            return Moment::NoSlot(job);
        }
        inner.put(token, Place::Running(running(&job)));
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
        let entry = inner.entries.get(&token).filter(|entry| matches!(entry.place, Place::Running(_)));
        if let Some(entry) = entry {
            // Before it is counted where it comes: it leaves with as much.
            entry.claimed.outcome_bytes.store(bytes, SeqCst);
            inner.put(token, Place::Ending);
        }
        let free = self.slots - inner.running.min(self.slots);
        drop(inner);
        if free >= self.free_wanted.load(SeqCst) {
            self.changed.notify_one();
        }
    }

    /// Resolves when a quarter of the slots is free, or after `patience`: for a runner that was full, so that it does not claim one job
    /// after the other.
    pub(crate) async fn some_free(&self, patience: Duration) {
        let wanted = (self.slots / 4).max(1);
        self.free_wanted.store(wanted, SeqCst);
        let enough = async {
            while self.slots - self.inner.lock().running.min(self.slots) < wanted {
                self.changed.notified().await;
            }
        };
        let _ = tokio::time::timeout(patience, enough).await;
        self.free_wanted.store(1, SeqCst);
    }

    /// The store has answered: the jobs leave the hand.
    pub(crate) fn settled(&self, tokens: impl IntoIterator<Item = u64>) {
        let mut inner = self.inner.lock();
        for token in tokens {
            inner.remove(token);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Everything in the hand as a store takes it that has lost data, in the order of the records.
    pub(crate) fn offers(&self) -> Vec<ClaimedJob> {
        let inner = self.inner.lock();
        let whole = |entry: &Entry| ClaimedJob { lease: entry.claimed.lease(), ..entry.claimed.job.clone() };
        let mut jobs: Vec<ClaimedJob> = inner.entries.values().map(whole).collect();
        drop(inner);
        jobs.sort_unstable_by_key(|job| job.lease.record);
        jobs
    }

    /// A job has this record now.
    pub(crate) fn renumber(&self, token: u64, record: u64) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.entries.get(&token) else { return };
        if entry.claimed.record.swap(record, SeqCst) != record {
            inner.renumbered = true;
        }
    }

    /// Lets outcomes name the records that their jobs have now.
    pub(crate) fn name_records(&self, settlements: &mut [Settlement]) {
        let inner = self.inner.lock();
        for settlement in settlements.iter_mut().filter(|_| inner.renumbered) {
            if let Some(entry) = inner.entries.get(&settlement.lease.token) {
                settlement.lease = entry.claimed.lease();
            }
        }
    }

    /// A job is somebody else's by now: a held one leaves the hand, a running one is stopped. One whose outcome is on its way is
    /// left to the store, which refuses it.
    pub(crate) fn let_go(&self, token: u64) {
        let mut inner = self.inner.lock();
        match inner.entries.get(&token).map(|entry| &entry.place) {
            Some(Place::Running(running)) => running.stop.stop(Stop::Lost),
            Some(Place::Held(_)) => {
                inner.remove(token);
                drop(inner);
                self.changed.notify_one();
            }
            Some(Place::Ending) | None => {}
        }
    }

    /// The tokens of those that are held or run.
    pub(crate) fn working(&self) -> HashSet<u64> {
        let inner = self.inner.lock();
        let working = inner.entries.iter().filter(|(_, entry)| !matches!(entry.place, Place::Ending));
        working.map(|(token, _)| *token).collect()
    }

    /// Asks a running job to stop. False when it does not run here.
    pub(crate) fn stop(&self, token: u64, stop: Stop) -> bool {
        match self.inner.lock().entries.get(&token) {
            Some(Entry { place: Place::Running(running), .. }) => {
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
        HandCounts { held: inner.held, running: inner.running, ending: inner.ending() }
    }

    /// True when nothing is in the hand.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.lock().entries.is_empty()
    }
}

impl Inner {
    fn ending(&self) -> usize {
        self.entries.len() - self.running - self.held
    }

    fn add(&mut self, job: &Arc<Claim>, place: Place) {
        self.suspects += usize::from(is_suspect(job));
        self.enter(job, &place);
        self.entries.insert(job.job.lease.token, Entry { claimed: Arc::clone(job), place });
    }

    fn remove(&mut self, token: u64) {
        if let Some(Entry { claimed, place }) = self.entries.remove(&token) {
            self.suspects -= usize::from(is_suspect(&claimed));
            self.leave(&claimed, &place);
        }
    }

    /// Moves a job; where it was.
    fn put(&mut self, token: u64, place: Place) -> Option<Place> {
        let entry = self.entries.get_mut(&token)?;
        let claimed = Arc::clone(&entry.claimed);
        let place_before = std::mem::replace(&mut entry.place, Place::Ending);
        self.leave(&claimed, &place_before);
        self.enter(&claimed, &place);
        self.entries.get_mut(&token)?.place = place;
        Some(place_before)
    }

    /// Counts a job where it comes.
    fn enter(&mut self, claimed: &Claim, place: &Place) {
        match place {
            Place::Held(_) => self.held += 1,
            Place::Running(_) => self.running += 1,
            Place::Ending => {
                self.ending_bytes += claimed.ending_bytes();
                return;
            }
        }
        let kind = &claimed.job.job.kind;
        match self.busy.get_mut(kind) {
            Some(busy) => *busy += 1,
            None => _ = self.busy.insert(kind.clone(), 1),
        }
    }

    /// Counts it no more where it was.
    fn leave(&mut self, claimed: &Claim, place: &Place) {
        match place {
            Place::Held(_) => self.held -= 1,
            Place::Running(_) => self.running -= 1,
            Place::Ending => {
                self.ending_bytes -= claimed.ending_bytes();
                return;
            }
        }
        let kind = &claimed.job.job.kind;
        if let Some(busy) = self.busy.get_mut(kind) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(kind);
            }
        }
    }

    fn take_held(&mut self, token: u64) -> Option<Box<InHand>> {
        if !matches!(self.entries.get(&token)?.place, Place::Held(_)) {
            return None;
        }
        match self.put(token, Place::Ending)? {
            Place::Held(job) => Some(job),
            _ => None,
        }
    }
}

/// One crash may be a neighbour's doing; a job with two runs alone among its like (rule 11).
fn is_suspect(job: &ClaimedJob) -> bool {
    job.crashes + 1 >= crate::job::CRASHES_MAX
}
