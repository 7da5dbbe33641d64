//! The doctor of the SQLite store: the file, its tables, every job, and what hangs on it, a bounded step at a time.
//!
//! Each step is a transaction of its own: a snapshot when the doctor only looks, one that writes when it mends. So what
//! moves on meanwhile is never reported. Entries in the wrong place go before jobs are put into the right one, and
//! counters are counted when all is where it belongs.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Params, Row};
use serde_json::{Value, json};

use super::SqliteStore;
use super::heads::Heads;
use super::link::Promise;
use super::tx::Tx;
use crate::queue::{Finding, Severity, StoreError};

mod counters;
mod file;
mod jobs;
mod rest;

/// Rows in one step.
const STEP: u64 = 500;

impl SqliteStore {
    pub(super) async fn look_at_all(&self, repair: bool) -> Result<Vec<Finding>, StoreError> {
        let mut all = Findings::default();
        let shared = Arc::clone(&self.link.shared);
        let looked = tokio::task::spawn_blocking(move || file::look(&shared.path, &shared.options, repair));
        let (found, sound) = looked.await.map_err(ended)??;
        all.add(found);
        if !sound {
            return Ok(all.list);
        }
        self.step(repair, &mut all, |tx, sight| jobs::look_at_lanes(tx, sight).map(|()| None::<()>)).await?;
        self.walk(repair, &mut all, jobs::look_at_entries).await?;
        self.walk(repair, &mut all, jobs::look_at_leases).await?;
        self.walk(repair, &mut all, jobs::look_at_records).await?;
        self.walk(repair, &mut all, rest::look_at_pasts).await?;
        self.walk(repair, &mut all, rest::look_at_logs).await?;
        self.walk(repair, &mut all, rest::look_at_progress).await?;
        self.walk(repair, &mut all, rest::look_at_ids).await?;
        self.walk(repair, &mut all, rest::look_at_state).await?;
        self.look_at_counters(repair, &mut all).await?;
        if all.list.iter().all(|finding| finding.severity == Severity::Warning) {
            self.step(false, &mut all, |tx, sight| counters::take_census(tx, sight).map(|()| None::<()>))
                .await?;
        }
        Ok(all.list)
    }

    /// Takes steps until one says that there is no next.
    async fn walk<C: Default + Send + 'static>(
        &self,
        repair: bool,
        all: &mut Findings,
        step: fn(&Tx<'_>, &mut Sight, C) -> Result<Option<C>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = Some(C::default());
        while let Some(from) = next {
            next = self.step(repair, all, move |tx, sight| step(tx, sight, from)).await?;
        }
        Ok(())
    }

    /// One step in a transaction of its own.
    async fn step<C: Send + 'static>(
        &self,
        repair: bool,
        all: &mut Findings,
        work: impl FnOnce(&Tx<'_>, &mut Sight) -> Result<Option<C>, StoreError> + Send + 'static,
    ) -> Result<Option<C>, StoreError> {
        let mut sight =
            Sight { repair, found: Vec::new(), heads: Heads::default(), number_max: all.number_max };
        let look = move |tx: &Tx<'_>| {
            let next = work(tx, &mut sight)?;
            std::mem::take(&mut sight.heads).signal(tx)?;
            Ok((next, sight.found, sight.number_max))
        };
        let (next, found, number_max) = if repair {
            self.link.write(Promise::Kept, look).await?
        } else {
            // A look may take longer than a call, and holds up nobody.
            let shared = Arc::clone(&self.link.shared);
            tokio::task::spawn_blocking(move || shared.read(look)).await.map_err(ended)??
        };
        all.add(found);
        all.number_max = number_max;
        Ok(next)
    }
}

fn ended(error: tokio::task::JoinError) -> StoreError {
    StoreError::Unreachable(format!("the doctor's look was given up: {error}"))
}

/// What was found, each once.
#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    known: HashSet<(&'static str, String)>,
    /// The largest record id or place that was seen.
    number_max: u64,
}

impl Findings {
    fn add(&mut self, found: Vec<Finding>) {
        for finding in found {
            if self.known.insert((finding.check, finding.place.clone())) {
                self.list.push(finding);
            }
        }
    }
}

/// What one step sees.
struct Sight {
    /// Whether it mends what it finds.
    repair: bool,
    found: Vec<Finding>,
    heads: Heads,
    number_max: u64,
}

impl Sight {
    /// Notes a finding; `mended` says what is done about it, which the caller does when this step mends.
    fn found(
        &mut self,
        check: &str,
        place: impl Into<String>,
        message: impl Into<String>,
        mended: &str,
    ) -> Result<(), StoreError> {
        let repaired = self.repair.then(|| mended.to_owned());
        let finding = Finding::new(check, place.into(), message.into(), repaired);
        self.found.push(finding.ok_or_else(|| StoreError::Refused(format!("unknown finding {check}")))?);
        Ok(())
    }

    fn saw(&mut self, number: u64) {
        self.number_max = self.number_max.max(number);
    }
}

/// Moves rows of a table into the quarantine.
fn set_aside(tx: &Tx<'_>, table: &str, which: &str, params: impl Params + Clone) -> Result<(), StoreError> {
    let rows = tx.rows(&format!("SELECT * FROM {table} WHERE {which}"), params.clone(), row_json)?;
    for row in rows {
        tx.exec(
            "INSERT INTO quarantine (ns, at_ms, was_in, content) VALUES (?1, ?2, ?3, ?4)",
            (tx.ns, tx.now_ms, table, row.to_string()),
        )?;
    }
    tx.exec(&format!("DELETE FROM {table} WHERE {which}"), params).map(drop)
}

/// A row whatever it holds.
fn row_json(row: &Row<'_>) -> rusqlite::Result<Value> {
    let mut all = serde_json::Map::new();
    for (at, name) in row.as_ref().column_names().enumerate() {
        let value = match row.get_ref(at)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => json!(number),
            ValueRef::Real(number) => json!(number),
            ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
            ValueRef::Blob(bytes) => {
                json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
            }
        };
        all.insert(name.to_owned(), value);
    }
    Ok(Value::Object(all))
}
