//! The state that a run reads and changes: fetched entry by entry, changed here, and written when the run completes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::effects::{
    STATE_BYTES_MAX, STATE_ENTRIES_MAX, STATE_KEY_BYTES_MAX, STATE_VALUE_BYTES_MAX, StateChange,
    StateEffects, StateFound, StateValue, whole_number,
};
use crate::grants::StateGrant;

use super::Services;
use super::bindings::hourhand::job::types::Refusal;

/// Questions to the store that one attempt may ask: each entry once, and some more while the store is away.
const FETCHES_MAX: usize = 2 * STATE_ENTRIES_MAX;

/// Who knows what the store holds.
pub(super) type Asked<'a> = Option<&'a Arc<dyn Services>>;

/// One bucket, as one run sees it.
pub(super) struct Remembered {
    grant: StateGrant,
    entries: BTreeMap<String, Entry>,
    /// Entries and bytes of the whole bucket when it was last asked.
    totals: (u64, u64),
    /// Of all values that are kept here.
    bytes: usize,
    fetches: usize,
}

/// An entry that the run has touched.
struct Entry {
    found: Option<StateValue>,
    /// The run has seen what was found: it must still be so when it commits.
    read: bool,
    change: Option<StateChange>,
}

impl Entry {
    /// Bytes of its value as the run would leave it; `None` for no entry.
    fn left(&self) -> Option<usize> {
        match &self.change {
            None => self.found.as_ref().map(|found| found.value.len()),
            Some(StateChange::Set(value)) => Some(value.len()),
            Some(StateChange::Delete) => None,
            Some(StateChange::Add(by)) => {
                let number =
                    self.found.as_ref().and_then(|found| whole_number(Some(&found.value))).unwrap_or(0);
                Some(number.saturating_add(*by).to_string().len())
            }
        }
    }

    /// Bytes of values that it keeps here.
    fn kept(&self) -> usize {
        let change = match &self.change {
            Some(StateChange::Set(value)) => value.len(),
            _ => 0,
        };
        change + self.found.as_ref().map_or(0, |found| found.value.len())
    }
}

impl Remembered {
    /// Nothing yet.
    pub(super) fn new(grant: StateGrant) -> Self {
        Self { grant, entries: BTreeMap::new(), totals: (0, 0), bytes: 0, fetches: 0 }
    }

    /// The entry's value, as this run has left it.
    pub(super) async fn get(&mut self, key: &str, services: Asked<'_>) -> Result<Option<Vec<u8>>, Refusal> {
        let entry = self.entry(key, services).await?;
        match &entry.change {
            Some(StateChange::Set(value)) => return Ok(Some(value.to_vec())),
            Some(StateChange::Delete) => return Ok(None),
            Some(StateChange::Add(_)) | None => {}
        }
        let sum = match &entry.change {
            Some(StateChange::Add(by)) => Some(sum(key, entry.found.as_ref(), *by)?),
            _ => None,
        };
        entry.read = true;
        Ok(match sum {
            Some(sum) => Some(sum.to_string().into_bytes()),
            None => entry.found.as_ref().map(|found| found.value.to_vec()),
        })
    }

    /// Changes the entry to `value`.
    pub(super) async fn set(
        &mut self,
        key: &str,
        value: Vec<u8>,
        services: Asked<'_>,
    ) -> Result<(), Refusal> {
        if value.len() > STATE_VALUE_BYTES_MAX {
            return Err(Refusal::Limit(format!(
                "state entry {key:?} of {} bytes: expected at most {STATE_VALUE_BYTES_MAX}",
                value.len()
            )));
        }
        self.entry(key, services).await?;
        self.change(key, StateChange::Set(Bytes::from(value)))
    }

    /// Removes the entry.
    pub(super) async fn delete(&mut self, key: &str, services: Asked<'_>) -> Result<(), Refusal> {
        self.entry(key, services).await?;
        self.change(key, StateChange::Delete)
    }

    /// Adds to the entry, and says what it would be now.
    pub(super) async fn increment(
        &mut self,
        key: &str,
        by: i64,
        services: Asked<'_>,
    ) -> Result<i64, Refusal> {
        let entry = self.entry(key, services).await?;
        let set = |number: i64| StateChange::Set(Bytes::from(number.to_string()));
        let (number, change) = match &entry.change {
            // Blind: what was found is told and not relied on.
            None => (sum(key, entry.found.as_ref(), by)?, StateChange::Add(by)),
            Some(StateChange::Add(before)) => {
                let together = before.checked_add(by).ok_or_else(|| too_large(key))?;
                (sum(key, entry.found.as_ref(), together)?, StateChange::Add(together))
            }
            Some(StateChange::Delete) => (by, set(by)),
            Some(StateChange::Set(value)) => {
                let number = added(key, value, by)?;
                (number, set(number))
            }
        };
        self.change(key, change)?;
        Ok(number)
    }

    /// What is to be checked and written when the run completes.
    pub(super) fn into_effects(self) -> StateEffects {
        let mut effects = StateEffects { bucket: self.grant.bucket, reads: Vec::new(), changes: Vec::new() };
        for (key, entry) in self.entries {
            if entry.read {
                effects.reads.push((key.clone(), entry.found.map_or(0, |found| found.version)));
            }
            if let Some(change) = entry.change {
                effects.changes.push((key, change));
            }
        }
        effects
    }

    /// The entry, fetched if this run has not touched it yet.
    async fn entry(&mut self, key: &str, services: Asked<'_>) -> Result<&mut Entry, Refusal> {
        if !self.entries.contains_key(key) {
            self.check_key(key)?;
            let found = self.fetch(key, services).await?;
            let entry = Entry { found, read: false, change: None };
            if self.bytes + entry.kept() > STATE_BYTES_MAX {
                return Err(too_much());
            }
            self.bytes += entry.kept();
            self.entries.insert(key.to_owned(), entry);
        }
        match self.entries.get_mut(key) {
            Some(entry) => Ok(entry),
            None => Err(Refusal::Unavailable("the entry was lost".to_owned())),
        }
    }

    fn check_key(&self, key: &str) -> Result<(), Refusal> {
        if key.is_empty() || key.len() > STATE_KEY_BYTES_MAX || key.chars().any(char::is_control) {
            let shown: String = key.chars().take(60).collect();
            return Err(Refusal::Invalid(format!(
                "invalid state key {shown:?} of {} bytes: expected 1 to {STATE_KEY_BYTES_MAX} bytes of UTF-8 without control \
                 characters",
                key.len()
            )));
        }
        if self.entries.len() >= STATE_ENTRIES_MAX {
            return Err(Refusal::Limit(format!(
                "an attempt may read or change at most {STATE_ENTRIES_MAX} entries of state"
            )));
        }
        Ok(())
    }

    async fn fetch(&mut self, key: &str, services: Asked<'_>) -> Result<Option<StateValue>, Refusal> {
        let Some(services) = services else {
            return Err(Refusal::Unavailable("there is no store here to keep state".to_owned()));
        };
        self.fetches += 1;
        if self.fetches > FETCHES_MAX {
            return Err(Refusal::Limit(format!("an attempt may ask for state at most {FETCHES_MAX} times")));
        }
        let keys = [key.to_owned()];
        let StateFound { mut values, entries, bytes } =
            services.read_state(&self.grant.bucket, &keys).await.map_err(Refusal::Unavailable)?;
        self.totals = (entries, bytes);
        Ok(values.pop().flatten())
    }

    /// Notes a change, unless more would be kept, here or in the bucket, than may be.
    fn change(&mut self, key: &str, change: StateChange) -> Result<(), Refusal> {
        let (before, held) = (self.left(), self.bytes);
        let Some(former) = self.put(key, Some(change)) else { return Ok(()) };
        let refusal = if self.bytes > STATE_BYTES_MAX { Some(too_much()) } else { self.grown(before) };
        let Some(refusal) = refusal else { return Ok(()) };
        self.put(key, former);
        debug_assert_eq!(self.bytes, held);
        Err(refusal)
    }

    /// Puts a change in the place of the former, which it returns; `None` when there is no such entry.
    fn put(&mut self, key: &str, change: Option<StateChange>) -> Option<Option<StateChange>> {
        let entry = self.entries.get_mut(key)?;
        let kept = entry.kept();
        let former = std::mem::replace(&mut entry.change, change);
        self.bytes = self.bytes - kept + entry.kept();
        Some(former)
    }

    /// Why the bucket may not grow from `before` to what it would be now. One that is too large already may shrink.
    fn grown(&self, before: (u64, u64)) -> Option<Refusal> {
        let (now, bucket) = (self.left(), &self.grant.bucket);
        let over = |what: &str, before: u64, now: u64, max: u64| {
            (now > before && now > max).then(|| {
                Refusal::Limit(format!(
                    "the state {bucket} would have {now} {what}, and may have at most {max}"
                ))
            })
        };
        over("entries", before.0, now.0, self.grant.entries_max)
            .or_else(|| over("bytes", before.1, now.1, self.grant.bytes_max))
    }

    /// Entries and bytes of the whole bucket as this run would leave it, as far as one can know.
    fn left(&self) -> (u64, u64) {
        let (mut entries, mut bytes) = (self.totals.0 as i64, self.totals.1 as i64);
        for (key, entry) in self.entries.iter().filter(|(_, entry)| entry.change.is_some()) {
            let size = |value: Option<usize>| value.map_or(0, |value| (key.len() + value) as i64);
            let found = entry.found.as_ref().map(|found| found.value.len());
            let left = entry.left();
            entries += i64::from(left.is_some()) - i64::from(found.is_some());
            bytes += size(left) - size(found);
        }
        (entries.max(0) as u64, bytes.max(0) as u64)
    }
}

fn sum(key: &str, found: Option<&StateValue>, by: i64) -> Result<i64, Refusal> {
    match found {
        Some(found) => added(key, &found.value, by),
        None => Ok(by),
    }
}

fn added(key: &str, value: &[u8], by: i64) -> Result<i64, Refusal> {
    let Some(number) = whole_number(Some(value)) else {
        let head = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
        return Err(Refusal::Invalid(format!(
            "state entry {key:?} is {head:?}: expected a whole number of 64 bits in decimal digits"
        )));
    };
    number.checked_add(by).ok_or_else(|| too_large(key))
}

fn too_large(key: &str) -> Refusal {
    Refusal::Invalid(format!("state entry {key:?} would not fit into 64 bits any more"))
}

fn too_much() -> Refusal {
    Refusal::Limit(format!("an attempt may have at most {STATE_BYTES_MAX} bytes of state in its hands"))
}

#[cfg(test)]
mod tests;
