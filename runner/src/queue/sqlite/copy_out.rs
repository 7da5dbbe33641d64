//! Everything of a namespace on its way out to another store, a page at a time.

use super::SqliteStore;
use super::logs::progress;
use super::read::load_job;
use super::rows::{LeaseRow, PastRow, finished_state};
use super::sessions::runner_of;
use super::tx::Tx;
use crate::effects::{StateEntry, StateValue};
use crate::names::{JobId, Name};
use crate::queue::copy::{ExportedJob, ExportedQueue, ExportedState, JobEnd, LostLease, RememberedId};
use crate::queue::life::Owner;
use crate::queue::{AttemptLog, Exported, Page, Source, StoreError};

/// Jobs of a page, and about how many bytes end one.
const PAGE_JOBS: u64 = 250;
const PAGE_BYTES: usize = 4 << 20;
/// Ids of a page.
const PAGE_IDS: u64 = 500;
/// Entries of state of a page, of which each may be large.
const PAGE_ENTRIES: u64 = 50;

impl SqliteStore {
    pub(super) async fn as_source(&self) -> Result<Source, StoreError> {
        let place = self.link.shared.path.display().to_string();
        let namespace = self.link.shared.namespace.clone();
        self.link
            .read(move |tx| {
                let name: Option<String> = tx
                    .row("SELECT identity FROM namespaces WHERE ns = ?1", [tx.ns], |row| row.get(0))?
                    .flatten();
                let last = tx.number("SELECT last FROM sequence", [])?;
                Ok(Source { name: name.unwrap_or_else(|| format!("{place} {namespace}")), last })
            })
            .await
    }

    pub(super) async fn export_page(&self, cursor: Option<String>) -> Result<Page<Exported>, StoreError> {
        let cursor = cursor.unwrap_or_else(|| "jobs:0".to_owned());
        let invalid =
            || StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that an export gave"));
        let (what, at) = cursor.split_once(':').ok_or_else(invalid)?;
        match what {
            "jobs" => {
                let after: u64 = at.parse().map_err(|_| invalid())?;
                self.link.read(move |tx| jobs(tx, after)).await
            }
            "ids" => {
                let (queue, id) = at.split_once(':').unwrap_or(("0", ""));
                let after = (queue.parse::<i64>().map_err(|_| invalid())?, id.to_owned());
                self.link.read(move |tx| ids(tx, after)).await
            }
            "queues" => self.link.read(queues).await,
            "state" => {
                let (bucket, key) = at.split_once(':').unwrap_or_default();
                let after = (bucket.to_owned(), key.to_owned());
                self.link.read(move |tx| state(tx, after)).await
            }
            _ => Err(invalid()),
        }
    }
}

fn jobs(tx: &Tx<'_>, after: u64) -> Result<Page<Exported>, StoreError> {
    let records = tx.rows(
        "SELECT record FROM jobs WHERE record > ?1 AND lane IN (SELECT lane FROM lanes JOIN queues USING (queue) WHERE ns = ?2) \
         ORDER BY record LIMIT ?3",
        (after, tx.ns, PAGE_JOBS),
        |row| row.get::<_, u64>(0),
    )?;
    let (mut items, mut bytes, mut last) = (Vec::with_capacity(records.len()), 0, None);
    for record in records {
        last = Some(record);
        let Some(job) = job(tx, record)? else { continue };
        let item = Exported::Job(Box::new(job));
        bytes += item.bytes();
        items.push(item);
        if bytes > PAGE_BYTES {
            break;
        }
    }
    let cursor = last.map_or("ids:0:".to_owned(), |record| format!("jobs:{record}"));
    Ok(Page { items, cursor: Some(cursor) })
}

/// A job; `None` for one that cannot be read, of which the doctor tells.
fn job(tx: &Tx<'_>, record: u64) -> Result<Option<ExportedJob>, StoreError> {
    let Some((job, due_ms)) = load_job(tx, record)? else { return Ok(None) };
    let logs =
        tx.rows("SELECT attempt, text FROM logs WHERE record = ?1 ORDER BY attempt", [record], |row| {
            Ok(AttemptLog { attempt: row.get(0)?, text: row.get(1)? })
        })?;
    let mut exported = ExportedJob::untouched(record, job, due_ms, logs);
    let mut owner = None;
    if let Some(mut past) = PastRow::load(tx, record)? {
        owner = past.settled.take().map(|(session, token)| Owner { session, token });
        add_past(&mut exported, past);
    }
    let lease = LeaseRow::load(tx, record)?;
    if let Some(lease) = &lease {
        let lost = LostLease {
            attempt: lease.attempt,
            max_attempts: lease.max_attempts,
            crashes: lease.crashes,
            due_ms: lease.due_ms,
            place: lease.place,
            runner: &runner_of(tx, &lease.session)?,
            cancel: lease.wants_cancel(),
        };
        exported.take_back(&lost, tx.now_us);
        owner = Some(Owner { session: lease.session.clone(), token: lease.token });
    }
    exported.add_progress(progress(tx, record)?, owner.as_ref());
    Ok(Some(exported))
}

fn add_past(job: &mut ExportedJob, past: PastRow) {
    (job.attempt, job.max_attempts, job.crashes) = (past.attempt, past.max_attempts, past.crashes);
    (job.due_ms, job.place) = (past.due_ms, past.place);
    job.result = past.result.unwrap_or_default().into();
    (job.events, job.history) = (past.events, past.history.into());
    job.end = finished_state(&past.state).zip(past.end).map(|(state, end)| JobEnd {
        state,
        at_ms: end.ended_ms,
        expires_ms: end.expire_ms,
        forget_ms: end.forget_ms,
    });
}

fn ids(tx: &Tx<'_>, (queue, id): (i64, String)) -> Result<Page<Exported>, StoreError> {
    let rows = tx.rows(
        "SELECT ids.queue, id, name, state, due_ms, forget_ms, record IS NULL FROM ids JOIN queues USING (queue) \
         WHERE (ids.queue, id) > (?1, ?2) AND queues.ns = ?3 ORDER BY ids.queue, id LIMIT ?4",
        (queue, id, tx.ns, PAGE_IDS),
        |row| {
            let at: (i64, String) = (row.get(0)?, row.get(1)?);
            let (name, state) = (row.get::<_, String>(2)?, row.get::<_, Option<String>>(3)?);
            let times = (row.get::<_, Option<u64>>(4)?, row.get::<_, Option<u64>>(5)?);
            let remembered: bool = row.get(6)?;
            let read = || {
                Some(RememberedId {
                    queue: Name::new(&name).ok()?,
                    id: JobId::new(&at.1).ok()?,
                    state: finished_state(state.as_deref()?)?,
                    due_ms: times.0?,
                    forget_ms: times.1?,
                })
            };
            Ok((read().filter(|_| remembered), at))
        },
    )?;
    let cursor = match rows.last() {
        Some((_, (queue, id))) => format!("ids:{queue}:{id}"),
        None => "queues:".to_owned(),
    };
    let items = rows.into_iter().filter_map(|(remembered, _)| remembered).map(Exported::Id).collect();
    Ok(Page { items, cursor: Some(cursor) })
}

fn queues(tx: &Tx<'_>) -> Result<Page<Exported>, StoreError> {
    let rows = tx.rows(
        "SELECT queue, name, paused, enqueued, completed, failed, dropped FROM queues WHERE ns = ?1 ORDER BY name",
        [tx.ns],
        |row| {
            let totals: [u64; 4] = [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, bool>(2)?, totals))
        },
    )?;
    let mut items = Vec::with_capacity(rows.len());
    for (number, name, paused, totals) in rows {
        let Ok(queue) = Name::new(&name) else { continue };
        let kinds = tx.rows("SELECT kind FROM lanes WHERE queue = ?1 ORDER BY kind", [number], |row| {
            row.get::<_, String>(0)
        })?;
        let kinds = kinds.iter().filter_map(|kind| Name::new(kind).ok()).collect();
        items.push(Exported::Queue(ExportedQueue { queue, kinds, paused, totals }));
    }
    Ok(Page { items, cursor: Some("state::".to_owned()) })
}

fn state(tx: &Tx<'_>, (bucket, key): (String, String)) -> Result<Page<Exported>, StoreError> {
    let rows = tx.rows(
        "SELECT bucket, key, value, version FROM state WHERE ns = ?1 AND (bucket, key) > (?2, ?3) ORDER BY bucket, key LIMIT ?4",
        (tx.ns, bucket, key, PAGE_ENTRIES),
        |row| {
            let found = StateValue { value: row.get::<_, Vec<u8>>(2)?.into(), version: row.get(3)? };
            Ok((row.get::<_, String>(0)?, StateEntry { key: row.get(1)?, found }))
        },
    )?;
    let cursor = rows.last().map(|(bucket, entry)| format!("state:{bucket}:{}", entry.key));
    let exported = |(bucket, entry): (String, StateEntry)| {
        Some(Exported::State(ExportedState { bucket: Name::new(&bucket).ok()?, entry }))
    };
    Ok(Page { items: rows.into_iter().filter_map(exported).collect(), cursor })
}
