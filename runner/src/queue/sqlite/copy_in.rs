//! Things from another store on their way in, all or none; what is there already is left alone.

use super::SqliteStore;
use super::disk::check_room;
use super::finish::{PAST_COST, count_kept, count_remembered};
use super::heads::Heads;
use super::link::Promise;
use super::logs::save_progress;
use super::rows::{End, JobRow, PastRow, Waiting, letter_of, part_of, priority_number};
use super::state::{Held, entry};
use super::tx::{LaneNumbers, Tx};
use crate::effects::StateEntry;
use crate::job::Job;
use crate::names::JobId;
use crate::queue::checks::generated_record;
use crate::queue::copy::{
    ExportedJob, ExportedQueue, ExportedState, JobEnd, RememberedId, Stretches, check_import, last_number,
};
use crate::queue::life::{Owner, Told, netstring};
use crate::queue::{Exported, Imported, Lane, Source, StoreError};

impl SqliteStore {
    pub(super) async fn import_items(
        &self,
        source: &Source,
        items: &[Exported],
    ) -> Result<Vec<Imported>, StoreError> {
        check_import(items)?;
        let (source, items) = (source.clone(), items.to_vec());
        self.link
            .write(Promise::Kept, move |tx| {
                check_room(tx.path(), items.iter().map(|item| item.bytes() as u64).sum())?;
                let last = last_number(&source, &items);
                let mut call = Import::begin(tx, &source, last)?;
                let answers = items.iter().map(|item| call.take(item)).collect::<Result<Vec<_>, _>>()?;
                call.end()?;
                Ok(answers)
            })
            .await
    }

    pub(super) async fn import_end(&self, source: &Source) -> Result<(), StoreError> {
        let source = source.clone();
        self.link
            .write(Promise::Kept, move |tx| {
                let mut call = Import::begin(tx, &source, source.last)?;
                call.stretches.end(source.last);
                call.end()
            })
            .await
    }
}

/// One call's import.
struct Import<'a> {
    tx: &'a Tx<'a>,
    source: String,
    stretches: Stretches,
    heads: Heads,
}

impl<'a> Import<'a> {
    /// Makes room for the source's numbers up to `last`.
    fn begin(tx: &'a Tx<'a>, source: &Source, last: u64) -> Result<Self, StoreError> {
        let mut stretches = Stretches::read(&known(tx, &source.name, "")?.unwrap_or_default());
        let sequence = tx.number("SELECT last FROM sequence", [])?;
        let reached = stretches.reach(last, sequence);
        if reached > sequence {
            tx.exec("UPDATE sequence SET last = ?1", [reached])?;
        }
        Ok(Self { tx, source: source.name.clone(), stretches, heads: Heads::default() })
    }

    fn end(self) -> Result<(), StoreError> {
        remember(self.tx, &self.source, "", &self.stretches.text())?;
        self.heads.signal(self.tx)
    }

    fn take(&mut self, item: &Exported) -> Result<Imported, StoreError> {
        match item {
            Exported::Job(job) => self.job(job),
            Exported::Id(id) => self.id(id),
            Exported::Queue(queue) => self.queue(queue),
            Exported::State(state) => self.state(state),
        }
    }

    fn state(&self, exported: &ExportedState) -> Result<Imported, StoreError> {
        let (tx, StateEntry { key, found }) = (self.tx, &exported.entry);
        if entry(tx, &exported.bucket, key)?.is_some() {
            return Ok(Imported::There);
        }
        if self.stretches.is_complete(found.version, 0) {
            return Ok(Imported::Before);
        }
        let mut held = Held::load(tx, &exported.bucket)?;
        held.put(tx, key, Some(&found.value), self.stretches.place(found.version))?;
        held.save(tx)?;
        Ok(Imported::Copied)
    }

    fn job(&mut self, exported: &ExportedJob) -> Result<Imported, StoreError> {
        let (tx, job) = (self.tx, &exported.job);
        let lane = tx.lane(&Lane { queue: job.queue.clone(), kind: job.kind.clone() })?;
        if is_taken(tx, lane.queue, &job.id)? {
            return Ok(Imported::There);
        }
        if self.stretches.is_complete(exported.record, exported.place) {
            return Ok(Imported::Before);
        }
        let (record, place) = (self.stretches.place(exported.record), self.stretches.place(exported.place));
        insert(tx, record, lane, job, exported.due_ms, true)?;
        take_id(tx, lane.queue, &job.id, Some(record))?;
        for log in &exported.logs {
            tx.exec("INSERT OR REPLACE INTO logs VALUES (?1, ?2, ?3)", (record, log.attempt, &log.text))?;
        }
        if let Some(seen) = &exported.progress {
            // Nobody's any more: what tells it from that of a later attempt is its number.
            let by = Owner { session: "-".to_owned(), token: 0 };
            save_progress(tx, record, &Told { by, seen: seen.clone() })?;
        }
        if !exported.is_fresh() {
            self.past(record, place, lane, exported)?;
        }
        if exported.end.is_none() {
            let entry = Waiting {
                lane: lane.lane,
                part: part_of(job.priority, exported.crashes),
                due_ms: exported.due_ms,
                place,
                record,
                attempt: exported.attempt,
                crashes: exported.crashes,
            };
            self.heads.put(tx, &entry)?;
        }
        Ok(Imported::Copied)
    }

    fn past(
        &self,
        record: u64,
        place: u64,
        lane: LaneNumbers,
        exported: &ExportedJob,
    ) -> Result<(), StoreError> {
        let tx = self.tx;
        let mut rest = &exported.history[..];
        let events = std::iter::from_fn(|| netstring(&mut rest)).count();
        let mut past = PastRow::fresh(exported.max_attempts, exported.crashes, exported.due_ms, place);
        past.attempt = exported.attempt;
        past.result = Some(exported.result.to_vec()).filter(|result| !result.is_empty());
        (past.events, past.history) = (events as u32, exported.history.to_vec());
        if let Some(JobEnd { state, at_ms, expires_ms, forget_ms }) = exported.end {
            let letter = letter_of(state);
            let weight = JobRow::load_unleased(tx, record, lane)?.map_or(0, |job| job.bytes);
            let bytes = (weight + exported.history.len() + exported.result.len() + PAST_COST) as u64;
            past.state = letter.to_owned();
            past.end =
                Some(End { queue: lane.queue, ended_ms: at_ms, bytes, expire_ms: expires_ms, forget_ms });
            count_kept(tx, lane.queue, letter, 1, bytes as i64)?;
        }
        past.save(tx, record)
    }

    fn id(&self, remembered: &RememberedId) -> Result<Imported, StoreError> {
        let tx = self.tx;
        let queue = tx.make_queue(&remembered.queue)?;
        if remembered.forget_ms <= tx.now_ms || is_taken(tx, queue, &remembered.id)? {
            return Ok(Imported::There);
        }
        take_id(tx, queue, &remembered.id, None)?;
        tx.exec(
            "UPDATE ids SET state = ?3, due_ms = ?4, forget_ms = ?5 WHERE queue = ?1 AND id = ?2",
            (
                queue,
                remembered.id.as_str(),
                letter_of(remembered.state),
                remembered.due_ms,
                remembered.forget_ms,
            ),
        )?;
        count_remembered(tx, 1, remembered.id.as_str())?;
        Ok(Imported::Copied)
    }

    /// Totals are added once: of a later copy, only what came since.
    fn queue(&self, exported: &ExportedQueue) -> Result<Imported, StoreError> {
        let (tx, name) = (self.tx, exported.queue.as_str());
        let queue = tx.make_queue(&exported.queue)?;
        for kind in &exported.kinds {
            tx.lane(&Lane { queue: exported.queue.clone(), kind: kind.clone() })?;
        }
        let before = known(tx, &self.source, name)?;
        let mut added = before.iter().flat_map(|text| text.split(' ')).map(|n| n.parse().unwrap_or(0));
        let added: [u64; 4] = std::array::from_fn(|_| added.next().unwrap_or(0));
        let more: [u64; 4] = std::array::from_fn(|i| exported.totals[i].saturating_sub(added[i]));
        tx.exec(
            "UPDATE queues SET enqueued = enqueued + ?2, completed = completed + ?3, failed = failed + ?4, \
             dropped = dropped + ?5 WHERE queue = ?1",
            (queue, more[0], more[1], more[2], more[3]),
        )?;
        let totals: Vec<String> = (0..4).map(|i| (added[i] + more[i]).to_string()).collect();
        remember(tx, &self.source, name, &totals.join(" "))?;
        if before.is_some() {
            return Ok(Imported::There);
        }
        if exported.paused {
            tx.exec("UPDATE queues SET paused = 1 WHERE queue = ?1", [queue])?;
        }
        Ok(Imported::Copied)
    }
}

fn known(tx: &Tx<'_>, source: &str, what: &str) -> Result<Option<String>, StoreError> {
    tx.row(
        "SELECT numbers FROM copies WHERE ns = ?1 AND source = ?2 AND what = ?3",
        (tx.ns, source, what),
        |row| row.get(0),
    )
}

fn remember(tx: &Tx<'_>, source: &str, what: &str, numbers: &str) -> Result<(), StoreError> {
    tx.exec(
        "INSERT OR REPLACE INTO copies (ns, source, what, numbers) VALUES (?1, ?2, ?3, ?4)",
        (tx.ns, source, what, numbers),
    )
    .map(drop)
}

/// True when the queue has a job of this id, or remembers one.
fn is_taken(tx: &Tx<'_>, queue: i64, id: &JobId) -> Result<bool, StoreError> {
    let found = tx.row(
        "SELECT record, forget_ms FROM ids WHERE queue = ?1 AND id = ?2",
        (queue, id.as_str()),
        |row| Ok((row.get::<_, Option<u64>>(0)?, row.get::<_, Option<u64>>(1)?)),
    )?;
    let (record, made) = match (found, generated_record(id)) {
        (Some((Some(record), _)), _) => (record, false),
        (Some((None, forget_ms)), _) => return Ok(forget_ms.is_some_and(|ms| ms > tx.now_ms)),
        // An id that the store made has no entry: its record tells.
        (None, Some(record)) => (record, true),
        (None, None) => return Ok(false),
    };
    let job = JobRow::load(tx, record)?;
    Ok(job.is_some_and(|job| !made || !job.given && job.queue == queue && job.id == id.as_str()))
}

/// Lets an id lead to a record, or be remembered.
fn take_id(tx: &Tx<'_>, queue: i64, id: &JobId, record: Option<u64>) -> Result<(), StoreError> {
    let forgotten =
        tx.exec("DELETE FROM ids WHERE queue = ?1 AND id = ?2 AND record IS NULL", (queue, id.as_str()))?;
    count_remembered(tx, -(forgotten as i64), id.as_str())?;
    tx.exec(
        "INSERT OR REPLACE INTO ids (queue, id, record, ns) VALUES (?1, ?2, ?3, ?4)",
        (queue, id.as_str(), record, tx.ns),
    )?;
    if generated_record(id).is_some() {
        tx.exec("UPDATE namespaces SET lookalikes = 1 WHERE ns = ?1", [tx.ns])?;
    }
    Ok(())
}

/// Puts a job's row in that has been in a store before; `given` when its id does not follow from its record.
pub(super) fn insert(
    tx: &Tx<'_>,
    record: u64,
    lane: LaneNumbers,
    job: &Job,
    due_ms: u64,
    given: bool,
) -> Result<(), StoreError> {
    let meta = match job.meta.is_empty() {
        true => None,
        false => {
            Some(serde_json::to_string(&job.meta).map_err(|error| StoreError::Invalid(error.to_string()))?)
        }
    };
    tx.exec(
        "INSERT INTO jobs (record, lane, id, given, priority, enqueued_ms, due_ms, max_attempts, timeout_ms, meta, \
         traceparent, source, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        rusqlite::params![
            record,
            lane.lane,
            job.id.as_str(),
            given,
            priority_number(job.priority),
            job.enqueued_ms,
            due_ms,
            job.max_attempts,
            job.timeout_ms,
            meta,
            job.traceparent,
            job.source,
            &job.payload[..],
        ],
    )
    .map(drop)
}
