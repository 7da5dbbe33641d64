//! State: the Rust side of lua/state_read.lua, lua/state_set.lua and lua/state_delete.lua, and the lists for operators.

use bytes::Bytes;

use super::RedisStore;
use super::link::Repeat;
use super::reply::{Items, number, unexpected};
use super::walk::step_of;
use crate::effects::{BucketSeen, StateEntry, StateFound, StateValue};
use crate::names::Name;
use crate::queue::checks::{check_state_entry, check_state_keys};
use crate::queue::{Page, StoreError};

/// Buckets of a page.
const PAGE_BUCKETS: usize = 500;
/// Entries of a page, of which each may be large.
const PAGE_ENTRIES: usize = 50;
/// Entries that one step deletes.
const DELETE_STEP: usize = 50;

/// An entry as lua/includes/state.lua has it: version, space, value.
pub(super) fn read_value(bytes: &Bytes) -> Option<StateValue> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    let version = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    Some(StateValue { version, value: bytes.slice(space + 1..) })
}

/// What a bucket holds: `entries bytes`.
pub(super) fn read_holding(text: &str) -> Option<(u64, u64)> {
    let (entries, bytes) = text.split_once(' ')?;
    Some((entries.parse().ok()?, bytes.parse().ok()?))
}

impl RedisStore {
    pub(super) async fn read_bucket(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, StoreError> {
        check_state_keys(keys)?;
        let mut args = vec![bucket.as_str()];
        args.extend(keys.iter().map(String::as_str));
        let script = &self.scripts.state_read;
        let reply = self.link.script(script, &self.bucket_keys(bucket), &args, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        let (entries, bytes) = (items.number()?, items.number()?);
        let mut values = Vec::with_capacity(keys.len());
        for _ in keys {
            values.push(read_value(&items.bytes()?));
        }
        Ok(StateFound { values, entries, bytes })
    }

    pub(super) async fn bucket_page(&self, cursor: Option<String>) -> Result<Page<BucketSeen>, StoreError> {
        let from = match &cursor {
            None => "-".to_owned(),
            Some(after) => format!("({}", Name::new(after).map_err(|_| bad_cursor(after))?),
        };
        let mut cmd = redis::cmd("ZRANGE");
        cmd.arg(self.keys.global("buckets")).arg(from).arg("+").arg("BYLEX");
        cmd.arg("LIMIT").arg(0).arg(PAGE_BUCKETS);
        let mut names = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut buckets: Vec<Name> = Vec::with_capacity(names.len());
        let full = names.len() == PAGE_BUCKETS;
        while !names.is_empty() {
            buckets.extend(Name::new(&names.text()?).ok());
        }
        if buckets.is_empty() {
            return Ok(Page { items: Vec::new(), cursor: None });
        }
        let mut cmd = redis::cmd("HMGET");
        cmd.arg(self.keys.global("holdings"));
        for bucket in &buckets {
            cmd.arg(bucket.as_str());
        }
        let mut holdings = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut items = Vec::with_capacity(buckets.len());
        let cursor = buckets.last().filter(|_| full).map(Name::to_string);
        for bucket in buckets {
            // One that was emptied in between has nothing to show.
            let holding = read_holding(&holdings.text()?);
            items.extend(holding.map(|(entries, bytes)| BucketSeen { bucket, entries, bytes }));
        }
        Ok(Page { items, cursor })
    }

    /// The first bucket behind one, in order of name.
    pub(super) async fn bucket_behind(&self, bucket: Option<&Name>) -> Result<Option<Name>, StoreError> {
        let from = bucket.map_or("-".to_owned(), |bucket| format!("({bucket}"));
        let mut cmd = redis::cmd("ZRANGE");
        cmd.arg(self.keys.global("buckets")).arg(from).arg("+").arg("BYLEX").arg("LIMIT").arg(0).arg(1);
        let mut names = Items::of(self.link.command(&cmd, Repeat::Once).await?)?;
        if names.is_empty() {
            return Ok(None);
        }
        // Not the end: what is behind it would be left out, and nobody told.
        let text = names.text()?;
        Name::new(&text).map(Some).map_err(|error| unexpected(&format!("a bucket's name: {error}")))
    }

    pub(super) async fn entry_page(
        &self,
        bucket: &Name,
        cursor: Option<String>,
    ) -> Result<Page<StateEntry>, StoreError> {
        let from = cursor.as_deref().unwrap_or("0");
        if from.parse::<u64>().is_err() {
            return Err(bad_cursor(from));
        }
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(self.keys.state(bucket)).arg(from).arg("COUNT").arg(PAGE_ENTRIES);
        let (cursor, mut fields) = step_of(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut items = Vec::with_capacity(fields.len() / 2);
        while !fields.is_empty() {
            let (key, value) = (fields.text()?, fields.bytes()?);
            // What cannot be read is the doctor's.
            items.extend(read_value(&value).map(|found| StateEntry { key, found }));
        }
        Ok(Page { items, cursor })
    }

    pub(super) async fn set_entry(&self, bucket: &Name, key: &str, value: &[u8]) -> Result<u64, StoreError> {
        check_state_entry(key, value)?;
        let args = [bucket.as_str().as_bytes(), key.as_bytes(), value];
        let script = &self.scripts.state_set;
        // A second run sets the same again.
        number(self.link.script(script, &self.bucket_keys(bucket), &args, Repeat::Once).await?)
    }

    pub(super) async fn delete_entry(&self, bucket: &Name, key: &str) -> Result<bool, StoreError> {
        check_state_keys(&[key])?;
        let args = [bucket.as_str(), key];
        let script = &self.scripts.state_delete;
        // A second run would find nothing and say so.
        let reply = self.link.script(script, &self.bucket_keys(bucket), &args, Repeat::Never).await?;
        Ok(Items::of(reply)?.number::<u64>()? > 0)
    }

    pub(super) async fn delete_entries(&self, bucket: &Name) -> Result<(u64, bool), StoreError> {
        let step = DELETE_STEP.to_string();
        let args = [bucket.as_str(), "", &step];
        let script = &self.scripts.state_delete;
        let reply = self.link.script(script, &self.bucket_keys(bucket), &args, Repeat::Never).await?;
        let mut items = Items::of(reply)?;
        let (deleted, left): (u64, u64) = (items.number()?, items.number()?);
        Ok((deleted, left > 0))
    }

    /// The globals, and the bucket's entries.
    fn bucket_keys(&self, bucket: &Name) -> Vec<String> {
        let mut keys = self.keys.globals().to_vec();
        keys.push(self.keys.state(bucket));
        keys
    }
}

fn bad_cursor(cursor: &str) -> StoreError {
    StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that a page gave"))
}
