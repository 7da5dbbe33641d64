//! Whether what the store shows is what the model holds: counts, lists, leases, sessions, logs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use hourhand::job::{JobView, State};
use hourhand::names::{JobId, Name};
use hourhand::queue::{AttemptLog, Counts, Lane, LeaseSeen, ListQuery, QueueCounts, SessionSeen};

use super::job::ModelJob;
use super::state::{Key, Model};
use super::window::Window;

/// Jobs of one page when a finished index is looked at.
pub(super) const INDEX_LIMIT: usize = 1_000;

impl Model {
    /// All counts, at the very moment that they tell.
    pub(super) fn counts(&self, counts: &Counts) -> Result<()> {
        let others = (counts.stale_total, counts.orphans, counts.quarantined);
        ensure!(
            others == (self.stale, 0, 0),
            "stale, orphans, quarantined are {others:?}, expected {} stale",
            self.stale
        );
        let queues: BTreeSet<&Name> =
            self.lanes.iter().map(|lane| &lane.queue).chain(self.paused.iter()).collect();
        let seen: Vec<&Name> = counts.queues.iter().map(|queue| &queue.queue).collect();
        ensure!(seen.iter().copied().eq(queues.iter().copied()), "queues are {seen:?}, expected {queues:?}");
        for seen in &counts.queues {
            let mut expected = self.queue_counts(&seen.queue, counts.now_ms);
            let (least, most) = self.totals.get(&seen.queue).map(|totals| totals.dropped).unwrap_or_default();
            expected.dead_dropped_total = seen.dead_dropped_total.clamp(least, most);
            let mut seen = seen.clone();
            seen.kinds.sort_unstable();
            ensure!(seen == expected, "at {}: {seen:?}, expected {expected:?}", counts.now_ms);
        }
        Ok(())
    }

    fn queue_counts(&self, queue: &Name, now_ms: u64) -> QueueCounts {
        let totals = self.totals.get(queue).cloned().unwrap_or_default();
        let mut counts = QueueCounts {
            queue: queue.clone(),
            kinds: self.lanes.iter().filter(|l| l.queue == *queue).map(|l| l.kind.clone()).collect(),
            scheduled: 0,
            ready: 0,
            running: 0,
            dead: 0,
            completed: 0,
            cancelled: 0,
            oldest_due_ms: None,
            paused: self.paused.contains(queue),
            enqueued_total: totals.enqueued,
            completed_total: totals.completed,
            failed_total: totals.failed,
            dead_dropped_total: totals.dropped.0,
        };
        for (_, job) in self.jobs.iter().filter(|(key, _)| key.0 == *queue) {
            match job.states(Window::exact(now_ms))[0] {
                State::Scheduled => counts.scheduled += 1,
                State::Ready => counts.ready += 1,
                State::Running => counts.running += 1,
                State::Completed => counts.completed += 1,
                State::Dead => counts.dead += 1,
                State::Cancelled => counts.cancelled += 1,
            }
            if job.waits() {
                counts.oldest_due_ms = Some(counts.oldest_due_ms.map_or(job.due(), |at| at.min(job.due())));
            }
        }
        counts
    }

    /// A whole list: everybody whom the query wants and nobody else, in order.
    pub(super) fn list(&mut self, query: &ListQuery, views: &[JobView], now: Window) -> Result<()> {
        let mut left: BTreeMap<Key, bool> = BTreeMap::new();
        for (key, job) in &self.jobs {
            match wanted(job, query, now) {
                Some(true) => drop(left.insert(key.clone(), true)),
                Some(false) => {}
                None => drop(left.insert(key.clone(), false)),
            }
        }
        let mut finished: Option<Window> = None;
        let mut waiting = 0;
        for view in views {
            let key = (view.job.queue.clone(), view.job.id.clone());
            let known = left.remove(&key);
            ensure!(known.is_some(), "{key:?} is listed twice or not wanted: {view:?}");
            self.agree(&key, Some(view), now)?;
            let Some(job) = self.jobs.get(&key) else { continue };
            if job.waits() {
                ensure!(job.due() >= waiting, "{key:?} is listed behind one that is due later");
                waiting = job.due();
            }
            if let Some(end) = job.finished().map(|finished| finished.ended) {
                let newer = finished.is_none_or(|before| before.hi >= end.lo);
                ensure!(newer, "{key:?} of {end:?} is listed behind one of {finished:?}");
                finished = Some(end);
            }
        }
        left.retain(|_, sure| *sure);
        ensure!(left.is_empty(), "not listed: {:?}", left.keys());
        Ok(())
    }

    pub(super) fn find(
        &mut self,
        queue: Option<&Name>,
        id: &JobId,
        views: &[JobView],
        now: Window,
    ) -> Result<()> {
        let wanted = |key: &Key| key.1 == *id && queue.is_none_or(|queue| *queue == key.0);
        let expected: BTreeSet<Key> = self.jobs.keys().filter(|key| wanted(key)).cloned().collect();
        let found: BTreeSet<Key> =
            views.iter().map(|view| (view.job.queue.clone(), view.job.id.clone())).collect();
        ensure!(found == expected && views.len() == found.len(), "{found:?}, expected {expected:?}");
        for view in views {
            self.agree(&(view.job.queue.clone(), view.job.id.clone()), Some(view), now)?;
        }
        Ok(())
    }

    pub(super) fn logs(&self, key: &Key, logs: &[AttemptLog]) -> Result<()> {
        let sorted = |mut logs: Vec<(u32, String)>| {
            logs.sort_unstable();
            logs
        };
        let expected = sorted(self.jobs.get(key).map(|job| job.logs.clone()).unwrap_or_default());
        let seen = sorted(logs.iter().map(|log| (log.attempt, log.text.clone())).collect());
        ensure!(seen == expected, "the logs of {key:?} are {seen:?}, expected {expected:?}");
        Ok(())
    }

    pub(super) fn check_leases(&self, seen: &[LeaseSeen]) -> Result<()> {
        let expected = self.leases();
        ensure!(seen == expected, "the leases are {seen:?}, expected {expected:?}");
        Ok(())
    }

    pub(super) fn check_lanes(&self, seen: &[Lane]) -> Result<()> {
        let lanes: BTreeSet<Lane> = seen.iter().cloned().collect();
        ensure!(lanes == self.lanes && lanes.len() == seen.len(), "{seen:?}, expected {:?}", self.lanes);
        Ok(())
    }

    /// Exactly those that are registered, each with the beat and the words of its last heartbeat.
    pub(super) fn check_registered(&self, seen: &[SessionSeen]) -> Result<()> {
        let names: BTreeSet<_> = seen.iter().map(|seen| &seen.session).collect();
        let expected: BTreeSet<_> = self.sessions.keys().collect();
        ensure!(names == expected && names.len() == seen.len(), "{names:?}, expected {expected:?}");
        self.check_sessions(seen.iter())
    }

    pub(super) fn check_sessions<'a>(&self, seen: impl Iterator<Item = &'a SessionSeen>) -> Result<()> {
        for seen in seen {
            let beat = self.sessions.get(&seen.session).context("a session that is not registered")?;
            ensure!(seen.beat == *beat, "the beat of {} is {}, expected {beat}", seen.session, seen.beat);
            ensure!(seen.info == Some(crate::bed::info(&seen.session)), "the words of {seen:?}");
        }
        Ok(())
    }
}

/// Whether a query wants a job; `None` when the exact moment or the store's own words decide.
fn wanted(job: &ModelJob, query: &ListQuery, now: Window) -> Option<bool> {
    let of_lane = query.queue.as_ref().is_none_or(|queue| *queue == job.job.queue)
        && query.kind.as_ref().is_none_or(|kind| *kind == job.job.kind);
    let ended = job.finished().map(|finished| (finished.ended.lo, job.life.ended_ms()));
    let (settled_ms, since_of) = match ended {
        Some((settled_ms, ended)) => (settled_ms, ended.map_or(job.job.enqueued_ms, |ended| ended.lo)),
        None => (u64::MAX, job.job.enqueued_ms),
    };
    if !of_lane || query.since_ms.is_some_and(|since| since_of < since) {
        return Some(false);
    }
    // The runner says when its run ended, and the clock may have been set back before the store heard of it.
    let sure = query.since_ms.is_none_or(|since| settled_ms >= since);
    let error = query.error.as_ref().map_or(Some(true), |text| job.life.error_has(text));
    let states = job.states(now);
    let in_states = |state: &State| query.states.is_empty() || query.states.contains(state);
    if error == Some(false) || !states.iter().any(in_states) {
        return Some(false);
    }
    if sure && states.iter().all(in_states) { error } else { None }
}
