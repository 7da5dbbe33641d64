//! Counters: that each is what it counts. One that is not is counted again in the transaction that mends it.

use super::{Findings, Sight};
use crate::queue::StoreError;
use crate::queue::sqlite::SqliteStore;
use crate::queue::sqlite::finish::ID_COST;
use crate::queue::sqlite::tx::Tx;

impl SqliteStore {
    pub(super) async fn look_at_counters(&self, repair: bool, all: &mut Findings) -> Result<(), StoreError> {
        // A look at all of them first: only what is wrong is counted while others wait.
        let mut seen = Findings { number_max: all.number_max, ..Findings::default() };
        self.step(false, &mut seen, |tx, sight| look(tx, sight).map(|()| None::<()>)).await?;
        if !repair || seen.list.is_empty() {
            all.add(seen.list);
            return Ok(());
        }
        self.step(true, all, |tx, sight| look(tx, sight).map(|()| None::<()>)).await.map(drop)
    }
}

fn look(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    kept(tx, sight)?;
    buckets(tx, sight)?;
    remembered(tx, sight)?;
    totals(tx, sight)?;
    sequence(tx, sight)
}

/// How many finished jobs each queue keeps, and what they weigh.
fn kept(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let wrong = tx.rows(
        "WITH there AS (SELECT queue, state, count(*) AS jobs, sum(bytes) AS bytes FROM past WHERE queue IS NOT NULL GROUP BY queue, state), \
         both AS (SELECT queue, state FROM there UNION SELECT queue, state FROM kept) \
         SELECT queue, state, ifnull(kept.jobs, 0), ifnull(kept.bytes, 0), ifnull(there.jobs, 0), ifnull(there.bytes, 0) \
         FROM both LEFT JOIN there USING (queue, state) LEFT JOIN kept USING (queue, state) \
         WHERE (ifnull(kept.jobs, 0), ifnull(kept.bytes, 0)) <> (ifnull(there.jobs, 0), ifnull(there.bytes, 0)) \
         AND queue NOT IN (SELECT queue FROM queues WHERE ns <> ?1)",
        [tx.ns],
        |row| {
            let counts: [i64; 4] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, counts))
        },
    )?;
    for (queue, state, [jobs, bytes, jobs_there, bytes_there]) in wrong {
        let message = format!("{jobs} jobs of {bytes} bytes: there are {jobs_there} of {bytes_there}");
        sight.found("counter", format!("kept of queue {queue}, state {state}"), message, "counted again")?;
        if sight.repair {
            tx.exec(
                "INSERT OR REPLACE INTO kept (queue, state, jobs, bytes) VALUES (?1, ?2, ?3, ?4)",
                (queue, state, jobs_there, bytes_there),
            )?;
        }
    }
    Ok(())
}

/// What each bucket of state holds.
fn buckets(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let wrong = tx.rows(
        "WITH there AS (SELECT bucket, count(*) AS entries, sum(length(CAST(key AS BLOB)) + length(value)) AS bytes \
         FROM state WHERE ns = ?1 GROUP BY bucket), told AS (SELECT bucket, entries, bytes FROM buckets WHERE ns = ?1), \
         both AS (SELECT bucket FROM there UNION SELECT bucket FROM told) \
         SELECT bucket, told.entries, told.bytes, ifnull(there.entries, 0), ifnull(there.bytes, 0) \
         FROM both LEFT JOIN there USING (bucket) LEFT JOIN told USING (bucket) \
         WHERE (told.entries, told.bytes) IS NOT (there.entries, there.bytes)",
        [tx.ns],
        |row| {
            let told: (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
            let there: (i64, i64) = (row.get(3)?, row.get(4)?);
            Ok((row.get::<_, String>(0)?, told, there))
        },
    )?;
    for (bucket, told, (entries, bytes)) in wrong {
        let told = match told {
            (Some(entries), Some(bytes)) => format!("{entries} entries of {bytes} bytes"),
            _ => "nothing".to_owned(),
        };
        let message = format!("{told}: there are {entries} of {bytes}");
        sight.found("counter", format!("bucket {bucket}"), message, "counted again")?;
        if sight.repair {
            tx.exec("DELETE FROM buckets WHERE ns = ?1 AND bucket = ?2", (tx.ns, &bucket))?;
            if entries > 0 {
                tx.exec(
                    "INSERT INTO buckets (ns, bucket, entries, bytes) VALUES (?1, ?2, ?3, ?4)",
                    (tx.ns, &bucket, entries, bytes),
                )?;
            }
        }
    }
    Ok(())
}

/// What the remembered ids weigh.
fn remembered(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let count = |sql: &str| tx.row(sql, (tx.ns, ID_COST), |row| row.get::<_, i64>(0));
    let counted =
        tx.row("SELECT id_bytes FROM namespaces WHERE ns = ?1", [tx.ns], |row| row.get::<_, i64>(0))?;
    let there = count(
        "SELECT ifnull(sum(2 * length(CAST(id AS BLOB)) + ?2), 0) FROM ids WHERE ns = ?1 AND record IS NULL",
    )?;
    if let (Some(counted), Some(there)) = (counted, there)
        && counted != there
    {
        let message = format!("{counted}: what it counts is {there}");
        sight.found("counter", "namespace id_bytes", message, "counted again")?;
        if sight.repair {
            tx.exec("UPDATE namespaces SET id_bytes = ?2 WHERE ns = ?1", (tx.ns, there))?;
        }
    }
    Ok(())
}

/// What counts for ever cannot be counted again: it only must not be below 0.
fn totals(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let wrong = tx.rows(
        "SELECT name FROM queues WHERE ns = ?1 AND (enqueued < 0 OR completed < 0 OR failed < 0 OR dropped < 0) \
         UNION ALL SELECT '' FROM namespaces WHERE ns = ?1 AND stale < 0",
        [tx.ns],
        |row| row.get::<_, String>(0),
    )?;
    for queue in wrong {
        sight.found("counter", format!("totals of {queue}"), "some is below 0", "started anew at 0")?;
        if sight.repair {
            tx.exec(
                "UPDATE queues SET enqueued = max(enqueued, 0), completed = max(completed, 0), failed = max(failed, 0), \
                 dropped = max(dropped, 0) WHERE ns = ?1",
                [tx.ns],
            )?;
            tx.exec("UPDATE namespaces SET stale = max(stale, 0) WHERE ns = ?1", [tx.ns])?;
        }
    }
    Ok(())
}

/// Record ids and places are the sequence's: were it behind, some would be given twice.
fn sequence(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let last = tx.row("SELECT last FROM sequence", [], |row| row.get::<_, i64>(0))?;
    let largest = sight.number_max as i64;
    if last.unwrap_or(0) < largest {
        let message = format!("{last:?} is behind the last number in use, {largest}");
        sight.found("sequence", "sequence", message, "raised to it")?;
        if sight.repair {
            tx.exec("INSERT OR REPLACE INTO sequence VALUES (1, ?1)", [largest])?;
        }
    }
    Ok(())
}

/// Where nothing was found, the records are as many as the places that they have.
pub(super) fn take_census(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let of_ns = "IN (SELECT lane FROM lanes JOIN queues USING (queue) WHERE ns = ?1)";
    let records = tx.number(&format!("SELECT count(*) FROM jobs WHERE lane {of_ns}"), [tx.ns])?;
    let places = tx.number(&format!("SELECT count(*) FROM waiting WHERE lane {of_ns}"), [tx.ns])?
        + tx.number("SELECT count(*) FROM leases WHERE ns = ?1", [tx.ns])?
        + tx.number(
            "SELECT count(*) FROM past WHERE queue IN (SELECT queue FROM queues WHERE ns = ?1)",
            [tx.ns],
        )?;
    if records != places {
        let message = format!(
            "{records} jobs have {places} places in lanes, hands of runners and lists of finished jobs"
        );
        sight.found("count", "jobs", message, "")?;
    }
    Ok(())
}
