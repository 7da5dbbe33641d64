//! Counting and pruning: what there is, and what retention does not keep any more.

use std::collections::{BTreeMap, HashMap};

use super::SqliteStore;
use super::finish::{Gone, expired, forget, remembered, trim_memory};
use super::link::Promise;
use super::tx::Tx;
use super::wakes::trim_signals;
use crate::names::Name;
use crate::queue::checks::random_text;
use crate::queue::{Counts, IdMemory, Pruned, QueueCounts, StoreError};

/// Jobs, and ids, that one prune removes.
const PRUNE_JOBS: u64 = 500;
/// Pages that one prune gives back to the disk.
const PAGES_GIVEN_BACK: u32 = 500;
/// Free pages that the file keeps for what comes.
const PAGES_KEPT: u64 = 2_000;

impl SqliteStore {
    pub(super) async fn store_id(&self) -> Result<String, StoreError> {
        let name = random_text(20)?;
        self.link
            .write(Promise::Loose, move |tx| {
                tx.exec(
                    "UPDATE namespaces SET identity = ifnull(identity, ?2) WHERE ns = ?1",
                    (tx.ns, name),
                )?;
                let id =
                    tx.row("SELECT identity FROM namespaces WHERE ns = ?1", [tx.ns], |row| row.get(0))?;
                id.ok_or_else(|| StoreError::Refused("a name that was made is not there".to_owned()))
            })
            .await
    }

    pub(super) async fn count_all(&self) -> Result<Counts, StoreError> {
        self.link.read(count).await
    }

    pub(super) async fn prune_all(&self) -> Result<Pruned, StoreError> {
        self.link.write(Promise::Loose, prune).await
    }
}

fn count(tx: &Tx<'_>) -> Result<Counts, StoreError> {
    let aside =
        |what: &str| tx.number("SELECT count(*) FROM aside WHERE ns = ?1 AND what = ?2", (tx.ns, what));
    let mut counts = Counts {
        queues: Vec::new(),
        now_ms: tx.now_ms,
        stale_total: tx.number("SELECT stale FROM namespaces WHERE ns = ?1", [tx.ns])?,
        orphans: aside("orphan")?,
        quarantined: aside("dirt")?,
    };
    let leases = leases(tx)?;
    let mut queues: BTreeMap<Name, (i64, QueueCounts)> = queues(tx)?;
    let lanes = tx.rows(
        "SELECT lane, name, kind FROM queues JOIN lanes USING (queue) WHERE ns = ?1 ORDER BY name, kind",
        [tx.ns],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)),
    )?;
    for (lane, queue, kind) in lanes {
        let (Ok(queue), Ok(kind)) = (Name::new(&queue), Name::new(&kind)) else { continue };
        let Some((_, counts)) = queues.get_mut(&queue) else { continue };
        counts.kinds.push(kind);
        count_lane(tx, lane, counts)?;
        let (held, running) = leases.get(&lane).copied().unwrap_or_default();
        counts.scheduled += held;
        counts.running += running;
    }
    for (number, counts) in queues.values_mut() {
        let kept = tx.rows("SELECT state, jobs FROM kept WHERE queue = ?1", [*number], |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?))
        })?;
        for (state, jobs) in kept {
            match &*state {
                "c" => counts.completed = jobs,
                "x" => counts.cancelled = jobs,
                _ => counts.dead = jobs,
            }
        }
    }
    counts.queues =
        queues.into_values().map(|(_, counts)| counts).filter(|q| q.paused || !q.kinds.is_empty()).collect();
    Ok(counts)
}

fn queues(tx: &Tx<'_>) -> Result<BTreeMap<Name, (i64, QueueCounts)>, StoreError> {
    let rows = tx.rows(
        "SELECT queue, name, paused, enqueued, completed, failed, dropped FROM queues WHERE ns = ?1",
        [tx.ns],
        |row| {
            let Ok(queue) = Name::new(&row.get::<_, String>(1)?) else { return Ok(None) };
            let counts = QueueCounts {
                paused: row.get(2)?,
                enqueued_total: row.get(3)?,
                completed_total: row.get(4)?,
                failed_total: row.get(5)?,
                dead_dropped_total: row.get(6)?,
                ..QueueCounts::none(queue.clone())
            };
            Ok(Some((queue, (row.get(0)?, counts))))
        },
    )?;
    Ok(rows.into_iter().flatten().collect())
}

/// Adds what waits in a lane.
fn count_lane(tx: &Tx<'_>, lane: i64, counts: &mut QueueCounts) -> Result<(), StoreError> {
    for part in 1..=4 {
        let (jobs, ready, oldest) = tx
            .row(
                "SELECT count(*), ifnull(sum(due_ms <= ?3), 0), min(due_ms) FROM waiting WHERE lane = ?1 AND part = ?2",
                (lane, part, tx.now_ms),
                |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?, row.get::<_, Option<i64>>(2)?)),
            )?
            .unwrap_or_default();
        counts.ready += ready;
        counts.scheduled += jobs - ready;
        let oldest = oldest.and_then(|due_ms| u64::try_from(due_ms).ok());
        counts.oldest_due_ms = [counts.oldest_due_ms, oldest].into_iter().flatten().min();
    }
    Ok(())
}

/// By lane, how many jobs runners hold for their moment, and how many run.
fn leases(tx: &Tx<'_>) -> Result<HashMap<i64, (u64, u64)>, StoreError> {
    let rows = tx.rows(
        "SELECT lane, sum(due_ms > ?2), sum(due_ms <= ?2) FROM leases WHERE ns = ?1 GROUP BY lane",
        (tx.ns, tx.now_ms),
        |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))),
    )?;
    Ok(rows.into_iter().collect())
}

/// By queue, the dead letters that limits have ever dropped.
fn dead_dropped(tx: &Tx<'_>) -> Result<Vec<(Name, u64)>, StoreError> {
    let rows = tx.rows("SELECT name, dropped FROM queues WHERE ns = ?1", [tx.ns], |row| {
        Ok((row.get::<_, String>(0)?, row.get(1)?))
    })?;
    Ok(rows.into_iter().filter_map(|(name, dropped)| Some((Name::new(&name).ok()?, dropped))).collect())
}

/// Removes finished jobs and remembered ids whose time is over, and gives room back to the disk, up to a bound.
fn prune(tx: &Tx<'_>) -> Result<Pruned, StoreError> {
    let mut pruned = Pruned::default();
    let mut gone = Gone::default();
    for old in expired(tx, PRUNE_JOBS)? {
        gone.drop(tx, old)?;
        pruned.jobs += 1;
    }
    let newly_remembered = gone.count(tx)?;
    for (queue, id) in remembered(tx, tx.now_ms, PRUNE_JOBS)? {
        forget(tx, queue, &id)?;
        pruned.ids += 1;
    }
    trim_memory(tx, IdMemory::default().bytes, newly_remembered + 100)?;
    trim_signals(tx)?;
    pruned.dead_dropped = dead_dropped(tx)?;
    pruned.more = pruned.jobs >= PRUNE_JOBS || pruned.ids >= PRUNE_JOBS;
    let free = tx
        .connection()
        .pragma_query_value(None, "freelist_count", |row| row.get::<_, u64>(0))
        .map_err(|error| tx.error(&error))?;
    if free > PAGES_KEPT {
        tx.rows(&format!("PRAGMA incremental_vacuum({PAGES_GIVEN_BACK})"), [], |_| Ok(()))?;
    }
    let over =
        tx.number("SELECT id_bytes FROM namespaces WHERE ns = ?1", [tx.ns])? > IdMemory::default().bytes;
    let rest = pruned.more || over || free > PAGES_KEPT;
    pruned.again_ms = if rest { Some(0) } else { next_end(tx)?.map(|at| at.saturating_sub(tx.now_ms)) };
    Ok(pruned)
}

/// When the first of the finished jobs and of the remembered ids is to go.
fn next_end(tx: &Tx<'_>) -> Result<Option<u64>, StoreError> {
    let job = tx.row(
        "SELECT min((SELECT expire_ms FROM past WHERE past.queue = queues.queue AND expire_ms IS NOT NULL \
         ORDER BY expire_ms LIMIT 1)) FROM queues WHERE ns = ?1",
        [tx.ns],
        |row| row.get::<_, Option<u64>>(0),
    )?;
    let id = tx.row(
        "SELECT forget_ms FROM ids WHERE ns = ?1 AND record IS NULL ORDER BY forget_ms LIMIT 1",
        [tx.ns],
        |row| row.get::<_, Option<u64>>(0),
    )?;
    Ok([job.flatten(), id.flatten()].into_iter().flatten().min())
}
