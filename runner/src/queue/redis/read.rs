//! Looking at jobs: where a job is, and everything about it.

use std::collections::BTreeSet;

use super::RedisStore;
use super::link::Repeat;
use super::record::{Raw, read_view, rid_text};
use super::reply::{Items, text, unexpected};
use crate::job::JobView;
use crate::names::{JobId, Name};
use crate::queue::checks::generated_record;
use crate::queue::{JobRef, Lane, StoreError};

/// Bytes of records that one script reads before it answers for fewer jobs than it was asked for.
pub(super) const READ_BYTES_MAX: usize = 1 << 20;
/// Jobs that one script looks at.
const READ_JOBS_MAX: usize = 250;

/// Where a job was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) record: u64,
    pub(super) lane: Lane,
}

impl RedisStore {
    pub(super) async fn find_job(
        &self,
        queue: Option<&Name>,
        id: &JobId,
    ) -> Result<Vec<JobView>, StoreError> {
        let made: Vec<u64> = generated_record(id).into_iter().collect();
        let mut found: Vec<JobView> = self.views(&made).await?.into_iter().map(|(_, view)| view).collect();
        found.retain(|view| view.job.id == *id && queue.is_none_or(|queue| *queue == view.job.queue));
        let queues = match queue {
            Some(_) if !found.is_empty() => return Ok(found),
            Some(queue) => vec![queue.clone()],
            None => self.queues().await?,
        };
        let records = self.given_ids(&queues, id).await?;
        found.extend(self.views(&records).await?.into_iter().map(|(_, view)| view));
        Ok(found)
    }

    /// The records of the jobs that were given this id, in any of these queues.
    async fn given_ids(&self, queues: &[Name], id: &JobId) -> Result<Vec<u64>, StoreError> {
        let mut records = Vec::new();
        for step in queues.chunks(READ_JOBS_MAX) {
            let mut cmd = redis::cmd("HMGET");
            cmd.arg(self.keys.global("ids"));
            for queue in step {
                cmd.arg(format!("{queue}/{id}"));
            }
            let mut items = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
            while !items.is_empty() {
                // What is remembered of a finished job is no number.
                records.extend(items.text()?.parse::<u64>().ok());
            }
        }
        Ok(records)
    }

    /// Every queue that a job was ever enqueued to.
    pub(super) async fn queues(&self) -> Result<Vec<Name>, StoreError> {
        let queues: BTreeSet<Name> = self.all_lanes().await?.into_iter().map(|lane| lane.queue).collect();
        Ok(queues.into_iter().collect())
    }

    pub(super) async fn all_lanes(&self) -> Result<Vec<Lane>, StoreError> {
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(self.keys.global("lanes"));
        super::sessions::read_lanes(self.link.command(&cmd, Repeat::Once).await?)
    }

    /// Where jobs are, in the order asked for.
    pub(super) async fn locate(&self, jobs: &[JobRef]) -> Result<Vec<Option<Place>>, StoreError> {
        let mut places = Vec::with_capacity(jobs.len());
        while places.len() < jobs.len() {
            let step = &jobs[places.len()..(places.len() + READ_JOBS_MAX).min(jobs.len())];
            let mut args: Vec<String> = vec![READ_BYTES_MAX.to_string()];
            for job in step {
                let record = generated_record(&job.id).map(rid_text).unwrap_or_default();
                args.extend([job.queue.to_string(), job.id.to_string(), record]);
            }
            let script = &self.scripts.locate;
            let mut reply =
                Items::of(self.link.script(script, self.keys.globals(), &args, Repeat::Once).await?)?;
            if reply.is_empty() {
                return Err(unexpected("places of no jobs"));
            }
            for job in step.iter().take(reply.len() / 2) {
                let (record, kind) = (reply.text()?, reply.text()?);
                let lane = Name::new(&kind).ok().map(|kind| Lane { queue: job.queue.clone(), kind });
                places.push(record.parse().ok().zip(lane).map(|(record, lane)| Place { record, lane }));
            }
        }
        Ok(places)
    }

    /// Everything about jobs, of those that exist, in the order asked for.
    pub(super) async fn views(&self, records: &[u64]) -> Result<Vec<(u64, JobView)>, StoreError> {
        let mut views = Vec::with_capacity(records.len());
        let mut looked = 0;
        while looked < records.len() {
            let (some, done) = self.view_some(&records[looked..]).await?;
            views.extend(some);
            looked += done;
        }
        Ok(views)
    }

    /// As [`views`](Self::views) for the first of them, as many as one step takes; how many it looked at.
    pub(super) async fn view_some(
        &self,
        records: &[u64],
    ) -> Result<(Vec<(u64, JobView)>, usize), StoreError> {
        let step = &records[..records.len().min(READ_JOBS_MAX)];
        let mut args: Vec<String> = vec![READ_BYTES_MAX.to_string()];
        args.extend(step.iter().copied().map(rid_text));
        let script = &self.scripts.view;
        let mut reply = Items::of(self.link.script(script, self.keys.globals(), &args, Repeat::Once).await?)?;
        let now_ms = reply.number()?;
        let looked = reply.len() / 5;
        if looked == 0 || looked > step.len() {
            return Err(unexpected("views of other jobs"));
        }
        let mut views = Vec::with_capacity(looked);
        for record in &step[..looked] {
            let (job, past, lease) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
            let runner = text(reply.value()?)?;
            let progress = reply.bytes()?;
            let raw = Raw { record: &job, past: &past, lease: &lease, runner: &runner, progress: &progress };
            views.extend(read_view(*record, raw, now_ms).map(|view| (*record, view)));
        }
        Ok((views, looked))
    }
}
