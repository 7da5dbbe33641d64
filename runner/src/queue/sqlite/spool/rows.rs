//! A job in the spool's table, there and back.

use std::fmt::Write as _;

use rusqlite::{Row, Transaction, params_from_iter};

use crate::clock::HostClock;
use crate::job::{AGE_MS_MAX, Due, NewJob, OnConflict};
use crate::names::{JobId, Name};
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX};

/// What a job counts for beyond its payload and texts, in bytes.
const ROW_COST: usize = 256;

/// Which row a job is. Its place alone would do but for a file that is replaced meanwhile: another job has the place there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    place: u64,
    store: String,
    queue: String,
    id: String,
    source: String,
}

/// The condition that only this row meets, as parameters 1 to 5.
pub(super) const IS_ROW: &str = "place = ?1 AND store = ?2 AND queue = ?3 AND id = ?4 AND source = ?5";

impl RowKey {
    /// The parameters of [`IS_ROW`].
    pub(super) fn params(&self) -> (u64, &str, &str, &str, &str) {
        (self.place, &self.store, &self.queue, &self.id, &self.source)
    }
}

/// A job that waits for its store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiting {
    /// Which row it is.
    pub(crate) key: RowKey,
    /// The job, with its id and its age; what is wrong with the row otherwise.
    pub(crate) job: Result<NewJob, String>,
    /// Whether the store may have it already.
    pub(crate) unsure: bool,
    /// The sources of later jobs of its queue and id that want more than `keep` and that the store may have: one of them may
    /// have taken the place of this one there.
    pub(crate) later: Vec<String>,
}

/// What a job counts for, in bytes.
pub(super) fn cost(job: &NewJob) -> u64 {
    let meta: usize = job.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    let id = job.id.as_ref().map_or(0, |id| id.as_str().len());
    let texts = id
        + job.queue.as_str().len()
        + job.kind.as_str().len()
        + job.source.len()
        + job.traceparent.as_deref().map_or(0, str::len);
    (ROW_COST + job.payload.len() + meta + texts) as u64
}

pub(super) fn insert(
    tx: &Transaction<'_>,
    store: &str,
    job: &NewJob,
    unsure: bool,
    clock: &dyn HostClock,
) -> rusqlite::Result<()> {
    let (delay_ms, at_ms) = match job.due {
        Due::In(ms) => (Some(ms), None),
        Due::At(ms) => (None, Some(ms)),
    };
    let meta = (!job.meta.is_empty()).then(|| serde_json::to_string(&job.meta).unwrap_or_default());
    tx.prepare_cached(
        "INSERT INTO jobs (store, queue, kind, id, priority, delay_ms, at_ms, max_attempts, timeout_ms, meta, traceparent, \
         source, on_conflict, boot, boot_us, wall_ms, age_ms, unsure, bytes, payload) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
    )?
    .execute(rusqlite::params![
        store,
        job.queue.as_str(),
        job.kind.as_str(),
        job.id.as_ref().map(JobId::as_str),
        job.priority.as_str(),
        delay_ms,
        at_ms,
        job.max_attempts,
        job.timeout_ms,
        meta,
        job.traceparent,
        job.source,
        job.on_conflict.as_str(),
        clock.boot_id(),
        clock.boot_us(),
        clock.wall_us() / 1_000,
        job.age_ms,
        unsure,
        cost(job),
        &job.payload[..],
    ])
    .map(drop)
}

/// The next jobs for these stores, at most `most`, and no more than one call of a store takes.
pub(super) fn next(
    tx: &Transaction<'_>,
    stores: &[String],
    most: usize,
    clock: &dyn HostClock,
) -> rusqlite::Result<Vec<Waiting>> {
    // For one store the index has them in order. For several it has not: then the order is gone through.
    let mut of = if stores.len() == 1 { "store IN (?" } else { "+store IN (?" }.to_owned();
    for _ in 1..stores.len() {
        of.push_str(", ?");
    }
    let most = most.min(BATCH_MAX);
    // Writing to a string does not fail.
    let _ = write!(of, ") AND aside IS NULL ORDER BY place LIMIT {most}");
    let mut statement = tx.prepare(&format!("SELECT * FROM jobs WHERE {of}"))?;
    let mut rows = statement.query(params_from_iter(stores))?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let key = RowKey {
            place: row.get("place")?,
            store: row.get("store")?,
            queue: row.get("queue")?,
            id: row.get("id")?,
            source: row.get("source")?,
        };
        let job = job_of(row, clock)?;
        bytes += job.as_ref().map_or(0, |job| job.payload.len());
        // A larger payload travels alone.
        if !batch.is_empty() && bytes > BATCH_PAYLOAD_BYTES_MAX {
            break;
        }
        let later = match &job {
            Ok(job) if job.on_conflict != OnConflict::Keep => later(tx, &key)?,
            _ => Vec::new(),
        };
        batch.push(Waiting { key, job, unsure: row.get("unsure")?, later });
    }
    Ok(batch)
}

/// As [`Waiting::later`]. What one call has brought in is no more than a batch.
fn later(tx: &Transaction<'_>, key: &RowKey) -> rusqlite::Result<Vec<String>> {
    let mut statement = tx.prepare_cached(
        "SELECT source FROM jobs WHERE id = ?1 AND queue = ?2 AND place > ?3 AND unsure AND aside IS NULL \
         AND on_conflict <> 'keep' ORDER BY place LIMIT ?4",
    )?;
    let rows = statement.query_map((&key.id, &key.queue, key.place, BATCH_MAX), |row| row.get(0))?;
    rows.collect()
}

/// The job of a row; what is wrong where somebody has changed it by hand.
fn job_of(row: &Row<'_>, clock: &dyn HostClock) -> rusqlite::Result<Result<NewJob, String>> {
    let text = |name: &str| row.get::<_, String>(name);
    let (delay_ms, at_ms): (Option<u64>, Option<u64>) = (row.get("delay_ms")?, row.get("at_ms")?);
    let (kind, queue, id) = (text("kind")?, text("queue")?, text("id")?);
    let (priority, on_conflict) = (text("priority")?, text("on_conflict")?);
    let meta: Option<String> = row.get("meta")?;
    let parts = || -> Result<NewJob, String> {
        let name = |text: &str| Name::new(text).map_err(|error| error.to_string());
        let kind = name(&kind)?;
        Ok(NewJob {
            id: Some(JobId::new(&id).map_err(|error| error.to_string())?),
            queue: name(&queue)?,
            priority: priority.parse()?,
            due: match (delay_ms, at_ms) {
                (Some(ms), None) => Due::In(ms),
                (None, Some(ms)) => Due::At(ms),
                _ => return Err("expected either a delay or an instant".to_owned()),
            },
            on_conflict: on_conflict.parse()?,
            meta: match &meta {
                Some(meta) => serde_json::from_str(meta).map_err(|error| format!("meta: {error}"))?,
                None => Vec::new(),
            },
            ..NewJob::new(kind)
        })
    };
    let facts = NewJob {
        age_ms: age_ms(row, clock)?.min(AGE_MS_MAX),
        payload: row.get::<_, Vec<u8>>("payload")?.into(),
        max_attempts: row.get("max_attempts")?,
        timeout_ms: row.get("timeout_ms")?,
        traceparent: row.get("traceparent")?,
        source: text("source")?,
        ..match parts() {
            Ok(job) => job,
            Err(problem) => return Ok(Err(problem)),
        }
    };
    Ok(facts.validate().map(|()| facts))
}

/// How long ago a job was accepted: by the time since the boot; after a reboot by the wall clock, which may have been set back.
fn age_ms(row: &Row<'_>, clock: &dyn HostClock) -> rusqlite::Result<u64> {
    let (boot, before): (String, u64) = (row.get("boot")?, row.get("age_ms")?);
    let here = if boot == clock.boot_id() {
        clock.boot_us().saturating_sub(row.get("boot_us")?) / 1_000
    } else {
        (clock.wall_us() / 1_000).saturating_sub(row.get("wall_ms")?)
    };
    Ok(here.saturating_add(before))
}
