//! What hangs on jobs beside their places: pasts, logs and ids.

use super::{STEP, Sight, set_aside};
use crate::names::Name;
use crate::queue::StoreError;
use crate::queue::checks::generated_record;
use crate::queue::sqlite::rows::finished_state;
use crate::queue::sqlite::tx::Tx;

pub(super) fn look_at_pasts(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<i64>,
) -> Result<Option<Option<i64>>, StoreError> {
    let pasts = tx.rows(
        "SELECT past.record, jobs.record IS NULL FROM past LEFT JOIN jobs ON jobs.record = past.record \
         WHERE past.record > ?1 ORDER BY past.record LIMIT ?2",
        (from.unwrap_or(i64::MIN), STEP),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)),
    )?;
    for (record, _) in pasts.iter().filter(|(_, orphan)| *orphan) {
        sight.found("orphan-past", format!("past of {record}"), "its job has no record", "set aside")?;
        if sight.repair {
            set_aside(tx, "past", "record = ?1", [*record])?;
        }
    }
    Ok(pasts.last().map(|(record, _)| Some(*record)))
}

pub(super) fn look_at_logs(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<(i64, i64)>,
) -> Result<Option<Option<(i64, i64)>>, StoreError> {
    let (record, attempt) = from.unwrap_or((i64::MIN, 0));
    let logs = tx.rows(
        "SELECT logs.record, attempt, jobs.record IS NULL FROM logs LEFT JOIN jobs ON jobs.record = logs.record \
         WHERE (logs.record, attempt) > (?1, ?2) ORDER BY logs.record, attempt LIMIT ?3",
        (record, attempt, STEP),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, bool>(2)?)),
    )?;
    for (record, attempt, _) in logs.iter().filter(|(_, _, orphan)| *orphan) {
        sight.found("orphan-log", format!("log {record}:{attempt}"), "its job has no record", "set aside")?;
        if sight.repair {
            set_aside(tx, "logs", "record = ?1 AND attempt = ?2", (*record, *attempt))?;
        }
    }
    Ok(logs.last().map(|(record, attempt, _)| Some((*record, *attempt))))
}

pub(super) fn look_at_progress(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<i64>,
) -> Result<Option<Option<i64>>, StoreError> {
    let told = tx.rows(
        "SELECT progress.record, jobs.record IS NULL FROM progress LEFT JOIN jobs ON jobs.record = progress.record \
         WHERE progress.record > ?1 ORDER BY progress.record LIMIT ?2",
        (from.unwrap_or(i64::MIN), STEP),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)),
    )?;
    for (record, _) in told.iter().filter(|(_, orphan)| *orphan) {
        let place = format!("progress of {record}");
        sight.found("orphan-progress", place, "its job has no record", "set aside")?;
        if sight.repair {
            set_aside(tx, "progress", "record = ?1", [*record])?;
        }
    }
    Ok(told.last().map(|(record, _)| Some(*record)))
}

/// Versions are the sequence's, as records are.
pub(super) fn look_at_state(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<(String, String)>,
) -> Result<Option<Option<(String, String)>>, StoreError> {
    let (bucket, key) = from.unwrap_or_default();
    let entries = tx.rows(
        "SELECT bucket, key, version FROM state WHERE ns = ?1 AND (bucket, key) > (?2, ?3) ORDER BY bucket, key LIMIT ?4",
        (tx.ns, bucket, key, STEP),
        |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)),
    )?;
    for (bucket, key, version) in &entries {
        match u64::try_from(*version) {
            Ok(version) if version > 0 && Name::new(bucket).is_ok() => sight.saw(version),
            _ => {
                let place = format!("entry {key:?} of bucket {bucket}");
                sight.found("bad-state", place, "it cannot be read", "set aside")?;
                if sight.repair {
                    set_aside(tx, "state", "ns = ?1 AND bucket = ?2 AND key = ?3", (tx.ns, bucket, key))?;
                }
            }
        }
    }
    Ok(entries.last().map(|(bucket, key, _)| Some((bucket.clone(), key.clone()))))
}

/// An id as it is, whatever is in it.
struct IdRow {
    queue: i64,
    id: String,
    record: Option<i64>,
    state: Option<String>,
    forget_ms: Option<i64>,
    /// The namespace of its queue, and its own.
    ns: (Option<i64>, i64),
    /// Whether its record is a job of that queue and id.
    leads: bool,
}

pub(super) fn look_at_ids(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<(i64, String)>,
) -> Result<Option<Option<(i64, String)>>, StoreError> {
    let (queue, id) = from.unwrap_or((i64::MIN, String::new()));
    let rows = tx.rows(
        "SELECT ids.queue, ids.id, ids.record, ids.state, ids.forget_ms, queues.ns, ids.ns, EXISTS (SELECT 1 FROM jobs JOIN lanes \
         USING (lane) WHERE jobs.record = ids.record AND jobs.id = ids.id AND given = 1 AND lanes.queue = ids.queue) \
         FROM ids LEFT JOIN queues USING (queue) WHERE (ids.queue, ids.id) > (?1, ?2) ORDER BY ids.queue, ids.id LIMIT ?3",
        (queue, id, STEP),
        |row| {
            Ok(IdRow {
                queue: row.get(0)?,
                id: row.get(1)?,
                record: row.get(2)?,
                state: row.get(3)?,
                forget_ms: row.get(4)?,
                ns: (row.get(5)?, row.get(6)?),
                leads: row.get(7)?,
            })
        },
    )?;
    for row in rows.iter().filter(|row| row.ns.0.is_none_or(|ns| ns == tx.ns)) {
        look_at_id(tx, sight, row)?;
    }
    Ok(rows.last().map(|row| Some((row.queue, row.id.clone()))))
}

fn look_at_id(tx: &Tx<'_>, sight: &mut Sight, row: &IdRow) -> Result<(), StoreError> {
    let place = format!("id {} of queue {}", row.id, row.queue);
    let remembered = row.state.as_deref().and_then(finished_state).is_some() && row.forget_ms.is_some();
    let message = match row.record {
        _ if row.ns.0 != Some(row.ns.1) => Some("it is of no queue of its namespace"),
        Some(_) if !row.leads => Some("it leads to no job of its queue and name"),
        None if !remembered => Some("it is remembered and would never be forgotten"),
        _ => None,
    };
    if let Some(message) = message {
        sight.found("wrong-id", place, message, "set aside")?;
        if sight.repair {
            set_aside(tx, "ids", "queue = ?1 AND id = ?2", (row.queue, row.id.clone()))?;
        }
        return Ok(());
    }
    let looks_made = row.id.parse().is_ok_and(|id| generated_record(&id).is_some());
    if looks_made && tx.number("SELECT lookalikes FROM namespaces WHERE ns = ?1", [tx.ns])? == 0 {
        sight.found("unlisted-id", place, "a new job might get the same id", "new ids keep clear of it")?;
        if sight.repair {
            tx.exec("UPDATE namespaces SET lookalikes = 1 WHERE ns = ?1", [tx.ns])?;
        }
    }
    Ok(())
}
