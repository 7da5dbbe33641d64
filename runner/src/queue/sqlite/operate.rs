//! The operators' verbs: cancel, reschedule, requeue, delete, pause, resume, purge.

use std::collections::{HashMap, HashSet};

use super::SqliteStore;
use super::finish::{Finished, Gone, Old, Policy, drop_record, trim_memory};
use super::heads::{Heads, head};
use super::link::Promise;
use super::logs::drop_progress;
use super::read::locate;
use super::rows::{JobRow, LeaseRow, Waiting, part_of_number};
use super::tx::Tx;
use crate::job::{DELAY_MS_MAX, Due, State};
use crate::names::Name;
use crate::queue::{BATCH_MAX, IdMemory, JobRef, Retention, SessionId, StoreError, Verdict};

/// Jobs that one purge deletes.
const PURGE_JOBS: u64 = 500;

/// What an operator wants of jobs.
#[derive(Debug, Clone, Copy)]
enum Verb {
    Cancel(Policy),
    Reschedule(Due),
    Requeue,
    Delete,
}

impl SqliteStore {
    pub(super) async fn cancel_jobs(
        &self,
        jobs: &[JobRef],
        retention: Retention,
    ) -> Result<Vec<Verdict>, StoreError> {
        self.act(jobs, Verb::Cancel(Policy { retention, memory: IdMemory::default() })).await
    }

    pub(super) async fn reschedule_job(&self, job: &JobRef, due: Due) -> Result<Verdict, StoreError> {
        let verdicts = self.act(std::slice::from_ref(job), Verb::Reschedule(due)).await?;
        verdicts.first().copied().ok_or_else(|| StoreError::Refused("no verdict".to_owned()))
    }

    pub(super) async fn requeue_jobs(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        self.act(jobs, Verb::Requeue).await
    }

    pub(super) async fn delete_jobs(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        self.act(jobs, Verb::Delete).await
    }

    /// Does something to each job, a batch in a step.
    async fn act(&self, jobs: &[JobRef], verb: Verb) -> Result<Vec<Verdict>, StoreError> {
        let mut verdicts = Vec::with_capacity(jobs.len());
        for step in jobs.chunks(BATCH_MAX) {
            let step = step.to_vec();
            verdicts.extend(
                self.link.write(Promise::Kept, move |tx| Acting::new(tx).on_each(&step, verb)).await?,
            );
        }
        Ok(verdicts)
    }

    pub(super) async fn pause_queue(&self, queue: &Name) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.link
            .write(Promise::Kept, move |tx| {
                let number = tx.make_queue(&queue)?;
                tx.exec("UPDATE queues SET paused = 1 WHERE queue = ?1", [number])?;
                recall_held(tx, number).map(drop)
            })
            .await
    }

    pub(super) async fn resume_queue(&self, queue: &Name) -> Result<(), StoreError> {
        let queue = queue.clone();
        self.link
            .write(Promise::Kept, move |tx| {
                let Some(number) = tx.find_queue(&queue)? else { return Ok(()) };
                tx.exec("UPDATE queues SET paused = 0 WHERE queue = ?1", [number])?;
                for lane in lanes_of(tx, number)? {
                    for part in 1..=4 {
                        if let Some(due_ms) = head(tx, lane, part)? {
                            tx.wake_lane(lane, due_ms)?;
                        }
                    }
                }
                Ok(())
            })
            .await
    }

    pub(super) async fn purge_queue(&self, queue: &Name) -> Result<(u64, bool), StoreError> {
        let queue = queue.clone();
        self.link.write(Promise::Kept, move |tx| purge(tx, &queue)).await
    }
}

fn lanes_of(tx: &Tx<'_>, queue: i64) -> Result<Vec<i64>, StoreError> {
    tx.rows("SELECT lane FROM lanes WHERE queue = ?1", [queue], |row| row.get(0))
}

/// Asks for all held jobs of a queue; how many there are.
fn recall_held(tx: &Tx<'_>, queue: i64) -> Result<u64, StoreError> {
    let held = "ns = ?1 AND due_ms > ?2 AND lane IN (SELECT lane FROM lanes WHERE queue = ?3)";
    let sessions = tx.rows(
        &format!("SELECT DISTINCT session FROM leases WHERE {held} AND recall IS NULL"),
        (tx.ns, tx.now_ms, queue),
        |row| row.get::<_, String>(0),
    )?;
    tx.exec(
        &format!("UPDATE leases SET recall = 'r' WHERE {held} AND recall IS NULL"),
        (tx.ns, tx.now_ms, queue),
    )?;
    for session in sessions {
        tx.wake_session(&SessionId(session.into()))?;
    }
    tx.number(&format!("SELECT count(*) FROM leases WHERE {held}"), (tx.ns, tx.now_ms, queue))
}

/// Deletes jobs that wait in a queue, up to a bound. Their ids are free.
fn purge(tx: &Tx<'_>, queue: &Name) -> Result<(u64, bool), StoreError> {
    let Some(number) = tx.find_queue(queue)? else { return Ok((0, false)) };
    let mut purged = 0;
    for lane in lanes_of(tx, number)? {
        let entries = tx.rows(
            "SELECT part, due_ms, place, record FROM waiting WHERE lane = ?1 LIMIT ?2",
            (lane, PURGE_JOBS - purged),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)? as u64)),
        )?;
        for (part, due_ms, place, record) in entries {
            super::rows::delete_waiting(tx, lane, part, due_ms, place)?;
            let id: Option<String> =
                tx.row("SELECT id FROM jobs WHERE record = ?1 AND given = 1", [record], |row| row.get(0))?;
            drop_record(tx, record, number, id.as_deref(), None)?;
            purged += 1;
        }
    }
    // Held jobs are scheduled jobs: they come back when their runners have been told, and go then.
    let more = purged > 0 || recall_held(tx, number)? > 0;
    Ok((purged, more))
}

/// One call of an operator's verb.
struct Acting<'a> {
    tx: &'a Tx<'a>,
    heads: Heads,
    finished: Finished,
    gone: Gone,
    recalled: HashSet<String>,
}

impl<'a> Acting<'a> {
    fn new(tx: &'a Tx<'a>) -> Self {
        Self {
            tx,
            heads: Heads::default(),
            finished: Finished::default(),
            gone: Gone::default(),
            recalled: HashSet::new(),
        }
    }

    fn on_each(mut self, jobs: &[JobRef], verb: Verb) -> Result<Vec<Verdict>, StoreError> {
        let tx = self.tx;
        let mut seen: HashMap<&JobRef, Verdict> = HashMap::new();
        let mut verdicts = Vec::with_capacity(jobs.len());
        for job in jobs {
            let verdict = match seen.get(job) {
                Some(verdict) => *verdict,
                None => {
                    match locate(tx, job)?.map(|record| JobRow::load(tx, record)).transpose()?.flatten() {
                        Some(row) => self.act(&row, verb)?,
                        None => Verdict::NotFound,
                    }
                }
            };
            seen.insert(job, verdict);
            verdicts.push(verdict);
        }
        self.finished.retain(tx)?;
        let remembered = self.gone.count(tx)?;
        if remembered > 0 {
            trim_memory(tx, IdMemory::default().bytes, remembered)?;
        }
        self.heads.signal(tx)?;
        for session in self.recalled {
            tx.wake_session(&SessionId(session.into()))?;
        }
        Ok(verdicts)
    }

    fn act(&mut self, job: &JobRow, verb: Verb) -> Result<Verdict, StoreError> {
        match verb {
            Verb::Cancel(policy) => self.cancel(job, policy),
            Verb::Reschedule(due) => self.reschedule(job, due),
            Verb::Requeue => self.requeue(job),
            Verb::Delete => self.delete(job),
        }
    }

    /// Asks the runner that has the job to stop it (c) or, when it has not started, to give it back (r). A wish to cancel is
    /// not weakened by a later one.
    fn recall(&mut self, lease: &LeaseRow, action: &str) -> Result<Verdict, StoreError> {
        self.tx.exec(
            "UPDATE leases SET recall = ?2 WHERE record = ?1 AND ifnull(recall, '') <> 'c'",
            (lease.record, action),
        )?;
        self.recalled.insert(lease.session.clone());
        Ok(Verdict::Asked)
    }

    /// The verdict on a job that a runner has, for verbs that only wait for those that have not started.
    fn give_back(&mut self, lease: &LeaseRow) -> Result<Verdict, StoreError> {
        if lease.is_held(self.tx) { self.recall(lease, "r") } else { Ok(Verdict::Conflict(State::Running)) }
    }

    fn cancel(&mut self, job: &JobRow, policy: Policy) -> Result<Verdict, StoreError> {
        if let Some(lease) = &job.lease {
            return self.recall(lease, "c");
        }
        match job.state(self.tx) {
            State::Cancelled => return Ok(Verdict::Done),
            state if state.is_finished() => return Ok(Verdict::Conflict(state)),
            _ => {}
        }
        job.waiting().delete(self.tx)?;
        let mut past = job.past_or_fresh();
        past.note(self.tx, "cancelled", "", "", "");
        self.finished.finish(self.tx, job.ending(), &mut past, State::Cancelled, policy)?;
        Ok(Verdict::Done)
    }

    fn reschedule(&mut self, job: &JobRow, due: Due) -> Result<Verdict, StoreError> {
        let tx = self.tx;
        let due_ms = match due {
            Due::In(ms) => tx.now_ms.saturating_add(ms),
            Due::At(ms) => ms.max(tx.now_ms),
        };
        if due_ms > tx.now_ms + DELAY_MS_MAX {
            return Err(StoreError::Invalid(format!(
                "due time {due_ms} ms: expected at most 100 years ahead"
            )));
        }
        if let Some(lease) = &job.lease {
            return self.give_back(lease);
        }
        if !job.is_waiting() {
            return Ok(Verdict::Conflict(job.state(tx)));
        }
        let entry = job.waiting();
        entry.delete(tx)?;
        let mut past = job.past_or_fresh();
        past.due_ms = due_ms;
        past.note(tx, "rescheduled", "", "", "");
        past.save(tx, job.record)?;
        self.heads.put(tx, &Waiting { due_ms, ..entry })?;
        Ok(Verdict::Done)
    }

    fn requeue(&mut self, job: &JobRow) -> Result<Verdict, StoreError> {
        let tx = self.tx;
        if let Some(lease) = &job.lease {
            return self.give_back(lease);
        }
        let mut past = job.past_or_fresh();
        match past.end.take() {
            Some(end) => super::finish::count_kept(tx, end.queue, &past.state, -1, -(end.bytes as i64))?,
            None if job.due_ms() <= tx.now_ms => return Ok(Verdict::Conflict(State::Ready)),
            None => job.waiting().delete(tx)?,
        }
        past.state = "w".to_owned();
        (past.attempt, past.crashes, past.result) = (0, 0, None);
        (past.due_ms, past.place) = (tx.now_ms, tx.next_number()?);
        past.note(tx, "requeued", "", "", "");
        drop_progress(tx, job.record)?;
        past.save(tx, job.record)?;
        let part = part_of_number(job.priority, 0);
        let (lane, record, due_ms, place) = (job.lane, job.record, past.due_ms, past.place);
        self.heads.put(tx, &Waiting { lane, part, due_ms, place, record, attempt: 0, crashes: 0 })?;
        Ok(Verdict::Done)
    }

    /// The id of one that had finished is remembered as if retention had removed it; that of another is free.
    fn delete(&mut self, job: &JobRow) -> Result<Verdict, StoreError> {
        let tx = self.tx;
        if let Some(lease) = &job.lease {
            return self.give_back(lease);
        }
        match job.past.as_ref().and_then(|past| Old::of(job.record, past)) {
            Some(old) => self.gone.drop(tx, old)?,
            None => {
                job.waiting().delete(tx)?;
                drop_record(tx, job.record, job.queue, job.given.then_some(&*job.id), None)?;
            }
        }
        Ok(Verdict::Done)
    }
}
