//! A claim beside that of the claim loop, while more is ready than one claim brings: so that the store works on one while the other's
//! jobs are being started.
//!
//! It only takes due jobs of lanes of which the loop has just left some, where nothing has to be decided between the two: no bound
//! of a kind, no weight, no suspect, nothing ahead of its time. It waits for nothing and repeats nothing: that is the loop's.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Worker;
use super::claims::{TOKENS, take};
use super::flights::Who;
use crate::clock::monotonic;
use crate::queue::{BATCH_MAX, ClaimRequest, LaneClaim, StoreError};
use crate::vitals::Vital;

/// The lanes of which there is more.
#[derive(Default)]
pub(super) struct More {
    lanes: Mutex<Option<Vec<LaneClaim>>>,
    there: Notify,
}

impl More {
    /// The claim loop has left due jobs of these lanes, which it knows to be all that are served.
    pub(super) fn is_in(&self, lanes: Vec<LaneClaim>) {
        if lanes.iter().all(|lane| (lane.weight, lane.kind_max) == (1, None)) {
            *self.lanes.lock() = Some(lanes);
            self.there.notify_one();
        }
    }

    /// Ends the wait for a stop.
    pub(super) fn stop(&self) {
        self.there.notify_one();
    }
}

/// Claims beside the claim loop until the runner stops.
pub(super) async fn beside_loop(worker: Arc<Worker>, vital: Vital) {
    while !worker.is_stopping() {
        let rest = vital.rest();
        worker.more.there.notified().await;
        drop(rest);
        let lanes = worker.more.lanes.lock().take();
        if let (Some(lanes), false) = (lanes, worker.is_stopping()) {
            claim(&worker, lanes).await;
        }
    }
}

async fn claim(worker: &Arc<Worker>, lanes: Vec<LaneClaim>) {
    if worker.shortage.is_careful() || !worker.sandbox.has_room() || worker.is_out_of_touch() {
        return;
    }
    let _nobody_offers = worker.memory.undisturbed().await;
    let Some(beat) = worker.memory.claims_on() else { return };
    let room = worker.hand.room();
    // A claim for a few would only add one.
    let few = worker.config.concurrency / 8;
    let due_max = |asked: usize| match room.due.saturating_sub(asked) {
        free if free > few => free.min(BATCH_MAX),
        _ => 0,
    };
    let Some(begun) = worker.flights.begin(Who::Beside, TOKENS, due_max) else { return };
    let request = ClaimRequest {
        session: worker.session.clone(),
        lanes,
        due_max: begun.due_max,
        ahead_max: 0,
        look_ahead_ms: 0,
        suspect: false,
        first_token: begun.first_token,
        beat,
    };
    let asked = monotonic();
    match worker.store.claim(&request).await {
        // The loop finds the same, and sees to it.
        Ok(claimed) if claimed.beat < beat => {}
        Ok(claimed) => {
            worker.memory.claimed(claimed.beat);
            let clock = worker.read_clock(claimed.answered_us, asked);
            take(worker, claimed, clock);
        }
        Err(error) => {
            worker.outage.failed("claim", &error);
            if !is_undone(&error) {
                worker.claim_lost();
            }
        }
    }
    worker.flights.end(Who::Beside);
}

/// Whether a claim that ended so has taken nothing for sure.
pub(super) fn is_undone(error: &StoreError) -> bool {
    matches!(error, StoreError::Invalid(_) | StoreError::NotReady(_) | StoreError::Full(_))
}
