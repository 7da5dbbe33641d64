//! The model's settle, logs and reclaim: what may be done with a lease, and what becomes of the job.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use hourhand::job::{CRASHES_MAX, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{
    IdMemory, LeaseSeen, LogWrite, RecallAction, Reclaimed, Retention, Settled, Settlement,
};

use super::job::Spot;
use super::remember::commits;
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
        // With effects a store may take them one after the other.
        let split = settlements.iter().any(|settlement| commits(settlement).is_some());
        let mut settled: BTreeMap<_, Settled> = BTreeMap::new();
        let before: Vec<bool> = settlements.iter().map(|settlement| self.was_last(settlement)).collect();
        for (i, (settlement, answer)) in settlements.iter().zip(answers).enumerate() {
            let lease = &settlement.lease;
            let owner = (lease.record, lease.session.clone(), lease.token);
            let expected = match self.leased(lease) {
                Some(key) => self.settle_one(&key, settlement, now),
                // Written already by this call: what is left of the job may not tell any more.
                None if (settled.contains_key(&owner)
                    || split && (before[i] || self.was_last(settlement)))
                    && (self.may_be_gone(lease.record) || split && !self.was_last(settlement)) =>
                {
                    *answer
                }
                None if settled.contains_key(&owner) || self.was_last(settlement) => {
                    self.told_again(settlement)
                }
                // The last one until this very call: both are true.
                None if before[i] => *answer,
                None => Settled::Stale,
            };
            ensure!(*answer == expected, "settlement {i} is {answer:?}, expected {expected:?}");
            match expected {
                Settled::Stale => self.stale += 1,
                written => drop(settled.insert(owner, written)),
            }
        }
        Ok(())
    }

    /// True when retention may have taken a job in this very call, between two of its settlements.
    fn may_be_gone(&self, record: u64) -> bool {
        let job = self.of_record(record).and_then(|key| self.jobs.get(&key));
        job.is_none_or(|job| job.finished().is_some())
    }

    /// The answer to what was settled already: what was in conflict is so again, and never was anything else.
    fn told_again(&self, settlement: &Settlement) -> Settled {
        let job = self.of_record(settlement.lease.record).and_then(|key| self.jobs.get(&key));
        match (job.is_some_and(|job| job.conflicts > 0), commits(settlement)) {
            (false, _) => Settled::Done,
            (true, Some(_)) => Settled::Conflict,
            (true, None) => Settled::Stale,
        }
    }

    fn was_last(&self, settlement: &Settlement) -> bool {
        let lease = &settlement.lease;
        let job = self.of_record(lease.record).and_then(|key| self.jobs.get(&key));
        job.is_some_and(|job| job.last == Some((lease.session.clone(), lease.token)))
    }

    fn settle_one(&mut self, key: &Key, settlement: &Settlement, now: Window) -> Settled {
        let conflicted = commits(settlement).is_some_and(|effects| !self.commit(effects, now));
        let released = Outcome::Released { message: Some(String::new()) };
        let outcome = if conflicted { &released } else { &settlement.outcome };
        let answer = if conflicted { Settled::Conflict } else { Settled::Done };
        let totals = self.totals.entry(key.0.clone()).or_default();
        match outcome {
            Outcome::Completed { .. } => totals.completed += 1,
            Outcome::Retry { .. } | Outcome::Dead { .. } => totals.failed += 1,
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(key) else { return answer };
        let Some(taken) = job.taken().cloned() else { return answer };
        let before = job.conflicts;
        job.conflicts = if conflicted { before + 1 } else { 0 };
        job.last = Some((taken.lease.session.clone(), taken.lease.token));
        job.max = Some(taken.max);
        match &settlement.run {
            Some(run) => job.life.run(run, taken.attempt, outcome),
            None => job.life.given_back(taken.attempt, outcome, now),
        }
        if conflicted {
            job.life.in_the_stores_words();
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
            return answer;
        }
        match outcome {
            Outcome::Retry { delay_ms, .. } => job.set_due(now.plus(*delay_ms)),
            Outcome::Snoozed { delay_ms } => {
                job.attempt = taken.attempt - 1;
                job.set_due(now.plus(*delay_ms));
            }
            _ => job.attempt = taken.attempt - 1,
        }
        // The first time it is done again at once; then it waits, longer each time, and not as long as others do.
        if conflicted && before > 0 {
            let ms = 10 << before.min(10);
            job.set_due(now.plus(ms + taken.lease.token * 7_919 % ms));
        }
        job.spot = Spot::Waiting;
        answer
    }

    pub(super) fn write_logs(&mut self, logs: &[LogWrite], answers: &[Settled]) -> Result<()> {
        ensure!(answers.len() == logs.len(), "{} answers", answers.len());
        for (i, (log, answer)) in logs.iter().zip(answers).enumerate() {
            let key = self.leased(&log.lease);
            let expected = if key.is_some() { Settled::Done } else { Settled::Stale };
            ensure!(*answer == expected, "log {i} is {answer:?}, expected {expected:?}");
            if let Some(job) = key.and_then(|key| self.jobs.get_mut(&key)) {
                job.write_log(log.attempt, &log.text);
                if let Some(progress) = &log.progress {
                    let by = (log.lease.session.clone(), log.lease.token);
                    job.progress = Some((progress.clone(), log.attempt, by));
                }
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
        (job.last, job.max, job.conflicts) = (None, Some(taken.max), 0);
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
