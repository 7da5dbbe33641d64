//! The rows that a job has: what was asked for, where it waits, its lease, its past.

use bytes::Bytes;
use rusqlite::Row;

use super::tx::{LaneNumbers, Tx};
use crate::job::{Job, Priority, State};
use crate::names::JobId;
use crate::queue::life::add_event;
use crate::queue::{Lane, StoreError};

/// What a record weighs beyond its texts and its payload, in bytes.
const RECORD_COST: usize = 64;
/// Which part of a lane holds suspects.
pub(super) const SUSPECTS: u8 = 4;
/// Crashes from which on a job is a suspect.
const SUSPECT_CRASHES: u32 = 2;

/// Which part of its lane a job waits in.
pub(super) fn part_of(priority: Priority, crashes: u32) -> u8 {
    part_of_number(priority_number(priority), crashes)
}

/// As [`part_of`], for a priority as the tables name it.
pub(super) fn part_of_number(priority: u8, crashes: u32) -> u8 {
    if crashes >= SUSPECT_CRASHES { SUSPECTS } else { priority }
}

/// How the tables name a priority.
pub(super) fn priority_number(priority: Priority) -> u8 {
    match priority {
        Priority::High => 1,
        Priority::Normal => 2,
        Priority::Low => 3,
    }
}

/// A job that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) lane: i64,
    pub(super) part: u8,
    pub(super) due_ms: u64,
    pub(super) place: u64,
    pub(super) record: u64,
    pub(super) attempt: u32,
    pub(super) crashes: u32,
}

impl Waiting {
    pub(super) fn delete(&self, tx: &Tx<'_>) -> Result<(), StoreError> {
        delete_waiting(tx, self.lane, self.part, self.due_ms as i64, self.place)
    }
}

/// Takes an entry out of its lane, whatever it is.
pub(super) fn delete_waiting(
    tx: &Tx<'_>,
    lane: i64,
    part: u8,
    due_ms: i64,
    place: u64,
) -> Result<(), StoreError> {
    tx.exec(
        "DELETE FROM waiting WHERE lane = ?1 AND part = ?2 AND due_ms = ?3 AND place = ?4",
        (lane, part, due_ms, place),
    )
    .map(drop)
}

/// The columns of [`read_job`], in its order.
pub(super) const JOB_COLUMNS: &str = "id, priority, enqueued_ms, max_attempts, timeout_ms, meta, traceparent, source, payload, \
                                      jobs.due_ms";

/// A job of a lane, and its due time as it was enqueued. `None` for a row that is none of ours.
pub(super) fn read_job(row: &Row<'_>, lane: Lane) -> rusqlite::Result<Option<(Job, u64)>> {
    let Ok(id) = JobId::new(&row.get::<_, String>(0)?) else { return Ok(None) };
    let meta: Option<String> = row.get(5)?;
    let payload: Vec<u8> = row.get(8)?;
    let job = Job {
        id,
        kind: lane.kind,
        queue: lane.queue,
        priority: match row.get::<_, u8>(1)? {
            1 => Priority::High,
            3 => Priority::Low,
            _ => Priority::Normal,
        },
        enqueued_ms: row.get(2)?,
        max_attempts: row.get(3)?,
        timeout_ms: row.get(4)?,
        meta: meta.and_then(|meta| serde_json::from_str(&meta).ok()).unwrap_or_default(),
        traceparent: row.get(6)?,
        source: row.get(7)?,
        payload: Bytes::from(payload),
    };
    Ok(Some((job, row.get(9)?)))
}

/// The lease of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRow {
    pub(super) record: u64,
    pub(super) lane: i64,
    pub(super) session: String,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    pub(super) place: u64,
    pub(super) claimed_ms: u64,
    pub(super) recall: Option<String>,
}

impl LeaseRow {
    pub(super) fn load(tx: &Tx<'_>, record: u64) -> Result<Option<Self>, StoreError> {
        tx.row(
            "SELECT record, lane, session, token, attempt, max_attempts, crashes, due_ms, place, claimed_ms, recall \
             FROM leases WHERE record = ?1 AND ns = ?2",
            (record, tx.ns),
            |row| {
                Ok(Self {
                    record: row.get(0)?,
                    lane: row.get(1)?,
                    session: row.get(2)?,
                    token: row.get(3)?,
                    attempt: row.get(4)?,
                    max_attempts: row.get(5)?,
                    crashes: row.get(6)?,
                    due_ms: row.get(7)?,
                    place: row.get(8)?,
                    claimed_ms: row.get(9)?,
                    recall: row.get(10)?,
                })
            },
        )
    }

    pub(super) fn delete(&self, tx: &Tx<'_>) -> Result<(), StoreError> {
        tx.exec("DELETE FROM leases WHERE record = ?1", [self.record]).map(drop)
    }

    /// True for a job that a runner holds for its moment and has not started.
    pub(super) fn is_held(&self, tx: &Tx<'_>) -> bool {
        self.due_ms > tx.now_ms
    }

    pub(super) fn wants_cancel(&self) -> bool {
        self.recall.as_deref() == Some("c")
    }
}

/// How the tables name what a job with a past is.
pub(super) fn letter_of(state: State) -> &'static str {
    match state {
        State::Completed => "c",
        State::Cancelled => "x",
        State::Dead => "d",
        State::Scheduled | State::Ready | State::Running => "w",
    }
}

/// The finished state with this letter.
pub(super) fn finished_state(letter: &str) -> Option<State> {
    [State::Completed, State::Cancelled, State::Dead].into_iter().find(|state| letter_of(*state) == letter)
}

/// What has happened to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastRow {
    pub(super) state: String,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    pub(super) place: u64,
    /// The session and token of the lease that was settled last; before the session are the marks of conflicts: see settle.rs.
    pub(super) settled: Option<(String, u64)>,
    pub(super) end: Option<End>,
    pub(super) result: Option<Vec<u8>>,
    pub(super) events: u32,
    pub(super) history: Vec<u8>,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) queue: i64,
    pub(super) ended_ms: u64,
    pub(super) bytes: u64,
    /// `None` is never.
    pub(super) expire_ms: Option<u64>,
    pub(super) forget_ms: u64,
}

impl PastRow {
    /// The past of a job to which nothing has happened yet.
    pub(super) fn fresh(max_attempts: u32, crashes: u32, due_ms: u64, place: u64) -> Self {
        Self {
            state: "w".to_owned(),
            attempt: 0,
            max_attempts,
            crashes,
            due_ms,
            place,
            settled: None,
            end: None,
            result: None,
            events: 0,
            history: Vec::new(),
        }
    }

    pub(super) fn load(tx: &Tx<'_>, record: u64) -> Result<Option<Self>, StoreError> {
        tx.row(
            "SELECT state, attempt, max_attempts, crashes, due_ms, place, session, token, queue, ended_ms, bytes, expire_ms, \
             forget_ms, result, events, history FROM past WHERE record = ?1",
            [record],
            |row| {
                let (session, token): (Option<String>, Option<u64>) = (row.get(6)?, row.get(7)?);
                let end = match row.get::<_, Option<i64>>(8)? {
                    None => None,
                    Some(queue) => Some(End {
                        queue,
                        ended_ms: row.get(9)?,
                        bytes: row.get(10)?,
                        expire_ms: row.get(11)?,
                        forget_ms: row.get(12)?,
                    }),
                };
                Ok(Self {
                    state: row.get(0)?,
                    attempt: row.get(1)?,
                    max_attempts: row.get(2)?,
                    crashes: row.get(3)?,
                    due_ms: row.get(4)?,
                    place: row.get(5)?,
                    settled: session.zip(token),
                    end,
                    result: row.get(13)?,
                    events: row.get(14)?,
                    history: row.get(15)?,
                })
            },
        )
    }

    pub(super) fn save(&self, tx: &Tx<'_>, record: u64) -> Result<(), StoreError> {
        let (session, token) = self.settled.as_ref().map(|(session, token)| (session, token)).unzip();
        let end = self.end.as_ref();
        tx.exec(
            "INSERT OR REPLACE INTO past (record, state, attempt, max_attempts, crashes, due_ms, place, session, token, queue, \
             ended_ms, bytes, expire_ms, forget_ms, result, events, history) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
            rusqlite::params![
                record,
                self.state,
                self.attempt,
                self.max_attempts,
                self.crashes,
                self.due_ms,
                self.place,
                session,
                token,
                end.map(|end| end.queue),
                end.map(|end| end.ended_ms),
                end.map(|end| end.bytes),
                end.and_then(|end| end.expire_ms),
                end.map(|end| end.forget_ms),
                self.result,
                self.events,
                self.history,
            ],
        )
        .map(drop)
    }

    /// Adds an event as queue/life.rs writes them.
    pub(super) fn add(&mut self, event: &str) {
        add_event(&mut self.history, &mut self.events, event);
    }

    /// Adds an event that is no run.
    pub(super) fn note(&mut self, tx: &Tx<'_>, word: &str, runner: &str, reason: &str, message: &str) {
        let (attempt, now_us) = (self.attempt, tx.now_us);
        self.add(&format!("E{attempt}\u{1f}{now_us}\u{1f}{word}\u{1f}{runner}\u{1f}{reason}\u{1f}{message}"));
    }
}

/// A job as an operator's verb or a conflict needs it: where it is, and all that hangs on it.
#[derive(Debug)]
pub(super) struct JobRow {
    pub(super) record: u64,
    pub(super) lane: i64,
    pub(super) queue: i64,
    pub(super) id: String,
    pub(super) given: bool,
    pub(super) priority: u8,
    pub(super) bytes: usize,
    pub(super) max_attempts: Option<u32>,
    due_ms: u64,
    pub(super) past: Option<PastRow>,
    pub(super) lease: Option<LeaseRow>,
}

impl JobRow {
    pub(super) fn load(tx: &Tx<'_>, record: u64) -> Result<Option<Self>, StoreError> {
        let lane = tx.row(
            "SELECT lane, queue FROM jobs JOIN lanes USING (lane) JOIN queues USING (queue) WHERE record = ?1 AND ns = ?2",
            (record, tx.ns),
            |row| Ok(LaneNumbers { lane: row.get(0)?, queue: row.get(1)? }),
        )?;
        let Some(lane) = lane else { return Ok(None) };
        let Some(mut job) = Self::load_unleased(tx, record, lane)? else { return Ok(None) };
        job.lease = LeaseRow::load(tx, record)?;
        Ok(Some(job))
    }

    /// As [`load`](Self::load), for whoever knows about its lane and lease.
    pub(super) fn load_unleased(
        tx: &Tx<'_>,
        record: u64,
        LaneNumbers { lane, queue }: LaneNumbers,
    ) -> Result<Option<Self>, StoreError> {
        let row = tx.row(
            "SELECT id, given, priority, max_attempts, due_ms, \
             length(payload) + length(CAST(id AS BLOB)) + length(source) + ifnull(length(meta), 0) \
             FROM jobs WHERE record = ?1",
            [record],
            |row| {
                Ok(Self {
                    record,
                    lane,
                    queue,
                    id: row.get(0)?,
                    given: row.get(1)?,
                    priority: row.get(2)?,
                    max_attempts: row.get(3)?,
                    due_ms: row.get(4)?,
                    bytes: row.get::<_, usize>(5)? + RECORD_COST,
                    past: None,
                    lease: None,
                })
            },
        )?;
        let Some(mut job) = row else { return Ok(None) };
        job.past = PastRow::load(tx, record)?;
        Ok(Some(job))
    }

    /// When it may start.
    pub(super) fn due_ms(&self) -> u64 {
        match (&self.lease, &self.past) {
            (Some(lease), _) => lease.due_ms,
            (_, Some(past)) => past.due_ms,
            _ => self.due_ms,
        }
    }

    /// True when it is in its lane.
    pub(super) fn is_waiting(&self) -> bool {
        self.lease.is_none() && self.past.as_ref().is_none_or(|past| past.state == "w")
    }

    /// Where it is in its life; a held job shows as running here.
    pub(super) fn state(&self, tx: &Tx<'_>) -> State {
        if self.lease.is_some() {
            return State::Running;
        }
        match self.past.as_ref().and_then(|past| finished_state(&past.state)) {
            Some(state) => state,
            None if self.due_ms() <= tx.now_ms => State::Ready,
            None => State::Scheduled,
        }
    }

    /// Its entry in its lane, if it waits.
    pub(super) fn waiting(&self) -> Waiting {
        let past = self.past.as_ref();
        let crashes = past.map_or(0, |past| past.crashes);
        Waiting {
            lane: self.lane,
            part: part_of_number(self.priority, crashes),
            due_ms: past.map_or(self.due_ms, |past| past.due_ms),
            place: past.map_or(self.record, |past| past.place),
            record: self.record,
            attempt: past.map_or(0, |past| past.attempt),
            crashes,
        }
    }

    /// Its past; a fresh one when it has none.
    pub(super) fn past_or_fresh(&self) -> PastRow {
        self.past
            .clone()
            .unwrap_or_else(|| PastRow::fresh(self.max_attempts.unwrap_or(0), 0, self.due_ms(), self.record))
    }
}
