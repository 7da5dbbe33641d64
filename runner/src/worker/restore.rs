//! Heartbeats, and what follows when one shows that the store has lost data: what this runner has in its hand is offered to it again.
//!
//! A claim relies on what the last heartbeat has told, so that a store which went back gives nothing out that is in the
//! hand already. Claims and outcomes wait while jobs are offered, and offers wait for those that are on their way: what was
//! settled meanwhile would be made again, and what was claimed would be missed.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard};

use super::Worker;
use super::outlook::Outlook;
use super::witness::{Sight, Witness};
use crate::clock::monotonic;
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, ClaimedJob, Offered, Pulse, StoreError};
use crate::vitals::Vital;

/// What a worker knows of its store's memory.
#[derive(Default)]
pub(super) struct Memory {
    state: Mutex<State>,
    /// One heartbeat at a time: its answer is judged by what was told before it was sent.
    beating: tokio::sync::Mutex<()>,
    /// Held by whoever offers, and shared by whoever claims and settles.
    offering: RwLock<()>,
    /// How often the hand was offered.
    offered: AtomicU64,
}

#[derive(Default)]
struct State {
    witness: Witness,
    /// Why the hand is to be offered; nothing is claimed until it is.
    lost: Option<&'static str>,
    /// Others took the session for lost: nothing is claimed until it is known which jobs in the hand they have.
    unchecked: bool,
}

/// What became of the jobs that were offered.
#[derive(Debug, Default)]
struct Tally {
    kept: u64,
    restored: u64,
    taken: u64,
    refused: u64,
}

impl Memory {
    /// The beat on which a claim may rely. `None` when a heartbeat must come first.
    pub(super) fn claims_on(&self) -> Option<u64> {
        let state = self.state.lock();
        Some(state.witness.beat()).filter(|beat| *beat > 0 && state.lost.is_none() && !state.unchecked)
    }

    /// A claim was answered with this beat.
    pub(super) fn claimed(&self, beat: u64) {
        self.state.lock().witness.claimed(beat);
    }

    /// Nobody offers the hand while this lives: for whoever puts jobs into it, or takes them out, together with the store.
    pub(super) async fn undisturbed(&self) -> RwLockReadGuard<'_, ()> {
        self.offering.read().await
    }
}

impl Worker {
    /// One heartbeat: shows that this session is alive, and what it does. When the store has lost data, what is in the hand has
    /// been offered to it before this returns.
    ///
    /// `vital` is the loop that beats.
    ///
    /// # Errors
    /// What the store says, of the heartbeat or of an offer: the next heartbeat goes on with it.
    pub(crate) async fn beat(&self, vital: Option<&Vital>) -> Result<Pulse, StoreError> {
        // Whoever beats now may be offering, in many calls.
        let rest = vital.map(Vital::rest);
        let _one = self.memory.beating.lock().await;
        drop(rest);
        let told = self.memory.state.lock().witness.told();
        let lanes = self.served_lanes.load_full();
        let asked = monotonic();
        let pulse =
            self.store.heartbeat(&self.session, &self.info(), told.beat(), &Outlook::asks(&lanes)).await?;
        let clock = self.read_clock(pulse.now_us, asked);
        self.look_out(Outlook::new(asked, clock, lanes, pulse.next_due_ms), pulse.lanes);
        let _ = self.started_ms.compare_exchange(0, pulse.now_us / 1_000, SeqCst, SeqCst);
        let lost = {
            let mut state = self.memory.state.lock();
            match state.witness.see(told, &pulse) {
                Sight::WentBack(why) => state.lost = Some(why),
                Sight::Forgotten => state.unchecked = !self.hand.is_empty(),
                Sight::AsTold => {}
            }
            state.lost
        };
        if let Some(why) = lost {
            self.offer_hand(why, vital).await?;
            self.memory.state.lock().lost = None;
        }
        Ok(pulse)
    }

    /// Whether others may have taken what is in the hand, because they took this session for lost.
    pub(crate) fn is_hand_unchecked(&self) -> bool {
        self.memory.state.lock().unchecked
    }

    /// What others have is let go.
    pub(crate) fn hand_is_checked(&self) {
        self.memory.state.lock().unchecked = false;
    }

    /// How often this runner has offered its hand to a store that had lost data.
    pub(crate) fn times_offered(&self) -> u64 {
        self.memory.offered.load(SeqCst)
    }

    /// Offers everything in the hand, and takes in what the store says.
    async fn offer_hand(&self, why: &'static str, vital: Option<&Vital>) -> Result<(), StoreError> {
        let identity = self.store.identity().await?;
        let mut tally = Tally::default();
        {
            let _alone = self.memory.offering.write().await;
            for batch in batches(self.hand.offers()) {
                self.offer_batch(&batch, vital, &mut tally).await?;
            }
            self.memory.offered.fetch_add(1, SeqCst);
        }
        self.memory.state.lock().witness.named(&identity);
        self.identity.send_if_modified(|known| {
            let is_new = *known != identity;
            *known = identity;
            is_new
        });
        let Tally { kept, restored, taken, refused } = tally;
        tracing::warn!(
            why,
            kept,
            restored,
            taken,
            refused,
            "the store has lost data: the jobs in this runner's hand were offered to it again"
        );
        // Queues that it has forgotten are not looked at, and others may have come.
        self.look_at_lanes();
        Ok(())
    }

    async fn offer_batch(
        &self,
        jobs: &[ClaimedJob],
        vital: Option<&Vital>,
        tally: &mut Tally,
    ) -> Result<(), StoreError> {
        vital.inspect(|vital| vital.step());
        match self.store.offer(jobs).await {
            Ok(answers) => {
                for (job, answer) in jobs.iter().zip(answers) {
                    self.take_answer(job.lease.token, answer, tally);
                }
                Ok(())
            }
            Err(error) if error.is_passing() => Err(error),
            // One of them may be at fault: find it by offering each alone.
            Err(_) if jobs.len() > 1 => {
                for job in jobs {
                    Box::pin(self.offer_batch(std::slice::from_ref(job), vital, tally)).await?;
                }
                Ok(())
            }
            Err(error) => {
                // Waiting cannot mend it: without a lease it is stopped, and nobody else is held up.
                tracing::warn!(%error, job.id = %jobs[0].job.id, job.kind = %jobs[0].job.kind, "the store does not take a job back");
                tally.refused += 1;
                Ok(())
            }
        }
    }

    fn take_answer(&self, token: u64, answer: Offered, tally: &mut Tally) {
        match answer {
            Offered::Kept { record } => {
                tally.kept += 1;
                self.hand.renumber(token, record);
            }
            Offered::Restored { record } => {
                tally.restored += 1;
                self.hand.renumber(token, record);
            }
            Offered::Taken => {
                tally.taken += 1;
                self.hand.let_go(token);
            }
        }
    }
}

/// Cut into calls by count and bytes (rule 6).
fn batches(jobs: Vec<ClaimedJob>) -> Vec<Vec<ClaimedJob>> {
    let mut batches: Vec<Vec<ClaimedJob>> = Vec::new();
    let mut bytes = 0;
    for job in jobs {
        let size = job.job.payload.len();
        match batches.last_mut() {
            Some(last) if last.len() < BATCH_MAX && bytes + size <= BATCH_PAYLOAD_BYTES_MAX => {
                bytes += size;
                last.push(job);
            }
            _ => {
                bytes = size;
                batches.push(vec![job]);
            }
        }
    }
    batches
}
