//! Counting and pruning: what there is, and what retention does not keep any more.

use std::collections::BTreeMap;

use super::RedisStore;
use super::claim::push_lanes;
use super::enqueue::Lanes;
use super::link::Repeat;
use super::reply::{Items, text};
use crate::names::Name;
use crate::queue::checks::random_text;
use crate::queue::{Counts, IdMemory, Pruned, QueueCounts, StoreError};

/// Lanes that one script counts.
const LANES_STEP: usize = 150;
/// Queues that one script prunes, and jobs that it removes.
const QUEUES_STEP: usize = 50;
const PRUNE_JOBS: usize = 500;

impl RedisStore {
    pub(super) async fn count_all(&self) -> Result<Counts, StoreError> {
        let lanes = self.all_lanes().await?;
        let mut queues: BTreeMap<Name, QueueCounts> = BTreeMap::new();
        for queue in self.paused_queues().await? {
            queues.insert(queue.clone(), QueueCounts { paused: true, ..QueueCounts::none(queue) });
        }
        let mut counts = Counts { queues: Vec::new(), now_ms: 0, stale_total: 0, orphans: 0, quarantined: 0 };
        let mut steps: Vec<Lanes> =
            lanes.chunks(LANES_STEP).map(|step| Lanes::of(step.iter().cloned())).collect();
        if steps.is_empty() {
            steps.push(Lanes::default());
        }
        for step in steps {
            let mut args = Vec::new();
            push_lanes(&mut args, &step);
            let reply =
                self.link.script(&self.scripts.counts, &self.lane_keys(&step), &args, Repeat::Once).await?;
            let mut items = Items::of(reply)?;
            counts.now_ms = items.number()?;
            counts.stale_total = items.number()?;
            counts.orphans = items.number()?;
            counts.quarantined = items.number()?;
            for lane in &step.list {
                let queue =
                    queues.entry(lane.queue.clone()).or_insert_with(|| QueueCounts::none(lane.queue.clone()));
                queue.kinds.push(lane.kind.clone());
                add_lane(queue, &mut items)?;
            }
        }
        counts.queues = queues.into_values().collect();
        Ok(counts)
    }

    async fn paused_queues(&self) -> Result<Vec<Name>, StoreError> {
        let mut cmd = redis::cmd("SMEMBERS");
        cmd.arg(self.keys.global("paused"));
        let mut items = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut queues = Vec::with_capacity(items.len());
        while !items.is_empty() {
            queues.extend(items.text()?.parse::<Name>().ok());
        }
        Ok(queues)
    }

    pub(super) async fn prune_all(&self) -> Result<Pruned, StoreError> {
        let mut queues = self.queues().await?;
        let mut pruned = Pruned::default();
        if queues.is_empty() {
            return Ok(pruned);
        }
        // Each call starts at another queue, so that none waits behind one that is always full.
        let turn =
            self.prune_turn.fetch_add(QUEUES_STEP, std::sync::atomic::Ordering::Relaxed) % queues.len();
        queues.rotate_left(turn);
        for step in queues.chunks(QUEUES_STEP) {
            let mut keys = self.keys.globals().to_vec();
            let mut args = vec![PRUNE_JOBS.to_string(), IdMemory::default().bytes.to_string()];
            for queue in step {
                keys.extend(self.keys.done(queue));
                args.push(queue.to_string());
            }
            let reply = self.link.script(&self.scripts.prune, &keys, &args, Repeat::Once).await?;
            let mut items = Items::of(reply)?;
            pruned.jobs += items.number::<u64>()?;
            pruned.ids += items.number::<u64>()?;
            pruned.more = items.number::<u64>()? > 0;
            let again_ms: Option<u64> = items.text()?.parse().ok();
            pruned.again_ms = [pruned.again_ms, again_ms].into_iter().flatten().min();
            for queue in step {
                pruned.dead_dropped.push((queue.clone(), items.number()?));
            }
            if pruned.more {
                break;
            }
        }
        Ok(pruned)
    }

    /// The store's clock, in milliseconds since 1970.
    pub(super) async fn now_ms(&self) -> Result<u64, StoreError> {
        Ok(self.now_us().await? / 1_000)
    }

    /// The store's clock, in microseconds since 1970.
    pub(super) async fn now_us(&self) -> Result<u64, StoreError> {
        let mut items = Items::of(self.link.command(&redis::cmd("TIME"), Repeat::Once).await?)?;
        let (seconds, micros): (u64, u64) = (items.number()?, items.number()?);
        Ok(seconds * 1_000_000 + micros)
    }

    pub(super) async fn store_id(&self) -> Result<String, StoreError> {
        let args = [random_text(20)?];
        text(self.link.script(&self.scripts.identity, self.keys.globals(), &args, Repeat::Once).await?)
    }
}

/// Adds what counts.lua says of one lane: its own numbers, and its queue's, which each of its lanes repeats.
fn add_lane(queue: &mut QueueCounts, items: &mut Items) -> Result<(), StoreError> {
    let (waiting, ready, held): (u64, u64, u64) = (items.number()?, items.number()?, items.number()?);
    let oldest: Option<u64> = items.text()?.parse().ok();
    let first = queue.kinds.len() == 1;
    queue.ready += ready;
    queue.scheduled += waiting.saturating_sub(ready) + held;
    queue.oldest_due_ms = match (queue.oldest_due_ms, oldest) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    queue.completed = items.number()?;
    queue.cancelled = items.number()?;
    queue.dead = items.number()?;
    queue.enqueued_total = items.number()?;
    queue.completed_total = items.number()?;
    queue.failed_total = items.number()?;
    queue.dead_dropped_total = items.number()?;
    let leases: u64 = items.number()?;
    queue.running = if first { leases } else { queue.running }.saturating_sub(held);
    queue.paused = items.number::<u64>()? > 0;
    Ok(())
}
