//! The model's retention: how long finished jobs and their ids are kept (rule 14).

use std::collections::{BTreeSet, HashSet};

use anyhow::{Context, Result, ensure};
use hourhand::job::State;
use hourhand::names::Name;
use hourhand::queue::{IdMemory, Retention};

use super::job::{Finished, ModelJob, Spot};
use super::ops::Op;
use super::state::{Index, Key, Model, Remembered, Seen};
use super::window::Window;

/// Bytes of a record beyond its payload and result, at most: what a store needs for a job, and for an event.
const RECORD_BYTES: usize = 1_000;

impl Model {
    /// The end of a job.
    pub(super) fn finish(&mut self, key: &Key, state: State, kept: Retention, memory: IdMemory, now: Window) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.spot = Spot::Finished(Finished {
            state,
            ended: now,
            expire: kept.age_ms.map(|age_ms| now.plus(age_ms)),
            forget: now.plus(memory.age_ms),
        });
        if [kept.age_ms, kept.count, kept.bytes].contains(&Some(0)) {
            if state == State::Dead && kept.age_ms != Some(0) {
                self.dropped(&key.0, 1, 1);
            }
            self.drop_finished(key, now);
            return;
        }
        let added = self.added.entry((key.0.clone(), state)).or_insert((0, kept));
        added.0 += 1;
    }

    /// A finished job's record goes; an id that somebody chose is remembered, if its time is not over.
    pub(super) fn drop_finished(&mut self, key: &Key, now: Window) {
        let Some(job) = self.jobs.remove(key) else { return };
        let due_ms = job.due();
        let Some(finished) = job.finished().filter(|_| job.explicit) else { return };
        let (state, forget) = (finished.state, finished.forget);
        if forget.hi > now.lo {
            let old = Remembered { state, due_ms, forget, maybe_gone: forget.lo <= now.hi };
            self.remembered.insert(key.clone(), old);
        }
    }

    /// The finished indexes that must be looked at after a step, because retention may remove what only the
    /// store can tell: it knows what a record weighs, and who ended first in one millisecond.
    pub(super) fn watched(&self, op: &Op) -> HashSet<Index> {
        let limited = |kept: &Retention| kept.count.is_some() || kept.bytes.is_some();
        let ends = [State::Completed, State::Dead, State::Cancelled];
        let queues = |names: Vec<&Name>, states: &[State]| {
            let of = |name: &Name| states.iter().map(|state| (name.clone(), *state)).collect::<Vec<_>>();
            names.into_iter().flat_map(of).collect()
        };
        match op {
            Op::Settle(settlements) => {
                let some = settlements.iter().filter(|s| limited(&s.retention));
                queues(some.map(|s| &s.lane.queue).collect(), &ends)
            }
            Op::Reclaim(leases, _) => {
                queues(leases.iter().map(|seen| &seen.lane.queue).collect(), &ends[1..])
            }
            Op::Cancel(jobs, kept) if limited(kept) => {
                queues(jobs.iter().map(|job| &job.queue).collect(), &ends[2..])
            }
            Op::Prune => queues(self.lanes.iter().map(|lane| &lane.queue).collect(), &ends),
            _ => HashSet::new(),
        }
    }

    /// The jobs of a finished index.
    fn index(&self, queue: &Name, state: State) -> impl Iterator<Item = (&Key, &ModelJob, &Finished)> {
        let all = self.jobs.iter().filter(move |(key, _)| key.0 == *queue);
        let finished = all.filter_map(|(key, job)| Some((key, job, job.finished()?)));
        finished.filter(move |(_, _, finished)| finished.state == state)
    }

    /// Takes in what limits on number and bytes removed in a step.
    pub(super) fn trim(&mut self, seen: &Seen, now: Window) -> Result<()> {
        for ((queue, state), (added, kept)) in std::mem::take(&mut self.added) {
            if kept.count.is_none() && kept.bytes.is_none() {
                continue;
            }
            let left = seen.kept.get(&(queue.clone(), state)).context("an index that nobody looked at")?;
            let gone = self
                .trimmed(&queue, state, left, added, kept)
                .with_context(|| format!("retention of {state} jobs of {queue} by {kept:?}"))?;
            for key in gone {
                let expire = self.jobs.get(&key).and_then(|job| job.finished()?.expire);
                let early = |at: fn(Window) -> u64, now: u64| u64::from(expire.is_none_or(|e| at(e) > now));
                if state == State::Dead {
                    self.dropped(&queue, early(|e| e.lo, now.hi), early(|e| e.hi, now.lo));
                }
                self.drop_finished(&key, now);
            }
        }
        Ok(())
    }

    fn dropped(&mut self, queue: &Name, least: u64, most: u64) {
        let dropped = &mut self.totals.entry(queue.clone()).or_default().dropped;
        *dropped = (dropped.0 + least, dropped.1 + most);
    }

    fn trimmed(
        &self,
        queue: &Name,
        state: State,
        left: &BTreeSet<Key>,
        added: usize,
        kept: Retention,
    ) -> Result<Vec<Key>> {
        let all: Vec<_> = self.index(queue, state).collect();
        let gone: Vec<_> = all.iter().filter(|(key, ..)| !left.contains(*key)).collect();
        let stay: Vec<_> = all.iter().filter(|(key, ..)| left.contains(*key)).collect();
        ensure!(stay.len() == left.len(), "there is what should not be: {left:?}");
        let over = kept.count.map_or(0, |count| all.len().saturating_sub(count as usize));
        // One call is bounded, but it removes at least as many as it adds.
        ensure!(gone.len() >= over.min(added), "{} of {over} went", gone.len());
        let least: usize = stay.iter().map(|(_, job, _)| least_bytes(job)).sum();
        let bytes_max = kept.bytes.map_or(usize::MAX, |bytes| bytes as usize);
        ensure!(least <= bytes_max || gone.len() > added, "{least} bytes and more stay");
        if gone.len() > over {
            let last = gone.iter().map(|(_, job, _)| most_bytes(job)).max().unwrap_or(0);
            let most = stay.iter().map(|(_, job, _)| most_bytes(job)).sum::<usize>() + last;
            ensure!(most > bytes_max, "{} went, of {over} too many, and {most} bytes fit", gone.len());
        }
        let newest = gone.iter().map(|(_, _, finished)| finished.ended.lo).max().unwrap_or(0);
        let oldest = stay.iter().map(|(_, _, finished)| finished.ended.hi).min().unwrap_or(u64::MAX);
        ensure!(newest <= oldest, "one that ended at {newest} went before one of {oldest}");
        Ok(gone.into_iter().map(|(key, ..)| (*key).clone()).collect())
    }

    /// What is over its age is gone, and nothing else is.
    pub(super) fn prune(&mut self, seen: &Seen, pruned: u64, now: Window) -> Result<()> {
        let mut all_gone = Vec::new();
        for ((queue, state), left) in &seen.kept {
            for (key, _, finished) in self.index(queue, *state) {
                let stays = left.contains(key);
                match finished.expire {
                    Some(expire) if expire.hi <= now.lo => {
                        ensure!(!stays, "{key:?} stays, although its time was over at {expire:?}");
                    }
                    Some(expire) if expire.lo <= now.hi => {}
                    expire => ensure!(stays, "{key:?} is gone, although it may stay until {expire:?}"),
                }
                if !stays {
                    all_gone.push(key.clone());
                }
            }
        }
        ensure!(pruned == all_gone.len() as u64, "it says {pruned}, and {} went", all_gone.len());
        for key in all_gone {
            self.drop_finished(&key, now);
        }
        self.remembered.retain(|_, old| {
            old.maybe_gone |= old.forget.lo <= now.hi;
            old.forget.hi > now.lo
        });
        Ok(())
    }
}

fn least_bytes(job: &ModelJob) -> usize {
    job.job.payload.len() + job.result.as_ref().map_or(0, |result| result.len())
}

fn most_bytes(job: &ModelJob) -> usize {
    least_bytes(job) + RECORD_BYTES + job.life.bytes_max()
}
