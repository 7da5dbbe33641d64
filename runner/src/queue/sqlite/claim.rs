//! Claiming: takes due jobs of some lanes under leases of one session.

use std::collections::{HashMap, HashSet};

use super::SqliteStore;
use super::fair::{in_turns, share_out};
use super::heads::head;
use super::link::Promise;
use super::rows::{JOB_COLUMNS, SUSPECTS, delete_waiting, read_job};
use super::tx::Tx;
use crate::names::Name;
use crate::queue::checks::check_claim;
use crate::queue::{BATCH_PAYLOAD_BYTES_MAX, ClaimRequest, Claimed, ClaimedJob, Lane, Lease, StoreError};

/// Entries that are no jobs' and are kept for people to look at.
const SET_ASIDE_MAX: u64 = 10_000;

impl SqliteStore {
    pub(super) async fn claim_jobs(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        check_claim(request)?;
        let request = request.clone();
        // A lease that is lost with the power leaves its job where it was.
        let claimed = self.link.write(Promise::Loose, move |tx| claim(tx, &request)).await?;
        Ok(Claimed { answered_us: self.link.shared.time.latest_us(), ..claimed })
    }
}

/// A lane that is open to this claim.
struct Open {
    lane: i64,
    name: Lane,
    max_attempts: u32,
    attempts_cap: Option<u32>,
    /// Which of the kinds.
    kind: usize,
    /// The first due time of each part.
    heads: [Option<u64>; 4],
}

/// A kind of the open lanes.
struct Kind {
    name: Name,
    weight: usize,
    /// At most so many jobs in this claim.
    most: usize,
    /// How many of them may still be read.
    room: usize,
}

/// An entry of a lane, as it is: it may be none of ours.
#[derive(Debug, Clone)]
struct Entry {
    /// Which of the open lanes.
    of: usize,
    part: u8,
    due_ms: i64,
    place: u64,
    record: u64,
    attempt: i64,
    crashes: i64,
}

fn claim(tx: &Tx<'_>, request: &ClaimRequest) -> Result<Claimed, StoreError> {
    let beat = beat_of(tx, request)?;
    if beat < request.beat {
        return Ok(Claimed {
            jobs: Vec::new(),
            now_us: tx.now_us,
            answered_us: tx.now_us,
            next_due_ms: None,
            damaged: 0,
            beat,
        });
    }
    let (mut open, mut kinds) = open_lanes(tx, request)?;
    let mut entries = Vec::new();
    let now = tx.now_ms as i64;
    let mut left = request.due_max;
    if request.suspect && left > 0 {
        left -= fair(tx, &open, &mut kinds, SUSPECTS, (i64::MIN, now), 1, &mut entries)?;
    }
    let suspected = !entries.is_empty();
    for part in 1..SUSPECTS {
        left -= fair(tx, &open, &mut kinds, part, (i64::MIN, now), left, &mut entries)?;
    }
    let mut left = request.ahead_max;
    let horizon = now.saturating_add(i64::try_from(request.look_ahead_ms).unwrap_or(i64::MAX));
    for part in 1..SUSPECTS {
        left -= fair(tx, &open, &mut kinds, part, (now, horizon), left, &mut entries)?;
    }
    let (jobs, damaged) = take(tx, request, &open, &entries)?;
    let beat = if beat > 0 && !jobs.is_empty() { show_life(tx, request)? } else { beat };
    let touched: HashSet<(usize, u8)> = entries.iter().map(|entry| (entry.of, entry.part)).collect();
    for (of, part) in touched {
        let lane = &mut open[of];
        lane.heads[usize::from(part) - 1] = head(tx, lane.lane, part)?;
    }
    let parts = if request.suspect && !suspected { 4 } else { 3 };
    // A kind of which no more may be taken is not waited for.
    let is_full = |of: &Open| {
        let kind = &kinds[of.kind];
        kind.most < usize::MAX && jobs.iter().filter(|job| job.job.kind == kind.name).count() >= kind.most
    };
    let waited_for = open.iter().filter(|lane| !is_full(lane));
    let next_due_ms = waited_for.flat_map(|lane| &lane.heads[..parts]).flatten().min().copied();
    Ok(Claimed { jobs, now_us: tx.now_us, answered_us: tx.now_us, next_due_ms, damaged, beat })
}

/// The session's beat; 0 when it is not registered.
fn beat_of(tx: &Tx<'_>, request: &ClaimRequest) -> Result<u64, StoreError> {
    tx.number("SELECT beat FROM sessions WHERE ns = ?1 AND session = ?2", (tx.ns, &*request.session.0))
}

/// A claim that takes jobs counts its session's beat up, so that it shows when it is lost. The beat then.
fn show_life(tx: &Tx<'_>, request: &ClaimRequest) -> Result<u64, StoreError> {
    tx.number(
        "UPDATE sessions SET beat = beat + 1 WHERE ns = ?1 AND session = ?2 RETURNING beat",
        (tx.ns, &*request.session.0),
    )
}

/// The queues that claims leave alone.
pub(super) fn paused_queues(tx: &Tx<'_>) -> Result<Vec<i64>, StoreError> {
    tx.rows("SELECT queue FROM queues WHERE ns = ?1 AND paused = 1", [tx.ns], |row| row.get(0))
}

/// The lanes of the request that exist and are not paused, in its order, and their kinds.
fn open_lanes(tx: &Tx<'_>, request: &ClaimRequest) -> Result<(Vec<Open>, Vec<Kind>), StoreError> {
    let paused = paused_queues(tx)?;
    let (mut open, mut kinds) = (Vec::with_capacity(request.lanes.len()), Vec::<Kind>::new());
    for wanted in &request.lanes {
        let Some(row) = tx.find_lane(&wanted.lane)? else { continue };
        if paused.contains(&row.queue) {
            continue;
        }
        let mut heads = [None; 4];
        for (part, first) in (1..).zip(&mut heads) {
            *first = head(tx, row.lane, part)?;
        }
        let name = &wanted.lane.kind;
        let kind = kinds.iter().position(|kind| kind.name == *name).unwrap_or_else(|| {
            let most = wanted.kind_max.map_or(usize::MAX, |most| most as usize);
            kinds.push(Kind { name: name.clone(), weight: wanted.weight.max(1) as usize, most, room: most });
            kinds.len() - 1
        });
        open.push(Open {
            lane: row.lane,
            name: wanted.lane.clone(),
            max_attempts: wanted.max_attempts,
            attempts_cap: wanted.attempts_cap,
            kind,
            heads,
        });
    }
    Ok((open, kinds))
}

/// A lane as it is read: what was taken from it.
struct Reading {
    of: usize,
    taken: Vec<Entry>,
}

/// Adds up to `want` entries that are due after one time and up to another from one part of all lanes, in turns; how many.
fn fair(
    tx: &Tx<'_>,
    open: &[Open],
    kinds: &mut [Kind],
    part: u8,
    (after, to): (i64, i64),
    want: usize,
    entries: &mut Vec<Entry>,
) -> Result<usize, StoreError> {
    // Kinds in the order of the request, each with its lanes that have something.
    let mut busy: Vec<Busy> = Vec::new();
    for (of, lane) in open.iter().enumerate() {
        let kind = &kinds[lane.kind];
        if kind.room == 0 || lane.heads[usize::from(part) - 1].is_none_or(|head| head as i64 > to) {
            continue;
        }
        match busy.iter_mut().find(|busy| busy.kind == lane.kind) {
            Some(busy) => busy.lanes.push(of),
            None => busy.push(Busy { kind: lane.kind, weight: kind.weight, lanes: vec![of] }),
        }
    }
    let mut read: HashMap<usize, Reading> = HashMap::new();
    let mut sharing = busy.clone();
    let got = share_out(&mut sharing, want, |busy| busy.weight, &mut |busy, ask| {
        let room = &mut kinds[busy.kind].room;
        let taken = share_out(&mut busy.lanes, ask.min(*room), |_| 1, &mut |of: &mut usize, ask| {
            let reading = read.entry(*of).or_insert_with(|| Reading { of: *of, taken: Vec::new() });
            reading.more(tx, open, part, (after, to), ask)
        })?;
        *room -= taken;
        Ok(taken)
    })?;
    let turns = busy.into_iter().map(|busy| {
        let lanes = busy.lanes.iter().filter_map(|of| read.remove(of)).map(|reading| (1, reading.taken));
        (busy.weight, in_turns(lanes.collect()))
    });
    entries.extend(in_turns(turns.collect()));
    Ok(got)
}

/// A kind that has something, with those of the open lanes that do.
#[derive(Clone)]
struct Busy {
    kind: usize,
    weight: usize,
    lanes: Vec<usize>,
}

impl Reading {
    fn more(
        &mut self,
        tx: &Tx<'_>,
        open: &[Open],
        part: u8,
        (after, to): (i64, i64),
        ask: usize,
    ) -> Result<usize, StoreError> {
        let of = self.of;
        let (due, place) = match self.taken.last() {
            Some(last) => (last.due_ms, last.place as i64),
            // Behind everything that is due at `after`.
            None => (after, i64::MAX),
        };
        let found = tx.rows(
            "SELECT due_ms, place, record, attempt, crashes FROM waiting \
             WHERE lane = ?1 AND part = ?2 AND (due_ms, place) > (?3, ?4) AND due_ms <= ?5 \
             ORDER BY due_ms, place LIMIT ?6",
            (open[of].lane, part, due, place, to, ask),
            |row| {
                Ok(Entry {
                    of,
                    part,
                    due_ms: row.get(0)?,
                    place: row.get(1)?,
                    record: row.get::<_, i64>(2)? as u64,
                    attempt: row.get(3)?,
                    crashes: row.get(4)?,
                })
            },
        )?;
        let got = found.len();
        self.taken.extend(found);
        Ok(got)
    }
}

/// Takes entries out of their lanes and puts their jobs under leases, until they weigh too much; a large one goes alone.
/// How many entries were none of ours is the second of what it returns.
fn take(
    tx: &Tx<'_>,
    request: &ClaimRequest,
    open: &[Open],
    entries: &[Entry],
) -> Result<(Vec<ClaimedJob>, u64), StoreError> {
    let sql = format!("SELECT {JOB_COLUMNS} FROM jobs WHERE record = ?1");
    let (mut jobs, mut bytes, mut damaged) = (Vec::with_capacity(entries.len()), 0, 0);
    for entry in entries {
        let lane = &open[entry.of];
        if entry.due_ms <= 0 || entry.attempt < 0 || entry.crashes < 0 {
            set_aside(tx, lane, entry, "dirt")?;
            damaged += 1;
            continue;
        }
        let Some((job, _)) = tx.row(&sql, [entry.record], |row| read_job(row, lane.name.clone()))?.flatten()
        else {
            set_aside(tx, lane, entry, "orphan")?;
            damaged += 1;
            continue;
        };
        bytes += job.payload.len();
        if bytes > BATCH_PAYLOAD_BYTES_MAX && !jobs.is_empty() {
            break;
        }
        let claimed = ClaimedJob {
            lease: Lease {
                record: entry.record,
                session: request.session.clone(),
                token: request.first_token + jobs.len() as u64,
            },
            attempt: entry.attempt as u32 + 1,
            max_attempts: job
                .max_attempts
                .unwrap_or(lane.max_attempts)
                .min(lane.attempts_cap.unwrap_or(u32::MAX)),
            crashes: entry.crashes as u32,
            due_ms: entry.due_ms as u64,
            receipt: bytes::Bytes::new(),
            job,
        };
        lease(tx, lane.lane, entry, &claimed)?;
        jobs.push(claimed);
    }
    if damaged > 0 {
        tx.exec(
            "DELETE FROM aside WHERE ns = ?1 AND aside <= (SELECT max(aside) FROM aside) - ?2",
            (tx.ns, SET_ASIDE_MAX),
        )?;
    }
    Ok((jobs, damaged))
}

fn lease(tx: &Tx<'_>, lane: i64, entry: &Entry, job: &ClaimedJob) -> Result<(), StoreError> {
    delete_waiting(tx, lane, entry.part, entry.due_ms, entry.place)?;
    tx.exec(
        "INSERT INTO leases (record, ns, lane, session, token, attempt, max_attempts, crashes, due_ms, place, claimed_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        rusqlite::params![
            entry.record,
            tx.ns,
            lane,
            &*job.lease.session.0,
            job.lease.token,
            job.attempt,
            job.max_attempts,
            job.crashes,
            job.due_ms,
            entry.place,
            tx.now_ms,
        ],
    )
    .map(drop)
}

fn set_aside(tx: &Tx<'_>, lane: &Open, entry: &Entry, what: &str) -> Result<(), StoreError> {
    delete_waiting(tx, lane.lane, entry.part, entry.due_ms, entry.place)?;
    tx.exec(
        "INSERT INTO aside (ns, what, at_ms, lane, part, due_ms, place, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (tx.ns, what, tx.now_ms, lane.lane, entry.part, entry.due_ms, entry.place, entry.record as i64),
    )
    .map(drop)
}
