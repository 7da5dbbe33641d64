//! When is a session lost? Pure.
//!
//! Rule 3: only when one observer has seen its heartbeat counter unchanged for a whole lease on its own
//! monotonic clock, while the store answered all the time. No wall clock is asked, and a gap in the
//! observer's own looks (an outage, a busy store, a stopped process) starts every watch anew: nobody
//! could have shown himself in it.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::queue::SessionId;

/// What one runner has seen of the others' heartbeats.
pub(super) struct Observer {
    lease: Duration,
    gap_max: Duration,
    looked: Option<Monotonic>,
    watched: HashMap<SessionId, Watch>,
}

struct Watch {
    /// `None` while the session is known by its leases alone.
    beat: Option<u64>,
    since: Monotonic,
}

impl Observer {
    /// `every` is how often this observer looks.
    pub(super) fn new(lease: Duration, every: Duration) -> Self {
        Self { lease, gap_max: every * 3, looked: None, watched: HashMap::new() }
    }

    /// The store did not answer: every watch starts anew.
    pub(super) fn missed(&mut self) {
        self.looked = None;
    }

    /// Takes in what is seen now, and says which sessions are lost. `holders` are those that hold leases,
    /// registered or not.
    pub(super) fn observe(
        &mut self,
        now: Monotonic,
        own: &SessionId,
        beats: impl Iterator<Item = (SessionId, u64)>,
        holders: impl Iterator<Item = SessionId>,
    ) -> Vec<SessionId> {
        let unbroken = self.looked.is_some_and(|at| now.duration_since(at) <= self.gap_max);
        self.looked = Some(now);
        let mut seen: HashMap<SessionId, Option<u64>> = holders.map(|session| (session, None)).collect();
        seen.extend(beats.map(|(session, beat)| (session, Some(beat))));
        seen.remove(own);
        self.watched.retain(|session, _| seen.contains_key(session));
        let mut lost = Vec::new();
        for (session, beat) in seen {
            let watch = self.watched.entry(session.clone()).or_insert(Watch { beat, since: now });
            if !unbroken || watch.beat != beat {
                *watch = Watch { beat, since: now };
            } else if now.duration_since(watch.since) >= self.lease {
                lost.push(session);
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const LEASE: Duration = Duration::from_secs(5);
    const EVERY: Duration = Duration::from_millis(800);

    fn id(name: &str) -> SessionId {
        SessionId(name.into())
    }

    struct Scene {
        observer: Observer,
        start: Monotonic,
    }

    impl Scene {
        fn new() -> Self {
            Self { observer: Observer::new(LEASE, EVERY), start: monotonic() }
        }

        fn look(&mut self, at_ms: u64, beats: &[(&str, u64)], holders: &[&str]) -> Vec<SessionId> {
            let now = self.start + Duration::from_millis(at_ms);
            let beats = beats.iter().map(|(s, b)| (id(s), *b));
            self.observer.observe(now, &id("me"), beats, holders.iter().map(|s| id(s)))
        }
    }

    #[test]
    fn a_session_is_lost_after_a_whole_lease_without_a_beat() {
        let mut scene = Scene::new();
        for at_ms in (0..5_000).step_by(800) {
            assert_eq!(scene.look(at_ms, &[("a", 7)], &["a"]), [], "at {at_ms} ms");
        }
        assert_eq!(scene.look(5_600, &[("a", 7)], &["a"]), [id("a")]);
    }

    #[test]
    fn a_beat_keeps_it_alive_and_so_does_one_that_went_back() {
        let mut scene = Scene::new();
        for step in 0..40u64 {
            let beat = if step % 5 == 0 { step } else { step / 5 * 5 };
            assert_eq!(scene.look(step * 800, &[("a", beat)], &["a"]), []);
        }
        assert_eq!(scene.look(32_800, &[("a", 1)], &[]), [], "a store that lost data is no proof");
    }

    #[test]
    fn an_outage_and_a_gap_start_the_watch_anew() {
        let mut scene = Scene::new();
        for at_ms in (0..=4_800).step_by(800) {
            scene.look(at_ms, &[("a", 7)], &[]);
        }
        scene.observer.missed();
        assert_eq!(scene.look(5_600, &[("a", 7)], &[]), [], "the store was away");
        assert_eq!(scene.look(13_600, &[("a", 7)], &[]), [], "this process was stopped for 8 s");
        for at_ms in (14_400..18_600).step_by(800) {
            assert_eq!(scene.look(at_ms, &[("a", 7)], &[]), []);
        }
        assert_eq!(scene.look(19_200, &[("a", 7)], &[]), [id("a")]);
    }

    #[test]
    fn a_holder_that_is_not_registered_is_watched_too() {
        let mut scene = Scene::new();
        for at_ms in (0..5_000).step_by(800) {
            assert_eq!(scene.look(at_ms, &[], &["gone"]), []);
        }
        assert_eq!(scene.look(5_600, &[], &["gone"]), [id("gone")]);
    }

    #[test]
    fn nobody_loses_himself() {
        let mut scene = Scene::new();
        for at_ms in (0..20_000).step_by(800) {
            assert_eq!(scene.look(at_ms, &[("me", 1)], &["me"]), []);
        }
    }
}
