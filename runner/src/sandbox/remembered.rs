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
type Asked<'a> = Option<&'a Arc<dyn Services>>;

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
mod tests {
    use std::collections::HashMap;

    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::*;
    use crate::effects::Progress;
    use crate::names::Name;

    /// A bucket that counts who asks.
    #[derive(Default)]
    struct Bucket {
        entries: HashMap<String, (Vec<u8>, u64)>,
        asked: Mutex<Vec<String>>,
        away: bool,
    }

    #[async_trait]
    impl Services for Bucket {
        async fn read_state(&self, _bucket: &Name, keys: &[String]) -> Result<StateFound, String> {
            self.asked.lock().extend(keys.iter().cloned());
            if self.away {
                return Err("away".to_owned());
            }
            let value = |key: &String| {
                let (value, version) = self.entries.get(key)?.clone();
                Some(StateValue { value: value.into(), version })
            };
            Ok(StateFound {
                values: keys.iter().map(value).collect(),
                entries: self.entries.len() as u64,
                bytes: self.entries.iter().map(|(key, (value, _))| (key.len() + value.len()) as u64).sum(),
            })
        }

        fn progress(&self, _progress: Progress) {}
    }

    struct Bed {
        services: Arc<dyn Services>,
        bucket: Arc<Bucket>,
        seen: Remembered,
    }

    fn bed(entries: &[(&str, &str)]) -> Bed {
        let entries = entries
            .iter()
            .enumerate()
            .map(|(n, (key, value))| ((*key).to_owned(), (value.as_bytes().to_vec(), n as u64 + 1)));
        let bucket = Arc::new(Bucket { entries: entries.collect(), ..Bucket::default() });
        let grant = StateGrant { bucket: Name::new("b").unwrap(), entries_max: 3, bytes_max: 100 };
        Bed { services: Arc::<Bucket>::clone(&bucket), bucket, seen: Remembered::new(grant) }
    }

    impl Bed {
        async fn get(&mut self, key: &str) -> Result<Option<String>, Refusal> {
            let value = self.seen.get(key, Some(&self.services)).await?;
            Ok(value.map(|bytes| String::from_utf8(bytes).unwrap()))
        }

        async fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
            self.seen.set(key, value.as_bytes().to_vec(), Some(&self.services)).await
        }

        async fn add(&mut self, key: &str, by: i64) -> Result<i64, Refusal> {
            self.seen.increment(key, by, Some(&self.services)).await
        }

        async fn delete(&mut self, key: &str) -> Result<(), Refusal> {
            self.seen.delete(key, Some(&self.services)).await
        }
    }

    fn set(value: &str) -> StateChange {
        StateChange::Set(Bytes::copy_from_slice(value.as_bytes()))
    }

    fn is_limit<T>(answer: &Result<T, Refusal>) -> bool {
        matches!(answer, Err(Refusal::Limit(_)))
    }

    #[tokio::test]
    async fn what_is_read_is_asked_once_and_what_was_changed_is_seen() {
        let mut bed = bed(&[("a", "1"), ("b", "2")]);
        assert_eq!(bed.get("a").await.unwrap().as_deref(), Some("1"));
        assert_eq!(bed.get("a").await.unwrap().as_deref(), Some("1"));
        bed.set("b", "x").await.unwrap();
        assert_eq!(bed.get("b").await.unwrap().as_deref(), Some("x"));
        bed.delete("b").await.unwrap();
        assert_eq!(bed.get("b").await.unwrap(), None);
        assert_eq!(bed.get("none").await.unwrap(), None);
        assert_eq!(*bed.bucket.asked.lock(), ["a", "b", "none"]);
        let effects = bed.seen.into_effects();
        // What was written before it was read is nobody's concern.
        assert_eq!(effects.reads, [("a".to_owned(), 1), ("none".to_owned(), 0)]);
        assert_eq!(effects.changes, [("b".to_owned(), StateChange::Delete)]);
    }

    #[tokio::test]
    async fn an_increment_is_blind_until_somebody_looks() {
        let mut bed = bed(&[("n", "40"), ("text", "4 0"), ("padded", "007")]);
        bed.seen.grant.entries_max = 10;
        assert_eq!((bed.add("n", 1).await.unwrap(), bed.add("n", 1).await.unwrap()), (41, 42));
        assert_eq!(bed.add("new", -1).await.unwrap(), -1);
        assert!(matches!(bed.add("text", 1).await, Err(Refusal::Invalid(_))));
        assert_eq!(bed.add("padded", 1).await.unwrap(), 8);
        assert!(matches!(bed.add("n", i64::MAX).await, Err(Refusal::Invalid(_))));
        bed.set("text", "1").await.unwrap();
        assert_eq!(bed.add("text", 1).await.unwrap(), 2);
        bed.delete("padded").await.unwrap();
        assert_eq!(bed.add("padded", 5).await.unwrap(), 5);
        assert_eq!(bed.get("new").await.unwrap().as_deref(), Some("-1"));
        let effects = bed.seen.into_effects();
        assert_eq!(effects.reads, [("new".to_owned(), 0)]);
        let wanted = [
            ("n", StateChange::Add(2)),
            ("new", StateChange::Add(-1)),
            ("padded", set("5")),
            ("text", set("2")),
        ];
        assert_eq!(effects.changes, wanted.map(|(key, change)| (key.to_owned(), change)));
    }

    #[tokio::test]
    async fn a_bucket_keeps_its_bounds_and_one_that_is_full_may_shrink() {
        let mut bed = bed(&[("a", "1"), ("b", "2")]);
        bed.set("c", "3").await.unwrap();
        assert!(is_limit(&bed.set("d", "4").await));
        assert!(is_limit(&bed.add("d", 1).await));
        assert!(is_limit(&bed.set("c", &"x".repeat(100)).await));
        assert_eq!(bed.get("c").await.unwrap().as_deref(), Some("3"), "what was refused changed nothing");
        bed.delete("a").await.unwrap();
        bed.set("d", "4").await.unwrap();
        assert_eq!(bed.seen.into_effects().changes.len(), 3);
    }

    #[tokio::test]
    async fn keys_values_and_their_number_are_bounded() {
        let mut bed = bed(&[]);
        for key in ["", "a\nb", &"x".repeat(STATE_KEY_BYTES_MAX + 1)] {
            assert!(matches!(bed.get(key).await, Err(Refusal::Invalid(_))), "{key:?}");
        }
        assert!(is_limit(&bed.set("a", &"x".repeat(STATE_VALUE_BYTES_MAX + 1)).await));
        for n in 0..STATE_ENTRIES_MAX {
            bed.get(&n.to_string()).await.unwrap();
        }
        assert!(is_limit(&bed.get("one more").await));
        bed.get("7").await.unwrap();
    }

    #[tokio::test]
    async fn what_a_run_has_in_its_hands_is_bounded() {
        let mut bed = bed(&[]);
        bed.seen.grant = StateGrant { bytes_max: u64::MAX, entries_max: u64::MAX, ..bed.seen.grant };
        let large = "x".repeat(STATE_VALUE_BYTES_MAX);
        let fit = STATE_BYTES_MAX / STATE_VALUE_BYTES_MAX;
        for n in 0..fit {
            bed.set(&n.to_string(), &large).await.unwrap();
        }
        assert!(is_limit(&bed.set("one more", &large).await));
        bed.set("0", "").await.unwrap();
        bed.set("one more", &large).await.unwrap();
    }

    #[tokio::test]
    async fn a_store_that_is_away_is_asked_again_and_not_for_ever() {
        let mut bed = bed(&[]);
        let away: Arc<dyn Services> = Arc::new(Bucket { away: true, ..Bucket::default() });
        bed.services = away;
        for _ in 0..FETCHES_MAX {
            assert!(matches!(bed.get("a").await, Err(Refusal::Unavailable(text)) if text == "away"));
        }
        assert!(is_limit(&bed.get("a").await));
        assert!(bed.seen.into_effects().is_empty());
    }
}
