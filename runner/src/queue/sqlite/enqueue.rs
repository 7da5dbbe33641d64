//! Enqueueing: a batch of jobs, all or none.

use std::collections::{HashMap, HashSet};

use super::SqliteStore;
use super::disk::check_room;
use super::finish::{count_remembered, drop_logs};
use super::heads::Heads;
use super::link::Promise;
use super::rows::{JobRow, PastRow, Waiting, finished_state, part_of, priority_number};
use super::tx::{LaneNumbers, Tx};
use crate::job::{DELAY_MS_MAX, NewJob, OnConflict, State};
use crate::names::JobId;
use crate::queue::checks::{check_batch, generated_record, random_text};
use crate::queue::{Disposition, Enqueued, Lane, StoreError};

impl SqliteStore {
    pub(super) async fn enqueue_jobs(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        check_batch(jobs)?;
        let suffix = random_text(5)?;
        let jobs = jobs.to_vec();
        let bytes: usize = jobs.iter().map(|job| job.payload.len()).sum();
        self.link
            .write(Promise::Kept, move |tx| {
                check_room(tx.path(), bytes as u64)?;
                let mut batch = Batch::begin(tx, suffix)?;
                let taken: Result<_, StoreError> =
                    jobs.iter().enumerate().map(|(index, job)| batch.take(index, job)).collect();
                let taken = taken?;
                batch.end()?;
                Ok(taken)
            })
            .await
    }
}

/// Takes the jobs of a completion, each with an id: one that exists is left as it is.
pub(super) fn enqueue_children(tx: &Tx<'_>, children: &[NewJob]) -> Result<(), StoreError> {
    if children.is_empty() {
        return Ok(());
    }
    // No child needs an id.
    let mut batch = Batch::begin(tx, String::new())?;
    for (index, child) in children.iter().enumerate() {
        batch.take(index, child)?;
    }
    batch.end()
}

/// What a caller's id leads to.
enum Existing {
    /// A job.
    Job(Box<JobRow>),
    /// A finished job of which the record is gone.
    Remembered { state: State, due_ms: u64 },
}

/// Jobs on their way in.
struct Batch<'a> {
    tx: &'a Tx<'a>,
    /// The random part of the ids that are made.
    suffix: String,
    heads: Heads,
    /// Records of this batch.
    made: HashSet<u64>,
    /// Records that it moved or replaced: what else it does to them is no event of its own.
    told: HashSet<u64>,
    /// How many of them each queue got.
    counts: HashMap<i64, u64>,
    /// The last number that was given out.
    last: u64,
    /// Whether somebody has chosen an id that looks like one of ours.
    lookalikes: bool,
}

impl<'a> Batch<'a> {
    fn begin(tx: &'a Tx<'a>, suffix: String) -> Result<Self, StoreError> {
        Ok(Self {
            tx,
            suffix,
            heads: Heads::default(),
            made: HashSet::new(),
            told: HashSet::new(),
            counts: HashMap::new(),
            last: tx.number("SELECT last FROM sequence", [])?,
            lookalikes: tx.number("SELECT lookalikes FROM namespaces WHERE ns = ?1", [tx.ns])? > 0,
        })
    }

    /// Writes what the batch has counted.
    fn end(self) -> Result<(), StoreError> {
        self.tx.exec("UPDATE sequence SET last = ?1", [self.last])?;
        for (queue, jobs) in self.counts {
            self.tx.exec("UPDATE queues SET enqueued = enqueued + ?2 WHERE queue = ?1", (queue, jobs))?;
        }
        self.heads.signal(self.tx)
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn take(&mut self, index: usize, job: &NewJob) -> Result<Enqueued, StoreError> {
        let due_ms = self.due_ms(index, job)?;
        let Some(id) = &job.id else { return self.create(job, None, due_ms) };
        let existing = match self.tx.find_queue(&job.queue)? {
            Some(queue) => self.existing(queue, id)?,
            None => None,
        };
        match existing {
            None => self.create(job, Some(id), due_ms),
            Some(Existing::Remembered { state, due_ms }) => {
                let kept = job.on_conflict == OnConflict::Keep;
                let disposition = if kept { Disposition::Kept } else { Disposition::Conflict };
                Ok(Enqueued { id: id.clone(), disposition, state, due_ms })
            }
            Some(Existing::Job(old)) => self.conflict(job, id, &old, due_ms),
        }
    }

    fn due_ms(&self, index: usize, job: &NewJob) -> Result<u64, StoreError> {
        let (accepted_ms, due_ms) = job.times(self.tx.now_ms);
        if due_ms > accepted_ms + DELAY_MS_MAX {
            return Err(StoreError::Invalid(format!(
                "job {index}: due time {due_ms} ms: expected at most 100 years ahead"
            )));
        }
        Ok(due_ms)
    }

    fn existing(&self, queue: i64, id: &JobId) -> Result<Option<Existing>, StoreError> {
        let tx = self.tx;
        let found = tx.row(
            "SELECT record, state, due_ms, forget_ms FROM ids WHERE queue = ?1 AND id = ?2",
            (queue, id.as_str()),
            |row| {
                Ok((
                    row.get::<_, Option<u64>>(0)?,
                    row.get::<_, Option<String>>(1)?,
                    row.get(2)?,
                    row.get(3)?,
                ))
            },
        )?;
        let record = match found {
            Some((Some(record), ..)) => record,
            Some((None, state, due_ms, forget_ms)) => {
                let forget_ms: Option<u64> = forget_ms;
                let state = state.as_deref().and_then(finished_state);
                return Ok(match (state, due_ms) {
                    (Some(state), Some(due_ms)) if forget_ms.is_some_and(|forget| forget > tx.now_ms) => {
                        Some(Existing::Remembered { state, due_ms })
                    }
                    _ => None,
                });
            }
            // An id that the store made has no entry: its record tells.
            None => match generated_record(id) {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        let made = found.is_none();
        let job = JobRow::load(tx, record)?;
        Ok(job
            .filter(|job| !made || !job.given && job.queue == queue && job.id == id.as_str())
            .map(|job| Existing::Job(Box::new(job))))
    }

    fn create(&mut self, job: &NewJob, id: Option<&JobId>, due_ms: u64) -> Result<Enqueued, StoreError> {
        let tx = self.tx;
        let lane = tx.lane(&Lane { queue: job.queue.clone(), kind: job.kind.clone() })?;
        let mut record = self.next_number();
        let id = match id {
            Some(id) => {
                self.bind(lane, id, record)?;
                id.clone()
            }
            None => loop {
                let id = format!("{record}-{}", self.suffix);
                if self.is_free(lane, &id)? {
                    break JobId::new(&id).map_err(|error| StoreError::Refused(error.to_string()))?;
                }
                record = self.next_number();
            },
        };
        insert_job(tx, record, lane.lane, &id, job, due_ms)?;
        let entry = Waiting {
            lane: lane.lane,
            part: part_of(job.priority, 0),
            due_ms,
            place: record,
            record,
            attempt: 0,
            crashes: 0,
        };
        self.heads.put(tx, &entry)?;
        *self.counts.entry(lane.queue).or_default() += 1;
        self.made.insert(record);
        Ok(self.answer(id, Disposition::Created, due_ms))
    }

    /// Whether nobody chose this id for a job.
    fn is_free(&self, lane: LaneNumbers, id: &str) -> Result<bool, StoreError> {
        if !self.lookalikes {
            return Ok(true);
        }
        Ok(self
            .tx
            .row("SELECT 1 FROM ids WHERE queue = ?1 AND id = ?2", (lane.queue, id), |_| Ok(()))?
            .is_none())
    }

    /// Makes a chosen id lead to a record.
    fn bind(&mut self, lane: LaneNumbers, id: &JobId, record: u64) -> Result<(), StoreError> {
        self.lookalikes |= bind_id(self.tx, lane, id, record)?;
        Ok(())
    }

    fn conflict(
        &mut self,
        job: &NewJob,
        id: &JobId,
        old: &JobRow,
        due_ms: u64,
    ) -> Result<Enqueued, StoreError> {
        let lane = self.tx.find_lane(&Lane { queue: job.queue.clone(), kind: job.kind.clone() })?;
        let free = old.is_waiting() && lane.is_some_and(|lane| lane.lane == old.lane);
        match job.on_conflict {
            OnConflict::Keep => Ok(Enqueued {
                id: id.clone(),
                disposition: Disposition::Kept,
                state: old.state(self.tx),
                due_ms: old.due_ms(),
            }),
            OnConflict::Replace if free => {
                self.replace(job, id, old, due_ms)?;
                Ok(self.answer(id.clone(), Disposition::Replaced, due_ms))
            }
            OnConflict::Reschedule if free => {
                // An old acceptance shortens the delay, and no more.
                let due_ms = due_ms.max(self.tx.now_ms);
                self.reschedule(old, due_ms)?;
                Ok(self.answer(id.clone(), Disposition::Rescheduled, due_ms))
            }
            _ => Ok(Enqueued {
                id: id.clone(),
                disposition: Disposition::Conflict,
                state: old.state(self.tx),
                due_ms: old.due_ms(),
            }),
        }
    }

    /// The new job takes the record and a new place in the order; nothing of the old one's past stays.
    fn replace(&mut self, job: &NewJob, id: &JobId, old: &JobRow, due_ms: u64) -> Result<(), StoreError> {
        let (tx, record, lane) = (self.tx, old.record, old.lane);
        old.waiting().delete(tx)?;
        tx.exec("DELETE FROM jobs WHERE record = ?1", [record])?;
        insert_job(tx, record, lane, id, job, due_ms)?;
        if !old.given {
            tx.exec("UPDATE jobs SET given = 0 WHERE record = ?1", [record])?;
        }
        let mut place = record;
        if !self.made.contains(&record) {
            place = self.next_number();
            self.told.insert(record);
            PastRow::fresh(0, 0, due_ms, place).save(tx, record)?;
            drop_logs(tx, record)?;
        }
        let part = part_of(job.priority, 0);
        self.heads.put(tx, &Waiting { lane, part, due_ms, place, record, attempt: 0, crashes: 0 })
    }

    /// Only the due time changes.
    fn reschedule(&mut self, old: &JobRow, due_ms: u64) -> Result<(), StoreError> {
        let (tx, record) = (self.tx, old.record);
        let entry = old.waiting();
        entry.delete(tx)?;
        if self.made.contains(&record) {
            tx.exec("UPDATE jobs SET due_ms = ?2 WHERE record = ?1", (record, due_ms))?;
        } else {
            let fresh = PastRow::fresh(0, 0, due_ms, record);
            let mut past = old.past.clone().unwrap_or(fresh);
            past.due_ms = due_ms;
            if self.told.insert(record) {
                past.note(tx, "rescheduled", "", "", "");
            }
            past.save(tx, record)?;
        }
        self.heads.put(tx, &Waiting { due_ms, ..entry })
    }

    fn answer(&self, id: JobId, disposition: Disposition, due_ms: u64) -> Enqueued {
        let state = if due_ms <= self.tx.now_ms { State::Ready } else { State::Scheduled };
        Enqueued { id, disposition, state, due_ms }
    }
}

/// Makes a chosen id lead to a record. Whether it looks like one that the store makes.
pub(super) fn bind_id(tx: &Tx<'_>, lane: LaneNumbers, id: &JobId, record: u64) -> Result<bool, StoreError> {
    let forgotten = tx
        .exec("DELETE FROM ids WHERE queue = ?1 AND id = ?2 AND record IS NULL", (lane.queue, id.as_str()))?;
    count_remembered(tx, -(forgotten as i64), id.as_str())?;
    tx.exec(
        "INSERT OR REPLACE INTO ids (queue, id, record, ns) VALUES (?1, ?2, ?3, ?4)",
        (lane.queue, id.as_str(), record, tx.ns),
    )?;
    let lookalike = generated_record(id).is_some();
    if lookalike {
        tx.exec("UPDATE namespaces SET lookalikes = 1 WHERE ns = ?1", [tx.ns])?;
    }
    Ok(lookalike)
}

fn insert_job(
    tx: &Tx<'_>,
    record: u64,
    lane: i64,
    id: &JobId,
    job: &NewJob,
    due_ms: u64,
) -> Result<(), StoreError> {
    let meta = match job.meta.is_empty() {
        true => None,
        false => {
            Some(serde_json::to_string(&job.meta).map_err(|error| StoreError::Invalid(error.to_string()))?)
        }
    };
    tx.exec(
        "INSERT INTO jobs (record, lane, id, given, priority, enqueued_ms, due_ms, max_attempts, timeout_ms, meta, \
         traceparent, source, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        rusqlite::params![
            record,
            lane,
            id.as_str(),
            job.id.is_some(),
            priority_number(job.priority),
            job.times(tx.now_ms).0,
            due_ms,
            job.max_attempts,
            job.timeout_ms,
            meta,
            job.traceparent,
            job.source,
            &job.payload[..],
        ],
    )
    .map(drop)
}
