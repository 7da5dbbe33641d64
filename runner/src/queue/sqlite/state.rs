//! State: entries of buckets, with what each bucket holds.

use super::SqliteStore;
use super::disk::check_room;
use super::link::Promise;
use super::tx::Tx;
use crate::effects::{BucketSeen, StateEntry, StateFound, StateValue};
use crate::names::Name;
use crate::queue::checks::{check_state_entry, check_state_keys};
use crate::queue::{Page, StoreError};

/// Buckets of a page.
const PAGE_BUCKETS: u64 = 500;
/// Entries of a page, of which each may be large.
const PAGE_ENTRIES: u64 = 50;
/// Entries that one call deletes.
const DELETE_STEP: u64 = 500;

impl SqliteStore {
    pub(super) async fn read_bucket(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, StoreError> {
        check_state_keys(keys)?;
        let (bucket, keys) = (bucket.clone(), keys.to_vec());
        self.link
            .read(move |tx| {
                let values = keys.iter().map(|key| entry(tx, &bucket, key)).collect::<Result<_, _>>()?;
                let held = Held::load(tx, &bucket)?;
                Ok(StateFound { values, entries: held.entries, bytes: held.bytes })
            })
            .await
    }

    pub(super) async fn bucket_page(&self, cursor: Option<String>) -> Result<Page<BucketSeen>, StoreError> {
        let after = match cursor {
            Some(after) => Name::new(&after).map_err(|_| bad_cursor(&after))?.to_string(),
            None => String::new(),
        };
        self.link.read(move |tx| buckets(tx, &after)).await
    }

    pub(super) async fn entry_page(
        &self,
        bucket: &Name,
        cursor: Option<String>,
    ) -> Result<Page<StateEntry>, StoreError> {
        let bucket = bucket.clone();
        self.link
            .read(move |tx| {
                let items = entries(tx, &bucket, cursor.as_deref().unwrap_or_default(), PAGE_ENTRIES)?;
                let full = items.len() as u64 == PAGE_ENTRIES;
                let cursor = items.last().filter(|_| full).map(|entry| entry.key.clone());
                Ok(Page { items, cursor })
            })
            .await
    }

    pub(super) async fn set_entry(&self, bucket: &Name, key: &str, value: &[u8]) -> Result<u64, StoreError> {
        check_state_entry(key, value)?;
        let (bucket, key, value) = (bucket.clone(), key.to_owned(), value.to_vec());
        self.link
            .write(Promise::Kept, move |tx| {
                check_room(tx.path(), (key.len() + value.len()) as u64)?;
                let version = tx.next_number()?;
                let mut held = Held::load(tx, &bucket)?;
                held.put(tx, &key, Some(&value), version)?;
                held.save(tx)?;
                Ok(version)
            })
            .await
    }

    pub(super) async fn delete_entry(&self, bucket: &Name, key: &str) -> Result<bool, StoreError> {
        check_state_keys(&[key])?;
        let (bucket, key) = (bucket.clone(), key.to_owned());
        self.link
            .write(Promise::Kept, move |tx| {
                let mut held = Held::load(tx, &bucket)?;
                let there = held.put(tx, &key, None, 0)?;
                held.save(tx)?;
                Ok(there)
            })
            .await
    }

    pub(super) async fn delete_entries(&self, bucket: &Name) -> Result<(u64, bool), StoreError> {
        let bucket = bucket.clone();
        self.link
            .write(Promise::Kept, move |tx| {
                let keys = tx.rows(
                    "SELECT key FROM state WHERE ns = ?1 AND bucket = ?2 ORDER BY key LIMIT ?3",
                    (tx.ns, bucket.as_str(), DELETE_STEP),
                    |row| row.get::<_, String>(0),
                )?;
                let mut held = Held::load(tx, &bucket)?;
                for key in &keys {
                    held.put(tx, key, None, 0)?;
                }
                held.save(tx)?;
                let left = tx.row(
                    "SELECT 1 FROM state WHERE ns = ?1 AND bucket = ?2 LIMIT 1",
                    (tx.ns, bucket.as_str()),
                    |_| Ok(()),
                )?;
                Ok((keys.len() as u64, left.is_some()))
            })
            .await
    }
}

fn bad_cursor(cursor: &str) -> StoreError {
    StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that a page gave"))
}

/// An entry, if it is there.
pub(super) fn entry(tx: &Tx<'_>, bucket: &Name, key: &str) -> Result<Option<StateValue>, StoreError> {
    tx.row(
        "SELECT value, version FROM state WHERE ns = ?1 AND bucket = ?2 AND key = ?3",
        (tx.ns, bucket.as_str(), key),
        |row| Ok(StateValue { value: row.get::<_, Vec<u8>>(0)?.into(), version: row.get(1)? }),
    )
}

/// The buckets behind one, in order of name.
pub(super) fn buckets(tx: &Tx<'_>, after: &str) -> Result<Page<BucketSeen>, StoreError> {
    let rows = tx.rows(
        "SELECT bucket, entries, bytes FROM buckets WHERE ns = ?1 AND bucket > ?2 ORDER BY bucket LIMIT ?3",
        (tx.ns, after, PAGE_BUCKETS),
        |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let full = rows.len() as u64 == PAGE_BUCKETS;
    let cursor = rows.last().filter(|_| full).map(|(bucket, ..)| bucket.clone());
    let seen = |(bucket, entries, bytes): (String, u64, u64)| {
        Some(BucketSeen { bucket: Name::new(&bucket).ok()?, entries, bytes })
    };
    Ok(Page { items: rows.into_iter().filter_map(seen).collect(), cursor })
}

/// Entries of a bucket behind a key.
pub(super) fn entries(
    tx: &Tx<'_>,
    bucket: &Name,
    after: &str,
    limit: u64,
) -> Result<Vec<StateEntry>, StoreError> {
    tx.rows(
        "SELECT key, value, version FROM state WHERE ns = ?1 AND bucket = ?2 AND key > ?3 ORDER BY key LIMIT ?4",
        (tx.ns, bucket.as_str(), after, limit),
        |row| {
            let value = row.get::<_, Vec<u8>>(1)?.into();
            Ok(StateEntry { key: row.get(0)?, found: StateValue { value, version: row.get(2)? } })
        },
    )
}

/// What a bucket holds, while a call changes it.
#[derive(Debug)]
pub(super) struct Held {
    bucket: Name,
    entries: u64,
    bytes: u64,
}

impl Held {
    pub(super) fn load(tx: &Tx<'_>, bucket: &Name) -> Result<Self, StoreError> {
        let held = tx.row(
            "SELECT entries, bytes FROM buckets WHERE ns = ?1 AND bucket = ?2",
            (tx.ns, bucket.as_str()),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let (entries, bytes) = held.unwrap_or_default();
        Ok(Self { bucket: bucket.clone(), entries, bytes })
    }

    /// Sets an entry to a value, or to nothing; whether there was one.
    pub(super) fn put(
        &mut self,
        tx: &Tx<'_>,
        key: &str,
        value: Option<&[u8]>,
        version: u64,
    ) -> Result<bool, StoreError> {
        let old = tx.row(
            "SELECT length(value) FROM state WHERE ns = ?1 AND bucket = ?2 AND key = ?3",
            (tx.ns, self.bucket.as_str(), key),
            |row| row.get::<_, u64>(0),
        )?;
        if let Some(bytes) = old {
            self.entries = self.entries.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(key.len() as u64 + bytes);
        }
        match value {
            Some(value) => {
                self.entries += 1;
                self.bytes += (key.len() + value.len()) as u64;
                tx.exec(
                    "INSERT OR REPLACE INTO state (ns, bucket, key, value, version) VALUES (?1, ?2, ?3, ?4, ?5)",
                    (tx.ns, self.bucket.as_str(), key, value, version),
                )?;
            }
            None if old.is_some() => {
                tx.exec(
                    "DELETE FROM state WHERE ns = ?1 AND bucket = ?2 AND key = ?3",
                    (tx.ns, self.bucket.as_str(), key),
                )?;
            }
            None => {}
        }
        Ok(old.is_some())
    }

    pub(super) fn save(self, tx: &Tx<'_>) -> Result<(), StoreError> {
        if self.entries == 0 {
            return tx
                .exec("DELETE FROM buckets WHERE ns = ?1 AND bucket = ?2", (tx.ns, self.bucket.as_str()))
                .map(drop);
        }
        tx.exec(
            "INSERT OR REPLACE INTO buckets (ns, bucket, entries, bytes) VALUES (?1, ?2, ?3, ?4)",
            (tx.ns, self.bucket.as_str(), self.entries, self.bytes),
        )
        .map(drop)
    }
}
