//! One call's part of a transaction: the store's clock as it was read, and SQL with errors for the caller.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::SqlEdit;
use super::errors::store_error;
use crate::names::Name;
use crate::queue::{Lane, SessionId, StoreError};

/// Numbers of rows that never go: what a connection knows of them, as long as what it wrote was kept.
#[derive(Debug, Default)]
pub(super) struct Known {
    namespaces: HashMap<Name, i64>,
    lanes: HashMap<(i64, Lane), LaneNumbers>,
}

/// A lane as the tables name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LaneNumbers {
    pub(super) lane: i64,
    pub(super) queue: i64,
}

/// What a call works with.
pub(super) struct Tx<'a> {
    connection: &'a Connection,
    path: &'a Path,
    edits: &'a [SqlEdit],
    known: &'a RefCell<Known>,
    /// The namespace; 0, which none has, while nobody has written to it.
    pub(super) ns: i64,
    pub(super) now_us: u64,
    pub(super) now_ms: u64,
    signalled: Cell<bool>,
}

impl<'a> Tx<'a> {
    /// `writing` makes the namespace if there is none.
    pub(super) fn new(
        connection: &'a Connection,
        path: &'a Path,
        edits: &'a [SqlEdit],
        known: &'a RefCell<Known>,
        now_us: u64,
    ) -> Self {
        let now_ms = now_us / 1_000;
        Self { connection, path, edits, known, ns: 0, now_us, now_ms, signalled: Cell::new(false) }
    }

    /// From here on it is this time, in microseconds since 1970.
    pub(super) fn tell_time(&mut self, now_us: u64) {
        (self.now_us, self.now_ms) = (now_us, now_us / 1_000);
    }

    /// Works on this namespace from here on; `writing` makes it if there is none.
    pub(super) fn enter(&mut self, namespace: &Name, writing: bool) -> Result<(), StoreError> {
        if let Some(ns) = self.known.borrow().namespaces.get(namespace) {
            self.ns = *ns;
            return Ok(());
        }
        let find = "SELECT ns FROM namespaces WHERE name = ?1";
        let mut found = self.row(find, [namespace.as_str()], |row| row.get(0))?;
        if found.is_none() && writing {
            self.exec("INSERT INTO namespaces (name) VALUES (?1)", [namespace.as_str()])?;
            found = self.row(find, [namespace.as_str()], |row| row.get(0))?;
        }
        self.ns = found.unwrap_or(0);
        if self.ns > 0 {
            self.known.borrow_mut().namespaces.insert(namespace.clone(), self.ns);
        }
        Ok(())
    }

    pub(super) fn connection(&self) -> &Connection {
        self.connection
    }

    pub(super) fn path(&self) -> &Path {
        self.path
    }

    pub(super) fn error(&self, error: &rusqlite::Error) -> StoreError {
        store_error(error, self.path)
    }

    /// Runs a statement; how many rows it changed.
    pub(super) fn exec(&self, sql: &str, params: impl Params) -> Result<usize, StoreError> {
        self.prepare(sql).and_then(|mut statement| statement.execute(params)).map_err(|e| self.error(&e))
    }

    /// The first row, if there is one.
    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.prepare(sql)
            .and_then(|mut statement| statement.query_row(params, read).optional())
            .map_err(|e| self.error(&e))
    }

    /// All rows.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.prepare(sql)
            .and_then(|mut statement| statement.query_map(params, read)?.collect())
            .map_err(|e| self.error(&e))
    }

    /// A single number; 0 when there is no row.
    pub(super) fn number(&self, sql: &str, params: impl Params) -> Result<u64, StoreError> {
        Ok(self.row(sql, params, |row| row.get::<_, Option<u64>>(0))?.flatten().unwrap_or(0))
    }

    fn prepare(&self, sql: &str) -> rusqlite::Result<rusqlite::CachedStatement<'a>> {
        let edit = self.edits.iter().find(|edit| sql.contains(&edit.find));
        match edit {
            None => self.connection.prepare_cached(sql),
            Some(edit) => self.connection.prepare_cached(&sql.replacen(&edit.find, &edit.replace, 1)),
        }
    }

    /// The lane's row, if there is one.
    pub(super) fn find_lane(&self, lane: &Lane) -> Result<Option<LaneNumbers>, StoreError> {
        let key = (self.ns, lane.clone());
        if let Some(row) = self.known.borrow().lanes.get(&key) {
            return Ok(Some(*row));
        }
        let found = self.row(
            "SELECT lane, queue FROM queues JOIN lanes USING (queue) WHERE ns = ?1 AND name = ?2 AND kind = ?3",
            (self.ns, lane.queue.as_str(), lane.kind.as_str()),
            |row| Ok(LaneNumbers { lane: row.get(0)?, queue: row.get(1)? }),
        )?;
        if let Some(row) = found {
            self.known.borrow_mut().lanes.insert(key, row);
        }
        Ok(found)
    }

    /// The lane's row; makes it, and its queue's, when there is none.
    pub(super) fn lane(&self, lane: &Lane) -> Result<LaneNumbers, StoreError> {
        if let Some(found) = self.find_lane(lane)? {
            return Ok(found);
        }
        let queue = self.make_queue(&lane.queue)?;
        self.exec("INSERT INTO lanes (queue, kind) VALUES (?1, ?2)", (queue, lane.kind.as_str()))?;
        self.find_lane(lane)?
            .ok_or_else(|| StoreError::Refused("a lane that was made is not there".to_owned()))
    }

    /// The number of a queue; makes its row when there is none.
    pub(super) fn make_queue(&self, queue: &Name) -> Result<i64, StoreError> {
        self.exec("INSERT OR IGNORE INTO queues (ns, name) VALUES (?1, ?2)", (self.ns, queue.as_str()))?;
        self.find_queue(queue)?
            .ok_or_else(|| StoreError::Refused("a queue that was made is not there".to_owned()))
    }

    /// The number of a queue, if somebody has named it.
    pub(super) fn find_queue(&self, queue: &Name) -> Result<Option<i64>, StoreError> {
        self.row("SELECT queue FROM queues WHERE ns = ?1 AND name = ?2", (self.ns, queue.as_str()), |row| {
            row.get(0)
        })
    }

    /// The next record id or place in the order.
    pub(super) fn next_number(&self) -> Result<u64, StoreError> {
        self.number("UPDATE sequence SET last = last + 1 WHERE one = 1 RETURNING last", [])
    }

    /// Signals that a lane has become claimable earlier.
    pub(super) fn wake_lane(&self, lane: i64, due_ms: u64) -> Result<(), StoreError> {
        self.signalled.set(true);
        self.exec("INSERT INTO wakes (ns, lane, due_ms) VALUES (?1, ?2, ?3)", (self.ns, lane, due_ms))
            .map(drop)
    }

    /// Signals that a recall waits for a session.
    pub(super) fn wake_session(&self, session: &SessionId) -> Result<(), StoreError> {
        self.signalled.set(true);
        self.exec("INSERT INTO wakes (ns, session) VALUES (?1, ?2)", (self.ns, &*session.0)).map(drop)
    }

    /// Whether this call has signalled anything.
    pub(super) fn has_signalled(&self) -> bool {
        self.signalled.get()
    }
}
