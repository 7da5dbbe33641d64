//! Looking at jobs: where a job is, and everything about it.

use super::SqliteStore;
use super::logs::progress;
use super::rows::{JOB_COLUMNS, LeaseRow, PastRow, read_job};
use super::sessions::runner_of;
use super::tx::Tx;
use crate::job::{Job, JobView};
use crate::names::{JobId, Name};
use crate::queue::checks::generated_record;
use crate::queue::life::{Known, LeaseFacts, Owner, Past, netstring, read_event, view};
use crate::queue::{JobRef, Lane, StoreError};

impl SqliteStore {
    pub(super) async fn find_job(
        &self,
        queue: Option<&Name>,
        id: &JobId,
    ) -> Result<Vec<JobView>, StoreError> {
        let (queue, id) = (queue.cloned(), id.clone());
        self.link
            .read(move |tx| {
                let mut found = Vec::new();
                for queue in queues(tx, queue.as_ref())? {
                    let job = JobRef { queue, id: id.clone() };
                    if let Some(record) = locate(tx, &job)? {
                        found.extend(view_job(tx, record)?);
                    }
                }
                Ok(found)
            })
            .await
    }

    pub(super) async fn all_lanes(&self) -> Result<Vec<Lane>, StoreError> {
        self.link
            .read(|tx| {
                let rows = tx.rows(
                    "SELECT name, kind FROM queues JOIN lanes USING (queue) WHERE ns = ?1 ORDER BY name, kind",
                    [tx.ns],
                    |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
                )?;
                let lane = |(queue, kind): (String, String)| {
                    Some(Lane { queue: Name::new(&queue).ok()?, kind: Name::new(&kind).ok()? })
                };
                Ok(rows.into_iter().filter_map(lane).collect())
            })
            .await
    }
}

/// The queue, or all of them.
fn queues(tx: &Tx<'_>, queue: Option<&Name>) -> Result<Vec<Name>, StoreError> {
    if let Some(queue) = queue {
        return Ok(vec![queue.clone()]);
    }
    let names = tx.rows("SELECT name FROM queues WHERE ns = ?1 ORDER BY name", [tx.ns], |row| {
        row.get::<_, String>(0)
    })?;
    Ok(names.iter().filter_map(|name| Name::new(name).ok()).collect())
}

/// The record of a job.
pub(super) fn locate(tx: &Tx<'_>, job: &JobRef) -> Result<Option<u64>, StoreError> {
    let Some(queue) = tx.find_queue(&job.queue)? else { return Ok(None) };
    // An id that the store made has no entry: its record tells.
    if let Some(record) = generated_record(&job.id) {
        let made = tx.row(
            "SELECT 1 FROM jobs JOIN lanes USING (lane) WHERE record = ?1 AND queue = ?2 AND id = ?3 AND given = 0",
            (record, queue, job.id.as_str()),
            |_| Ok(()),
        )?;
        if made.is_some() {
            return Ok(Some(record));
        }
    }
    let found =
        tx.row("SELECT record FROM ids WHERE queue = ?1 AND id = ?2", (queue, job.id.as_str()), |row| {
            row.get::<_, Option<u64>>(0)
        })?;
    Ok(found.flatten())
}

/// What was asked for, and the due time as it was enqueued. `None` for a job that is not there or cannot be read.
pub(super) fn load_job(tx: &Tx<'_>, record: u64) -> Result<Option<(Job, u64)>, StoreError> {
    let sql = format!(
        "SELECT {JOB_COLUMNS}, name, kind FROM jobs JOIN lanes USING (lane) JOIN queues USING (queue) \
         WHERE record = ?1 AND ns = ?2"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let (queue, kind) = (row.get::<_, String>(10)?, row.get::<_, String>(11)?);
        let (Ok(queue), Ok(kind)) = (Name::new(&queue), Name::new(&kind)) else { return Ok(None) };
        read_job(row, Lane { queue, kind })
    };
    Ok(tx.row(&sql, (record, tx.ns), read)?.flatten())
}

/// Everything about a job, if it is there.
pub(super) fn view_job(tx: &Tx<'_>, record: u64) -> Result<Option<JobView>, StoreError> {
    let Some((job, due_ms)) = load_job(tx, record)? else { return Ok(None) };
    let past = PastRow::load(tx, record)?.map(|past| {
        let mut rest = &past.history[..];
        let events = std::iter::from_fn(|| netstring(&mut rest)).filter_map(read_event).collect();
        Past {
            state: past.state.as_bytes().first().copied().unwrap_or(b'w'),
            attempt: past.attempt,
            max_attempts: past.max_attempts,
            crashes: past.crashes,
            due_ms: past.due_ms,
            settled: past.settled.map(|(session, token)| Owner { session, token }),
            result: past.result.unwrap_or_default().into(),
            events,
        }
    });
    let lease = LeaseRow::load(tx, record)?;
    let runner = match &lease {
        Some(lease) => runner_of(tx, &lease.session)?,
        None => String::new(),
    };
    let lease = lease.map(|lease| LeaseFacts {
        owner: Owner { session: lease.session, token: lease.token },
        attempt: lease.attempt,
        max_attempts: lease.max_attempts,
        crashes: lease.crashes,
        claimed_ms: lease.claimed_ms,
        due_ms: lease.due_ms,
    });
    let told = progress(tx, record)?;
    Ok(Some(view(Known { job, due_ms, past, lease, runner: &runner, told }, tx.now_ms)))
}
