//! Signs of life of the loops that a runner cannot do without, for whoever watches over it.
//!
//! A loop counts its steps, not its successes: each try of the store ends in bounded time, so that a loop goes
//! on counting while the store is away, and stands still only when it is stuck or gone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Worker;

/// Steps of each loop since the start.
#[derive(Default)]
pub(crate) struct Progress {
    claims: AtomicU64,
    beats: AtomicU64,
    settles: AtomicU64,
}

/// What one loop shows at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// So many steps: more of them at the next look, or it is stuck.
    Steps(u64),
    /// It has nothing to do, and may stand still.
    AtRest,
}

impl Progress {
    /// The claim loop goes on.
    pub(crate) fn claim(&self) {
        self.claims.fetch_add(1, Relaxed);
    }

    /// The loop of the heartbeat goes on.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Relaxed);
    }

    /// The loop that writes outcomes goes on.
    pub(crate) fn settle(&self) {
        self.settles.fetch_add(1, Relaxed);
    }
}

impl Worker {
    /// What the loops show now: claims, heartbeat, outcomes.
    pub(crate) fn signs(&self) -> [Sign; 3] {
        let unless = |at_rest: bool, steps: &AtomicU64| {
            if at_rest { Sign::AtRest } else { Sign::Steps(steps.load(Relaxed)) }
        };
        [
            unless(self.is_stopping(), &self.progress.claims),
            unless(self.is_over(), &self.progress.beats),
            unless(self.hand.counts().ending == 0, &self.progress.settles),
        ]
    }
}
