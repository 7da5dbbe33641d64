//! State without a store: what a fixture says, and what an attempt made of it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::content;
use crate::effects::{Progress, StateChange, StateEffects, StateFound, StateValue};
use crate::names::Name;
use crate::sandbox::Services;

/// The entries of the handler's bucket, by key.
pub(in crate::cli) type Entries = BTreeMap<String, Bytes>;

/// Reads the entries that an object of values stands for.
///
/// # Errors
/// The key whose value cannot be read.
pub(in crate::cli) fn entries(values: &Map<String, Value>) -> Result<Entries, String> {
    let entry = |(key, value): (&String, &Value)| {
        Ok((key.clone(), content::bytes_of(value).map_err(|error| format!("state entry {key:?}: {error}"))?))
    };
    values.iter().map(entry).collect()
}

/// The object of values that stands for these entries.
pub(in crate::cli) fn values(entries: &Entries) -> Map<String, Value> {
    entries.iter().map(|(key, bytes)| (key.clone(), content::value_of(bytes))).collect()
}

/// The entries after these changes, as a store would write them.
///
/// # Errors
/// The key that cannot be added to: a store calls it a conflict.
pub(in crate::cli) fn changed(before: &Entries, effects: &StateEffects) -> Result<Entries, String> {
    let mut after = before.clone();
    for (key, change) in &effects.changes {
        match change {
            StateChange::Set(value) => {
                after.insert(key.clone(), value.clone());
            }
            StateChange::Delete => {
                after.remove(key);
            }
            StateChange::Add(by) => {
                let sum = added(after.get(key), *by).ok_or_else(|| {
                    format!(
                        "state entry {key:?}: it is no whole number of 64 bits to which {by} can be added"
                    )
                })?;
                after.insert(key.clone(), Bytes::from(sum.to_string()));
            }
        }
    }
    Ok(after)
}

fn added(value: Option<&Bytes>, by: i64) -> Option<i64> {
    let now = value.map_or(Some(0), |bytes| std::str::from_utf8(bytes).ok()?.parse::<i64>().ok())?;
    now.checked_add(by)
}

/// Answers for a runner's store while one job runs. All entries have been there for ever, and nobody else changes them.
#[derive(Debug)]
pub(in crate::cli) struct LocalServices {
    entries: Entries,
    progress: Mutex<Vec<Progress>>,
}

/// How many reports of progress are kept: the newest.
const PROGRESS_MAX: usize = 100;

impl LocalServices {
    /// With these entries in the handler's bucket, whatever it is called.
    pub(in crate::cli) fn new(entries: Entries) -> Self {
        Self { entries, progress: Mutex::default() }
    }

    /// The reports of progress, in order.
    pub(in crate::cli) fn progress(&self) -> Vec<Progress> {
        self.progress.lock().clone()
    }
}

#[async_trait]
impl Services for LocalServices {
    async fn read_state(&self, _bucket: &Name, keys: &[String]) -> Result<StateFound, String> {
        let value = |key: &String| Some(StateValue { value: self.entries.get(key)?.clone(), version: 1 });
        Ok(StateFound {
            values: keys.iter().map(value).collect(),
            entries: self.entries.len() as u64,
            bytes: self.entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum(),
        })
    }

    fn progress(&self, progress: Progress) {
        let mut all = self.progress.lock();
        if all.len() == PROGRESS_MAX {
            all.remove(0);
        }
        all.push(progress);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: &Value) -> Entries {
        entries(value.as_object().expect("an object")).expect("entries")
    }

    #[tokio::test]
    async fn entries_are_found_with_their_sizes() {
        let services = LocalServices::new(of(&json!({"visits": 12, "first": "Bob"})));
        let keys = ["first".to_owned(), "none".to_owned()];
        let found = services.read_state(&Name::new("b").expect("a name"), &keys).await.expect("found");
        assert_eq!(found.values[0].as_ref().map(|found| &found.value[..]), Some(&b"\"Bob\""[..]));
        assert_eq!((found.values[1].as_ref(), found.entries, found.bytes), (None, 2, 6 + 2 + 5 + 5));
    }

    #[test]
    fn changes_are_made_as_a_store_makes_them() {
        let before = of(&json!({"a": 1, "b": "x", "c": true}));
        let changes = vec![
            ("a".to_owned(), StateChange::Add(-3)),
            ("b".to_owned(), StateChange::Delete),
            ("c".to_owned(), StateChange::Set(Bytes::from_static(b"false"))),
            ("d".to_owned(), StateChange::Add(7)),
        ];
        let effects = StateEffects { bucket: Name::new("b").expect("a name"), reads: Vec::new(), changes };
        let after = changed(&before, &effects).expect("no conflict");
        assert_eq!(Value::Object(values(&after)), json!({"a": -2, "c": false, "d": 7}));
        let changes = vec![("b".to_owned(), StateChange::Add(1))];
        let conflict = changed(&before, &StateEffects { changes, ..effects }).expect_err("no number");
        assert!(conflict.contains("\"b\""), "{conflict}");
    }
}
