//! The model's operators: what each verb does to a job, by its state.

use anyhow::{Context, Result, ensure};
use hourhand::job::{Due, State};
use hourhand::names::Name;
use hourhand::queue::{IdMemory, JobRef, LaneClaim, RecallAction, Retention, Verdict};

use super::enqueue::due_window;
use super::job::{ModelJob, Spot};
use super::state::{Key, Model, key_of};
use super::window::Window;

impl Model {
    /// One verb on some jobs, in order.
    pub(super) fn each(
        &mut self,
        jobs: &[JobRef],
        verdicts: &[Verdict],
        mut verb: impl FnMut(&mut Self, &Key) -> Verdict,
    ) -> Result<()> {
        ensure!(verdicts.len() == jobs.len(), "{} verdicts on {} jobs", verdicts.len(), jobs.len());
        for (job, verdict) in jobs.iter().zip(verdicts) {
            let expected = verb(self, &key_of(job));
            ensure!(*verdict == expected, "{job:?} is {verdict:?}, expected {expected:?}");
        }
        Ok(())
    }

    pub(super) fn cancel(&mut self, key: &Key, retention: Retention, now: Window) -> Verdict {
        let Some(job) = self.jobs.get_mut(key) else { return Verdict::NotFound };
        match &mut job.spot {
            Spot::Leased(taken) => {
                taken.recall = Some(RecallAction::Cancel);
                Verdict::Asked
            }
            Spot::Finished(finished) if finished.state == State::Cancelled => Verdict::Done,
            Spot::Finished(finished) => Verdict::Conflict(finished.state),
            Spot::Waiting => {
                job.life.cancelled(job.attempt, now);
                self.finish(key, State::Cancelled, retention, IdMemory::default(), now);
                Verdict::Done
            }
        }
    }

    pub(super) fn reschedule(&mut self, key: &Key, due: Due, now: Window) -> Verdict {
        let Some(job) = self.jobs.get_mut(key) else { return Verdict::NotFound };
        match &job.spot {
            Spot::Leased(_) => recall_or_running(job, now),
            Spot::Finished(finished) => Verdict::Conflict(finished.state),
            Spot::Waiting => {
                job.life.rescheduled(job.attempt, now);
                job.set_due(due_window(due, now));
                Verdict::Done
            }
        }
    }

    pub(super) fn requeue(&mut self, key: &Key, now: Window) -> Verdict {
        let order = self.next_order();
        let Some(job) = self.jobs.get_mut(key) else { return Verdict::NotFound };
        match &job.spot {
            Spot::Leased(_) => recall_or_running(job, now),
            Spot::Waiting if job.is_due(now) => Verdict::Conflict(State::Ready),
            Spot::Waiting | Spot::Finished(_) => {
                (job.attempt, job.crashes, job.result) = (0, 0, None);
                job.progress = None;
                (job.spot, job.order) = (Spot::Waiting, order);
                job.set_due(now);
                job.life.requeued(now);
                Verdict::Done
            }
        }
    }

    pub(super) fn delete(&mut self, key: &Key, now: Window) -> Verdict {
        let Some(job) = self.jobs.get_mut(key) else { return Verdict::NotFound };
        match &job.spot {
            Spot::Leased(_) => recall_or_running(job, now),
            Spot::Waiting => {
                self.jobs.remove(key);
                Verdict::Done
            }
            Spot::Finished(_) => {
                self.drop_finished(key, now);
                Verdict::Done
            }
        }
    }

    /// What is held of a queue is wanted back; how many jobs that are, at least and at most.
    pub(super) fn recall_held(&mut self, queue: &Name, now: Window) -> Window {
        let mut held = Window::exact(0);
        for (_, job) in self.jobs.iter_mut().filter(|(key, _)| key.0 == *queue) {
            let due = now.reached(job.due());
            let Spot::Leased(taken) = &mut job.spot else { continue };
            match due {
                Some(true) => {}
                Some(false) => {
                    taken.recall.get_or_insert(RecallAction::Release);
                    held.lo += 1;
                    held.hi += 1;
                }
                None => {
                    taken.maybe_recalled = taken.recall.is_none();
                    held.hi += 1;
                }
            }
        }
        held
    }

    pub(super) fn purge(&mut self, queue: &Name, purged: u64, more: bool, now: Window) -> Result<()> {
        let before = self.jobs.len();
        self.jobs.retain(|key, job| key.0 != *queue || !job.waits());
        let expected = (before - self.jobs.len()) as u64;
        ensure!(purged == expected, "{purged} were purged, expected {expected}");
        let held = self.recall_held(queue, now);
        let fits = if more { held.hi > 0 } else { held.lo == 0 };
        ensure!(fits, "more is {more}, and {held:?} are held");
        Ok(())
    }

    /// The clock and the beats of a heartbeat, and what is wanted back.
    pub(super) fn heartbeat(
        &mut self,
        session: &hourhand::queue::SessionId,
        pulse: &hourhand::queue::Pulse,
    ) -> Result<()> {
        let own = pulse.sessions.iter().find(|seen| seen.session == *session);
        let own = own.context("the session does not see itself")?;
        let before = self.sessions.insert(session.clone(), own.beat);
        ensure!(before.is_none_or(|before| own.beat == before + 1), "from {before:?} to {}", own.beat);
        let told = (pulse.beat, pulse.beat_before);
        ensure!(told == (own.beat, before), "told {told:?}, expected {:?}", (own.beat, before));
        ensure!(pulse.mark > self.mark, "mark {} after {}", pulse.mark, self.mark);
        self.mark = pulse.mark;
        let holders = self.jobs.values().filter_map(|job| Some(job.taken()?.lease.session.clone()));
        let expected: std::collections::BTreeSet<_> = self.sessions.keys().cloned().chain(holders).collect();
        let seen: Vec<_> = pulse.sessions.iter().map(|seen| seen.session.clone()).collect();
        ensure!(
            seen.len() == expected.len() && seen.iter().all(|session| expected.contains(session)),
            "the sessions are {seen:?}, expected {expected:?}"
        );
        let registered = pulse.sessions.iter().filter(|seen| self.sessions.contains_key(&seen.session));
        self.check_sessions(registered)?;
        let mut recalls: Vec<_> = pulse.recalls.iter().map(|r| (r.record, r.token, r.action)).collect();
        for job in self.jobs.values_mut() {
            let Spot::Leased(taken) = &mut job.spot else { continue };
            if taken.maybe_recalled && taken.lease.session == *session {
                let release = (taken.lease.record, taken.lease.token, RecallAction::Release);
                taken.recall = taken.recall.or(recalls.contains(&release).then_some(RecallAction::Release));
                taken.maybe_recalled = false;
            }
        }
        let mut expected: Vec<_> = self.jobs.values().filter_map(|job| recall_of(job, session)).collect();
        recalls.sort_unstable_by_key(|recall| (recall.0, recall.1));
        expected.sort_unstable_by_key(|recall| (recall.0, recall.1));
        ensure!(recalls == expected, "the recalls are {recalls:?}, expected {expected:?}");
        let lanes = super::ops::lanes().into_iter().filter(|lane| !self.paused.contains(&lane.queue));
        let open: Vec<LaneClaim> = lanes.map(|lane| LaneClaim::new(lane, 1)).collect();
        let next = self.next_due(&open.iter().collect::<Vec<_>>(), true);
        ensure!(pulse.next_due_ms == next, "next_due_ms is {:?}, expected {next:?}", pulse.next_due_ms);
        let leased = self.jobs.values().any(|job| job.taken().is_some());
        ensure!(pulse.leased == leased, "leased is {}", pulse.leased);
        ensure!(pulse.lanes == self.lanes.len() as u64, "{} lanes, not {:?}", pulse.lanes, self.lanes);
        Ok(())
    }
}

fn recall_of(job: &ModelJob, session: &hourhand::queue::SessionId) -> Option<(u64, u64, RecallAction)> {
    let taken = job.taken().filter(|taken| taken.lease.session == *session)?;
    Some((taken.lease.record, taken.lease.token, taken.recall?))
}

/// A held job is wanted back, but a wish to cancel it stays one; one that runs is left alone.
fn recall_or_running(job: &mut ModelJob, now: Window) -> Verdict {
    if job.is_due(now) {
        return Verdict::Conflict(State::Running);
    }
    if let Spot::Leased(taken) = &mut job.spot {
        taken.recall.get_or_insert(RecallAction::Release);
    }
    Verdict::Asked
}
