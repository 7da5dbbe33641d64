//! The claim loop: sleeps until the next due time, is woken by an earlier one, and claims no
//! more than there is room for.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::lanes::{Lanes, reached_a_bound};
use super::outage::Pace;
use super::outlook::{LOOK_EVERY, Seen};
use super::run_job::{Slot, give_back};
use super::{Claim, InHand, Worker};
use crate::clock::{Monotonic, StoreClock, monotonic};
use crate::queue::{BATCH_MAX, CLAIM_LANES_MAX, ClaimRequest, Claimed, StoreError};
use crate::telemetry::Throttled;
use crate::vitals::Vital;

/// How long a runner that was full waits for more free slots than one.
const GATHER: Duration = Duration::from_millis(1);
/// Bounds of the look ahead, in milliseconds.
const LOOK_AHEAD_MS: (u64, u64) = (2, 100);

/// Claims until the runner stops.
pub(super) async fn claim_loop(worker: Arc<Worker>, vital: Vital) {
    let mut claimer = Claimer {
        round_trip_us: 500.0,
        pace: Pace::default(),
        lanes: Lanes::default(),
        damage_said: Throttled::new(),
    };
    while !worker.is_stopping() {
        vital.step();
        let next = claimer.look(&worker, &vital).await;
        tokio::select! {
            () = next.wait(&worker, &vital) => {}
            () = worker.stopping.notified() => {}
        }
    }
}

struct Claimer {
    /// Moving average, in microseconds.
    round_trip_us: f64,
    pace: Pace,
    lanes: Lanes,
    damage_said: Throttled,
}

/// What to wait for before the next look.
enum Next {
    /// More is there, and room for it.
    AtOnce,
    /// A job falls due, or it is time for another look; any signal ends the wait.
    Later(Seen),
    /// The same at an instant, while a kind has all the jobs that it may have at once: the end of one ends the wait too.
    AtOrSlot(Monotonic),
    /// All slots are busy, or memory for more is not sure.
    Slot,
    /// Guests have all the memory that they may have together, or one was just refused what it wanted: it
    /// would be again until another has ended.
    Room { refused: bool },
    /// The store needs a pause that no signal shortens.
    Pause(Duration),
}

impl Next {
    async fn wait(self, worker: &Worker, vital: &Vital) {
        match self {
            Self::AtOnce => {}
            Self::Later(seen) => worker.nothing_to_do(seen, vital).await,
            Self::AtOrSlot(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {}
                    () = worker.wake.notified() => {}
                    () = worker.hand.changed.notified() => {}
                }
            }
            Self::Slot => {
                // Bounded, so that a full runner shows life too.
                let _ = tokio::time::timeout(LOOK_EVERY, worker.hand.changed.notified()).await;
                worker.hand.some_free(GATHER).await;
            }
            Self::Room { refused } => {
                // Listen first: room may come between a look and the listening.
                let freed = worker.sandbox.room_freed();
                if refused || !worker.sandbox.has_room() {
                    let _ = tokio::time::timeout(LOOK_EVERY, freed).await;
                }
            }
            Self::Pause(pause) => tokio::time::sleep(pause).await,
        }
    }
}

impl Claimer {
    /// One pass over all lanes, as far as there is room.
    async fn look(&mut self, worker: &Arc<Worker>, vital: &Vital) -> Next {
        let refused = worker.shortage.take_refused();
        if refused || !worker.sandbox.has_room() {
            return Next::Room { refused };
        }
        if worker.is_out_of_touch() {
            // What is claimed now would be given back unstarted.
            worker.beat_wanted.notify_one();
            return Next::Pause(self.pace.failed());
        }
        if let Err(error) = self.lanes.refresh(worker).await {
            return self.failed(worker, "lanes", &error);
        }
        let mut next_due: Option<Monotonic> = None;
        let mut claimed_any = false;
        let mut bounded = false;
        for mut window in self.lanes.windows(CLAIM_LANES_MAX) {
            vital.step();
            bounded |= self.lanes.within_bounds(&mut window, |kind| worker.hand.busy(kind));
            if window.is_empty() {
                continue;
            }
            let rest = vital.rest();
            let nobody_offers = worker.memory.undisturbed().await;
            drop(rest);
            let room = worker.hand.room();
            let running = worker.hand.counts().running;
            let due_max = worker.shortage.bounded(room.due.min(BATCH_MAX), running, worker);
            if due_max == 0 {
                return Next::Slot;
            }
            let Some(beat) = worker.memory.claims_on() else {
                drop(nobody_offers);
                return self.beat_first(worker, vital).await;
            };
            let request = ClaimRequest {
                session: worker.session.clone(),
                due_max,
                ahead_max: room.ahead.min(due_max),
                look_ahead_ms: self.look_ahead_ms(),
                suspect: room.suspect,
                first_token: worker.take_tokens(2 * BATCH_MAX as u64),
                beat,
                lanes: window,
            };
            let asked = monotonic();
            let claimed = match worker.store.claim(&request).await {
                Ok(claimed) => claimed,
                Err(error) => return self.failed(worker, "claim", &error),
            };
            self.measured(asked);
            if claimed.beat < beat {
                worker.claim_ended();
                drop(nobody_offers);
                return self.beat_first(worker, vital).await;
            }
            worker.memory.claimed(claimed.beat);
            let clock = worker.read_clock(claimed.answered_us, asked);
            claimed_any |= !claimed.jobs.is_empty();
            if let Some(due_ms) = claimed.next_due_ms {
                let at = clock.instant_of(due_ms.saturating_sub(self.look_ahead_ms()));
                next_due = Some(next_due.map_or(at, |known| known.min(at)));
            }
            self.say_damage(claimed.damaged);
            self.lanes.served(&request.lanes, &claimed.jobs);
            bounded |= reached_a_bound(&request.lanes, &claimed.jobs);
            take(worker, claimed, clock);
            // Only now: an audit takes a lease that is neither in flight nor in the hand for lost.
            worker.claim_ended();
        }
        worker.saw_nothing_due.store(next_due.is_none() && !claimed_any && !bounded, Relaxed);
        self.succeeded(worker);
        let now = monotonic();
        match next_due {
            Some(at) if at <= now => Next::AtOnce,
            None if claimed_any => Next::AtOnce,
            at if bounded => Next::AtOrSlot(at.unwrap_or(now + LOOK_EVERY).min(now + LOOK_EVERY)),
            next => Next::Later(Seen { looked: now, next, look_ahead_ms: self.look_ahead_ms() }),
        }
    }

    /// Nothing is claimed before a heartbeat has shown that the store knows this session and what it has.
    async fn beat_first(&mut self, worker: &Worker, vital: &Vital) -> Next {
        vital.step();
        match worker.beat(Some(vital)).await {
            Ok(_) if worker.memory.claims_on().is_some() => Next::AtOnce,
            Ok(_) => {
                // The hand is looked through first.
                worker.beat_wanted.notify_one();
                Next::Pause(self.pace.failed())
            }
            Err(error) => self.failed(worker, "heartbeat", &error),
        }
    }

    /// Four times the measured round trip, within bounds.
    fn look_ahead_ms(&self) -> u64 {
        let ms = (4.0 * self.round_trip_us / 1_000.0).ceil() as u64;
        ms.clamp(LOOK_AHEAD_MS.0, LOOK_AHEAD_MS.1)
    }

    /// Says, once in a while, that something in the store is not as it should be.
    fn say_damage(&mut self, damaged: u64) {
        if damaged > 0
            && let Some(left_out) = self.damage_said.admit(monotonic())
        {
            tracing::warn!(
                damaged,
                left_out,
                "index entries were set aside, or whole indexes passed over, because they are no jobs'"
            );
        }
    }

    fn measured(&mut self, asked: Monotonic) {
        let us = monotonic().duration_since(asked).as_micros() as f64;
        self.round_trip_us += (us - self.round_trip_us) / 8.0;
    }

    fn failed(&mut self, worker: &Worker, verb: &'static str, error: &StoreError) -> Next {
        worker.outage.failed(verb, error);
        let undone = matches!(error, StoreError::Invalid(_) | StoreError::NotReady(_) | StoreError::Full(_));
        if verb == "claim" && !undone {
            // Before the claim has ended, or a stop might see neither.
            worker.claim_lost();
        }
        worker.claim_ended();
        worker.saw_nothing_due.store(false, Relaxed);
        Next::Pause(self.pace.failed())
    }

    fn succeeded(&mut self, worker: &Worker) {
        worker.outage.succeeded("lanes");
        worker.outage.succeeded("claim");
        self.pace.succeeded();
    }
}

/// Starts what is due, holds the rest.
fn take(worker: &Arc<Worker>, claimed: Claimed, clock: StoreClock) {
    if !claimed.jobs.is_empty() {
        worker.jobs_came();
    }
    let mut starting = Vec::with_capacity(claimed.jobs.len());
    for job in claimed.jobs {
        let is_due = job.due_ms.saturating_mul(1_000) <= claimed.now_us;
        let job = InHand { claimed: Claim::new(job), clock };
        if worker.is_stopping() {
            worker.hand.hold(job);
            worker.give_back_held(|_| true);
        } else if is_due {
            starting.extend(in_slot(worker, job));
        } else {
            let (at, token) = (clock.instant_of(job.claimed.due_ms), job.claimed.lease.token);
            worker.hand.hold(job);
            worker.timer_at(at, token);
        }
    }
    worker.start_all(starting);
}

/// Takes a slot for a job; gives it back where there is none.
fn in_slot(worker: &Arc<Worker>, job: InHand) -> Option<Slot> {
    let running = worker.running_of(&job);
    if worker.hand.start(&job.claimed, Arc::clone(&running)) {
        return Some(Slot { worker: Arc::clone(worker), job, running });
    }
    worker.settle(give_back(worker, &job.claimed), None);
    None
}
