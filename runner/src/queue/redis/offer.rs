//! Offering jobs to a store that has lost data: the Rust side of lua/offer.lua.

use super::RedisStore;
use super::claim::push_lanes;
use super::enqueue::Lanes;
use super::link::Repeat;
use super::record::{priority_letter, record_around_id, rid_text};
use super::reply::{Items, unexpected};
use crate::queue::checks::check_offer;
use crate::queue::{ClaimedJob, Lane, Offered, StoreError};

impl RedisStore {
    pub(super) async fn offer_jobs(&self, jobs: &[ClaimedJob]) -> Result<Vec<Offered>, StoreError> {
        check_offer(jobs)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let lane_of =
            |claimed: &ClaimedJob| Lane { queue: claimed.job.queue.clone(), kind: claimed.job.kind.clone() };
        let lanes = Lanes::of(jobs.iter().map(lane_of));
        let mut args = Vec::new();
        push_lanes(&mut args, &lanes);
        for claimed in jobs {
            push_offer(&mut args, claimed, lanes.number(&lane_of(claimed)));
        }
        // What a first call has restored, a second one keeps.
        let reply =
            self.link.script(&self.scripts.offer, &self.lane_keys(&lanes), &args, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        let mut answers = Vec::with_capacity(jobs.len());
        while !items.is_empty() {
            let (word, record) = (items.text()?, items.text()?.parse());
            answers.push(match (word.as_str(), record) {
                ("kept", Ok(record)) => Offered::Kept { record },
                ("restored", Ok(record)) => Offered::Restored { record },
                ("taken", _) => Offered::Taken,
                _ => return Err(unexpected("an unknown answer to an offer")),
            });
        }
        if answers.len() == jobs.len() { Ok(answers) } else { Err(unexpected("answers for other jobs")) }
    }
}

fn push_offer(args: &mut Vec<Vec<u8>>, claimed: &ClaimedJob, lane: usize) {
    let ClaimedJob { job, lease, attempt, max_attempts, crashes, due_ms, .. } = claimed;
    let (head, rest) = record_around_id(job, *due_ms);
    args.extend([
        lane.to_string().into(),
        rid_text(lease.record).into(),
        lease.session.0.as_bytes().to_vec(),
    ]);
    let numbers = [lease.token, (*attempt).into(), (*max_attempts).into(), (*crashes).into(), *due_ms];
    args.extend(numbers.map(|number| number.to_string().into_bytes()));
    args.extend([job.id.as_str().into(), job.enqueued_ms.to_string().into_bytes()]);
    args.extend([priority_letter(job.priority).into(), head, rest]);
}
