//! Which lanes this runner claims from, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Worker;
use crate::clock::{Monotonic, monotonic};
use crate::names::Name;
use crate::queue::{Lane, LaneClaim, StoreError};
use crate::registry::Handler;

/// The store's list of lanes is read again after so long: covers a lost signal about a new one.
const REFRESH_EVERY: Duration = Duration::from_secs(5);

/// The lanes that are served here, by kind, and turns that move on with each look.
#[derive(Default)]
pub(super) struct Lanes {
    kinds: Vec<KindLanes>,
    turn: usize,
    refreshed: Option<Monotonic>,
    generation: u64,
}

/// The lanes of one kind: one a queue.
struct KindLanes {
    lanes: Vec<LaneClaim>,
    turn: usize,
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
        worker.served_lanes.store(Arc::new(lanes.iter().cloned().collect()));
        self.kinds = by_kind(lanes, &snapshot.handlers);
        self.refreshed = Some(monotonic());
        self.generation = snapshot.generation;
        Ok(())
    }

    /// All lanes in windows of at most `size`. Each window has lanes of as many kinds as fit, so that a
    /// kind in a thousand queues has no more of it than one in a single queue; who is in the first window
    /// moves on with each call.
    pub(super) fn windows(&mut self, size: usize) -> Vec<Vec<LaneClaim>> {
        let count = self.kinds.len();
        if count == 0 {
            return Vec::new();
        }
        self.turn = (self.turn + if count > size { size } else { 1 }) % count;
        let order: Vec<usize> = (0..count).map(|n| (self.turn + n) % count).collect();
        let rounds = self.kinds.iter().map(|kind| kind.lanes.len()).max().unwrap_or(0);
        let mut all = Vec::new();
        for round in 0..rounds {
            for at in &order {
                let kind = &self.kinds[*at];
                if round < kind.lanes.len() {
                    all.push((*at, kind.lanes[(kind.turn + round) % kind.lanes.len()].clone()));
                }
            }
        }
        for (at, _) in all.iter().take(size) {
            let kind = &mut self.kinds[*at];
            kind.turn = (kind.turn + 1) % kind.lanes.len();
        }
        all.chunks(size).map(|window| window.iter().map(|(_, lane)| lane.clone()).collect()).collect()
    }
}

/// The lanes of each kind that has a handler.
fn by_kind(lanes: BTreeSet<Lane>, handlers: &BTreeMap<Name, Arc<Handler>>) -> Vec<KindLanes> {
    let mut kinds: BTreeMap<Name, Vec<LaneClaim>> = BTreeMap::new();
    for lane in lanes {
        if let Some(handler) = handlers.get(&lane.kind) {
            let claim = LaneClaim::new(lane.clone(), handler.max_attempts);
            kinds.entry(lane.kind).or_default().push(claim);
        }
    }
    kinds.into_values().map(|lanes| KindLanes { lanes, turn: 0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(kinds: &[(&str, usize)]) -> Lanes {
        let name = |text: &str| Name::new(text).unwrap();
        let of = |kind: &str, queues: usize| KindLanes {
            turn: 0,
            lanes: (0..queues)
                .map(|q| Lane { queue: name(&format!("{kind}-{q}")), kind: name(kind) })
                .map(|lane| LaneClaim::new(lane, 5))
                .collect(),
        };
        Lanes { kinds: kinds.iter().map(|(kind, queues)| of(kind, *queues)).collect(), ..Lanes::default() }
    }

    fn kinds_of(window: &[LaneClaim]) -> BTreeSet<&str> {
        window.iter().map(|claim| claim.lane.kind.as_str()).collect()
    }

    #[test]
    fn a_kind_in_many_queues_leaves_room_for_the_others_in_every_first_window() {
        let mut lanes = lanes(&[("many", 500), ("one", 1), ("other", 1)]);
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let windows = lanes.windows(64);
            assert_eq!(windows.iter().map(Vec::len).sum::<usize>(), 502, "all lanes, each once");
            assert_eq!(kinds_of(&windows[0]).len(), 3);
            seen.extend(windows[0].iter().map(|claim| claim.lane.queue.to_string()));
        }
        assert_eq!(seen.len(), 502, "every queue had its turn in the first window");
    }

    #[test]
    fn more_kinds_than_fit_take_turns() {
        let kinds: Vec<String> = (0..150).map(|n| format!("k{n}")).collect();
        let mut lanes = lanes(&kinds.iter().map(|k| (k.as_str(), 1)).collect::<Vec<_>>());
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            seen.extend(lanes.windows(64)[0].iter().map(|claim| claim.lane.kind.to_string()));
        }
        assert_eq!(seen.len(), 150);
        assert!(Lanes::default().windows(64).is_empty());
    }
}
