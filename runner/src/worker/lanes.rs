//! Which lanes this runner claims from, and whose turn it is.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Worker;
use crate::clock::{Monotonic, monotonic};
use crate::queue::{Lane, LaneClaim, StoreError};

/// The store's list of lanes is read again after so long: covers a lost signal about a new one.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// The lanes that are served here, and a turn that moves on with each pass.
#[derive(Default)]
pub(super) struct Lanes {
    served: Vec<LaneClaim>,
    turn: usize,
    refreshed: Option<Monotonic>,
    generation: u64,
}

impl Lanes {
    /// Reads the lanes again when handlers have changed, a signal named a new lane, or it is time.
    pub(super) async fn refresh(&mut self, worker: &Worker) -> Result<(), StoreError> {
        let snapshot = worker.registry.snapshot();
        let wanted = worker.lanes_wanted.swap(false, Relaxed);
        let fresh = self.refreshed.is_some_and(|at| monotonic().duration_since(at) < REFRESH_EVERY);
        if fresh && !wanted && self.generation == snapshot.generation {
            return Ok(());
        }
        let known = match worker.store.lanes().await {
            Ok(known) => known,
            Err(error) => {
                worker.lanes_wanted.store(true, Relaxed);
                return Err(error);
            }
        };
        let own = snapshot.handlers.keys().map(|kind| Lane { queue: kind.clone(), kind: kind.clone() });
        let lanes: BTreeSet<Lane> = known.into_iter().chain(own).filter(|lane| worker.serves(lane)).collect();
        self.served = lanes
            .into_iter()
            .filter_map(|lane| {
                let max_attempts = snapshot.handlers.get(&lane.kind)?.max_attempts;
                Some(LaneClaim { lane, max_attempts })
            })
            .collect();
        worker.served_lanes.store(std::sync::Arc::new(self.served.iter().map(|l| l.lane.clone()).collect()));
        self.refreshed = Some(monotonic());
        self.generation = snapshot.generation;
        Ok(())
    }

    /// All lanes in windows of at most `size`, starting one further with each call.
    pub(super) fn windows(&mut self, size: usize) -> Vec<Vec<LaneClaim>> {
        if self.served.is_empty() {
            return Vec::new();
        }
        self.turn = (self.turn + 1) % self.served.len();
        let turned: Vec<LaneClaim> =
            self.served[self.turn..].iter().chain(&self.served[..self.turn]).cloned().collect();
        turned.chunks(size).map(<[LaneClaim]>::to_vec).collect()
    }
}
