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
}

/// A one-way switch, cheap to clone; the first [`stop`](Self::stop) counts.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: AtomicU8,
    changed: Notify,
}

const CANCEL: u8 = 1;
const RELEASE: u8 = 2;

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
            _ => None,
        }
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
