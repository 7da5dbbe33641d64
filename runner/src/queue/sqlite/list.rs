//! Listing jobs, a bounded step at a time, in the order of [`listing`](crate::queue::listing).
//!
//! A cursor is `<phase>:<time>:<number>`, a position by value: so a listing misses nothing that stays where it is,
//! whatever is added or removed meanwhile.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::SqliteStore;
use super::read::view_job;
use super::rows::letter_of;
use super::tx::Tx;
use crate::job::{JobView, State};
use crate::names::Name;
use crate::queue::listing::{
    LIMIT_MAX, PAGE_BYTES, Phase, entries_of, lane_wanted, next_phase, phase_wanted, wanted,
};
use crate::queue::{ListQuery, Page, StoreError};

/// Most that is read of one source at a time.
const CHUNK_MAX: usize = 256;

/// A position in a phase: a time, and what tells those of one time apart.
type Position = (u64, u64);

/// An entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    position: Position,
    record: u64,
}

/// Entries in order, and whether the phase has more behind them.
struct Step {
    entries: Vec<Entry>,
    more: bool,
}

impl SqliteStore {
    pub(super) async fn list_jobs(&self, query: &ListQuery) -> Result<Page<JobView>, StoreError> {
        if !(1..=LIMIT_MAX).contains(&query.limit) {
            return Err(StoreError::Invalid(format!("limit of {}: expected 1 to {LIMIT_MAX}", query.limit)));
        }
        let from = match &query.cursor {
            Some(cursor) => read_cursor(cursor)?,
            None => (Phase::Waiting, None),
        };
        let query = query.clone();
        self.link.read(move |tx| page(tx, &query, from)).await
    }
}

fn page(
    tx: &Tx<'_>,
    query: &ListQuery,
    (mut phase, mut after): (Phase, Option<Position>),
) -> Result<Page<JobView>, StoreError> {
    if !phase_wanted(phase, query) {
        let Some(next) = next_phase(phase, query) else {
            return Ok(Page { items: Vec::new(), cursor: None });
        };
        (phase, after) = (next, None);
    }
    let step = match phase {
        Phase::Waiting => waiting_step(tx, query, after)?,
        Phase::Running => running_step(tx, query, after)?,
        Phase::Finished => finished_step(tx, query, after)?,
    };
    let (mut items, mut bytes, mut looked) = (Vec::new(), 0, 0_usize);
    for entry in &step.entries {
        if bytes >= PAGE_BYTES || items.len() == query.limit {
            break;
        }
        looked += 1;
        let Some(view) = view_job(tx, entry.record)? else { continue };
        bytes += view.job.payload.len();
        items.extend(Some(view).filter(|view| wanted(view, query)));
    }
    let last = looked.checked_sub(1).map(|last| step.entries[last]);
    let cursor = match last {
        Some(last) if step.more || looked < step.entries.len() => {
            Some(format!("{}:{}:{}", phase.letter(), last.position.0, last.position.1))
        }
        _ => next_phase(phase, query).map(|next| format!("{}::", next.letter())),
    };
    Ok(Page { items, cursor })
}

fn read_cursor(cursor: &str) -> Result<(Phase, Option<Position>), StoreError> {
    let read = || {
        let (phase, rest) = cursor.split_once(':')?;
        let phase = Phase::ALL.into_iter().find(|p| p.letter() == phase)?;
        let (time, number) = rest.split_once(':')?;
        if time.is_empty() {
            return Some((phase, None));
        }
        let number_of = |text: &str| text.parse::<u64>().ok().filter(|number| *number < 1 << 53);
        Some((phase, Some((number_of(time)?, number_of(number)?))))
    };
    read().ok_or_else(|| {
        StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that a list gave"))
    })
}

/// Lanes that the query wants: lane, queue.
fn lanes(tx: &Tx<'_>, query: &ListQuery) -> Result<Vec<(i64, i64)>, StoreError> {
    let rows = tx.rows(
        "SELECT lane, queue, name, kind FROM queues JOIN lanes USING (queue) WHERE ns = ?1",
        [tx.ns],
        |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?)),
    )?;
    let fits = |(lane, number, queue, kind): (i64, i64, String, String)| {
        let (queue, kind) = (Name::new(&queue).ok()?, Name::new(&kind).ok()?);
        lane_wanted(&queue, &kind, query).then_some((lane, number))
    };
    Ok(rows.into_iter().filter_map(fits).collect())
}

fn waiting_step(tx: &Tx<'_>, query: &ListQuery, after: Option<Position>) -> Result<Step, StoreError> {
    let wants = |state| query.states.is_empty() || query.states.contains(&state);
    // What is due is ready: the two are parts of one order.
    let first = if wants(State::Ready) { (0, 0) } else { (tx.now_ms, u64::MAX >> 1) };
    let to_ms = if wants(State::Scheduled) { u64::MAX >> 1 } else { tx.now_ms };
    let from = after.unwrap_or(first).max(first);
    let lanes = lanes(tx, query)?;
    let sources: Vec<(i64, u8)> =
        lanes.iter().flat_map(|(lane, _)| (1..=4).map(|part| (*lane, part))).collect();
    let read = |(lane, part): (i64, u8), (due_ms, place): Position, limit: usize| {
        tx.rows(
            "SELECT due_ms, place, record FROM waiting \
             WHERE lane = ?1 AND part = ?2 AND (due_ms, place) > (?3, ?4) AND due_ms <= ?5 \
             ORDER BY due_ms, place LIMIT ?6",
            (lane, part, due_ms, place, to_ms, limit),
            |row| Ok(Entry { position: (row.get(0)?, row.get(1)?), record: row.get::<_, i64>(2)? as u64 }),
        )
    };
    merged(&sources, from, entries_of(Phase::Waiting, query), Reverse, read)
}

fn finished_step(tx: &Tx<'_>, query: &ListQuery, after: Option<Position>) -> Result<Step, StoreError> {
    let mut queues: Vec<i64> = lanes(tx, query)?.into_iter().map(|(_, queue)| queue).collect();
    queues.sort_unstable();
    queues.dedup();
    let states = [State::Completed, State::Cancelled, State::Dead]
        .into_iter()
        .filter(|state| query.states.is_empty() || query.states.contains(state));
    let states: Vec<&str> = states.map(letter_of).collect();
    let sources: Vec<(i64, &str)> =
        queues.iter().flat_map(|queue| states.iter().map(|state| (*queue, *state))).collect();
    let since_ms = query.since_ms.unwrap_or(0).min(u64::MAX >> 1);
    let read = |(queue, state): (i64, &str), (ended_ms, record): Position, limit: usize| {
        tx.rows(
            "SELECT ended_ms, record FROM past \
             WHERE queue = ?1 AND state = ?2 AND (ended_ms, record) < (?3, ?4) AND ended_ms >= ?5 \
             ORDER BY ended_ms DESC, record DESC LIMIT ?6",
            (queue, state, ended_ms, record, since_ms, limit),
            |row| Ok(Entry { position: (row.get(0)?, row.get(1)?), record: row.get(1)? }),
        )
    };
    let from = after.unwrap_or((u64::MAX >> 1, u64::MAX >> 1));
    merged(&sources, from, entries_of(Phase::Finished, query), |entry| entry, read)
}

/// There are only as many leases as the fleet has slots: they are listed by record.
fn running_step(tx: &Tx<'_>, query: &ListQuery, after: Option<Position>) -> Result<Step, StoreError> {
    let lanes: Vec<i64> = lanes(tx, query)?.into_iter().map(|(lane, _)| lane).collect();
    let limit = entries_of(Phase::Running, query);
    let rows = tx.rows(
        "SELECT record, lane FROM leases WHERE ns = ?1 AND record > ?2 ORDER BY record",
        (tx.ns, after.unwrap_or((0, 0)).0),
        |row| Ok((row.get::<_, u64>(0)?, row.get::<_, i64>(1)?)),
    )?;
    let mut entries: Vec<Entry> = rows
        .into_iter()
        .filter(|(_, lane)| lanes.contains(lane))
        .map(|(record, _)| Entry { position: (record, record), record })
        .collect();
    let more = entries.len() > limit;
    entries.truncate(limit);
    Ok(Step { entries, more })
}

/// A source as it is read.
struct Reading<S> {
    source: S,
    ahead: VecDeque<Entry>,
    from: Position,
    chunk: usize,
    at_end: bool,
}

/// Up to `limit` entries behind a position from all sources, merged; `rank` makes the next entry the largest. Reads little
/// more than it returns: a few of each at first, twice as many of one whenever it runs out.
fn merged<S: Copy, K: Ord>(
    sources: &[S],
    from: Position,
    limit: usize,
    rank: impl Fn(Entry) -> K,
    mut read: impl FnMut(S, Position, usize) -> Result<Vec<Entry>, StoreError>,
) -> Result<Step, StoreError> {
    let first_chunk = (limit / sources.len().max(1) + 1).min(CHUNK_MAX);
    let mut readings: Vec<Reading<S>> = sources
        .iter()
        .map(|source| Reading {
            source: *source,
            ahead: VecDeque::new(),
            from,
            chunk: first_chunk,
            at_end: false,
        })
        .collect();
    let mut heap = BinaryHeap::new();
    for (of, reading) in readings.iter_mut().enumerate() {
        if let Some(entry) = reading.next(&mut read)? {
            heap.push((rank(entry), of, entry));
        }
    }
    let mut entries = Vec::new();
    while entries.len() < limit
        && let Some((_, of, entry)) = heap.pop()
    {
        entries.push(entry);
        if let Some(next) = readings[of].next(&mut read)? {
            heap.push((rank(next), of, next));
        }
    }
    Ok(Step { entries, more: !heap.is_empty() })
}

impl<S: Copy> Reading<S> {
    fn next(
        &mut self,
        read: &mut impl FnMut(S, Position, usize) -> Result<Vec<Entry>, StoreError>,
    ) -> Result<Option<Entry>, StoreError> {
        if self.ahead.is_empty() && !self.at_end {
            let found = read(self.source, self.from, self.chunk)?;
            self.at_end = found.len() < self.chunk;
            self.chunk = (2 * self.chunk).min(CHUNK_MAX);
            if let Some(last) = found.last() {
                self.from = last.position;
            }
            self.ahead.extend(found);
        }
        Ok(self.ahead.pop_front())
    }
}
