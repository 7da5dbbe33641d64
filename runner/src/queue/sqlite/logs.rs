//! Jobs' logs: written under the lease, read by attempt.

use super::SqliteStore;
use super::link::Promise;
use super::read::locate;
use super::tx::Tx;
use crate::effects::ProgressSeen;
use crate::queue::checks::check_logs;
use crate::queue::life::{Owner, Told};
use crate::queue::{AttemptLog, JobRef, LogWrite, Settled, StoreError};

/// Attempts of which the logs are kept: the last ones.
const ATTEMPTS_KEPT: u32 = 20;

impl SqliteStore {
    pub(super) async fn log_jobs(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError> {
        if logs.is_empty() {
            return Ok(Vec::new());
        }
        check_logs(logs)?;
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
    if let Some(progress) = &log.progress {
        let seen = ProgressSeen {
            percent: progress.percent,
            message: progress.message.clone(),
            attempt: log.attempt,
            at_us: tx.now_us,
        };
        let by = Owner { session: lease.session.to_string(), token: lease.token };
        save_progress(tx, lease.record, &Told { by, seen })?;
    }
    Ok(Settled::Done)
}

/// What a job has last said of its progress.
pub(super) fn progress(tx: &Tx<'_>, record: u64) -> Result<Option<Told>, StoreError> {
    tx.row(
        "SELECT session, token, percent, message, attempt, at_us FROM progress WHERE record = ?1",
        [record],
        |row| {
            let by = Owner { session: row.get(0)?, token: row.get(1)? };
            let seen = ProgressSeen {
                percent: row.get(2)?,
                message: row.get(3)?,
                attempt: row.get(4)?,
                at_us: row.get(5)?,
            };
            Ok(Told { by, seen })
        },
    )
}

pub(super) fn save_progress(tx: &Tx<'_>, record: u64, told: &Told) -> Result<(), StoreError> {
    let Told { by, seen } = told;
    tx.exec(
        "INSERT OR REPLACE INTO progress (record, attempt, session, token, at_us, percent, message) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        (record, seen.attempt, &by.session, by.token, seen.at_us, seen.percent, &seen.message),
    )
    .map(drop)
}

pub(super) fn drop_progress(tx: &Tx<'_>, record: u64) -> Result<(), StoreError> {
    tx.exec("DELETE FROM progress WHERE record = ?1", [record]).map(drop)
}
