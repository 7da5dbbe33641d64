//! Jobs' logs: written under the lease, read by attempt.

use super::SqliteStore;
use super::link::Promise;
use super::read::locate;
use super::tx::Tx;
use crate::queue::checks::too_many;
use crate::queue::{AttemptLog, BATCH_MAX, JobRef, LogWrite, Settled, StoreError};

/// Attempts of which the logs are kept: the last ones.
const ATTEMPTS_KEPT: u32 = 20;

impl SqliteStore {
    pub(super) async fn log_jobs(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError> {
        if logs.is_empty() {
            return Ok(Vec::new());
        }
        if logs.len() > BATCH_MAX {
            return Err(too_many(logs.len()));
        }
        let logs = logs.to_vec();
        self.link.write(Promise::Loose, move |tx| logs.iter().map(|log| write(tx, log)).collect()).await
    }

    pub(super) async fn job_logs(&self, job: &JobRef) -> Result<Vec<AttemptLog>, StoreError> {
        let job = job.clone();
        self.link
            .read(move |tx| {
                let Some(record) = locate(tx, &job)? else { return Ok(Vec::new()) };
                tx.rows(
                    "SELECT attempt, text FROM logs WHERE record = ?1 ORDER BY attempt",
                    [record],
                    |row| Ok(AttemptLog { attempt: row.get(0)?, text: row.get(1)? }),
                )
            })
            .await
    }
}

/// A late log is answered and not counted: the settlement that follows it is.
fn write(tx: &Tx<'_>, log: &LogWrite) -> Result<Settled, StoreError> {
    let lease = &log.lease;
    let holds = tx.row(
        "SELECT 1 FROM leases WHERE record = ?1 AND ns = ?2 AND session = ?3 AND token = ?4",
        (lease.record, tx.ns, &*lease.session.0, lease.token),
        |_| Ok(()),
    )?;
    if holds.is_none() {
        return Ok(Settled::Stale);
    }
    tx.exec("INSERT OR REPLACE INTO logs VALUES (?1, ?2, ?3)", (lease.record, log.attempt, &log.text))?;
    tx.exec(
        "DELETE FROM logs WHERE record = ?1 AND attempt <= \
         (SELECT attempt FROM logs WHERE record = ?1 ORDER BY attempt DESC LIMIT 1 OFFSET ?2)",
        (lease.record, ATTEMPTS_KEPT),
    )?;
    Ok(Settled::Done)
}
