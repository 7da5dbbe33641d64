//! Looking at jobs: where a job is, and everything about it.

use std::collections::BTreeSet;

use super::RedisStore;
use super::link::Repeat;
use super::record::{Raw, read_view, rid_text};
use super::reply::{Items, text};
use crate::job::JobView;
use crate::names::{JobId, Name};
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
        let queues = match queue {
            Some(queue) => vec![queue.clone()],
            None => self.queues().await?,
        };
        let refs: Vec<JobRef> = queues.into_iter().map(|queue| JobRef { queue, id: id.clone() }).collect();
        let places = self.locate(&refs).await?;
        let records: Vec<u64> = places.into_iter().flatten().map(|place| place.record).collect();
        let views = self.views(&records).await?;
        Ok(views.into_iter().map(|(_, view)| view).collect())
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
        let mut done = 0;
        while done < records.len() {
            let step = &records[done..(done + READ_JOBS_MAX).min(records.len())];
            let mut args: Vec<String> = vec![READ_BYTES_MAX.to_string()];
            args.extend(step.iter().copied().map(rid_text));
            let script = &self.scripts.view;
            let mut reply =
                Items::of(self.link.script(script, self.keys.globals(), &args, Repeat::Once).await?)?;
            let now_ms = reply.number()?;
            for record in step.iter().take(reply.len() / 4) {
                let (job, past, lease) = (reply.bytes()?, reply.bytes()?, reply.bytes()?);
                let runner = text(reply.value()?)?;
                let raw = Raw { record: &job, past: &past, lease: &lease, runner: &runner };
                views.extend(read_view(*record, raw, now_ms).map(|view| (*record, view)));
                done += 1;
            }
        }
        Ok(views)
    }
}

/// The record id in a generated id: `<sequence without leading zeros>-<5 characters>`.
fn generated_record(id: &JobId) -> Option<u64> {
    let (sequence, random) = id.as_str().split_once('-')?;
    let plain =
        !sequence.starts_with('0') && sequence.len() <= 14 && sequence.bytes().all(|b| b.is_ascii_digit());
    (plain && random.len() == 5).then(|| sequence.parse().ok()).flatten()
}
