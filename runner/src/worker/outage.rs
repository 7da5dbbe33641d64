//! The store is away: one pace and one voice for all loops of the runner.
//!
//! Each loop retries with its own [`Pace`]; what is logged goes through the shared [`Outage`], so
//! that an outage costs one line in three seconds and not one for each loop and try.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Monotonic, monotonic};
use crate::queue::StoreError;

/// At most one line about the store in so long.
const LINE_EVERY: Duration = Duration::from_secs(3);

/// What is known of the store's absence.
#[derive(Default)]
pub(crate) struct Outage {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    since: Option<Monotonic>,
    said: Option<Monotonic>,
    failures: u64,
}

impl Outage {
    /// A call failed. Says so, unless something was said a moment ago.
    pub(crate) fn failed(&self, verb: &str, error: &StoreError) {
        let now = monotonic();
        let mut state = self.state.lock();
        let since = *state.since.get_or_insert(now);
        state.failures += 1;
        if state.said.is_none_or(|said| now.duration_since(said) >= LINE_EVERY) {
            state.said = Some(now);
            let seconds = now.duration_since(since).as_secs();
            let failures = state.failures;
            drop(state);
            tracing::warn!(verb, %error, outage_seconds = seconds, failures, "the store does not do its part; trying on");
        }
    }

    /// A call succeeded. Says that an outage is over, if one was said.
    pub(crate) fn succeeded(&self) {
        let mut state = self.state.lock();
        if let Some(since) = state.since.take() {
            let failures = std::mem::take(&mut state.failures);
            drop(state);
            let outage_ms = monotonic().duration_since(since).as_millis() as u64;
            tracing::info!(outage_ms, failures, "the store is back");
        }
    }
}

/// Jittered exponential backoff between the tries of one loop: 50 ms doubling to 1 s.
#[derive(Default)]
pub(crate) struct Pace {
    failures: u32,
}

impl Pace {
    /// How long to wait after one more failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let ceiling_ms = 50u64 << self.failures.min(5);
        self.failures = self.failures.saturating_add(1);
        let ceiling_ms = ceiling_ms.min(1_000);
        Duration::from_millis(ceiling_ms / 2 + (super::random_unit() * (ceiling_ms as f64) / 2.0) as u64)
    }

    /// Start over after a success.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_slows_to_a_second_and_recovers() {
        let mut pace = Pace::default();
        let waits: Vec<u64> = (0..12).map(|_| pace.failed().as_millis() as u64).collect();
        assert!((25..=50).contains(&waits[0]), "{waits:?}");
        assert!(waits[6..].iter().all(|w| (500..=1_000).contains(w)), "{waits:?}");
        pace.succeeded();
        assert!(pace.failed().as_millis() <= 50);
    }
}
