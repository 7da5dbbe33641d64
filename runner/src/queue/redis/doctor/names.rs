//! Every key under our names: that it is one of ours, and holds what it should; and the lanes that are listed.

use std::sync::Arc;

use redis::Value;

use super::{Doctor, STEP};
use crate::clock::monotonic;
use crate::names::Name;
use crate::queue::redis::keys::KeyName;
use crate::queue::redis::link::Repeat;
use crate::queue::redis::reply::{Items, number, text, unexpected};
use crate::queue::redis::walk::step_of;
use crate::queue::{Finding, Lane, Severity, StoreError};

/// Keys that one step of the iteration looks at: it passes those of others too.
const SCAN_COUNT: usize = 1_000;
/// How many names are tried for a key that is moved aside.
const NAMES_MAX: usize = 1_000;

/// An index: its key, a lane of which it is, and its place among that lane's keys, from 1.
#[derive(Debug, Clone)]
pub(super) struct Index {
    pub(super) key: String,
    pub(super) lane: Lane,
    pub(super) part: usize,
}

impl Doctor<'_> {
    /// Looks at the keys that follow from the lanes and buckets that are listed, and then for others under our prefix among all
    /// keys of the database, which may be another's by the million: that look ends after a while.
    pub(super) async fn look_at_names(&mut self) -> Result<(), StoreError> {
        let until = monotonic() + self.store.names_within;
        self.look_at_known_keys().await?;
        let (mut cursor, mut passed) = (Some("0".to_owned()), 0);
        while let Some(from) = cursor {
            if monotonic() >= until {
                return self.leave_names(passed).await;
            }
            let mut cmd = redis::cmd("SCAN");
            cmd.arg(from).arg("MATCH").arg(self.store.keys.pattern()).arg("COUNT").arg(SCAN_COUNT);
            let (next, mut items) = step_of(self.store.link.command(&cmd, Repeat::Once).await?)?;
            let mut keys = Vec::with_capacity(items.len());
            while !items.is_empty() {
                keys.push(items.bytes()?.to_vec());
            }
            for step in keys.chunks(STEP) {
                self.look_at_keys(step).await?;
            }
            (cursor, passed) = (next, passed + SCAN_COUNT);
        }
        Ok(())
    }

    async fn look_at_known_keys(&mut self) -> Result<(), StoreError> {
        let keys = Arc::clone(&self.store.keys);
        let globals: Vec<Vec<u8>> = keys.globals().iter().map(|key| key.clone().into_bytes()).collect();
        self.look_at_keys(&globals).await?;
        if self.found.iter().any(|finding| finding.check == "wrong-type" && finding.repaired.is_none()) {
            return Ok(());
        }
        for (command, name) in [("SSCAN", "lanes"), ("ZSCAN", "buckets")] {
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let mut cmd = redis::cmd(command);
                cmd.arg(keys.global(name)).arg(from).arg("COUNT").arg(SCAN_COUNT);
                let (next, mut items) = step_of(self.store.link.command(&cmd, Repeat::Once).await?)?;
                let mut follow = Vec::new();
                while !items.is_empty() {
                    let member = items.bytes()?;
                    if name == "buckets" {
                        items.value()?;
                        let bucket = std::str::from_utf8(&member).ok().and_then(|text| Name::new(text).ok());
                        follow.extend(bucket.map(|bucket| keys.state(&bucket).into_bytes()));
                    } else if let Some(lane) = lane_of(&member) {
                        follow.extend(keys.due(&lane).map(String::into_bytes));
                        follow.extend(keys.done(&lane.queue).map(String::into_bytes));
                    }
                }
                for step in follow.chunks(STEP) {
                    self.look_at_keys(step).await?;
                }
                cursor = next;
            }
        }
        Ok(())
    }

    async fn leave_names(&mut self, passed: usize) -> Result<(), StoreError> {
        let all: usize = number(self.store.link.command(&redis::cmd("DBSIZE"), Repeat::Once).await?)?;
        self.note(Finding::around(
            "not-looked-at",
            Severity::Warning,
            format!("keys {}", self.store.keys.pattern()),
            format!(
                "{} of the {all} keys in this database were looked at for names of ours that nobody lists, in {} s",
                passed.min(all),
                self.store.names_within.as_secs_f32()
            ),
            "give Hourhand a database or a server of its own",
        ));
        Ok(())
    }

    async fn look_at_keys(&mut self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        let keys: Vec<&Vec<u8>> = keys.iter().filter(|key| !self.seen.contains(*key)).collect();
        let none: [&[u8]; 0] = [];
        let reply = self.store.link.script(&self.store.scripts.types, &keys, &none, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        for key in keys {
            let (kind, passes) = (items.text()?, items.number::<u8>()? > 0);
            // It went away since the step that brought it.
            if kind != "none" && self.seen.insert(key.clone()) {
                self.look_at_key(key, &kind, passes).await?;
            }
        }
        Ok(())
    }

    async fn look_at_key(&mut self, key: &[u8], kind: &str, passes: bool) -> Result<(), StoreError> {
        let name = self.store.keys.read(key);
        let (check, message) = match name.expected_type() {
            Some(wanted) if wanted != kind => {
                ("wrong-type", format!("it holds a {kind}: expected a {wanted}"))
            }
            None if name == KeyName::Unknown => ("unknown-name", format!("no {kind} of ours is called so")),
            _ if name == KeyName::Once && !passes => {
                ("unknown-name", "an answer that is kept for a while is kept for ever".to_owned())
            }
            _ => {
                if let KeyName::State(bucket) = name {
                    self.buckets.insert(bucket);
                } else {
                    self.indexes.extend(index_of(name, key));
                }
                return Ok(());
            }
        };
        let repaired = if self.repair { Some(self.move_aside(key, kind, passes).await?) } else { None };
        // It was another's at the second look: nothing is wrong any more.
        if repaired != Some(None) {
            let place = format!("key {}", String::from_utf8_lossy(key));
            self.add(check, place, message, repaired.flatten())?;
        }
        Ok(())
    }

    /// Renames a key that still is what was seen; where it is then.
    async fn move_aside(&self, key: &[u8], kind: &str, passes: bool) -> Result<Option<String>, StoreError> {
        let passes = u8::from(passes).to_string();
        for again in 0..NAMES_MAX {
            let aside = self.store.keys.aside(key, again);
            let keys = [key, &aside];
            let args = [kind, &passes];
            let script = &self.store.scripts.aside;
            match text(self.store.link.script(script, &keys, &args, Repeat::Never).await?)?.as_str() {
                "moved" => return Ok(Some(format!("moved to {}", String::from_utf8_lossy(&aside)))),
                "gone" => return Ok(None),
                _ => {}
            }
        }
        Err(unexpected("too many keys that were moved aside"))
    }

    /// Every listed lane can be read, or all that lists lanes fails.
    pub(super) async fn look_at_lanes(&mut self) -> Result<(), StoreError> {
        let mut cursor = Some("0".to_owned());
        while let Some(from) = cursor {
            let mut cmd = redis::cmd("SSCAN");
            cmd.arg(self.store.keys.global("lanes")).arg(from).arg("COUNT").arg(SCAN_COUNT);
            let (next, mut items) = step_of(self.store.link.command(&cmd, Repeat::Once).await?)?;
            while !items.is_empty() {
                let member = items.bytes()?.to_vec();
                match lane_of(&member) {
                    Some(lane) => drop(self.lanes.insert(lane)),
                    None => self.bad_lane(&member).await?,
                }
            }
            cursor = next;
        }
        Ok(())
    }

    async fn bad_lane(&mut self, member: &[u8]) -> Result<(), StoreError> {
        let shown = String::from_utf8_lossy(member).into_owned();
        let repaired = if self.repair {
            let mut pipe = redis::pipe();
            pipe.atomic();
            pipe.cmd("HSET").arg(self.store.keys.quarantine()).arg(format!("lanes {shown}")).arg(member);
            pipe.cmd("SREM").arg(self.store.keys.global("lanes")).arg(member);
            let mut connection = self.store.link.apart().await?;
            self.store.link.in_time(pipe.query_async::<Value>(&mut connection)).await?;
            Some("set aside".to_owned())
        } else {
            None
        };
        self.add("bad-lane", format!("lane {shown}"), "expected queue:kind", repaired)
    }
}

fn lane_of(member: &[u8]) -> Option<Lane> {
    let (queue, kind) = std::str::from_utf8(member).ok()?.split_once(':')?;
    Some(Lane { queue: Name::new(queue).ok()?, kind: Name::new(kind).ok()? })
}

/// The index that a key is, if it is one. A finished one belongs to all lanes of its queue.
fn index_of(name: KeyName, key: &[u8]) -> Option<Index> {
    let (lane, part) = match name {
        KeyName::Due(lane, part) => (lane, part),
        KeyName::Done(queue, part) => (Lane { kind: queue.clone(), queue }, part),
        _ => return None,
    };
    Some(Index { key: String::from_utf8(key.to_vec()).ok()?, lane, part })
}
