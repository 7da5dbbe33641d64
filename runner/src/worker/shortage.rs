//! Memory is short: claims pause until a guest has ended, and are careful for a while after.
//!
//! A guest that is refused memory which all guests together may not have is given back, its attempt
//! unspent. Claimed again at once it would be refused again; claimed with a hundred others, most of
//! them would be.

use std::time::Duration;

use parking_lot::Mutex;

use super::Worker;
use crate::clock::{Monotonic, monotonic};
use crate::sandbox::Limits;
use crate::telemetry::Throttled;

/// For so long after a refusal no more jobs are claimed than surely fit.
const CAREFUL_FOR: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Default)]
pub(super) struct Shortage {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Somebody was refused since the last look.
    refused: bool,
    careful_until: Option<Monotonic>,
    said: Throttled,
}

impl Shortage {
    /// A guest was refused what it wanted.
    pub(super) fn refused(&self, why: &str) {
        let now = monotonic();
        let mut state = self.state.lock();
        state.refused = true;
        state.careful_until = Some(now + CAREFUL_FOR);
        let said = state.said.admit(now);
        drop(state);
        if let Some(left_out) = said {
            tracing::warn!(why, left_out, "claims pause until a guest has ended; see --memory-total");
        }
    }

    /// Whether somebody was refused since this was asked last.
    pub(super) fn take_refused(&self) -> bool {
        std::mem::take(&mut self.state.lock().refused)
    }

    /// How many of `wanted` jobs to claim beside those that run: all of them, or as many as surely have
    /// room together when each takes all that it may. One at least while none runs.
    pub(super) fn bounded(&self, wanted: usize, running: usize, worker: &Worker) -> usize {
        let careful = self.state.lock().careful_until.is_some_and(|until| monotonic() < until);
        if !careful {
            return wanted;
        }
        let snapshot = worker.registry.snapshot();
        let most = snapshot.handlers.values().map(|handler| handler.limits.memory_bytes).max();
        let most = most.unwrap_or(Limits::default().memory_bytes).max(1);
        let fit = usize::try_from(worker.sandbox.memory_cap() / most).unwrap_or(usize::MAX);
        wanted.min(fit.max(1).saturating_sub(running))
    }
}
