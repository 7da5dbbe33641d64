//! Settling: writes what became of claimed jobs.
//!
//! A settlement counts only with the lease's own session and token (rule 2); one that is already written by that very
//! lease is done again.

use std::collections::HashMap;

use super::SqliteStore;
use super::commit::commit;
use super::finish::{Finished, Policy};
use super::heads::Heads;
use super::link::Promise;
use super::rows::{JobRow, LeaseRow, PastRow, Waiting, part_of_number};
use super::tx::{LaneNumbers, Tx};
use crate::job::{DELAY_MS_MAX, State};
use crate::outcome::Outcome;
use crate::queue::checks::check_settlements;
use crate::queue::life::event_text;
use crate::queue::{Settled, Settlement, StoreError};

impl SqliteStore {
    pub(super) async fn settle_jobs(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        check_settlements(settlements)?;
        let settlements = settlements.to_vec();
        self.link.write(Promise::Kept, move |tx| settle_all(tx, &settlements)).await
    }
}

/// What a settlement is worth, before any is written.
enum Worth {
    /// Its lease holds.
    Valid(LeaseRow, LaneNumbers),
    /// That very lease has settled already, with this answer; what an earlier one of this call says, when it is one of this call.
    Again(Settled),
    AsBefore(usize),
    Stale,
}

/// What stands before the session in the past of a job whose effects were in conflict, once for each time in a row: no session
/// begins so.
const CONFLICTED: char = '\u{1e}';
/// The wait doubles from the second conflict in a row to this many more: see [`conflict_wait_ms`].
const CONFLICTS_COUNTED: usize = 10;

fn settle_all(tx: &Tx<'_>, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
    let mut owners: HashMap<u64, usize> = HashMap::new();
    let mut worths = Vec::with_capacity(settlements.len());
    for (index, settlement) in settlements.iter().enumerate() {
        let worth = match owners.get(&settlement.lease.record) {
            Some(first) if settlements[*first].lease == settlement.lease => Worth::AsBefore(*first),
            _ => worth(tx, index, settlement)?,
        };
        if matches!(worth, Worth::Valid(..)) {
            owners.insert(settlement.lease.record, index);
        }
        worths.push(worth);
    }
    let mut calls =
        Writing { tx, heads: Heads::default(), finished: Finished::default(), counts: HashMap::new() };
    let mut answers: Vec<Settled> = Vec::with_capacity(worths.len());
    let mut stale = 0;
    for (settlement, worth) in settlements.iter().zip(worths) {
        answers.push(match worth {
            Worth::Valid(lease, lane) => calls.settle(settlement, &lease, lane)?,
            Worth::Again(answer) => answer,
            // What was in conflict never was anything else.
            Worth::AsBefore(first) => match (answers[first], settlement.commits()) {
                (Settled::Conflict, None) => {
                    stale += 1;
                    Settled::Stale
                }
                (answer, _) => answer,
            },
            Worth::Stale => {
                stale += 1;
                Settled::Stale
            }
        });
    }
    if stale > 0 {
        tx.exec("UPDATE namespaces SET stale = stale + ?2 WHERE ns = ?1", (tx.ns, stale))?;
    }
    calls.end()?;
    Ok(answers)
}

fn worth(tx: &Tx<'_>, index: usize, settlement: &Settlement) -> Result<Worth, StoreError> {
    let lease = &settlement.lease;
    let found = LeaseRow::load(tx, lease.record)?;
    if let Some(found) = found.filter(|found| found.session == *lease.session.0 && found.token == lease.token)
    {
        return match tx.find_lane(&settlement.lane)? {
            Some(lane) if lane.lane == found.lane => Ok(Worth::Valid(found, lane)),
            _ => Err(StoreError::Invalid(format!("settlement {index} of another lane than its job has"))),
        };
    }
    let settled = tx.row("SELECT session, token FROM past WHERE record = ?1", [lease.record], |row| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<u64>>(1)?))
    })?;
    let Some((Some(session), Some(token))) = settled else { return Ok(Worth::Stale) };
    let conflicted =
        session.starts_with(CONFLICTED) && session.trim_start_matches(CONFLICTED) == &*lease.session.0;
    Ok(match token == lease.token {
        true if session == *lease.session.0 => Worth::Again(Settled::Done),
        true if conflicted && settlement.commits().is_some() => Worth::Again(Settled::Conflict),
        _ => Worth::Stale,
    })
}

/// What a call writes.
struct Writing<'a> {
    tx: &'a Tx<'a>,
    heads: Heads,
    finished: Finished,
    /// Completed and failed runs by queue.
    counts: HashMap<i64, (u64, u64)>,
}

impl Writing<'_> {
    fn settle(
        &mut self,
        settlement: &Settlement,
        lease: &LeaseRow,
        lane: LaneNumbers,
    ) -> Result<Settled, StoreError> {
        let tx = self.tx;
        // Before the job ends: the record of one that nothing is kept of goes with it.
        let conflict = settlement.commits().map(|effects| commit(tx, effects)).transpose()?.flatten();
        let answer = if conflict.is_some() { Settled::Conflict } else { Settled::Done };
        lease.delete(tx)?;
        // A job of which the record is lost has nothing to settle; its lease goes all the same.
        let Some(job) = JobRow::load_unleased(tx, lease.record, lane)? else { return Ok(answer) };
        let released = conflict.map(|why| Outcome::Released { message: Some(why) });
        let outcome = released.as_ref().unwrap_or(&settlement.outcome);
        let counts = self.counts.entry(job.queue).or_default();
        match outcome {
            Outcome::Completed { .. } => counts.0 += 1,
            Outcome::Retry { .. } | Outcome::Dead { .. } => counts.1 += 1,
            _ => {}
        }
        let fresh = PastRow::fresh(lease.max_attempts, lease.crashes, lease.due_ms, lease.place);
        let mut past = job.past.clone().unwrap_or(fresh);
        let before = past.settled.as_ref().map_or("", |(session, _)| session);
        let conflicts = if released.is_some() { conflicts_of(before) } else { 0 };
        let marks = if released.is_some() { conflicts.min(CONFLICTS_COUNTED) + 1 } else { 0 };
        past.settled = Some((format!("{}{}", "\u{1e}".repeat(marks), lease.session), lease.token));
        past.max_attempts = lease.max_attempts;
        (past.attempt, past.crashes, past.due_ms) = (lease.attempt, lease.crashes, lease.due_ms);
        add_event(tx, &mut past, settlement, outcome);
        let policy = Policy { retention: settlement.retention, memory: settlement.id_memory };
        let state = match outcome {
            Outcome::Completed { result } => {
                past.result =
                    result.as_ref().filter(|result| !result.is_empty()).map(|result| result.to_vec());
                State::Completed
            }
            Outcome::Dead { .. } => State::Dead,
            Outcome::Cancelled => State::Cancelled,
            // What was cancelled while it ran does not come back.
            _ if lease.wants_cancel() => {
                past.note(tx, "cancelled", "", "", "");
                State::Cancelled
            }
            _ => {
                let wait_ms = (conflicts > 0).then(|| conflict_wait_ms(conflicts, lease.token));
                self.send_back(&job, lease, past, outcome, wait_ms)?;
                return Ok(answer);
            }
        };
        self.finished.finish(tx, job.ending(), &mut past, state, policy)?;
        Ok(answer)
    }

    /// Puts a job back into its lane; one that is released, due when it was, unless it is to wait so many milliseconds.
    fn send_back(
        &mut self,
        job: &JobRow,
        lease: &LeaseRow,
        mut past: PastRow,
        outcome: &Outcome,
        wait_ms: Option<u64>,
    ) -> Result<(), StoreError> {
        let tx = self.tx;
        match outcome {
            Outcome::Retry { delay_ms, .. } => past.due_ms = tx.now_ms + delay_ms.min(&DELAY_MS_MAX),
            Outcome::Snoozed { delay_ms } => {
                past.attempt = lease.attempt.saturating_sub(1);
                past.due_ms = tx.now_ms + delay_ms.min(&DELAY_MS_MAX);
            }
            _ => {
                past.attempt = lease.attempt.saturating_sub(1);
                past.due_ms = wait_ms.map_or(past.due_ms, |wait_ms| tx.now_ms + wait_ms);
            }
        }
        past.save(tx, job.record)?;
        let entry = Waiting {
            lane: lease.lane,
            part: part_of_number(job.priority, lease.crashes),
            due_ms: past.due_ms,
            place: past.place,
            record: job.record,
            attempt: past.attempt,
            crashes: past.crashes,
        };
        self.heads.put(tx, &entry)
    }

    fn end(self) -> Result<(), StoreError> {
        let tx = self.tx;
        for (queue, (completed, failed)) in self.counts {
            if completed + failed > 0 {
                tx.exec(
                    "UPDATE queues SET completed = completed + ?2, failed = failed + ?3 WHERE queue = ?1",
                    (queue, completed, failed),
                )?;
            }
        }
        self.finished.retain(tx)?;
        self.heads.signal(tx)
    }
}

/// How many conflicts in a row the session in a past tells of.
fn conflicts_of(session: &str) -> usize {
    session.chars().take_while(|c| *c == CONFLICTED).count()
}

/// How long a job waits that is in conflict again, in milliseconds: 20 ms doubling to 10 s, and up to as much again, so that those
/// that met do not meet again. As lua/commit.lua has it.
fn conflict_wait_ms(conflicts: usize, token: u64) -> u64 {
    let ms = 10 << conflicts.min(CONFLICTS_COUNTED);
    ms + token % ms * 7_919 % ms
}

/// Adds what the settlement tells to the history.
fn add_event(tx: &Tx<'_>, past: &mut PastRow, settlement: &Settlement, outcome: &Outcome) {
    let event = event_text(settlement.run.as_ref(), outcome);
    let Some((kind, rest)) = event.split_at_checked(1) else { return };
    let attempt = past.attempt;
    if kind == "R" {
        past.add(&format!("R{attempt}\u{1f}{rest}"));
    } else {
        past.add(&format!("E{attempt}\u{1f}{}\u{1f}{rest}", tx.now_us));
    }
}
