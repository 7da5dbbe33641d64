//! Counters: that each is what it counts.
//!
//! What is counted may be large and may move. So it is watched while it is read in steps, and the counter is read in a
//! transaction that Redis refuses if anything has changed since: then it is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};

use super::Doctor;
use crate::queue::StoreError;
use crate::queue::redis::record::read_lease;
use crate::queue::redis::reply::{Items, number, text, unexpected};
use crate::queue::redis::walk::step_of;

/// How often something that moves is read again, and the pause before.
pub(super) const TRIES: u32 = 50;
pub(super) const PAUSE: Duration = Duration::from_millis(2);
/// Entries of an index in one command, and commands that are on their way together.
const ENTRIES: usize = 1_000;
const TOGETHER: usize = 10;
/// Leases in one step.
const LEASES: usize = 1_000;
/// What the memory of an id costs beyond twice its length: as lua/includes/finish.lua has it.
const ID_COST: usize = 200;

/// Fields of a hash with their values.
type Fields = BTreeMap<String, String>;

impl Doctor<'_> {
    pub(super) async fn look_at_counters(&mut self) -> Result<(), StoreError> {
        let mut connection = self.store.link.apart().await?;
        self.count_leases(&mut connection).await?;
        self.look_at_numbers(&mut connection).await?;
        self.count_finished(&mut connection).await?;
        self.count_memory(&mut connection).await
    }

    /// The leases of each queue and of each session.
    async fn count_leases(&mut self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let (running, totals, holders) = (self.key("running"), self.key("totals"), self.key("holders"));
        for _ in 0..TRIES {
            self.call(connection, redis::cmd("WATCH").arg(&running)).await?;
            let mut there = Counted::default();
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let mut cmd = redis::cmd("HSCAN");
                cmd.arg(&running).arg(from).arg("COUNT").arg(LEASES);
                let (next, mut items) = step_of(self.call(connection, &cmd).await?)?;
                while !items.is_empty() {
                    there.add(items.text()?, &items.bytes()?);
                }
                cursor = next;
            }
            let mut read = redis::pipe();
            read.atomic().cmd("HGETALL").arg(&totals).cmd("HGETALL").arg(&holders);
            if self.repair {
                let suspected = self.differences(connection, &there, &totals, &holders).await?;
                suspected.iter().for_each(|difference| difference.mend(&mut read, &totals, &holders));
            }
            let reply = self.store.link.in_time(read.query_async::<Value>(connection)).await?;
            if let Value::Array(mut replies) = reply
                && replies.len() >= 2
            {
                let holders = fields(replies.swap_remove(1))?;
                let totals = fields(replies.swap_remove(0))?;
                for difference in there.compare(&totals, &holders) {
                    let repaired = self.repair.then(|| format!("set to {}", difference.there));
                    self.add("counter", difference.place(), difference.message(), repaired)?;
                }
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        uncounted("leases");
        Ok(())
    }

    async fn differences(
        &self,
        connection: &mut MultiplexedConnection,
        there: &Counted,
        totals: &str,
        holders: &str,
    ) -> Result<Vec<Difference>, StoreError> {
        let totals = fields(self.call(connection, redis::cmd("HGETALL").arg(totals)).await?)?;
        let holders = fields(self.call(connection, redis::cmd("HGETALL").arg(holders)).await?)?;
        Ok(there.compare(&totals, &holders))
    }

    /// What counts for ever cannot be counted again: it only has to be a number, or scripts fail on it.
    async fn look_at_numbers(&mut self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        for name in ["totals", "meta", "sizes"] {
            let all = fields(self.call(connection, redis::cmd("HGETALL").arg(self.key(name))).await?)?;
            for (field, value) in all {
                let fits = match (name, field.rsplit_once(':')) {
                    ("meta", _) => !["stale", "id_bytes"].contains(&field.as_str()) || is_number(&value),
                    ("sizes", Some((_, "age"))) => value == "m" || value == "-1" || is_number(&value),
                    _ => is_number(&value),
                };
                if !fits {
                    let repaired = self.replace(connection, name, &field, &value, "0").await?;
                    self.add(
                        "counter",
                        format!("{name} {field}"),
                        format!("{value:?} is no number"),
                        repaired,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// The bytes of each queue's finished jobs.
    async fn count_finished(&mut self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let key = self.key("sizes");
        let all = fields(self.call(connection, redis::cmd("HGETALL").arg(&key)).await?)?;
        let mut counters: BTreeSet<String> = self
            .indexes
            .iter()
            .filter_map(|index| self.store.keys.rest(index.key.as_bytes()).map(String::from_utf8_lossy))
            .filter_map(|rest| rest.strip_prefix("done:").map(str::to_owned))
            .collect();
        let is_counter = |field: &&String| [":c", ":x", ":d"].iter().any(|state| field.ends_with(state));
        counters.extend(all.keys().filter(is_counter).cloned());
        for field in counters {
            let index = self.store.keys.done_counted_by(&field);
            let bytes =
                |member: &str| member.split(':').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
            self.count_index(connection, &index, ("sizes", &field), &bytes).await?;
        }
        Ok(())
    }

    /// The bytes of remembered ids.
    async fn count_memory(&mut self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let memory = self.key("memory");
        let bytes = |member: &str| (2 * member.len() + ID_COST) as u64;
        self.count_index(connection, &memory, ("meta", "id_bytes"), &bytes).await
    }

    /// Compares a counter with the sum over an index.
    async fn count_index(
        &mut self,
        connection: &mut MultiplexedConnection,
        index: &str,
        (hash, field): (&str, &str),
        bytes: &(dyn Fn(&str) -> u64 + Sync),
    ) -> Result<(), StoreError> {
        let key = self.key(hash);
        for _ in 0..TRIES {
            self.call(connection, redis::cmd("WATCH").arg(index)).await?;
            let there = self.sum_of(connection, index, bytes).await?;
            let before = text(self.call(connection, redis::cmd("HGET").arg(&key).arg(field)).await?)?;
            let mut read = redis::pipe();
            read.atomic().cmd("HGET").arg(&key).arg(field);
            if self.repair && value_of(&before) != Some(there) {
                read.cmd("HSET").arg(&key).arg(field).arg(there);
            }
            let reply = self.store.link.in_time(read.query_async::<Value>(connection)).await?;
            if let Value::Array(mut replies) = reply
                && !replies.is_empty()
            {
                let counted = text(replies.swap_remove(0))?;
                if value_of(&counted) != Some(there) {
                    let repaired = self.repair.then(|| format!("set to {there}"));
                    let message = format!("it is {counted:?}: what it counts is {there}");
                    self.add("counter", format!("{hash} {field}"), message, repaired)?;
                }
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        uncounted(field);
        Ok(())
    }

    async fn sum_of(
        &self,
        connection: &mut MultiplexedConnection,
        index: &str,
        bytes: &(dyn Fn(&str) -> u64 + Sync),
    ) -> Result<u64, StoreError> {
        let entries: usize = number(self.call(connection, redis::cmd("ZCARD").arg(index)).await?)?;
        let (mut sum, mut from) = (0, 0);
        while from < entries {
            let mut pipe = Pipeline::new();
            for step in 0..TOGETHER {
                let first = from + step * ENTRIES;
                pipe.cmd("ZRANGE").arg(index).arg(first).arg(first + ENTRIES - 1);
            }
            from += TOGETHER * ENTRIES;
            let replies = self.store.link.in_time(pipe.query_async::<Vec<Value>>(connection)).await?;
            for reply in replies {
                let mut members = Items::of(reply)?;
                while !members.is_empty() {
                    sum += bytes(&members.text()?);
                }
            }
        }
        Ok(sum)
    }

    /// Sets a counter that is no number aside and starts it anew, if the doctor repairs; what was done.
    async fn replace(
        &self,
        connection: &mut MultiplexedConnection,
        name: &str,
        field: &str,
        value: &str,
        anew: &str,
    ) -> Result<Option<String>, StoreError> {
        if !self.repair {
            return Ok(None);
        }
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("HSET").arg(self.store.keys.quarantine()).arg(format!("{name} {field}")).arg(value);
        pipe.cmd("HSET").arg(self.key(name)).arg(field).arg(anew);
        self.store.link.in_time(pipe.query_async::<Value>(connection)).await?;
        Ok(Some(format!("set aside; set to {anew}")))
    }

    pub(super) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        cmd: &Cmd,
    ) -> Result<Value, StoreError> {
        self.store.link.in_time(cmd.query_async(connection)).await
    }

    pub(super) fn key(&self, name: &str) -> String {
        self.store.keys.global(name).to_owned()
    }
}

/// What the leases say.
#[derive(Default)]
struct Counted {
    by_queue: BTreeMap<String, u64>,
    by_session: BTreeMap<String, u64>,
    /// An iteration may bring a lease twice.
    seen: BTreeSet<String>,
}

/// A counter of leases that is not what it counts.
struct Difference {
    hash: &'static str,
    field: String,
    counted: String,
    there: u64,
}

impl Counted {
    fn add(&mut self, record: String, lease: &[u8]) {
        if let (Some(lease), true) = (read_lease(lease), self.seen.insert(record)) {
            *self.by_queue.entry(format!("{}:running", lease.queue)).or_default() += 1;
            *self.by_session.entry(lease.session).or_default() += 1;
        }
    }

    fn compare(&self, totals: &Fields, holders: &Fields) -> Vec<Difference> {
        let running: BTreeSet<&String> = totals.keys().filter(|field| field.ends_with(":running")).collect();
        let mut differences = Vec::new();
        let mut compare = |hash, field: &String, counted: Option<&String>, there: Option<&u64>| {
            let (counted, there) = (counted.map_or("", String::as_str), there.copied().unwrap_or(0));
            if value_of(counted) != Some(there) {
                differences.push(Difference {
                    hash,
                    field: field.clone(),
                    counted: counted.to_owned(),
                    there,
                });
            }
        };
        for field in running.into_iter().chain(self.by_queue.keys()).collect::<BTreeSet<_>>() {
            compare("totals", field, totals.get(field), self.by_queue.get(field));
        }
        for session in holders.keys().chain(self.by_session.keys()).collect::<BTreeSet<_>>() {
            compare("holders", session, holders.get(session), self.by_session.get(session));
        }
        differences
    }
}

impl Difference {
    fn place(&self) -> String {
        format!("{} {}", self.hash, self.field)
    }

    fn message(&self) -> String {
        format!("it is {:?}: there are {} leases", self.counted, self.there)
    }

    fn mend(&self, pipe: &mut Pipeline, totals: &str, holders: &str) {
        match (self.hash, self.there) {
            ("holders", 0) => pipe.cmd("HDEL").arg(holders).arg(&self.field),
            ("holders", there) => pipe.cmd("HSET").arg(holders).arg(&self.field).arg(there),
            (_, there) => pipe.cmd("HSET").arg(totals).arg(&self.field).arg(there),
        };
    }
}

/// A counter that was never set is 0.
fn value_of(text: &str) -> Option<u64> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn fields(reply: Value) -> Result<Fields, StoreError> {
    let mut items = match reply {
        Value::Map(pairs) => {
            return pairs.into_iter().map(|(field, value)| Ok((text(field)?, text(value)?))).collect();
        }
        reply => Items::of(reply)?,
    };
    let mut all = Fields::new();
    while !items.is_empty() {
        let field = items.text()?;
        if all.insert(field, items.text()?).is_some() {
            return Err(unexpected("a field twice"));
        }
    }
    Ok(all)
}

pub(super) fn uncounted(what: &str) {
    tracing::warn!(what, "it changed all the time and was not counted: look again when less is going on");
}
