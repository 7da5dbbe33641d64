//! Iterations over what may be large, a bounded step at a time.

use redis::Value;

use super::RedisStore;
use super::link::Repeat;
use super::reply::{Items, text};
use crate::queue::StoreError;

/// Bytes of records that one script may read, as far as the largest one tells.
const STEP_BYTES: u64 = 4 << 20;

/// What a step over a hash brings of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// The field alone.
    Names,
    /// The field, the size of the record, and the record up to its payload.
    Records,
}

impl RedisStore {
    /// One step over a hash, of which the values stay where they are: where it goes on, `None` at the end, and its
    /// entries.
    pub(super) async fn walk(
        &self,
        name: &str,
        from: &str,
        count: usize,
        what: Walk,
    ) -> Result<(Option<String>, Items), StoreError> {
        let keys = [self.keys.global(name)];
        let count = count.to_string();
        let what = match what {
            Walk::Names => "names",
            Walk::Records => "records",
        };
        let reply = self.link.script(&self.scripts.walk, &keys, &[from, &count, what], Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        let next = items.text()?;
        Ok(((next != "0").then_some(next), items))
    }

    /// How many records one script may read, all of the largest size; at most `most`.
    pub(super) async fn jobs_in_a_step(&self, most: usize) -> Result<usize, StoreError> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.global("meta")).arg("record_max");
        let largest = text(self.link.command(&cmd, Repeat::Once).await?)?.parse().unwrap_or(1).max(1);
        Ok(usize::try_from(STEP_BYTES / largest).unwrap_or(most).clamp(1, most))
    }
}

/// The reply of SCAN and its like: where it goes on, `None` at the end, and its items.
pub(super) fn step_of(reply: Value) -> Result<(Option<String>, Items), StoreError> {
    let mut reply = Items::of(reply)?;
    let next = reply.text()?;
    Ok(((next != "0").then_some(next), reply.list()?))
}
