//! Against a bucket in memory that counts who asks.

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
    let wanted =
        [("n", StateChange::Add(2)), ("new", StateChange::Add(-1)), ("padded", set("5")), ("text", set("2"))];
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
