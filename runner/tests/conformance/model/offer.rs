//! The model's offers: what a runner has in its hand is leased again, or made again where nothing is known of it.

use anyhow::{Context, Result, ensure};
use hourhand::queue::{ClaimedJob, Lease, LeaseSeen, Offered};

use super::job::{ModelJob, Spot, Taken};
use super::state::{Key, Model};
use super::window::Window;

impl Model {
    /// `leases` are those that the store listed a moment later.
    pub(super) fn offer(
        &mut self,
        jobs: &[ClaimedJob],
        answers: &[Offered],
        leases: &[LeaseSeen],
        now: Window,
    ) -> Result<()> {
        ensure!(jobs.len() == answers.len(), "{} answers to {} offers", answers.len(), jobs.len());
        for (i, (job, answer)) in jobs.iter().zip(answers).enumerate() {
            self.offer_one(job, *answer, leases, now)
                .with_context(|| format!("offer {i}, {}: {answer:?}", job.job.id))?;
        }
        Ok(())
    }

    fn offer_one(
        &mut self,
        offered: &ClaimedJob,
        answer: Offered,
        leases: &[LeaseSeen],
        now: Window,
    ) -> Result<()> {
        let key = (offered.job.queue.clone(), offered.job.id.clone());
        if let Some(record) = self.has(offered) {
            ensure!(answer == Offered::Kept { record }, "expected it to be kept as {record}");
            return Ok(());
        }
        let expected = self.fate(&key, offered, answer, now);
        let record = match (expected, answer) {
            (false, Offered::Taken) => return Ok(()),
            (true, Offered::Restored { record }) => record,
            _ => anyhow::bail!("expected that it was restored: {expected}"),
        };
        let lease = Lease { record, ..offered.lease.clone() };
        let seen = leases.iter().find(|seen| seen.lease == lease).context("its lease is not listed")?;
        let listed = Window { lo: now.lo, hi: now.hi };
        ensure!(listed.holds(seen.claimed_ms), "leased at {}, and not in {now:?}", seen.claimed_ms);
        let taken = Taken {
            lease,
            attempt: offered.attempt,
            max: offered.max_attempts,
            claimed_ms: seen.claimed_ms,
            recall: None,
            maybe_recalled: false,
        };
        if !self.jobs.contains_key(&key) {
            let order = self.next_order();
            self.remembered.remove(&key);
            self.jobs.insert(key.clone(), ModelJob::made_again(offered, record, order, now));
            let job = &self.jobs[&key];
            self.lanes.insert(job.lane());
            self.totals.entry(key.0.clone()).or_default().enqueued += 1;
        }
        let job = self.jobs.get_mut(&key).context("it is there by now")?;
        ensure!(job.record.is_none_or(|known| known == record), "record {record}, was {:?}", job.record);
        job.record = Some(record);
        job.spot = Spot::Leased(taken);
        Ok(())
    }

    /// The record of the job that is under this very lease, if any is.
    fn has(&self, offered: &ClaimedJob) -> Option<u64> {
        let Lease { session, token, .. } = &offered.lease;
        let key = (offered.job.queue.clone(), offered.job.id.clone());
        let lease = &self.jobs.get(&key)?.taken()?.lease;
        (lease.session == *session && lease.token == *token).then_some(lease.record)
    }

    /// Whether an offer is taken up; where only the exact moment tells whether an id is still remembered, what the store said.
    fn fate(&self, key: &Key, offered: &ClaimedJob, said: Offered, now: Window) -> bool {
        match (self.jobs.get(key), self.remembered.get(key)) {
            (Some(job), _) => {
                let same =
                    (&job.job.kind, job.job.enqueued_ms) == (&offered.job.kind, offered.job.enqueued_ms);
                same && job.waits() && job.attempt < offered.attempt && job.crashes <= offered.crashes
            }
            (None, Some(old)) => match (now.reached(old.forget.lo), now.reached(old.forget.hi)) {
                (_, Some(true)) => true,
                (Some(false), _) if !old.maybe_gone => false,
                _ => said != Offered::Taken,
            },
            (None, None) => true,
        }
    }
}
