//! Enqueueing: the Rust side of lua/enqueue.lua.

use redis::Value;

use super::RedisStore;
use super::arguments::Arguments;
use super::reply::{Items, unexpected};
use crate::job::{Due, NewJob, Priority};
use crate::queue::checks::{check_batch, random_text};
use crate::queue::{Disposition, Enqueued, Lane, StoreError};

/// The version of the protocol of lua/enqueue.lua.
const PROTOCOL: &[u8] = b"1";
/// How long lua/enqueue.lua keeps its answer for a repeat.
pub(super) const ONCE_SECONDS: u64 = 20;

impl RedisStore {
    pub(super) async fn enqueue_jobs(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        check_batch(jobs)?;
        let once = random_text(20)?;
        let suffix = random_text(5)?;
        let lanes =
            Lanes::of(jobs.iter().map(|job| Lane { queue: job.queue.clone(), kind: job.kind.clone() }));
        let mut keys = self.keys.for_enqueue(&once);
        for lane in &lanes.list {
            keys.extend(self.keys.due(lane));
        }
        let args = arguments(jobs, &lanes, &once, &suffix);
        let reply = self.run_enqueue(&keys, &args.slices(), &self.keys.once(&once)).await?;
        read_reply(reply, jobs.len())
    }
}

/// The distinct lanes of a call, and where each is among its keys.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    pub(super) list: Vec<Lane>,
    places: std::collections::HashMap<Lane, usize>,
}

impl Lanes {
    pub(super) fn of(lanes: impl IntoIterator<Item = Lane>) -> Self {
        let mut all = Self::default();
        for lane in lanes {
            all.place(&lane);
        }
        all
    }

    /// The lane's number, from 1; adds it when it is new.
    pub(super) fn place(&mut self, lane: &Lane) -> usize {
        if let Some(place) = self.places.get(lane) {
            return *place;
        }
        self.list.push(lane.clone());
        self.places.insert(lane.clone(), self.list.len());
        self.list.len()
    }

    /// The number of a lane that is among them; 0 is no lane.
    pub(super) fn number(&self, lane: &Lane) -> usize {
        self.places.get(lane).copied().unwrap_or(0)
    }
}

fn arguments(jobs: &[NewJob], lanes: &Lanes, once: &str, suffix: &str) -> Arguments {
    let mut args = Arguments::with_capacity(4 + 2 * lanes.list.len() + 11 * jobs.len());
    args.push(PROTOCOL);
    args.push(suffix);
    args.push(once);
    args.push_text(format_args!("{}", lanes.list.len()));
    for lane in &lanes.list {
        args.push(lane.queue.as_str());
        args.push(lane.kind.as_str());
    }
    let number = |args: &mut Arguments, number: Option<u64>| match number {
        Some(number) => args.push_text(format_args!("{number}")),
        None => args.push(""),
    };
    for job in jobs {
        let lane = Lane { queue: job.queue.clone(), kind: job.kind.clone() };
        args.push_text(format_args!("{}", lanes.number(&lane)));
        args.push(job.id.as_ref().map_or("", |id| id.as_str()));
        args.push(if job.priority == Priority::Normal { "" } else { job.priority.as_str() });
        args.push(accepted_due_text(job));
        number(&mut args, job.max_attempts.map(u64::from));
        number(&mut args, job.timeout_ms);
        args.push(job.traceparent.as_deref().unwrap_or_default());
        args.push(meta_text(&job.meta));
        args.push(&job.source);
        args.push(job.on_conflict.as_str());
        args.push(&job.payload);
    }
    args
}

/// A due time as scripts take it.
pub(super) fn due_text(due: Due) -> Vec<u8> {
    match due {
        Due::In(ms) => format!("+{ms}").into(),
        Due::At(ms) => format!("@{ms}").into(),
    }
}

/// As [`due_text`], with the age of a job that was accepted before.
fn accepted_due_text(job: &NewJob) -> Vec<u8> {
    let mut text = due_text(job.due);
    if job.age_ms > 0 {
        text.extend(format!("~{}", job.age_ms).bytes());
    }
    text
}

/// Meta as the record holds it: a JSON array of pairs, which keeps order and repeated keys.
pub(super) fn meta_text(meta: &[(String, String)]) -> Vec<u8> {
    if meta.is_empty() {
        return Vec::new();
    }
    serde_json::to_vec(meta).unwrap_or_default()
}

fn read_reply(reply: Value, jobs: usize) -> Result<Vec<Enqueued>, StoreError> {
    let mut items = Items::of(reply)?;
    let mut enqueued = Vec::with_capacity(jobs);
    while !items.is_empty() {
        let disposition = match &items.bytes()?[..] {
            b"created" => Disposition::Created,
            b"kept" => Disposition::Kept,
            b"replaced" => Disposition::Replaced,
            b"rescheduled" => Disposition::Rescheduled,
            b"conflict" => Disposition::Conflict,
            _ => return Err(unexpected("an unknown disposition")),
        };
        let id = items.text()?.parse().map_err(|_| unexpected("an invalid id"))?;
        let state = items.text()?.parse().map_err(|_| unexpected("an unknown state"))?;
        enqueued.push(Enqueued { id, disposition, state, due_ms: items.number()? });
    }
    if enqueued.len() == jobs { Ok(enqueued) } else { Err(unexpected("answers for other jobs")) }
}
