//! What a job may take of the machine's memory, and what all jobs may take together.
//!
//! wasmtime asks before each memory or table is made or grown. A growth past the job's own limit is
//! denied (the guest sees a failed allocation, and a trap after it reads as out of memory); one past the
//! runner's cap ends the job, its attempt unspent. Everything is given back when the job's store goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use wasmtime::ResourceLimiter;

/// What a table element costs, in bytes.
const TABLE_ELEMENT_BYTES: u64 = 8;
/// Core instances, tables and memories of one job's store. A wrapped module needs 4, 2 and 1; Python
/// and JavaScript components some dozens.
const INSTANCES_MAX: usize = 64;
const TABLES_MAX: usize = 32;
const MEMORIES_MAX: usize = 4;

/// Guest memory of all running jobs, against the runner's cap.
#[derive(Debug)]
pub(super) struct MemoryMeter {
    in_use: AtomicU64,
    cap: u64,
    /// Runs that have begun and not given everything back.
    guests: AtomicU64,
    freed: Notify,
}

impl MemoryMeter {
    pub(super) fn new(cap: u64) -> Self {
        Self { in_use: AtomicU64::new(0), cap, guests: AtomicU64::new(0), freed: Notify::new() }
    }

    pub(super) fn in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(super) fn cap(&self) -> u64 {
        self.cap
    }

    /// Whether `bytes` more fit beside what runs. They always do when nothing runs: there is nothing to
    /// wait for.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.guests.load(Ordering::Acquire) == 0 || self.in_use().saturating_add(bytes) <= self.cap
    }

    /// Resolves when a guest has ended after this call, or at once when none runs.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        // Made now and not at the first poll: an end between the two must not be missed.
        let freed = self.freed.notified();
        let none_runs = self.guests.load(Ordering::Acquire) == 0;
        async move {
            if !none_runs {
                freed.await;
            }
        }
    }

    /// Takes `bytes`, unless the cap stands against it.
    fn take(&self, bytes: u64) -> bool {
        self.in_use
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                now.checked_add(bytes).filter(|then| *then <= self.cap)
            })
            .is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One run, counted from before its instance takes anything until everything was given back.
pub(super) struct Guest(Arc<MemoryMeter>);

impl Guest {
    pub(super) fn new(meter: &Arc<MemoryMeter>) -> Self {
        meter.guests.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(meter))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}

/// A growth that the runner's cap does not allow. Carried by the trap that ends the job.
#[derive(Debug, thiserror::Error)]
#[error("the runner's memory for guests is used up")]
pub(super) struct RunnerMemoryFull;

/// The memory of one job: all its memories and tables together.
#[derive(Debug)]
pub(super) struct JobMemory {
    meter: Arc<MemoryMeter>,
    limit: u64,
    in_use: u64,
    peak: u64,
    /// What the growth that is under way took, to be given back if it fails after all.
    pending: u64,
    denied: bool,
}

impl JobMemory {
    pub(super) fn new(meter: Arc<MemoryMeter>, limit: u64) -> Self {
        Self { meter, limit, in_use: 0, peak: 0, pending: 0, denied: false }
    }

    /// The most it had, in bytes.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// The limit, in bytes.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// A growth was denied: what fails from now on, fails for want of memory.
    pub(super) fn denied(&self) -> bool {
        self.denied
    }

    fn grow(&mut self, bytes: u64, beyond_maximum: bool) -> wasmtime::Result<bool> {
        self.pending = 0;
        let wanted = self.in_use.saturating_add(bytes);
        // A job that could not even run alone is over its limit, whatever the others use: to release
        // it would only have it come back.
        if beyond_maximum || wanted > self.limit || wanted > self.meter.cap() {
            self.denied = true;
            return Ok(false);
        }
        if !self.meter.take(bytes) {
            return Err(RunnerMemoryFull.into());
        }
        self.in_use = wanted;
        self.peak = self.peak.max(wanted);
        self.pending = bytes;
        Ok(true)
    }

    fn growth_failed(&mut self) {
        self.denied = true;
        self.in_use -= self.pending;
        self.meter.give_back(self.pending);
        self.pending = 0;
    }
}

impl ResourceLimiter for JobMemory {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        self.grow(desired.saturating_sub(current) as u64, maximum.is_some_and(|max| desired > max))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.growth_failed();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = (desired.saturating_sub(current) as u64).saturating_mul(TABLE_ELEMENT_BYTES);
        self.grow(bytes, maximum.is_some_and(|max| desired > max))
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.growth_failed();
        Ok(())
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

impl Drop for JobMemory {
    fn drop(&mut self) {
        self.meter.give_back(self.in_use);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_count_together_and_come_back_at_the_end() {
        let meter = Arc::new(MemoryMeter::new(1_000));
        let mut job = JobMemory::new(Arc::clone(&meter), 500);
        assert!(job.memory_growing(0, 300, None).unwrap());
        assert!(job.table_growing(0, 20, None).unwrap());
        assert_eq!((meter.in_use(), job.peak()), (460, 460));
        assert!(!job.memory_growing(300, 341, None).unwrap(), "460 + 41 is over 500");
        assert!(job.denied());
        drop(job);
        assert_eq!(meter.in_use(), 0);
    }

    #[test]
    fn a_growth_that_fails_after_it_was_allowed_is_given_back_once() {
        let meter = Arc::new(MemoryMeter::new(1_000));
        let mut job = JobMemory::new(Arc::clone(&meter), 500);
        assert!(job.memory_growing(0, 100, None).unwrap());
        assert!(job.memory_growing(100, 400, None).unwrap());
        job.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        job.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert_eq!(meter.in_use(), 100);
        assert!(job.denied());
    }

    #[test]
    fn the_runner_s_cap_ends_a_job_that_would_fit_alone_and_denies_one_that_never_could() {
        let meter = Arc::new(MemoryMeter::new(1_000));
        let mut first = JobMemory::new(Arc::clone(&meter), 800);
        assert!(first.memory_growing(0, 700, None).unwrap());
        let mut second = JobMemory::new(Arc::clone(&meter), 800);
        let error = second.memory_growing(0, 400, None).unwrap_err();
        assert!(error.is::<RunnerMemoryFull>());
        let mut huge = JobMemory::new(Arc::clone(&meter), 5_000);
        assert!(!huge.memory_growing(0, 1_001, None).unwrap());
        assert!(huge.denied());
    }
}
