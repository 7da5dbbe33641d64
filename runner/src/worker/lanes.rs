//! Which lanes this runner claims from, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Worker;
use crate::clock::{Monotonic, monotonic};
use crate::names::Name;
use crate::queue::{ClaimedJob, Lane, LaneClaim, StoreError};
use crate::registry::Handler;

/// The store's list of lanes is read again after so long, at the next look: heartbeats only tell that there are more or fewer.
const REFRESH_EVERY: Duration = Duration::from_secs(60);

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
    /// Jobs that this runner runs at once; no bound of its own when `None`.
    concurrency: Option<u32>,
    weight: u32,
    /// Jobs that were claimed, each counted as the weight's part: who has the least is first. Counts where a kind has a weight.
    served: f64,
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
        self.renew(by_kind(lanes, &snapshot.handlers));
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
        let mut order: Vec<usize> = (0..count).map(|n| (self.turn + n) % count).collect();
        if self.weighted() {
            order.sort_by(|a, b| self.kinds[*a].served.total_cmp(&self.kinds[*b].served));
        }
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

    /// Other lanes. What kinds were served before counts on, less what all were; a new one begins where those stand that were
    /// served least.
    fn renew(&mut self, kinds: Vec<KindLanes>) {
        let before: BTreeMap<Name, f64> =
            self.kinds.iter().map(|kind| (kind.name().clone(), kind.served)).collect();
        let least = before.values().copied().min_by(f64::total_cmp).unwrap_or(0.0);
        self.kinds = kinds;
        for kind in &mut self.kinds {
            kind.served = before.get(kind.name()).map_or(0.0, |served| served - least);
        }
    }

    /// Takes those lanes out of a window whose kind has all the jobs that it may have at once, and says of the others how many
    /// more it may have. `busy` counts those that it has. True when some were taken out.
    pub(super) fn within_bounds(&self, window: &mut Vec<LaneClaim>, busy: impl Fn(&Name) -> u32) -> bool {
        if self.kinds.iter().all(|kind| kind.concurrency.is_none()) {
            return false;
        }
        let all = window.len();
        window.retain_mut(|claim| {
            let bound = self.kind(&claim.lane.kind).and_then(|kind| kind.concurrency);
            claim.kind_max = bound.map(|most| most.saturating_sub(busy(&claim.lane.kind)));
            claim.kind_max != Some(0)
        });
        window.len() < all
    }

    /// Takes in what a claim of this window brought, so that a kind has its turns by its weight over many small claims too.
    pub(super) fn served(&mut self, window: &[LaneClaim], jobs: &[ClaimedJob]) {
        if jobs.is_empty() || !self.weighted() {
            return;
        }
        let got: BTreeSet<&Name> = jobs.iter().map(|job| &job.job.kind).collect();
        for kind in &mut self.kinds {
            let count = jobs.iter().filter(|job| job.job.kind == *kind.name()).count();
            kind.served += count as f64 / f64::from(kind.weight);
        }
        // Those that were asked before the last that had something, and had nothing: what they do not use is not saved up.
        let last = window.iter().rposition(|claim| got.contains(&claim.lane.kind)).unwrap_or(0);
        let idle: BTreeSet<&Name> = window[..last].iter().map(|claim| &claim.lane.kind).collect();
        let of_got = self.kinds.iter().filter(|kind| got.contains(kind.name()));
        let least = of_got.map(|kind| kind.served).min_by(f64::total_cmp).unwrap_or(0.0);
        for kind in &mut self.kinds {
            if idle.contains(kind.name()) && !got.contains(kind.name()) {
                kind.served = kind.served.max(least);
            }
        }
    }

    fn weighted(&self) -> bool {
        self.kinds.iter().any(|kind| kind.weight > 1)
    }

    fn kind(&self, name: &Name) -> Option<&KindLanes> {
        self.kinds.iter().find(|kind| kind.name() == name)
    }
}

impl KindLanes {
    fn name(&self) -> &Name {
        &self.lanes[0].lane.kind
    }
}

/// Whether a claim brought as many jobs of a kind as it might: more may be there.
pub(super) fn reached_a_bound(window: &[LaneClaim], jobs: &[ClaimedJob]) -> bool {
    let bounds = window.iter().filter_map(|claim| Some((&claim.lane.kind, claim.kind_max? as usize)));
    let count = |kind: &Name| jobs.iter().filter(|job| job.job.kind == *kind).count();
    bounds.into_iter().any(|(kind, most)| count(kind) >= most)
}

/// The lanes of each kind that has a handler.
fn by_kind(lanes: BTreeSet<Lane>, handlers: &BTreeMap<Name, Arc<Handler>>) -> Vec<KindLanes> {
    let mut kinds: BTreeMap<Name, Vec<LaneClaim>> = BTreeMap::new();
    for lane in lanes {
        if let Some(handler) = handlers.get(&lane.kind) {
            let claim = LaneClaim {
                weight: handler.weight,
                attempts_cap: handler.attempts_cap,
                ..LaneClaim::new(lane.clone(), handler.max_attempts)
            };
            kinds.entry(lane.kind).or_default().push(claim);
        }
    }
    let of = |(kind, lanes): (Name, Vec<LaneClaim>)| {
        let concurrency = handlers.get(&kind).and_then(|handler| handler.concurrency);
        KindLanes { weight: lanes[0].weight, lanes, turn: 0, concurrency, served: 0.0 }
    };
    kinds.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, NewJob};
    use crate::names::JobId;
    use crate::queue::{Lease, SessionId};

    fn lanes(kinds: &[(&str, usize)]) -> Lanes {
        let name = |text: &str| Name::new(text).unwrap();
        let of = |kind: &str, queues: usize| KindLanes {
            turn: 0,
            concurrency: None,
            weight: 1,
            served: 0.0,
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

    fn job_of(lane: &LaneClaim) -> ClaimedJob {
        let lease = Lease { record: 1, session: SessionId("s".into()), token: 1 };
        let job =
            crate::job::NewJob { queue: lane.lane.queue.clone(), ..NewJob::new(lane.lane.kind.clone()) };
        let job = Job {
            id: JobId::new("i").unwrap(),
            kind: job.kind,
            queue: job.queue,
            priority: job.priority,
            enqueued_ms: 1,
            payload: job.payload,
            max_attempts: None,
            timeout_ms: None,
            meta: Vec::new(),
            traceparent: None,
            source: String::new(),
        };
        ClaimedJob {
            job,
            lease,
            attempt: 1,
            max_attempts: 5,
            crashes: 0,
            due_ms: 1,
            receipt: bytes::Bytes::new(),
        }
    }

    fn weigh(lanes: &mut Lanes, weights: &[u32]) {
        for (kind, weight) in lanes.kinds.iter_mut().zip(weights) {
            kind.weight = *weight;
            kind.lanes.iter_mut().for_each(|lane| lane.weight = *weight);
        }
    }

    #[test]
    fn claims_of_a_single_job_keep_to_the_weights_and_idle_kinds_save_nothing_up() {
        let mut lanes = lanes(&[("idle", 1), ("heavy", 1), ("light", 1)]);
        weigh(&mut lanes, &[1, 3, 1]);
        // Each claim brings one job of the first kind that has any: all but the idle one always do.
        let mut claim = |busy: &[&str]| {
            let window = lanes.windows(64).remove(0);
            let first = window.iter().find(|claim| busy.contains(&claim.lane.kind.as_str())).unwrap();
            lanes.served(&window, &[job_of(first)]);
            first.lane.kind.to_string()
        };
        let mut rounds = |busy: &[&str], count: usize| {
            let got: Vec<String> = (0..count).map(|_| claim(busy)).collect();
            busy.iter().map(|kind| got.iter().filter(|got| got == kind).count()).collect::<Vec<_>>()
        };
        let shares = rounds(&["heavy", "light"], 400);
        assert!((298..=302).contains(&shares[0]), "{shares:?}");
        let shares = rounds(&["heavy", "light", "idle"], 500);
        assert!((298..=302).contains(&shares[0]) && (98..=102).contains(&shares[2]), "{shares:?}");
    }

    #[test]
    fn a_kind_at_its_bound_is_left_out_and_the_others_stay() {
        let mut lanes = lanes(&[("bounded", 2), ("free", 1)]);
        let mut window = lanes.windows(64).remove(0);
        assert!(!lanes.within_bounds(&mut window, |_| 9) && window.len() == 3);
        lanes.kinds[0].concurrency = Some(3);
        assert!(!lanes.within_bounds(&mut window, |_| 1));
        let bounds: Vec<_> = window.iter().map(|claim| (claim.lane.kind.as_str(), claim.kind_max)).collect();
        assert_eq!(bounds.iter().filter(|bound| **bound == ("bounded", Some(2))).count(), 2);
        assert_eq!(bounds.iter().filter(|bound| **bound == ("free", None)).count(), 1);
        let job = job_of(window.iter().find(|claim| claim.kind_max.is_some()).unwrap());
        assert!(!reached_a_bound(&window, std::slice::from_ref(&job)));
        assert!(reached_a_bound(&window, &[job.clone(), job]));
        assert!(lanes.within_bounds(&mut window, |_| 3));
        assert_eq!(kinds_of(&window), BTreeSet::from(["free"]));
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
