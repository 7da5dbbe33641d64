//! The store is away: one pace and one voice for all loops of the runner.
//!
//! Each loop retries with its own [`Pace`]; what is logged goes through the shared [`Outage`], so
//! that an outage costs one line in three seconds and not one for each loop and try. It is over when every
//! verb that failed has succeeded again: a store that refuses claims and takes heartbeats is not back.

use std::collections::BTreeSet;
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
    /// The verbs that failed when they were last tried.
    failing: BTreeSet<&'static str>,
    since: Option<Monotonic>,
    ended: Option<Monotonic>,
    said: Option<Monotonic>,
    failures: u64,
    late: u64,
}

/// A line that may be said now.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Away { seconds: u64, failures: u64 },
    Back { outage_ms: u64, failures: u64 },
    Late { jobs: u64 },
}

impl Outage {
    /// A call failed. Says so, unless something was said a moment ago.
    pub(crate) fn failed(&self, verb: &'static str, error: &StoreError) {
        let line = self.state.lock().failed(verb, monotonic());
        if let Some(Line::Away { seconds, failures }) = line {
            tracing::warn!(verb, %error, outage_seconds = seconds, failures, "the store does not do its part; trying on");
        }
    }

    /// A call succeeded.
    pub(crate) fn succeeded(&self, verb: &'static str) {
        self.state.lock().succeeded(verb, monotonic());
    }

    /// Whether some call failed when it was last tried.
    pub(crate) fn is_on(&self) -> bool {
        !self.state.lock().failing.is_empty()
    }

    /// So many outcomes came too late: somebody else has the jobs, or they are gone.
    pub(crate) fn late(&self, jobs: u64) {
        self.state.lock().late += jobs;
    }

    /// Says what has waited for its turn. To be called every now and then.
    pub(crate) fn say(&self) {
        let line = self.state.lock().pending(monotonic());
        match line {
            Some(Line::Back { outage_ms, failures }) => {
                tracing::info!(outage_ms, failures, "the store is back");
            }
            Some(Line::Late { jobs }) => {
                tracing::warn!(jobs, "late outcomes refused: the leases of their jobs are gone");
            }
            _ => {}
        }
    }
}

impl State {
    fn failed(&mut self, verb: &'static str, now: Monotonic) -> Option<Line> {
        self.failing.insert(verb);
        self.ended = None;
        self.failures += 1;
        let since = *self.since.get_or_insert(now);
        self.may_speak(now)
            .then(|| Line::Away { seconds: now.duration_since(since).as_secs(), failures: self.failures })
    }

    fn succeeded(&mut self, verb: &'static str, now: Monotonic) {
        if self.failing.remove(verb) && self.failing.is_empty() {
            self.ended = Some(now);
        }
    }

    fn pending(&mut self, now: Monotonic) -> Option<Line> {
        if let (Some(since), Some(ended)) = (self.since, self.ended)
            && self.may_speak(now)
        {
            let failures = std::mem::take(&mut self.failures);
            (self.since, self.ended) = (None, None);
            return Some(Line::Back { outage_ms: ended.duration_since(since).as_millis() as u64, failures });
        }
        (self.late > 0 && self.may_speak(now)).then(|| Line::Late { jobs: std::mem::take(&mut self.late) })
    }

    /// True at most once in [`LINE_EVERY`].
    fn may_speak(&mut self, now: Monotonic) -> bool {
        let may = self.said.is_none_or(|said| now.duration_since(said) >= LINE_EVERY);
        if may {
            self.said = Some(now);
        }
        may
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

    #[test]
    fn an_outage_costs_a_line_in_three_seconds_however_many_loops_fail() {
        let (mut state, start) = (State::default(), monotonic());
        let mut lines = 0;
        for ms in (0..9_000).step_by(10) {
            let now = start + Duration::from_millis(ms);
            lines += usize::from(state.failed("claim", now).is_some());
            // A verb that succeeds beside it is no end of the outage.
            state.succeeded("heartbeat", now);
            lines += usize::from(state.pending(now).is_some());
        }
        assert_eq!(lines, 3);
    }

    #[test]
    fn the_end_is_said_once_every_verb_is_back_and_not_in_a_hurry() {
        let (mut state, start) = (State::default(), monotonic());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(state.failed("claim", at(0)), Some(Line::Away { seconds: 0, failures: 1 }));
        assert_eq!(state.failed("settle", at(10)), None);
        state.succeeded("claim", at(1_000));
        assert_eq!(state.pending(at(4_000)), None, "settle still fails");
        state.succeeded("settle", at(5_000));
        assert_eq!(state.pending(at(5_000)), Some(Line::Back { outage_ms: 5_000, failures: 2 }));
        assert_eq!(state.pending(at(9_000)), None);
    }

    #[test]
    fn late_outcomes_are_summed_up() {
        let (mut state, start) = (State::default(), monotonic());
        state.late += 60;
        assert_eq!(state.pending(start), Some(Line::Late { jobs: 60 }));
        state.late += 1;
        assert_eq!(state.pending(start + Duration::from_secs(1)), None);
        assert_eq!(state.pending(start + Duration::from_secs(3)), Some(Line::Late { jobs: 1 }));
    }
}
