//! What keeps a runner's world in order, beside its jobs: it shows that it is alive, takes over the
//! jobs of sessions that are lost, gives back leases that nobody has in hand, answers recalls, prunes, and drains the spool.
//!
//! Everything here is bounded a step, and a failure costs a step: the next one tries again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Spool;
use crate::clock::{Monotonic, monotonic};
use crate::queue::{
    BATCH_MAX, LeaseSeen, Pruned, Pulse, Recall, RecallAction, Retention, SessionId, Settlement, Store,
    StoreError,
};
use crate::sandbox::Stop;
use crate::vitals::Vital;
use crate::worker::Worker;

mod drain;
mod dropped;
mod observer;
pub mod session_file;
mod touch;

use dropped::Dropped;
use observer::Observer;
use touch::Touch;

/// A prune step so often while jobs come and go, or something is due to go.
const PRUNE_EVERY: Duration = Duration::from_secs(5);
/// A prune step at least so often: others may have ended jobs and be gone.
const PRUNE_AT_LEAST: Duration = Duration::from_secs(300);

/// Starts the upkeep loops of a worker on the current runtime. `spool` says which spool it drains.
pub(crate) fn start(worker: &Arc<Worker>, loops: &mut JoinSet<()>, spool: watch::Receiver<Option<Spool>>) {
    let touch = Touch::new();
    let vital = |name| worker.config.vitals.enter(name);
    loops.spawn(touch.watch(vital("touch"), worker.config.lease, Arc::clone(&worker.sandbox)));
    loops.spawn(beat_loop(Arc::clone(worker), vital("heartbeat"), touch));
    loops.spawn(prune_loop(Arc::clone(worker), vital("prune")));
    loops.spawn(drain::drain_loop(Arc::clone(worker), vital("spool"), spool));
}

/// How often a session shows itself and looks at the others: a sixth of the lease and a hair, so
/// that the sixth look is a whole lease after the first; a second at most. A crash is noticed within a lease
/// and a sixth.
fn beat_every(lease: Duration) -> Duration {
    (lease / 6 + Duration::from_millis(1)).min(Duration::from_secs(1))
}

/// The same while nobody has a lease: there is nothing to take over.
fn beat_idle_every(lease: Duration) -> Duration {
    (lease / 5).clamp(beat_every(lease), Duration::from_secs(1))
}

struct Upkeep {
    worker: Arc<Worker>,
    observer: Observer,
    touch: Touch,
    vital: Vital,
    /// Tokens that the walk before this one found in nobody's hand.
    unknown: HashSet<u64>,
    /// Tokens in the hand of which the walk before this one found no lease.
    gone: HashSet<u64>,
}

/// What this runner knew before the store was asked for leases.
struct Before {
    /// Tokens in its hand.
    working: HashSet<u64>,
    /// How often it had offered its hand.
    offered: u64,
    /// How many of its claims had brought no reply.
    lost_claims: u64,
}

impl Before {
    fn now(worker: &Worker) -> Self {
        // In this order: what is offered or claimed while this is read counts as not known.
        let (offered, lost_claims) = (worker.times_offered(), worker.lost_claims());
        Self { working: worker.hand.working(), offered, lost_claims }
    }
}

/// Heartbeat, recalls, lost sessions, leases in nobody's hand.
async fn beat_loop(worker: Arc<Worker>, vital: Vital, touch: Touch) {
    let (every, idle_every) = (beat_every(worker.config.lease), beat_idle_every(worker.config.lease));
    let mut upkeep = Upkeep {
        observer: Observer::new(worker.config.lease, every),
        worker: Arc::clone(&worker),
        touch,
        vital,
        unknown: HashSet::new(),
        gone: HashSet::new(),
    };
    while !worker.is_over() {
        upkeep.vital.step();
        let started = monotonic();
        let beat = upkeep.beat().await;
        match &beat {
            Ok(_) => worker.outage.succeeded("heartbeat"),
            Err(error) => {
                worker.outage.failed("heartbeat", error);
                upkeep.observer.missed();
            }
        }
        worker.outage.say();
        let next = started + if beat == Ok(false) { idle_every } else { every };
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = worker.beat_wanted.notified() => {}
        }
    }
}

impl Upkeep {
    /// Whether anybody has a lease.
    async fn beat(&mut self) -> Result<bool, StoreError> {
        let worker = Arc::clone(&self.worker);
        let sent = monotonic();
        let was_lost = self.touch.is_lost(worker.config.lease);
        let before = Before::now(&worker);
        let pulse = worker.beat(Some(&self.vital)).await?;
        self.vital.step();
        if !was_lost {
            self.in_touch(sent);
        }
        answer_recalls(&worker, &pulse.recalls);
        if pulse.leased {
            self.walk(&pulse).await?;
        } else {
            // What a walk at the moment of the heartbeat would have found.
            self.look_at_leases(&pulse, before, Vec::new()).await?;
        }
        if was_lost || worker.is_hand_unchecked() {
            // Once more: what others have taken is stopped before anything may make calls again, or be claimed.
            self.walk(&pulse).await?;
            worker.hand_is_checked();
            self.in_touch(sent);
        }
        Ok(pulse.leased)
    }

    /// What this runner has in its hand was its own when a heartbeat was `sent`.
    fn in_touch(&self, sent: Monotonic) {
        self.touch.beat(sent);
        self.worker.in_touch(sent);
    }

    /// One walk over all leases.
    async fn walk(&mut self, pulse: &Pulse) -> Result<(), StoreError> {
        let before = Before::now(&self.worker);
        let leases = all_leases(&*self.worker.store).await?;
        self.vital.step();
        self.look_at_leases(pulse, before, leases).await
    }

    /// Who holds leases, and which of ours are in nobody's hand.
    async fn look_at_leases(
        &mut self,
        pulse: &Pulse,
        before: Before,
        leases: Vec<LeaseSeen>,
    ) -> Result<(), StoreError> {
        let worker = Arc::clone(&self.worker);
        let Before { working, offered, lost_claims } = before;
        self.let_go(working, &leases, offered);
        let beats = pulse
            .sessions
            .iter()
            .filter(|s| s.beat > 0 || s.info.is_some())
            .map(|s| (s.session.clone(), s.beat));
        let holders = leases.iter().map(|seen| seen.lease.session.clone());
        let lost = self.observer.observe(monotonic(), &worker.session, beats, holders);
        if self.give_back_unknown(&leases).await? {
            worker.audited_claims(lost_claims);
        }
        for session in lost {
            self.vital.step();
            take_over(&*worker.store, &session, &leases, worker.config.retention_dead, "lost").await?;
        }
        Ok(())
    }

    /// Lets go of jobs in the hand of which the lease is gone: while this runner was out of touch, others took them. Two walks must
    /// agree, and each has begun when the job was `working` already. What was offered to the store meanwhile, it has judged itself.
    fn let_go(&mut self, working: HashSet<u64>, leases: &[LeaseSeen], offered: u64) {
        let worker = &self.worker;
        let mut gone = working;
        for seen in leases.iter().filter(|seen| seen.lease.session == worker.session) {
            gone.remove(&seen.lease.token);
        }
        if worker.times_offered() != offered {
            gone.clear();
        }
        for token in gone.intersection(&self.gone) {
            worker.hand.let_go(*token);
        }
        self.gone = gone;
    }

    /// Releases leases of this session that it does not know of: the reply to their claim was lost. Two
    /// walks must agree, for a lease may end between its listing and our look. True when two walks found none.
    async fn give_back_unknown(&mut self, leases: &[LeaseSeen]) -> Result<bool, StoreError> {
        let worker = &self.worker;
        let unknown: Vec<&LeaseSeen> = leases
            .iter()
            .filter(|seen| seen.lease.session == worker.session && worker.is_unknown(seen.lease.token))
            .collect();
        let before = std::mem::take(&mut self.unknown);
        self.unknown.extend(unknown.iter().map(|seen| seen.lease.token));
        let releases: Vec<Settlement> = unknown
            .into_iter()
            .filter(|seen| before.contains(&seen.lease.token))
            .map(|seen| worker.release(seen.lease.clone(), seen.lane.clone()))
            .collect();
        for batch in releases.chunks(BATCH_MAX) {
            tracing::info!(jobs = batch.len(), "giving back jobs whose claim was not answered");
            self.vital.step();
            worker.store.settle(batch).await?;
        }
        Ok(before.is_empty() && self.unknown.is_empty())
    }
}

/// Releases every lease of this session, in whose hand nothing is any more: the last word of a runner that stops.
///
/// # Errors
/// What the store says.
pub(crate) async fn give_back_all(worker: &Worker) -> Result<(), StoreError> {
    let leases = all_leases(&*worker.store).await?;
    let releases: Vec<Settlement> = leases
        .into_iter()
        .filter(|seen| seen.lease.session == worker.session)
        .map(|seen| worker.release(seen.lease, seen.lane))
        .collect();
    for batch in releases.chunks(BATCH_MAX) {
        tracing::info!(jobs = batch.len(), "giving back jobs whose claim was not answered");
        worker.store.settle(batch).await?;
    }
    Ok(())
}

/// Every lease in the store, page by page. Bounded by the slots of the fleet.
async fn all_leases(store: &dyn Store) -> Result<Vec<LeaseSeen>, StoreError> {
    let mut leases = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.leases(cursor).await?;
        leases.extend(page.items);
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(leases),
        }
    }
}

/// Does what operators ask of jobs in this runner's hand.
fn answer_recalls(worker: &Worker, recalls: &[Recall]) {
    // A token is a session's own: it says which job.
    for &Recall { token, action, .. } in recalls {
        match action {
            RecallAction::Cancel => {
                if !worker.cancel_held(token) {
                    worker.hand.stop(token, Stop::Cancel);
                }
            }
            RecallAction::Release => {
                worker.give_back_held(|job| job.lease.token == token);
            }
        }
    }
}

/// Reclaims every lease of a session that is lost, and removes the session once nothing is left.
///
/// # Errors
/// What the store says; the next call goes on where this one ended.
pub(crate) async fn take_over(
    store: &dyn Store,
    session: &SessionId,
    leases: &[LeaseSeen],
    dead: Retention,
    why: &str,
) -> Result<(), StoreError> {
    let theirs: Vec<LeaseSeen> = leases.iter().filter(|l| l.lease.session == *session).cloned().collect();
    for batch in theirs.chunks(BATCH_MAX) {
        let done = store.reclaim(batch, dead).await?;
        tracing::warn!(
            %session, why, ready = done.ready, dead = done.dead, cancelled = done.cancelled, stale = done.stale,
            "took over the jobs of a runner that is gone"
        );
    }
    store.end_session(session).await
}

/// Takes over at once what earlier runners of this host left behind: their locks are free, so they
/// are gone.
///
/// # Errors
/// What the store says.
pub(crate) async fn recover_own(
    store: &dyn Store,
    gone: &[SessionId],
    dead: Retention,
) -> Result<(), StoreError> {
    if gone.is_empty() {
        return Ok(());
    }
    let leases = all_leases(store).await?;
    for session in gone {
        take_over(store, session, &leases, dead, "restart").await?;
    }
    Ok(())
}

/// True when some lease in a lane that this runner serves is in anybody's hand.
///
/// # Errors
/// What the store says.
pub(crate) async fn anybody_works(worker: &Worker) -> Result<bool, StoreError> {
    let leases = all_leases(&*worker.store).await?;
    let mut lanes = HashSet::new();
    lanes.extend(leases.into_iter().map(|seen| seen.lane));
    Ok(lanes.iter().any(|lane| worker.serves(lane)))
}

/// Prunes step by step, at once while there is more.
async fn prune_loop(worker: Arc<Worker>, vital: Vital) {
    let mut dropped = Dropped::default();
    let mut due = monotonic();
    while !worker.is_over() {
        vital.step();
        let mut pause = PRUNE_EVERY;
        if worker.has_worked() || due <= monotonic() {
            due = monotonic();
            match worker.store.prune().await {
                Ok(pruned) => {
                    worker.outage.succeeded("prune");
                    say_dropped(&mut dropped, &pruned);
                    due += pruned.again_ms.map_or(PRUNE_AT_LEAST, Duration::from_millis).min(PRUNE_AT_LEAST);
                    if pruned.more {
                        pause = Duration::from_millis(10);
                    }
                }
                Err(error) => worker.outage.failed("prune", &error),
            }
        }
        let _rest = vital.rest();
        tokio::time::sleep(pause).await;
    }
}

fn say_dropped(dropped: &mut Dropped, pruned: &Pruned) {
    if let Some(line) = dropped.heard(pruned, monotonic()) {
        tracing::warn!(
            dropped = line.dropped, queues = line.queues, queue = %line.queue, total = line.total,
            "dead letters were dropped by a limit (dead_count, dead_bytes) before their age"
        );
    }
}
