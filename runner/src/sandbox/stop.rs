//! The signal that stops a run before its end: from whoever cancels or shuts down, to the guest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// Why a run is to stop before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Somebody cancelled the job: ends as [`RunEnd::Cancelled`](crate::outcome::RunEnd::Cancelled).
    Cancel,
    /// The runner stops and cannot wait: ends as
    /// [`RunEnd::Released`](crate::outcome::RunEnd::Released).
    Release,
    /// The runner has lost its lease, and others may run the job: ends as
    /// [`RunEnd::Released`](crate::outcome::RunEnd::Released) too, which the store refuses.
    Lost,
}

/// A one-way switch, cheap to clone; the first [`stop`](Self::stop) counts.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: AtomicU8,
    /// What the guest knows of it.
    guest: AtomicU8,
    changed: Notify,
}

const CANCEL: u8 = 1;
const RELEASE: u8 = 2;
const LOST: u8 = 3;

/// The guest has asked whether it is cancelled, and was told that it is not.
const ASKS: u8 = 1;
/// It was told that it is.
const KNOWS: u8 = 2;

impl StopSignal {
    /// A signal that nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to stop. Only the first reason counts.
    pub fn stop(&self, why: Stop) {
        let code = match why {
            Stop::Cancel => CANCEL,
            Stop::Release => RELEASE,
            Stop::Lost => LOST,
        };
        if self.0.state.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.0.changed.notify_waiters();
        }
    }

    /// Why the run is to stop, if it is.
    pub fn get(&self) -> Option<Stop> {
        match self.0.state.load(Ordering::Acquire) {
            CANCEL => Some(Stop::Cancel),
            RELEASE => Some(Stop::Release),
            LOST => Some(Stop::Lost),
            _ => None,
        }
    }

    /// The guest asks whether it is cancelled.
    pub(super) fn is_cancelled_asks_the_guest(&self) -> bool {
        let cancelled = self.get() == Some(Stop::Cancel);
        self.0.guest.fetch_max(if cancelled { KNOWS } else { ASKS }, Ordering::AcqRel);
        cancelled
    }

    /// It is cancelled, and asks every now and then: it may end in good order.
    pub(super) fn may_end_itself(&self) -> bool {
        self.get() == Some(Stop::Cancel) && self.0.guest.load(Ordering::Acquire) != 0
    }

    /// The guest was told that it is cancelled.
    pub(super) fn is_known_to_the_guest(&self) -> bool {
        self.0.guest.load(Ordering::Acquire) == KNOWS
    }

    /// Resolves when the run is to stop.
    pub async fn stopped(&self) -> Stop {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that a stop between the two is not missed.
            changed.as_mut().enable();
            if let Some(why) = self.get() {
                return why;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guest_that_asks_may_end_itself_and_only_when_it_is_cancelled() {
        let (asks, never, released) = (StopSignal::new(), StopSignal::new(), StopSignal::new());
        assert!(!asks.is_cancelled_asks_the_guest() && !released.is_cancelled_asks_the_guest());
        assert!(!asks.may_end_itself());
        asks.stop(Stop::Cancel);
        never.stop(Stop::Cancel);
        released.stop(Stop::Release);
        assert!(asks.may_end_itself() && !never.may_end_itself() && !released.may_end_itself());
        assert!(!asks.is_known_to_the_guest());
        assert!(asks.is_cancelled_asks_the_guest() && asks.is_known_to_the_guest());
        assert!(!released.is_cancelled_asks_the_guest() && !released.is_known_to_the_guest());
    }

    #[tokio::test]
    async fn the_first_reason_counts_and_wakes_every_waiter() {
        let signal = StopSignal::new();
        assert_eq!(signal.get(), None);
        let waiter = tokio::spawn({
            let signal = signal.clone();
            async move { signal.stopped().await }
        });
        tokio::task::yield_now().await;
        signal.stop(Stop::Release);
        signal.stop(Stop::Cancel);
        assert_eq!(waiter.await.unwrap(), Stop::Release);
        assert_eq!(signal.stopped().await, Stop::Release, "also when it was given before");
    }
}
