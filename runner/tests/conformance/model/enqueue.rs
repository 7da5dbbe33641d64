//! The model's enqueue.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use hourhand::job::{Due, NewJob, OnConflict, State};
use hourhand::queue::{Disposition, Enqueued, Lane};

use super::job::ModelJob;
use super::state::{Key, Model};
use super::window::Window;

impl Model {
    pub(super) fn enqueue(&mut self, jobs: &[NewJob], answers: &[Enqueued], now: Window) -> Result<()> {
        ensure!(jobs.len() == answers.len(), "{} answers to {} jobs", answers.len(), jobs.len());
        // Those that this call made (true) or moved: one call is one event.
        let mut fresh = BTreeMap::new();
        for (i, (job, answer)) in jobs.iter().zip(answers).enumerate() {
            self.enqueue_one(job, answer, now, &mut fresh).with_context(|| format!("job {i}"))?;
        }
        Ok(())
    }

    fn enqueue_one(
        &mut self,
        asked: &NewJob,
        answer: &Enqueued,
        now: Window,
        fresh: &mut BTreeMap<Key, bool>,
    ) -> Result<()> {
        let key = (asked.queue.clone(), answer.id.clone());
        match &asked.id {
            Some(id) => ensure!(*id == answer.id, "the id became {}", answer.id),
            None => ensure!(!self.jobs.contains_key(&key), "the id {} was given twice", answer.id),
        }
        let expected = self.disposition(asked, &key, answer.disposition, now);
        ensure!(answer.disposition == expected, "it was {:?}, expected {expected:?}", answer.disposition);
        if matches!(expected, Disposition::Kept | Disposition::Conflict) {
            return self.left_alone(&key, answer, now);
        }
        let mut due = due_window(asked.due, now.minus(asked.age_ms));
        if expected == Disposition::Rescheduled {
            due = Window { lo: due.lo.max(now.lo), hi: due.hi.max(now.hi) };
        }
        ensure!(due.holds(answer.due_ms), "due at {}, expected {due:?}", answer.due_ms);
        let expected_state = if answer.due_ms <= now.hi { State::Ready } else { State::Scheduled };
        ensure!(
            answer.state == expected_state || due_is_open(answer.due_ms, now),
            "{}, expected {expected_state}",
            answer.state
        );
        match expected {
            Disposition::Created => self.create(asked, answer, now),
            Disposition::Replaced => {
                self.replace(&key, asked, answer, now, fresh.get(&key) == Some(&true));
            }
            _ => self.move_old(&key, answer, now, fresh.contains_key(&key)),
        }
        fresh.entry(key).or_insert(expected == Disposition::Created);
        Ok(())
    }

    /// What is to be done with a job; where only the exact moment tells whether its id is still remembered,
    /// what the store said.
    fn disposition(&self, asked: &NewJob, key: &Key, said: Disposition, now: Window) -> Disposition {
        let (free, kind) = match (self.jobs.get(key), self.remembered.get(key)) {
            (Some(job), _) => (job.waits(), Some(&job.job.kind)),
            (None, Some(old)) => match (now.reached(old.forget.lo), now.reached(old.forget.hi)) {
                (_, Some(true)) => return Disposition::Created,
                (Some(false), _) if !old.maybe_gone => (false, None),
                _ if said == Disposition::Created => return said,
                _ => (false, None),
            },
            (None, None) => return Disposition::Created,
        };
        match asked.on_conflict {
            OnConflict::Keep => Disposition::Kept,
            OnConflict::Replace if free && kind == Some(&asked.kind) => Disposition::Replaced,
            OnConflict::Reschedule if free && kind == Some(&asked.kind) => Disposition::Rescheduled,
            _ => Disposition::Conflict,
        }
    }

    fn left_alone(&self, key: &Key, answer: &Enqueued, now: Window) -> Result<()> {
        let (mut states, due_ms) = match (self.jobs.get(key), self.remembered.get(key)) {
            (Some(job), _) => (job.states(now), job.due()),
            (None, Some(old)) => (vec![old.state], old.due_ms),
            (None, None) => anyhow::bail!("nothing of that id is known"),
        };
        // A held job counts as one that a runner has.
        states.extend(self.jobs.get(key).and_then(ModelJob::taken).map(|_| State::Running));
        ensure!(states.contains(&answer.state), "the old job is {}, expected {states:?}", answer.state);
        ensure!(answer.due_ms == due_ms, "the old job is due at {}, expected {due_ms}", answer.due_ms);
        Ok(())
    }

    fn create(&mut self, asked: &NewJob, answer: &Enqueued, now: Window) {
        let order = self.next_order();
        let job = ModelJob::new(asked, &answer.id, answer.due_ms, order, now.minus(asked.age_ms));
        let key = (asked.queue.clone(), answer.id.clone());
        self.remembered.remove(&key);
        self.jobs.insert(key, job);
        self.lanes.insert(Lane { queue: asked.queue.clone(), kind: asked.kind.clone() });
        self.totals.entry(asked.queue.clone()).or_default().enqueued += 1;
    }

    /// The new job has the old one's id and record, and nothing else of it.
    fn replace(&mut self, key: &Key, asked: &NewJob, answer: &Enqueued, now: Window, made: bool) {
        let Some(old) = self.jobs.get(key).cloned() else { return };
        let order = if made { old.order } else { self.next_order() };
        let mut job = ModelJob::new(asked, &answer.id, answer.due_ms, order, now.minus(asked.age_ms));
        (job.explicit, job.record) = (old.explicit, old.record);
        self.jobs.insert(key.clone(), job);
    }

    fn move_old(&mut self, key: &Key, answer: &Enqueued, now: Window, told: bool) {
        let Some(job) = self.jobs.get_mut(key) else { return };
        job.set_due(Window::exact(answer.due_ms));
        if !told {
            job.life.rescheduled(job.attempt, now);
        }
    }
}

/// When a job is due that was asked for at `now`: an instant in the past means now.
pub(super) fn due_window(due: Due, now: Window) -> Window {
    match due {
        Due::In(ms) => now.plus(ms),
        Due::At(ms) => Window { lo: now.lo.max(ms), hi: now.hi.max(ms) },
    }
}

fn due_is_open(due_ms: u64, now: Window) -> bool {
    now.reached(due_ms).is_none()
}
