//! The end of a job: its place among the finished, retention (rule 14), and what goes with a record.

use std::collections::HashMap;

use super::logs::drop_progress;
use super::rows::{End, JobRow, PastRow, letter_of};
use super::tx::Tx;
use crate::job::State;
use crate::queue::{IdMemory, Retention, StoreError};

/// What a remembered id weighs beyond its text, in bytes.
pub(super) const ID_COST: u64 = 200;
/// What a past weighs beyond its events and its result, in bytes.
pub(super) const PAST_COST: usize = 128;
/// Beyond this nothing differs from for ever, in milliseconds.
const FOR_EVER_MS: u64 = 1 << 52;

/// What is kept of a job, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) retention: Retention,
    pub(super) memory: IdMemory,
}

impl Policy {
    fn keeps_nothing(&self) -> bool {
        [self.retention.age_ms, self.retention.count, self.retention.bytes].contains(&Some(0))
    }
}

/// A job that ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending<'a> {
    pub(super) record: u64,
    pub(super) queue: i64,
    /// The id, when the caller chose it.
    pub(super) given_id: Option<&'a str>,
    pub(super) bytes: usize,
}

impl JobRow {
    /// The job, as one that ends.
    pub(super) fn ending(&self) -> Ending<'_> {
        Ending {
            record: self.record,
            queue: self.queue,
            given_id: self.given.then_some(&*self.id),
            bytes: self.bytes,
        }
    }
}

/// What one call ends, by queue and state.
#[derive(Debug, Default)]
pub(super) struct Finished(HashMap<(i64, &'static str), Batch>);

#[derive(Debug)]
struct Batch {
    added: u64,
    bytes: u64,
    remembered: u64,
    /// Dead letters that are not kept for want of room.
    dropped: u64,
    policy: Policy,
}

impl Finished {
    /// Ends a job.
    pub(super) fn finish(
        &mut self,
        tx: &Tx<'_>,
        job: Ending<'_>,
        past: &mut PastRow,
        state: State,
        policy: Policy,
    ) -> Result<(), StoreError> {
        let letter = letter_of(state);
        let forget_ms = tx.now_ms + policy.memory.age_ms.min(FOR_EVER_MS);
        let fresh = Batch { added: 0, bytes: 0, remembered: 0, dropped: 0, policy };
        let batch = self.0.entry((job.queue, letter)).or_insert(fresh);
        batch.policy = policy;
        if policy.keeps_nothing() {
            batch.dropped += u64::from(state == State::Dead && policy.retention.age_ms != Some(0));
            let memory = Memory { state: letter, due_ms: past.due_ms, forget_ms };
            batch.remembered += drop_record(tx, job.record, job.queue, job.given_id, Some(memory))?;
            return Ok(());
        }
        let bytes = job.bytes + past.history.len() + past.result.as_ref().map_or(0, Vec::len) + PAST_COST;
        past.state = letter.to_owned();
        past.end = Some(End {
            queue: job.queue,
            ended_ms: tx.now_ms,
            bytes: bytes as u64,
            expire_ms: policy.retention.age_ms.filter(|age| *age < FOR_EVER_MS).map(|age| tx.now_ms + age),
            forget_ms,
        });
        batch.added += 1;
        batch.bytes += bytes as u64;
        past.save(tx, job.record)
    }

    /// Counts what has ended, and keeps the finished and the memory of ids within their limits.
    pub(super) fn retain(self, tx: &Tx<'_>) -> Result<(), StoreError> {
        let (mut remembered, mut memory_bytes) = (0, u64::MAX);
        for ((queue, letter), batch) in self.0 {
            remembered += batch.remembered;
            count_dropped(tx, queue, batch.dropped)?;
            memory_bytes = memory_bytes.min(batch.policy.memory.bytes);
            if batch.added > 0 {
                count_kept(tx, queue, letter, batch.added as i64, batch.bytes as i64)?;
                remembered += trim_kept(tx, queue, letter, &batch)?;
            }
        }
        if remembered > 0 { trim_memory(tx, memory_bytes, remembered) } else { Ok(()) }
    }
}

/// Counts dead letters that a limit in number or bytes took before their age was over: nobody has seen to them.
fn count_dropped(tx: &Tx<'_>, queue: i64, dropped: u64) -> Result<(), StoreError> {
    if dropped == 0 {
        return Ok(());
    }
    tx.exec("UPDATE queues SET dropped = dropped + ?2 WHERE queue = ?1", (queue, dropped)).map(drop)
}

/// Adds to what a queue keeps of a state.
pub(super) fn count_kept(
    tx: &Tx<'_>,
    queue: i64,
    letter: &str,
    jobs: i64,
    bytes: i64,
) -> Result<(), StoreError> {
    tx.exec(
        "INSERT INTO kept (queue, state, jobs, bytes) VALUES (?1, ?2, ?3, ?4) \
         ON CONFLICT DO UPDATE SET jobs = jobs + ?3, bytes = bytes + ?4",
        (queue, letter, jobs, bytes),
    )
    .map(drop)
}

/// Takes the finished of a queue back to their limits: the oldest go. At most twice what was added and a few more, so
/// that the cost is that of the settle; the rest is for prune. Returns how many ids are remembered by it.
fn trim_kept(tx: &Tx<'_>, queue: i64, letter: &str, batch: &Batch) -> Result<u64, StoreError> {
    let retention = batch.policy.retention;
    let kept =
        tx.row("SELECT jobs, bytes FROM kept WHERE queue = ?1 AND state = ?2", (queue, letter), |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?))
        })?;
    let (mut jobs, mut bytes) = kept.unwrap_or_default();
    let over = |jobs: u64, bytes: u64| {
        retention.count.is_some_and(|max| jobs > max) || retention.bytes.is_some_and(|max| bytes > max)
    };
    if !over(jobs, bytes) {
        return Ok(0);
    }
    let mut gone = Gone::default();
    let mut dropped = 0;
    for old in oldest(tx, queue, letter, 2 * batch.added + 10)? {
        if !over(jobs, bytes) {
            break;
        }
        (jobs, bytes) = (jobs.saturating_sub(1), bytes.saturating_sub(old.bytes));
        dropped +=
            u64::from(letter == letter_of(State::Dead) && old.expire_ms.is_none_or(|at| at > tx.now_ms));
        gone.drop(tx, old)?;
    }
    count_dropped(tx, queue, dropped)?;
    gone.count(tx)
}

/// A finished job that is to go.
#[derive(Debug)]
pub(super) struct Old {
    record: u64,
    queue: i64,
    state: String,
    bytes: u64,
    due_ms: u64,
    expire_ms: Option<u64>,
    forget_ms: u64,
}

const OLD_COLUMNS: &str = "SELECT record, queue, state, bytes, due_ms, expire_ms, forget_ms";

fn read_old(row: &rusqlite::Row<'_>) -> rusqlite::Result<Old> {
    Ok(Old {
        record: row.get(0)?,
        queue: row.get(1)?,
        state: row.get(2)?,
        bytes: row.get(3)?,
        due_ms: row.get(4)?,
        expire_ms: row.get(5)?,
        forget_ms: row.get(6)?,
    })
}

fn oldest(tx: &Tx<'_>, queue: i64, letter: &str, limit: u64) -> Result<Vec<Old>, StoreError> {
    tx.rows(
        &format!(
            "{OLD_COLUMNS} FROM past WHERE queue = ?1 AND state = ?2 ORDER BY ended_ms, record LIMIT ?3"
        ),
        (queue, letter, limit),
        read_old,
    )
}

/// Finished jobs whose time is over.
pub(super) fn expired(tx: &Tx<'_>, limit: u64) -> Result<Vec<Old>, StoreError> {
    let of_queues = "FROM queues CROSS JOIN past USING (queue) WHERE ns = ?1 AND expire_ms <= ?2 LIMIT ?3";
    tx.rows(&format!("{OLD_COLUMNS} {of_queues}"), (tx.ns, tx.now_ms, limit), read_old)
}

impl Old {
    /// The end of a job, as one that is to go.
    pub(super) fn of(record: u64, past: &PastRow) -> Option<Self> {
        let end = past.end.as_ref()?;
        Some(Self {
            record,
            queue: end.queue,
            state: past.state.clone(),
            bytes: end.bytes,
            due_ms: past.due_ms,
            expire_ms: end.expire_ms,
            forget_ms: end.forget_ms,
        })
    }
}

/// Finished jobs that one call removes.
#[derive(Debug, Default)]
pub(super) struct Gone {
    kept: HashMap<(i64, String), (i64, i64)>,
    remembered: u64,
}

impl Gone {
    /// Removes a job with all that belongs to it.
    pub(super) fn drop(&mut self, tx: &Tx<'_>, old: Old) -> Result<(), StoreError> {
        let Old { record, queue, state, bytes, due_ms, forget_ms, expire_ms: _ } = old;
        let id: Option<String> =
            tx.row("SELECT id FROM jobs WHERE record = ?1 AND given = 1", [record], |row| row.get(0))?;
        let memory = Memory { state: &state, due_ms, forget_ms };
        self.remembered += drop_record(tx, record, queue, id.as_deref(), Some(memory))?;
        let kept = self.kept.entry((queue, state)).or_default();
        (kept.0, kept.1) = (kept.0 - 1, kept.1 - bytes as i64);
        Ok(())
    }

    /// Counts what is gone; how many ids are remembered by it.
    pub(super) fn count(self, tx: &Tx<'_>) -> Result<u64, StoreError> {
        for ((queue, letter), (jobs, bytes)) in self.kept {
            count_kept(tx, queue, &letter, jobs, bytes)?;
        }
        Ok(self.remembered)
    }
}

/// What is remembered of a finished job under its id.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory<'a> {
    state: &'a str,
    due_ms: u64,
    forget_ms: u64,
}

/// Removes a record and what hangs on it; its id is remembered, or free. Returns how many ids are remembered by it.
pub(super) fn drop_record(
    tx: &Tx<'_>,
    record: u64,
    queue: i64,
    given_id: Option<&str>,
    memory: Option<Memory<'_>>,
) -> Result<u64, StoreError> {
    tx.exec("DELETE FROM jobs WHERE record = ?1", [record])?;
    tx.exec("DELETE FROM past WHERE record = ?1", [record])?;
    drop_logs(tx, record)?;
    let Some(id) = given_id else { return Ok(0) };
    match memory.filter(|memory| memory.forget_ms > tx.now_ms) {
        Some(Memory { state, due_ms, forget_ms }) => {
            let changed = tx.exec(
                "UPDATE ids SET record = NULL, state = ?4, due_ms = ?5, forget_ms = ?6 \
                 WHERE queue = ?1 AND id = ?2 AND record = ?3",
                (queue, id, record, state, due_ms, forget_ms),
            )?;
            count_remembered(tx, changed as i64, id)?;
            Ok(changed as u64)
        }
        None => {
            tx.exec("DELETE FROM ids WHERE queue = ?1 AND id = ?2 AND record = ?3", (queue, id, record))?;
            Ok(0)
        }
    }
}

/// Removes what a job has said: its logs and its progress.
pub(super) fn drop_logs(tx: &Tx<'_>, record: u64) -> Result<(), StoreError> {
    tx.exec("DELETE FROM logs WHERE record = ?1", [record])?;
    drop_progress(tx, record)
}

/// What a remembered id weighs, in bytes.
fn id_bytes(id: &str) -> u64 {
    2 * id.len() as u64 + ID_COST
}

/// An id is remembered (1) or not any more (-1).
pub(super) fn count_remembered(tx: &Tx<'_>, sign: i64, id: &str) -> Result<(), StoreError> {
    if sign == 0 {
        return Ok(());
    }
    let bytes = sign * id_bytes(id) as i64;
    tx.exec("UPDATE namespaces SET id_bytes = id_bytes + ?2 WHERE ns = ?1", (tx.ns, bytes)).map(drop)
}

/// Forgets remembered ids that are over the limit in bytes, the oldest first.
pub(super) fn trim_memory(tx: &Tx<'_>, bytes_max: u64, added: u64) -> Result<(), StoreError> {
    let mut bytes = tx.number("SELECT id_bytes FROM namespaces WHERE ns = ?1", [tx.ns])?;
    if bytes <= bytes_max {
        return Ok(());
    }
    for (queue, id) in remembered(tx, i64::MAX as u64, 2 * added + 10)? {
        if bytes <= bytes_max {
            break;
        }
        bytes = bytes.saturating_sub(id_bytes(&id));
        forget(tx, queue, &id)?;
    }
    Ok(())
}

/// Remembered ids whose time is over by then, the oldest first.
pub(super) fn remembered(tx: &Tx<'_>, until_ms: u64, limit: u64) -> Result<Vec<(i64, String)>, StoreError> {
    tx.rows(
        "SELECT queue, id FROM ids WHERE ns = ?1 AND record IS NULL AND forget_ms <= ?2 ORDER BY forget_ms LIMIT ?3",
        (tx.ns, until_ms, limit),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Forgets a remembered id.
pub(super) fn forget(tx: &Tx<'_>, queue: i64, id: &str) -> Result<(), StoreError> {
    let gone = tx.exec("DELETE FROM ids WHERE queue = ?1 AND id = ?2 AND record IS NULL", (queue, id))?;
    count_remembered(tx, -(gone as i64), id)
}
