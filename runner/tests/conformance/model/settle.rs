//! The model's settle, logs and reclaim: what may be done with a lease, and what becomes of the job.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use hourhand::job::{CRASHES_MAX, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{
    IdMemory, LeaseSeen, LogWrite, RecallAction, Reclaimed, Retention, Settled, Settlement,
};

use super::job::Spot;
use super::state::{Key, Model};
use super::window::Window;

impl Model {
    pub(super) fn settle(
        &mut self,
        settlements: &[Settlement],
        answers: &[Settled],
        now: Window,
    ) -> Result<()> {
        ensure!(answers.len() == settlements.len(), "{} answers", answers.len());
        let mut settled = BTreeSet::new();
        let before: Vec<bool> = settlements.iter().map(|settlement| self.was_last(settlement)).collect();
        for (i, (settlement, answer)) in settlements.iter().zip(answers).enumerate() {
            let lease = &settlement.lease;
            let owner = (lease.record, lease.session.clone(), lease.token);
            let expected = match self.leased(lease) {
                Some(key) => {
                    self.settle_one(&key, settlement, now);
                    Settled::Done
                }
                // Written already, by this call or by the last one that settled the job.
                None if settled.contains(&owner) || self.was_last(settlement) => Settled::Done,
                // The last one until this very call: both are true.
                None if before[i] => *answer,
                None => Settled::Stale,
            };
            ensure!(*answer == expected, "settlement {i} is {answer:?}, expected {expected:?}");
            match expected {
                Settled::Done => drop(settled.insert(owner)),
                Settled::Stale => self.stale += 1,
                Settled::Conflict => {}
            }
        }
        Ok(())
    }

    fn was_last(&self, settlement: &Settlement) -> bool {
        let lease = &settlement.lease;
        let job = self.of_record(lease.record).and_then(|key| self.jobs.get(&key));
        job.is_some_and(|job| job.last == Some((lease.session.clone(), lease.token)))
    }

    fn settle_one(&mut self, key: &Key, settlement: &Settlement, now: Window) {
        let outcome = &settlement.outcome;
        let totals = self.totals.entry(key.0.clone()).or_default();
        match outcome {
            Outcome::Completed { .. } => totals.completed += 1,
            Outcome::Retry { .. } | Outcome::Dead { .. } => totals.failed += 1,
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(key) else { return };
        let Some(taken) = job.taken().cloned() else { return };
        job.last = Some((taken.lease.session.clone(), taken.lease.token));
        job.max = Some(taken.max);
        match &settlement.run {
            Some(run) => job.life.run(run, taken.attempt, outcome),
            None => job.life.given_back(taken.attempt, outcome, now),
        }
        let mut end = end_of(outcome);
        if end.is_none() && taken.recall == Some(RecallAction::Cancel) {
            job.life.cancelled(taken.attempt, now);
            end = Some(State::Cancelled);
        }
        job.attempt = taken.attempt;
        if let Some(state) = end {
            if let Outcome::Completed { result } = outcome {
                job.result = result.clone().filter(|result| !result.is_empty());
            }
            self.finish(key, state, settlement.retention, settlement.id_memory, now);
            return;
        }
        match outcome {
            Outcome::Retry { delay_ms, .. } => job.set_due(now.plus(*delay_ms)),
            Outcome::Snoozed { delay_ms } => {
                job.attempt = taken.attempt - 1;
                job.set_due(now.plus(*delay_ms));
            }
            _ => job.attempt = taken.attempt - 1,
        }
        job.spot = Spot::Waiting;
    }

    pub(super) fn write_logs(&mut self, logs: &[LogWrite], answers: &[Settled]) -> Result<()> {
        ensure!(answers.len() == logs.len(), "{} answers", answers.len());
        for (i, (log, answer)) in logs.iter().zip(answers).enumerate() {
            let key = self.leased(&log.lease);
            let expected = if key.is_some() { Settled::Done } else { Settled::Stale };
            ensure!(*answer == expected, "log {i} is {answer:?}, expected {expected:?}");
            if let Some(job) = key.and_then(|key| self.jobs.get_mut(&key)) {
                job.write_log(log.attempt, &log.text);
            }
        }
        Ok(())
    }

    pub(super) fn reclaim(
        &mut self,
        leases: &[LeaseSeen],
        dead: Retention,
        answer: &Reclaimed,
        now: Window,
    ) -> Result<()> {
        let mut expected = Reclaimed::default();
        for seen in leases {
            match self.leased(&seen.lease) {
                Some(key) => {
                    self.reclaim_one(&key, dead, &mut expected, now).context("a lease without one")?
                }
                None => expected.stale += 1,
            }
        }
        ensure!(*answer == expected, "{answer:?}, expected {expected:?}");
        Ok(())
    }

    fn reclaim_one(&mut self, key: &Key, dead: Retention, count: &mut Reclaimed, now: Window) -> Option<()> {
        let taken = self.jobs.get(key)?.taken()?.clone();
        let runner = self.runner_of(&taken.lease.session);
        let job = self.jobs.get_mut(key)?;
        let started = job.is_due(now);
        (job.last, job.max) = (None, Some(taken.max));
        job.spot = Spot::Waiting;
        if started {
            job.attempt = taken.attempt;
            job.crashes += 1;
            job.life.reclaimed(taken.attempt, runner, now);
        }
        let (attempt, crashes) = (job.attempt, job.crashes);
        if taken.recall == Some(RecallAction::Cancel) {
            job.life.cancelled(attempt, now);
            self.finish(key, State::Cancelled, Retention::FINISHED, IdMemory::default(), now);
            count.cancelled += 1;
        } else if started && (crashes >= CRASHES_MAX || attempt >= taken.max) {
            job.life.given_up(attempt, now);
            self.finish(key, State::Dead, dead, IdMemory::default(), now);
            count.dead += 1;
        } else {
            count.ready += 1;
        }
        if started {
            self.totals.entry(key.0.clone()).or_default().failed += 1;
        }
        Some(())
    }
}

fn end_of(outcome: &Outcome) -> Option<State> {
    match outcome {
        Outcome::Completed { .. } => Some(State::Completed),
        Outcome::Dead { .. } => Some(State::Dead),
        Outcome::Cancelled => Some(State::Cancelled),
        _ => None,
    }
}
