//! Whether the store has gone back in time, by what it said before: a restart with a log that was cut off, a fail-over to a
//! replica that was behind, a backup or an empty store in its place. Pure.
//!
//! Three numbers tell. The session's beat counts up with each of its heartbeats and claims, and nobody else's: whatever
//! of them is lost, it is lower than it was told. Where the session itself is lost, the store's name is another, or its
//! sequence, which each heartbeat takes a number of, is not higher. None of the three looks so in a store that has lost
//! nothing, and none asks a clock.

use crate::queue::Pulse;

/// What the store has told.
#[derive(Debug, Default)]
pub(super) struct Witness {
    told: Told,
    identity: String,
}

/// The highest numbers that had been told when a call was sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    beat: u64,
    mark: u64,
}

impl Told {
    /// The session's beat; 0 before the first heartbeat.
    pub(super) fn beat(self) -> u64 {
        self.beat
    }
}

/// What a heartbeat shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing that was told is lost.
    AsTold,
    /// The session is not registered any more: others took it for lost, or somebody deleted it. The store has lost nothing.
    Forgotten,
    /// What was told is lost, and why that is sure.
    WentBack(&'static str),
}

impl Witness {
    /// What a call that is sent now may rely on.
    pub(super) fn told(&self) -> Told {
        self.told
    }

    /// The session's beat, for a claim; 0 before the first heartbeat.
    pub(super) fn beat(&self) -> u64 {
        self.told.beat
    }

    /// A claim has told the session's beat.
    pub(super) fn claimed(&mut self, beat: u64) {
        self.told.beat = self.told.beat.max(beat);
    }

    /// The store's name is this from now on.
    pub(super) fn named(&mut self, identity: &str) {
        identity.clone_into(&mut self.identity);
    }

    /// Takes in the answer to a heartbeat that was sent when `before` was known.
    pub(super) fn see(&mut self, before: Told, pulse: &Pulse) -> Sight {
        let sight = self.judge(before, pulse);
        if sight == Sight::AsTold {
            self.claimed(pulse.beat);
            self.told.mark = self.told.mark.max(pulse.mark);
        } else {
            self.told = Told { beat: pulse.beat, mark: pulse.mark };
        }
        if self.identity.is_empty() {
            self.named(&pulse.identity);
        }
        sight
    }

    fn judge(&self, before: Told, pulse: &Pulse) -> Sight {
        if before == Told::default() {
            return Sight::AsTold;
        }
        if !self.identity.is_empty() && pulse.identity != self.identity {
            return Sight::WentBack("it is another store");
        }
        if pulse.mark <= before.mark {
            return Sight::WentBack("its sequence is lower than it was");
        }
        match pulse.beat_before {
            Some(beat) if beat < before.beat => Sight::WentBack("it has lost calls of this runner"),
            Some(_) => Sight::AsTold,
            None => Sight::Forgotten,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(beat_before: Option<u64>, mark: u64, identity: &str) -> Pulse {
        Pulse {
            now_us: 0,
            beat: beat_before.map_or(1_000, |beat| beat + 1),
            beat_before,
            mark,
            identity: identity.to_owned(),
            sessions: Vec::new(),
            recalls: Vec::new(),
            next_due_ms: None,
            leased: false,
            lanes: 0,
        }
    }

    /// A witness that has seen beat 1,000, and a claim after it, at the number 50 of store `a`.
    fn witness() -> Witness {
        let mut witness = Witness::default();
        assert_eq!(witness.see(Told::default(), &pulse(None, 50, "a")), Sight::AsTold, "the first one");
        witness.claimed(1_001);
        witness
    }

    #[test]
    fn an_intact_store_is_as_it_told_whatever_others_do() {
        let mut witness = witness();
        for mark in [51, 52, 5_000] {
            let told = witness.told();
            assert_eq!(witness.see(told, &pulse(Some(told.beat), mark, "a")), Sight::AsTold);
        }
        // A call of which the reply was lost has counted, and one that was answered in between.
        let told = witness.told();
        witness.claimed(told.beat + 1);
        assert_eq!(witness.see(told, &pulse(Some(told.beat + 3), 5_001, "a")), Sight::AsTold);
    }

    #[test]
    fn a_lost_claim_shows_although_no_heartbeat_is_lost() {
        let mut witness = witness();
        let told = witness.told();
        let sight = witness.see(told, &pulse(Some(1_000), 51, "a"));
        assert!(matches!(sight, Sight::WentBack(_)), "{sight:?}");
        let told = witness.told();
        assert_eq!(witness.see(told, &pulse(Some(1_001), 52, "a")), Sight::AsTold, "said once");
    }

    #[test]
    fn an_emptied_store_and_an_older_one_show_although_others_have_beaten_meanwhile() {
        for (mark, identity) in [(700, ""), (700, "b"), (50, "a"), (3, "a")] {
            let mut witness = witness();
            let told = witness.told();
            let sight = witness.see(told, &pulse(None, mark, identity));
            assert!(matches!(sight, Sight::WentBack(_)), "{mark} of {identity:?}: {sight:?}");
        }
    }

    #[test]
    fn a_session_that_others_ended_is_no_loss() {
        let mut witness = witness();
        let told = witness.told();
        assert_eq!(witness.see(told, &pulse(None, 51, "a")), Sight::Forgotten);
        let told = witness.told();
        assert_eq!(told.beat, 1_000, "it starts anew");
        assert_eq!(witness.see(told, &pulse(Some(1_000), 52, "a")), Sight::AsTold);
    }

    #[test]
    fn a_store_that_gets_its_name_later_is_the_same() {
        let mut witness = Witness::default();
        witness.see(Told::default(), &pulse(None, 1, ""));
        let told = witness.told();
        assert_eq!(witness.see(told, &pulse(Some(1_000), 2, "a")), Sight::AsTold);
    }
}
