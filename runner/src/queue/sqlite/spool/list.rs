//! The spool as people see it: what is in it, and deleting from it.

use super::errors::sql;
use super::{Spool, SpoolError};

/// A job in the spool, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolEntry {
    /// Where in the order it is: a cursor.
    pub place: u64,
    /// Which store and namespace it is for.
    pub store: String,
    /// Its id.
    pub id: String,
    /// Where it is to wait.
    pub queue: String,
    /// Which handler is to run it.
    pub kind: String,
    /// When it was accepted, by this machine's wall clock, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// When it is to start, likewise.
    pub due_ms: u64,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Why it is set aside; `None` for one that waits.
    pub aside: Option<String>,
}

/// What a spool has beyond the jobs for one store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpoolRest {
    /// Jobs that wait for this store.
    pub waiting: u64,
    /// Jobs that are set aside, whatever their store.
    pub aside: u64,
    /// Jobs that wait for other stores, by store.
    pub others: Vec<(String, u64)>,
}

/// What came of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpoolDeleted {
    /// So many jobs are gone.
    Deleted(u64),
    /// There is none with this id.
    NotFound,
    /// It waits for its store, and only what is set aside was to be deleted.
    Waiting,
    /// The id is in several queues.
    Ambiguous(Vec<String>),
}

impl Spool {
    /// Jobs in order, from behind `after` on, at most `limit`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, after: u64, limit: u64) -> Result<Vec<SpoolEntry>, SpoolError> {
        let found = self.read(|tx| {
            let mut statement = tx
                .prepare(
                    "SELECT place, store, id, queue, kind, wall_ms - age_ms, \
                     coalesce(max(at_ms, wall_ms - age_ms), wall_ms - age_ms + delay_ms, 0), length(payload), aside \
                     FROM jobs WHERE place > ?1 ORDER BY place LIMIT ?2",
                )
                .map_err(sql(self))?;
            let rows = statement.query_map((after, limit), |row| {
                Ok(SpoolEntry {
                    place: row.get(0)?,
                    store: row.get(1)?,
                    id: row.get(2)?,
                    queue: row.get(3)?,
                    kind: row.get(4)?,
                    accepted_ms: row.get(5)?,
                    due_ms: row.get(6)?,
                    payload_bytes: row.get(7)?,
                    aside: row.get(8)?,
                })
            });
            rows.and_then(Iterator::collect).map_err(sql(self))
        });
        found.map(Option::unwrap_or_default)
    }

    /// What is left beside, and of, the jobs for a store.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn rest(&self, store: &str) -> Result<SpoolRest, SpoolError> {
        let found = self.read(|tx| {
            let mut rest = SpoolRest {
                aside: tx
                    .query_row("SELECT count(*) FROM jobs WHERE aside IS NOT NULL", [], |row| row.get(0))
                    .map_err(sql(self))?,
                ..SpoolRest::default()
            };
            let mut statement = tx
                .prepare("SELECT store, count(*) FROM jobs WHERE aside IS NULL GROUP BY store ORDER BY store")
                .map_err(sql(self))?;
            let stores = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(1)?)));
            for found in stores.map_err(sql(self))? {
                let (of, jobs) = found.map_err(sql(self))?;
                match of == store {
                    true => rest.waiting = jobs,
                    false => rest.others.push((of, jobs)),
                }
            }
            Ok(rest)
        });
        found.map(Option::unwrap_or_default)
    }

    /// Deletes the job with this id that is set aside, and with `waiting` one that waits too.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn delete(&self, queue: Option<&str>, id: &str, waiting: bool) -> Result<SpoolDeleted, SpoolError> {
        const OF: &str = "id = ?1 AND (?2 IS NULL OR queue = ?2)";
        let done = self.write(false, |tx| {
            let mut statement = tx
                .prepare(&format!("SELECT DISTINCT queue FROM jobs WHERE {OF} ORDER BY queue"))
                .map_err(sql(self))?;
            let queues: Vec<String> = statement
                .query_map((id, queue), |row| row.get(0))
                .and_then(Iterator::collect)
                .map_err(sql(self))?;
            match queues.len() {
                0 => return Ok(SpoolDeleted::NotFound),
                1 => {}
                _ => return Ok(SpoolDeleted::Ambiguous(queues)),
            }
            let aside = if waiting { "1" } else { "aside IS NOT NULL" };
            let gone = tx.execute(&format!("DELETE FROM jobs WHERE {OF} AND {aside}"), (id, queue));
            match gone.map_err(sql(self))? {
                0 => Ok(SpoolDeleted::Waiting),
                gone => Ok(SpoolDeleted::Deleted(gone as u64)),
            }
        });
        done.map(|done| done.unwrap_or(SpoolDeleted::NotFound))
    }
}
