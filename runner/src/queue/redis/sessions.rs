//! Sessions and their leases: heartbeats, and taking leases back from the lost.

use std::sync::Arc;

use redis::Value;

use super::RedisStore;
use super::claim::{push_lanes, push_policy};
use super::enqueue::Lanes;
use super::link::Repeat;
use super::record::{read_lease, rid_text};
use super::reply::{Items, unexpected};
use crate::queue::checks::{check_heartbeat, too_many};
use crate::queue::{
    BATCH_MAX, IdMemory, Lane, Lease, LeaseSeen, Page, Pulse, Recall, RecallAction, Reclaimed, Retention,
    RunnerInfo, SessionId, SessionSeen, StoreError,
};

/// Leases in one step of an iteration.
const SCAN_COUNT: usize = 500;

impl RedisStore {
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
        let said = format!("{}\u{1f}{json}", info.name.replace(char::is_control, "?"));
        let told = told.to_string();
        let mut args = vec![&*session.0, &*said, &*told];
        let mut keys = self.keys.globals().to_vec();
        for lane in lanes {
            keys.extend(self.keys.due(lane));
            args.push(lane.queue.as_str());
        }
        let reply = self.link.script(&self.scripts.heartbeat, &keys, &args, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        let (now_us, beat) = (items.number()?, items.number()?);
        let (beat_before, mark) = (items.text()?.parse().ok(), items.number()?);
        let identity = items.text()?;
        let sessions = read_sessions(items.list()?)?;
        let mut recalls = Vec::new();
        let mut list = items.list()?;
        while !list.is_empty() {
            let record = list.number()?;
            recalls.extend(read_recall(record, &list.text()?));
        }
        let next_due_ms = items.text()?.parse().ok();
        let leased = items.number::<u64>()? > 0;
        let lanes = items.number()?;
        Ok(Pulse { now_us, beat, beat_before, mark, identity, sessions, recalls, next_due_ms, leased, lanes })
    }

    pub(super) async fn all_sessions(&self) -> Result<Vec<SessionSeen>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(self.keys.global("sessions"));
        read_sessions(Items::of(self.link.command(&cmd, Repeat::Once).await?)?)
    }

    pub(super) async fn forget_session(&self, session: &SessionId) -> Result<(), StoreError> {
        let mut cmd = redis::cmd("HDEL");
        cmd.arg(self.keys.global("sessions")).arg(session.0.as_bytes());
        self.link.command(&cmd, Repeat::Once).await.map(drop)
    }

    pub(super) async fn lease_page(&self, cursor: Option<String>) -> Result<Page<LeaseSeen>, StoreError> {
        let (entries, cursor) = self.scan_running(cursor.as_deref().unwrap_or("0")).await?;
        let items = entries.into_iter().filter_map(|(record, text)| read_lease_seen(record, &text)).collect();
        Ok(Page { items, cursor })
    }

    /// One step over the leases: record ids with what is in `running`, and where to go on.
    pub(super) async fn scan_running(
        &self,
        cursor: &str,
    ) -> Result<(Vec<(u64, bytes::Bytes)>, Option<String>), StoreError> {
        if cursor.parse::<u64>().is_err() {
            return Err(StoreError::Invalid(format!("invalid cursor {cursor:?}")));
        }
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(self.keys.global("running")).arg(cursor).arg("COUNT").arg(SCAN_COUNT);
        let mut reply = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
        let next = reply.text()?;
        let mut list = reply.list()?;
        let mut entries = Vec::with_capacity(list.len() / 2);
        while !list.is_empty() {
            let record = list.text()?;
            let text = list.bytes()?;
            entries.extend(record.parse().ok().map(|record| (record, text)));
        }
        Ok((entries, (next != "0").then_some(next)))
    }

    pub(super) async fn reclaim_leases(
        &self,
        leases: &[LeaseSeen],
        dead: Retention,
    ) -> Result<Reclaimed, StoreError> {
        if leases.is_empty() {
            return Ok(Reclaimed::default());
        }
        if leases.len() > BATCH_MAX {
            return Err(too_many(leases.len()));
        }
        let lanes = Lanes::of(leases.iter().map(|seen| seen.lane.clone()));
        let keys = self.lane_keys(&lanes);
        let mut args = Vec::new();
        push_lanes(&mut args, &lanes);
        push_policy(&mut args, dead, IdMemory::default());
        push_policy(&mut args, Retention::FINISHED, IdMemory::default());
        for seen in leases {
            args.push(lanes.number(&seen.lane).to_string().into());
            args.push(rid_text(seen.lease.record).into());
            args.push(seen.lease.session.0.as_bytes().to_vec());
            args.push(seen.lease.token.to_string().into());
        }
        // A second run finds no lease of that session: its counts may be lost, its work is not.
        let reply = self.link.script(&self.scripts.reclaim, &keys, &args, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        Ok(Reclaimed {
            ready: items.number()?,
            dead: items.number()?,
            cancelled: items.number()?,
            stale: items.number()?,
        })
    }
}

fn read_sessions(mut list: Items) -> Result<Vec<SessionSeen>, StoreError> {
    let mut sessions = Vec::with_capacity(list.len() / 2);
    while !list.is_empty() {
        let session = SessionId(Arc::from(list.text()?));
        sessions.push(read_session(session, &list.text()?));
    }
    Ok(sessions)
}

/// `beat beat_ms \31 name \31 JSON`; empty for a session that is known by its leases alone.
fn read_session(session: SessionId, text: &str) -> SessionSeen {
    let mut parts = text.splitn(3, '\u{1f}');
    let (beat, beat_ms) = parts.next().and_then(|beats| beats.split_once(' ')).unwrap_or_default();
    SessionSeen {
        session,
        beat: beat.parse().unwrap_or(0),
        beat_ms: beat_ms.parse().unwrap_or(0),
        info: parts.nth(1).and_then(|json| serde_json::from_str(json).ok()),
    }
}

fn read_recall(record: u64, text: &str) -> Option<Recall> {
    let (token, action) = text.split_once(' ')?;
    let action = match action {
        "c" => RecallAction::Cancel,
        "r" => RecallAction::Release,
        _ => return None,
    };
    Some(Recall { record, token: token.parse().ok()?, action })
}

fn read_lease_seen(record: u64, text: &[u8]) -> Option<LeaseSeen> {
    let lease = read_lease(text)?;
    Some(LeaseSeen {
        lease: Lease { record, session: SessionId(lease.session.into()), token: lease.token },
        lane: Lane { queue: lease.queue, kind: lease.kind },
        claimed_ms: lease.claimed_ms,
    })
}

/// The lanes in the `lanes` set.
pub(super) fn read_lanes(reply: Value) -> Result<Vec<Lane>, StoreError> {
    let mut list = Items::of(reply)?;
    let mut lanes = Vec::with_capacity(list.len());
    while !list.is_empty() {
        let text = list.text()?;
        let (queue, kind) = text.split_once(':').ok_or_else(|| unexpected("a lane that is none"))?;
        let name = |text: &str| text.parse().map_err(|_| unexpected("a lane with an invalid name"));
        lanes.push(Lane { queue: name(queue)?, kind: name(kind)? });
    }
    lanes.sort_unstable();
    Ok(lanes)
}
