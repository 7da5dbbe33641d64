//! The operators' verbs: cancel, reschedule, requeue, delete, pause, resume, purge.
//!
//! A script must be given every key that it touches, and a job's keys depend on its lane. So each verb looks
//! the jobs up first and then acts on their record ids. Record ids are never used twice, so a job
//! that went away in between is simply not there.

use redis::Value;

use super::RedisStore;
use super::claim::{push_lanes, push_policy};
use super::enqueue::Lanes;
use super::link::Repeat;
use super::read::{Place, READ_BYTES_MAX};
use super::record::rid_text;
use super::reply::{Items, number, unexpected};
use super::scripts::Script;
use crate::job::Due;
use crate::names::Name;
use crate::queue::{IdMemory, JobRef, Lane, Retention, StoreError, Verdict};

/// Jobs that one script changes.
const STEP: usize = 250;
/// Jobs that one purge deletes, and bytes of their records that it may read.
const PURGE_JOBS: usize = 500;
const PURGE_BYTES: usize = 4 << 20;
/// Leases in one step of a recall.
const RECALL_STEP: &str = "500";
/// How often a job is looked up again that was replaced while we looked.
const LOOKUPS_MAX: usize = 3;

impl RedisStore {
    pub(super) async fn cancel_jobs(
        &self,
        jobs: &[JobRef],
        retention: Retention,
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut args = Vec::new();
        push_policy(&mut args, retention, IdMemory::default());
        self.act(&self.scripts.cancel, &args, jobs).await
    }

    pub(super) async fn reschedule_job(&self, job: &JobRef, due: Due) -> Result<Verdict, StoreError> {
        let due = match due {
            Due::In(ms) => format!("+{}", ms.min(u64::from(u32::MAX) * 10_000)),
            Due::At(ms) => format!("@{}", ms.min(u64::from(u32::MAX) * 10_000)),
        };
        let verdicts =
            self.act(&self.scripts.reschedule, &[due.into_bytes()], std::slice::from_ref(job)).await?;
        verdicts.first().copied().ok_or_else(|| unexpected("no verdict"))
    }

    pub(super) async fn requeue_jobs(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        self.act(&self.scripts.requeue, &[], jobs).await
    }

    pub(super) async fn delete_jobs(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        let memory = IdMemory::default().bytes.to_string().into_bytes();
        self.act(&self.scripts.delete, &[memory], jobs).await
    }

    /// Runs a script that takes `lane, record id` for each job and answers with a word for each.
    async fn act(
        &self,
        script: &Script,
        options: &[Vec<u8>],
        jobs: &[JobRef],
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut verdicts = vec![Verdict::NotFound; jobs.len()];
        let mut left: Vec<usize> = (0..jobs.len()).collect();
        for _ in 0..LOOKUPS_MAX {
            let refs: Vec<JobRef> = left.iter().map(|i| jobs[*i].clone()).collect();
            let places = self.locate(&refs).await?;
            let found: Vec<(usize, Place)> = left
                .iter()
                .copied()
                .zip(places)
                .filter_map(|(i, place)| place.map(|place| (i, place)))
                .collect();
            left.clear();
            let answers = self.act_on(script, options, &found).await?;
            for ((i, _), verdict) in found.iter().zip(answers) {
                verdicts[*i] = verdict;
                // It was there a moment ago: its id may belong to another job by now.
                if verdict == Verdict::NotFound {
                    left.push(*i);
                }
            }
            if left.is_empty() {
                break;
            }
        }
        Ok(verdicts)
    }

    async fn act_on(
        &self,
        script: &Script,
        options: &[Vec<u8>],
        found: &[(usize, Place)],
    ) -> Result<Vec<Verdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(found.len());
        while verdicts.len() < found.len() {
            let step = &found[verdicts.len()..(verdicts.len() + STEP).min(found.len())];
            let lanes = Lanes::of(step.iter().map(|(_, place)| place.lane.clone()));
            let mut args: Vec<Vec<u8>> = vec![READ_BYTES_MAX.to_string().into()];
            push_lanes(&mut args, &lanes);
            args.extend_from_slice(options);
            for (_, place) in step {
                args.push(lanes.number(&place.lane).to_string().into());
                args.push(rid_text(place.record).into());
            }
            // A second run would answer for what the first one did, so the caller hears of a lost reply.
            let reply = self.link.script(script, &self.lane_keys(&lanes), &args, Repeat::Never).await?;
            let before = verdicts.len();
            read_verdicts(reply, &mut verdicts)?;
            if verdicts.len() == before || verdicts.len() > found.len() {
                return Err(unexpected("verdicts for other jobs"));
            }
        }
        Ok(verdicts)
    }

    pub(super) async fn pause_queue(&self, queue: &Name) -> Result<(), StoreError> {
        // A script, because a plain write is refused at the memory limit.
        let args = [queue.as_str()];
        self.link.script(&self.scripts.pause, self.keys.globals(), &args, Repeat::Once).await?;
        self.recall_held(queue).await.map(drop)
    }

    pub(super) async fn resume_queue(&self, queue: &Name) -> Result<(), StoreError> {
        let lanes = self.lanes_of(queue).await?;
        let mut args: Vec<Vec<u8>> = vec![queue.as_str().into()];
        push_lanes(&mut args, &lanes);
        self.link.script(&self.scripts.resume, &self.lane_keys(&lanes), &args, Repeat::Once).await.map(drop)
    }

    pub(super) async fn purge_queue(&self, queue: &Name) -> Result<(u64, bool), StoreError> {
        let lanes = self.lanes_of(queue).await?;
        let mut args: Vec<Vec<u8>> = vec![PURGE_JOBS.to_string().into(), PURGE_BYTES.to_string().into()];
        push_lanes(&mut args, &lanes);
        let reply =
            self.link.script(&self.scripts.purge, &self.lane_keys(&lanes), &args, Repeat::Never).await?;
        let purged: u64 = number(reply)?;
        // Held jobs are scheduled jobs: they come back when their runners have been told, and go then.
        let more = purged > 0 || self.recall_held(queue).await? > 0;
        Ok((purged, more))
    }

    /// Asks for all held jobs of a queue; how many there were.
    async fn recall_held(&self, queue: &Name) -> Result<u64, StoreError> {
        let (mut cursor, mut held) = ("0".to_owned(), 0);
        loop {
            let args = [queue.as_str(), &cursor, RECALL_STEP];
            let script = &self.scripts.recall;
            let mut reply =
                Items::of(self.link.script(script, self.keys.globals(), &args, Repeat::Once).await?)?;
            cursor = reply.text()?;
            held += reply.number::<u64>()?;
            if cursor == "0" {
                return Ok(held);
            }
        }
    }

    async fn lanes_of(&self, queue: &Name) -> Result<Lanes, StoreError> {
        let lanes: Vec<Lane> =
            self.all_lanes().await?.into_iter().filter(|lane| lane.queue == *queue).collect();
        Ok(Lanes::of(lanes))
    }
}

fn read_verdicts(reply: Value, verdicts: &mut Vec<Verdict>) -> Result<(), StoreError> {
    let mut items = Items::of(reply)?;
    while !items.is_empty() {
        verdicts.push(match items.text()?.as_str() {
            "done" => Verdict::Done,
            "asked" => Verdict::Asked,
            "notfound" => Verdict::NotFound,
            state => Verdict::Conflict(state.parse().map_err(|_| unexpected("an unknown verdict"))?),
        });
    }
    Ok(())
}
