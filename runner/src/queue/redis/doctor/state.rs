//! State: that every entry can be read, and that each bucket is listed with what it holds.

use std::collections::{BTreeMap, BTreeSet};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::counters::{PAUSE, TRIES, uncounted};
use super::{Doctor, STEP};
use crate::names::Name;
use crate::queue::StoreError;
use crate::queue::redis::reply::text;
use crate::queue::redis::state::read_value;
use crate::queue::redis::walk::step_of;

/// Entries in one step, of which each may be large.
const ENTRIES: usize = 50;

/// What a bucket's entries say.
#[derive(Default)]
struct Entries {
    /// Bytes of key and value, by key: an iteration may bring one twice.
    sizes: BTreeMap<String, u64>,
    version_max: u64,
    /// Fields and values that cannot be read.
    bad: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entries {
    /// What the store should say that the bucket holds; empty for nothing.
    fn holding(&self) -> String {
        match self.sizes.len() {
            0 => String::new(),
            entries => format!("{entries} {}", self.sizes.values().sum::<u64>()),
        }
    }
}

impl Doctor<'_> {
    pub(super) async fn look_at_state(&mut self) -> Result<(), StoreError> {
        let mut connection = self.store.link.apart().await?;
        let mut buckets: BTreeSet<String> = self.buckets.iter().map(Name::to_string).collect();
        for (command, name) in [("HSCAN", "holdings"), ("ZSCAN", "buckets")] {
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let mut cmd = redis::cmd(command);
                cmd.arg(self.key(name)).arg(from).arg("COUNT").arg(STEP);
                let (next, mut items) = step_of(self.call(&mut connection, &cmd).await?)?;
                while !items.is_empty() {
                    buckets.insert(items.text()?);
                    items.value()?;
                }
                cursor = next;
            }
        }
        for bucket in buckets {
            self.look_at_bucket(&mut connection, &bucket).await?;
        }
        Ok(())
    }

    async fn look_at_bucket(
        &mut self,
        connection: &mut MultiplexedConnection,
        bucket: &str,
    ) -> Result<(), StoreError> {
        let key = self.store.keys.state_named(bucket);
        for _ in 0..TRIES {
            self.call(connection, redis::cmd("WATCH").arg(&key)).await?;
            let there = self.entries_of(connection, &key).await?;
            let (held, listed) = self.told_of(connection, bucket).await?;
            let mut read = redis::pipe();
            read.atomic();
            read.cmd("HGET").arg(self.key("holdings")).arg(bucket);
            read.cmd("ZSCORE").arg(self.key("buckets")).arg(bucket);
            if self.repair {
                self.mend_bucket(&mut read, bucket, &there, held == there.holding() && listed);
            }
            let reply = self.store.link.in_time(read.query_async::<Value>(connection)).await?;
            if let Value::Array(mut replies) = reply
                && replies.len() >= 2
            {
                let listed = !text(replies.swap_remove(1))?.is_empty();
                let held = text(replies.swap_remove(0))?;
                self.order_max = self.order_max.max(there.version_max);
                return self.tell_of_bucket(bucket, &there, &held, listed);
            }
            tokio::time::sleep(PAUSE).await;
        }
        uncounted("state");
        Ok(())
    }

    async fn entries_of(
        &self,
        connection: &mut MultiplexedConnection,
        key: &str,
    ) -> Result<Entries, StoreError> {
        let (mut entries, mut cursor) = (Entries::default(), Some("0".to_owned()));
        while let Some(from) = cursor {
            let mut cmd = redis::cmd("HSCAN");
            cmd.arg(key).arg(from).arg("COUNT").arg(ENTRIES);
            let (next, mut items) = step_of(self.call(connection, &cmd).await?)?;
            while !items.is_empty() {
                let (field, value) = (items.bytes()?, items.bytes()?);
                match (std::str::from_utf8(&field), read_value(&value)) {
                    (Ok(field), Some(found)) => {
                        let bytes = (field.len() + found.value.len()) as u64;
                        entries.sizes.insert(field.to_owned(), bytes);
                        entries.version_max = entries.version_max.max(found.version);
                    }
                    _ => entries.bad.push((field.to_vec(), value.to_vec())),
                }
            }
            cursor = next;
        }
        Ok(entries)
    }

    /// What the store says that a bucket holds, and whether it is listed.
    async fn told_of(
        &self,
        connection: &mut MultiplexedConnection,
        bucket: &str,
    ) -> Result<(String, bool), StoreError> {
        let held = self.call(connection, redis::cmd("HGET").arg(self.key("holdings")).arg(bucket)).await?;
        let score = self.call(connection, redis::cmd("ZSCORE").arg(self.key("buckets")).arg(bucket)).await?;
        Ok((text(held)?, !text(score)?.is_empty()))
    }

    fn mend_bucket(&self, pipe: &mut Pipeline, bucket: &str, there: &Entries, told_right: bool) {
        for (field, value) in &there.bad {
            let mut aside = format!("state {bucket} ").into_bytes();
            aside.extend_from_slice(field);
            pipe.cmd("HSET").arg(self.store.keys.quarantine()).arg(aside).arg(value);
            pipe.cmd("HDEL").arg(self.store.keys.state_named(bucket)).arg(field);
        }
        if there.sizes.is_empty() {
            pipe.cmd("HDEL").arg(self.key("holdings")).arg(bucket);
            pipe.cmd("ZREM").arg(self.key("buckets")).arg(bucket);
        } else if !told_right {
            pipe.cmd("HSET").arg(self.key("holdings")).arg(bucket).arg(there.holding());
            pipe.cmd("ZADD").arg(self.key("buckets")).arg(0).arg(bucket);
        }
    }

    fn tell_of_bucket(
        &mut self,
        bucket: &str,
        there: &Entries,
        held: &str,
        listed: bool,
    ) -> Result<(), StoreError> {
        for (field, _) in &there.bad {
            let place = format!("entry {:?} of bucket {bucket}", String::from_utf8_lossy(field));
            self.add("bad-state", place, "it cannot be read", self.repair.then(|| "set aside".to_owned()))?;
        }
        let holding = there.holding();
        if held != holding || listed == holding.is_empty() {
            let listed = if listed { "listed" } else { "not listed" };
            let message = format!("{held:?} (entries, bytes), and {listed}: what it counts is {holding:?}");
            let repaired = self.repair.then(|| format!("set to {holding:?}"));
            self.add("counter", format!("holdings {bucket}"), message, repaired)?;
        }
        Ok(())
    }
}
