//! What a heartbeat has seen of the lanes, for the claim loop: while heartbeats look, a loop that has nothing to do need not look itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Worker;
use crate::clock::{Monotonic, StoreClock, monotonic};
use crate::queue::{CLAIM_LANES_MAX, Lane};
use crate::vitals::Vital;

/// A look at least so often, by a heartbeat or by the claim loop itself, whatever is known: covers a lost signal.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How much longer than that the claim loop waits for the answer to the next heartbeat.
const PATIENCE: Duration = Duration::from_millis(300);

/// What a heartbeat has seen of the lanes.
#[derive(Debug)]
pub(super) struct Outlook {
    asked: Monotonic,
    clock: StoreClock,
    /// Those that were served when it was sent.
    lanes: Arc<HashSet<Lane>>,
    /// The first due time in them.
    next_due_ms: Option<u64>,
}

/// What a look of the claim loop has left to be waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// When it was over.
    pub(super) looked: Monotonic,
    /// When the first of what it left falls due, less the look ahead.
    pub(super) next: Option<Monotonic>,
    pub(super) look_ahead_ms: u64,
}

impl Outlook {
    /// Of the answer to a heartbeat that was sent at `asked` and asked about these lanes.
    pub(super) fn new(
        asked: Monotonic,
        clock: StoreClock,
        lanes: Arc<HashSet<Lane>>,
        next_due_ms: Option<u64>,
    ) -> Self {
        Self { asked, clock, lanes, next_due_ms }
    }

    /// What a heartbeat asks about: all lanes that are served, or none where they are too many for one.
    pub(super) fn asks(lanes: &HashSet<Lane>) -> Vec<Lane> {
        if lanes.len() > CLAIM_LANES_MAX { Vec::new() } else { lanes.iter().cloned().collect() }
    }

    /// Until when it makes another look unnecessary; `None` when it says nothing about what was seen since, or of the lanes that
    /// are served now.
    fn good_until(&self, seen: Seen, lanes: &Arc<HashSet<Lane>>) -> Option<Monotonic> {
        if self.asked < seen.looked || !Arc::ptr_eq(&self.lanes, lanes) || lanes.len() > CLAIM_LANES_MAX {
            return None;
        }
        let trusted = self.asked + LOOK_EVERY + PATIENCE;
        let due = self.next_due_ms.map(|due| self.clock.instant_of(due.saturating_sub(seen.look_ahead_ms)));
        Some(due.map_or(trusted, |due| due.min(trusted)))
    }
}

impl Seen {
    /// When it is time for another look.
    fn until(&self, outlook: Option<&Outlook>, lanes: &Arc<HashSet<Lane>>) -> Monotonic {
        let until = outlook.and_then(|it| it.good_until(*self, lanes)).unwrap_or(self.looked + LOOK_EVERY);
        self.next.map_or(until, |next| next.min(until))
    }
}

impl Worker {
    /// Takes in what a heartbeat has seen: the lanes that are served, and how many there are in all.
    pub(super) fn look_out(&self, outlook: Outlook, lanes: u64) {
        self.outlook.send_replace(Some(outlook));
        if self.lanes_counted.swap(lanes, Relaxed) != lanes {
            self.look_at_lanes();
        }
    }

    /// Waits for the answer to a heartbeat.
    pub(crate) async fn next_heartbeat(&self) {
        // The sender lives as long as we do.
        let _ = self.outlook.subscribe().changed().await;
    }

    /// Sleeps until it is time for another look.
    pub(super) async fn nothing_to_do(&self, seen: Seen, vital: &Vital) {
        let mut outlooks = self.outlook.subscribe();
        loop {
            vital.step();
            let until = seen.until(outlooks.borrow_and_update().as_ref(), &self.served_lanes.load());
            if until <= monotonic() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until.into()) => {}
                () = self.wake.notified() => return,
                Ok(()) = outlooks.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    fn lanes(count: usize) -> Arc<HashSet<Lane>> {
        let name = |n| Name::new(&format!("l{n}")).expect("a name");
        Arc::new((0..count).map(|n| Lane { queue: name(n), kind: name(n) }).collect())
    }

    /// A heartbeat at 1,000 ms, at 5,000 ms on the store's clock, after a look at `looked_ms`.
    fn until(looked_ms: u64, next_ms: Option<u64>, due_ms: Option<u64>, served: (usize, bool)) -> u64 {
        let start = monotonic();
        let at = |ms| start + Duration::from_millis(ms);
        let asked_of = lanes(served.0);
        let now = if served.1 { Arc::clone(&asked_of) } else { lanes(served.0) };
        let outlook = Outlook {
            asked: at(1_000),
            clock: StoreClock::new(5_000_000, at(1_000)),
            lanes: asked_of,
            next_due_ms: due_ms,
        };
        let seen = Seen { looked: at(looked_ms), next: next_ms.map(at), look_ahead_ms: 10 };
        seen.until(Some(&outlook), &now).duration_since(start).as_millis() as u64
    }

    #[test]
    fn while_heartbeats_look_nobody_else_has_to() {
        assert_eq!(until(500, None, None, (3, true)), 2_300, "until the next one is overdue");
        assert_eq!(
            until(500, Some(1_700), None, (3, true)),
            1_700,
            "what the look itself has seen stays true"
        );
        assert_eq!(until(500, Some(90_000), Some(90_000), (3, true)), 2_300);
        assert_eq!(until(500, Some(90_000), Some(6_000), (3, true)), 1_990, "a signal was lost");
        assert_eq!(until(500, None, Some(5), (3, true)), 1_000, "and what it told of is due");
    }

    #[test]
    fn what_a_heartbeat_cannot_know_is_looked_at() {
        assert_eq!(until(1_001, None, Some(5), (3, true)), 2_001, "it was sent before the look was over");
        assert_eq!(until(500, None, None, (3, false)), 1_500, "other lanes are served now");
        assert_eq!(until(500, None, None, (65, true)), 1_500, "too many lanes for one");
        let seen = Seen { looked: monotonic(), next: None, look_ahead_ms: 2 };
        assert_eq!(seen.until(None, &lanes(1)), seen.looked + LOOK_EVERY);
    }
}
