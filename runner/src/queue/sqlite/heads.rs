//! Putting jobs into their lanes, and signalling those that have become claimable earlier by it.

use std::collections::HashMap;

use super::rows::Waiting;
use super::tx::Tx;
use crate::queue::StoreError;

/// What one call puts into lanes: by lane and part, the first due time before the call and the first of the call's.
#[derive(Debug, Default)]
pub(super) struct Heads(HashMap<(i64, u8), (Option<u64>, u64)>);

impl Heads {
    /// Puts a job where it waits.
    pub(super) fn put(&mut self, tx: &Tx<'_>, job: &Waiting) -> Result<(), StoreError> {
        let due_ms = job.due_ms;
        match self.0.get_mut(&(job.lane, job.part)) {
            Some((_, first)) => *first = due_ms.min(*first),
            None => {
                let before = head(tx, job.lane, job.part)?;
                self.0.insert((job.lane, job.part), (before, due_ms));
            }
        }
        tx.exec(
            "INSERT INTO waiting (lane, part, due_ms, place, record, attempt, crashes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (job.lane, job.part, due_ms, job.place, job.record, job.attempt, job.crashes),
        )
        .map(drop)
    }

    /// Signals the lanes of which the first job has changed. One behind it wakes nobody: runners know when that is due.
    pub(super) fn signal(self, tx: &Tx<'_>) -> Result<(), StoreError> {
        for ((lane, _), (before, first)) in self.0 {
            if before.is_none_or(|before| first < before) {
                tx.wake_lane(lane, first)?;
            }
        }
        Ok(())
    }
}

/// The earliest due time in a part of a lane. Entries that no job can have count as due.
pub(super) fn head(tx: &Tx<'_>, lane: i64, part: u8) -> Result<Option<u64>, StoreError> {
    tx.row(
        "SELECT max(due_ms, 0) FROM waiting WHERE lane = ?1 AND part = ?2 ORDER BY due_ms LIMIT 1",
        (lane, part),
        |row| row.get(0),
    )
}
