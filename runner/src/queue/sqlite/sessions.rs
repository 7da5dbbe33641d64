//! Sessions and their leases: heartbeats, and taking leases back from the lost.

use std::sync::Arc;

use super::SqliteStore;
use super::claim::paused_queues;
use super::finish::{Finished, Policy};
use super::heads::{Heads, head};
use super::link::Promise;
use super::rows::{JobRow, LeaseRow, PastRow, SUSPECTS, Waiting, part_of_number};
use super::tx::Tx;
use crate::job::{CRASHES_MAX, State};
use crate::names::Name;
use crate::queue::checks::{check_heartbeat, too_many};
use crate::queue::{
    BATCH_MAX, IdMemory, Lane, Lease, LeaseSeen, Page, Pulse, Recall, RecallAction, Reclaimed, Retention,
    RunnerInfo, SessionId, SessionSeen, StoreError,
};

/// Leases in one step of an iteration.
const LEASES_STEP: u64 = 500;
/// Recalls that one heartbeat brings.
const RECALLS_STEP: u64 = 5_000;

impl SqliteStore {
    pub(super) async fn beat(
        &self,
        session: &SessionId,
        info: &RunnerInfo,
        told: u64,
        lanes: &[Lane],
    ) -> Result<Pulse, StoreError> {
        check_heartbeat(session, lanes)?;
        let json = serde_json::to_string(info)
            .map_err(|error| StoreError::Invalid(format!("invalid runner info: {error}")))?;
        let (session, name) = (session.clone(), info.name.replace(char::is_control, "?"));
        let lanes = lanes.to_vec();
        let pulse = self
            .link
            .write(Promise::Loose, move |tx| {
                let beat_before = tx.row(
                    "SELECT beat FROM sessions WHERE ns = ?1 AND session = ?2",
                    (tx.ns, &*session.0),
                    |row| row.get::<_, u64>(0),
                )?;
                // A first beat is the time, so that an entry deleted by hand does not come back with one that somebody has seen.
                // One that is behind what was told stays where it is, so that this shows until an answer has told of it.
                let beat = beat_before.map_or(tx.now_ms, |beat| if beat < told { beat } else { beat + 1 });
                tx.exec(
                    "INSERT INTO sessions (ns, session, beat, beat_ms, runner, info) VALUES (?1, ?2, ?6, ?3, ?4, ?5) \
                     ON CONFLICT DO UPDATE SET beat = ?6, beat_ms = ?3, runner = ?4, info = ?5",
                    (tx.ns, &*session.0, tx.now_ms, name, json, beat),
                )?;
                Ok(Pulse {
                    now_us: tx.now_us,
                    beat,
                    beat_before,
                    mark: tx.next_number()?,
                    identity: identity(tx)?,
                    sessions: pulse_sessions(tx)?,
                    recalls: recalls(tx, &session)?,
                    next_due_ms: next_due(tx, &lanes)?,
                    leased: tx.number("SELECT 1 FROM leases WHERE ns = ?1 LIMIT 1", [tx.ns])? > 0,
                    lanes: tx.number(
                        "SELECT count(*) FROM queues JOIN lanes USING (queue) WHERE ns = ?1",
                        [tx.ns],
                    )?,
                })
            })
            .await?;
        // Runners tie their clock to this: by now is closer than by the beginning of the call.
        Ok(Pulse { now_us: self.link.shared.time.latest_us(), ..pulse })
    }

    pub(super) async fn all_sessions(&self) -> Result<Vec<SessionSeen>, StoreError> {
        self.link.read(registered).await
    }

    pub(super) async fn forget_session(&self, session: &SessionId) -> Result<(), StoreError> {
        let session = session.clone();
        self.link
            .write(Promise::Loose, move |tx| {
                tx.exec("DELETE FROM sessions WHERE ns = ?1 AND session = ?2", (tx.ns, &*session.0)).map(drop)
            })
            .await
    }

    pub(super) async fn lease_page(&self, cursor: Option<String>) -> Result<Page<LeaseSeen>, StoreError> {
        let after: u64 = match &cursor {
            None => 0,
            Some(cursor) => {
                cursor.parse().map_err(|_| StoreError::Invalid(format!("invalid cursor {cursor:?}")))?
            }
        };
        self.link.read(move |tx| lease_step(tx, after)).await
    }

    pub(super) async fn reclaim_leases(
        &self,
        leases: &[LeaseSeen],
        dead: Retention,
    ) -> Result<Reclaimed, StoreError> {
        if leases.len() > BATCH_MAX {
            return Err(too_many(leases.len()));
        }
        let leases = leases.to_vec();
        self.link
            .write(Promise::Kept, move |tx| {
                let mut call = Reclaim::new(tx, dead);
                for seen in &leases {
                    call.take(seen)?;
                }
                call.end()
            })
            .await
    }
}

/// The store's name; empty when nobody has asked for it yet.
fn identity(tx: &Tx<'_>) -> Result<String, StoreError> {
    let name = tx.row("SELECT identity FROM namespaces WHERE ns = ?1", [tx.ns], |row| {
        row.get::<_, Option<String>>(0)
    })?;
    Ok(name.flatten().unwrap_or_default())
}

fn registered(tx: &Tx<'_>) -> Result<Vec<SessionSeen>, StoreError> {
    tx.rows("SELECT session, beat, beat_ms, info FROM sessions WHERE ns = ?1", [tx.ns], |row| {
        Ok(SessionSeen {
            session: SessionId(Arc::from(row.get::<_, String>(0)?)),
            beat: row.get(1)?,
            beat_ms: row.get(2)?,
            info: serde_json::from_str(&row.get::<_, String>(3)?).ok(),
        })
    })
}

/// Every session that is registered or holds a lease.
fn pulse_sessions(tx: &Tx<'_>) -> Result<Vec<SessionSeen>, StoreError> {
    let mut sessions = registered(tx)?;
    let holders =
        tx.rows("SELECT DISTINCT session FROM leases WHERE ns = ?1", [tx.ns], |row| row.get::<_, String>(0))?;
    for holder in holders {
        if !sessions.iter().any(|seen| *seen.session.0 == holder) {
            let session = SessionId(Arc::from(holder));
            sessions.push(SessionSeen { session, beat: 0, beat_ms: 0, info: None });
        }
    }
    Ok(sessions)
}

/// The earliest due time in lanes of queues that are not paused.
fn next_due(tx: &Tx<'_>, lanes: &[Lane]) -> Result<Option<u64>, StoreError> {
    let paused = paused_queues(tx)?;
    let mut next = None;
    for lane in lanes {
        let Some(row) = tx.find_lane(lane)?.filter(|row| !paused.contains(&row.queue)) else { continue };
        for part in 1..=SUSPECTS {
            next = [next, head(tx, row.lane, part)?].into_iter().flatten().min();
        }
    }
    Ok(next)
}

fn recalls(tx: &Tx<'_>, session: &SessionId) -> Result<Vec<Recall>, StoreError> {
    tx.rows(
        "SELECT record, token, recall FROM leases WHERE ns = ?1 AND session = ?2 AND recall IS NOT NULL LIMIT ?3",
        (tx.ns, &*session.0, RECALLS_STEP),
        |row| {
            let cancel = row.get::<_, String>(2)? == "c";
            let action = if cancel { RecallAction::Cancel } else { RecallAction::Release };
            Ok(Recall { record: row.get(0)?, token: row.get(1)?, action })
        },
    )
}

/// Leases behind a record id, in its order.
fn lease_step(tx: &Tx<'_>, after: u64) -> Result<Page<LeaseSeen>, StoreError> {
    let rows = tx.rows(
        "SELECT record, session, token, claimed_ms, queues.name, kind \
         FROM leases JOIN lanes USING (lane) JOIN queues USING (queue) \
         WHERE leases.ns = ?1 AND record > ?2 ORDER BY record LIMIT ?3",
        (tx.ns, after, LEASES_STEP),
        |row| {
            let (queue, kind): (String, String) = (row.get(4)?, row.get(5)?);
            let lease = Lease {
                record: row.get(0)?,
                session: SessionId(Arc::from(row.get::<_, String>(1)?)),
                token: row.get(2)?,
            };
            let lane = Name::new(&queue).ok().zip(Name::new(&kind).ok());
            Ok((lease, lane, row.get(3)?))
        },
    )?;
    let full = rows.len() as u64 == LEASES_STEP;
    let cursor = rows.last().filter(|_| full).map(|(lease, ..)| lease.record.to_string());
    let seen = |(lease, lane, claimed_ms): (Lease, Option<(Name, Name)>, u64)| {
        let (queue, kind) = lane?;
        Some(LeaseSeen { lease, lane: Lane { queue, kind }, claimed_ms })
    };
    Ok(Page { items: rows.into_iter().filter_map(seen).collect(), cursor })
}

/// Takes leases from sessions that the caller knows to be lost.
///
/// A job that ran gets a crash on its record, and goes back to its place or, at the third crash or without an attempt left,
/// to the dead letters. One that was only held is given back unharmed. One that somebody wanted cancelled is.
struct Reclaim<'a> {
    tx: &'a Tx<'a>,
    dead: Retention,
    heads: Heads,
    finished: Finished,
    done: Reclaimed,
}

impl<'a> Reclaim<'a> {
    fn new(tx: &'a Tx<'a>, dead: Retention) -> Self {
        Self { tx, dead, heads: Heads::default(), finished: Finished::default(), done: Reclaimed::default() }
    }

    fn take(&mut self, seen: &LeaseSeen) -> Result<(), StoreError> {
        let tx = self.tx;
        let found = LeaseRow::load(tx, seen.lease.record)?
            .filter(|lease| lease.session == *seen.lease.session.0 && lease.token == seen.lease.token);
        let lane = tx.find_lane(&seen.lane)?;
        let Some((lease, lane)) = found.zip(lane).filter(|(lease, lane)| lease.lane == lane.lane) else {
            self.done.stale += 1;
            return Ok(());
        };
        lease.delete(tx)?;
        let Some(job) = JobRow::load_unleased(tx, lease.record, lane)? else {
            // Its record is lost, and there is nothing to give back.
            self.done.stale += 1;
            return Ok(());
        };
        self.reclaim(&lease, &job)
    }

    fn reclaim(&mut self, lease: &LeaseRow, job: &JobRow) -> Result<(), StoreError> {
        let tx = self.tx;
        let fresh = PastRow::fresh(lease.max_attempts, lease.crashes, lease.due_ms, lease.place);
        let mut past = job.past.clone().unwrap_or(fresh);
        past.settled = None;
        (past.max_attempts, past.due_ms) = (lease.max_attempts, lease.due_ms);
        let started = !lease.is_held(tx);
        if started {
            (past.attempt, past.crashes) = (lease.attempt, lease.crashes + 1);
            past.note(tx, "reclaimed", &runner_of(tx, &lease.session)?, "lost", "its runner went away");
            tx.exec("UPDATE queues SET failed = failed + 1 WHERE queue = ?1", [job.queue])?;
        }
        if lease.wants_cancel() {
            past.note(tx, "cancelled", "", "", "");
            self.done.cancelled += 1;
            return self.finish(job, &mut past, State::Cancelled, Retention::FINISHED);
        }
        if started && (past.crashes >= CRASHES_MAX || past.attempt >= lease.max_attempts) {
            let why = match past.crashes {
                crashes if crashes >= CRASHES_MAX => format!("{crashes} runners went away while they had it"),
                _ => "its runner went away in its last attempt".to_owned(),
            };
            past.note(tx, "dead", "", "lost", &why);
            self.done.dead += 1;
            return self.finish(job, &mut past, State::Dead, self.dead);
        }
        past.save(tx, job.record)?;
        self.done.ready += 1;
        let entry = Waiting {
            lane: lease.lane,
            part: part_of_number(job.priority, past.crashes),
            due_ms: past.due_ms,
            place: past.place,
            record: job.record,
            attempt: past.attempt,
            crashes: past.crashes,
        };
        self.heads.put(tx, &entry)
    }

    fn finish(
        &mut self,
        job: &JobRow,
        past: &mut PastRow,
        state: State,
        retention: Retention,
    ) -> Result<(), StoreError> {
        let policy = Policy { retention, memory: IdMemory::default() };
        self.finished.finish(self.tx, job.ending(), past, state, policy)
    }

    fn end(self) -> Result<Reclaimed, StoreError> {
        self.finished.retain(self.tx)?;
        self.heads.signal(self.tx)?;
        Ok(self.done)
    }
}

/// The name of a session's runner, for people.
pub(super) fn runner_of(tx: &Tx<'_>, session: &str) -> Result<String, StoreError> {
    let name =
        tx.row("SELECT runner FROM sessions WHERE ns = ?1 AND session = ?2", (tx.ns, session), |row| {
            row.get(0)
        })?;
    Ok(name.unwrap_or_default())
}
