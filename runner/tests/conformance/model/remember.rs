//! The model's effects: jobs that come with a completion, and state that is checked and changed with it.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hourhand::effects::{BucketSeen, Effects, StateChange, StateEffects, StateFound, whole_number};
use hourhand::names::Name;
use hourhand::outcome::Outcome;
use hourhand::queue::{Lane, Settlement};

use super::enqueue::due_window;
use super::job::ModelJob;
use super::state::Model;
use super::window::Window;

/// An entry of a bucket.
#[derive(Debug, Clone)]
pub(super) struct ModelEntry {
    pub(super) value: Bytes,
    /// `None` until it was read.
    pub(super) version: Option<u64>,
}

/// The effects that a settlement commits.
pub(super) fn commits(settlement: &Settlement) -> Option<&Effects> {
    let effects = settlement.effects.as_deref().filter(|effects| !effects.is_empty())?;
    matches!(settlement.outcome, Outcome::Completed { .. }).then_some(effects)
}

impl Model {
    /// Commits effects; false when state does not let them.
    pub(super) fn commit(&mut self, effects: &Effects, now: Window) -> bool {
        let values = match effects.state.as_ref().map(|state| self.judge(state)) {
            None => Vec::new(),
            Some(Some(values)) => values,
            Some(None) => return false,
        };
        for child in &effects.children {
            let Some(id) = &child.id else { continue };
            let key = (child.queue.clone(), id.clone());
            // Nobody gives a child the id of one that has finished: only the exact moment tells whether that is remembered.
            if self.jobs.contains_key(&key) {
                continue;
            }
            let order = self.next_order();
            let due = due_window(child.due, now);
            let mut job = ModelJob::new(child, id, due.lo, order, now);
            job.set_due(due);
            self.jobs.insert(key, job);
            self.lanes.insert(Lane { queue: child.queue.clone(), kind: child.kind.clone() });
            self.totals.entry(child.queue.clone()).or_default().enqueued += 1;
        }
        if let Some(state) = &effects.state {
            for ((key, _), value) in state.changes.iter().zip(values) {
                self.put(&state.bucket, key, value, None);
            }
        }
        true
    }

    /// The new values, in the order of the changes; `None` for a conflict.
    fn judge(&self, state: &StateEffects) -> Option<Vec<Option<Bytes>>> {
        let found = |key: &String| self.buckets.get(&state.bucket).and_then(|bucket| bucket.get(key));
        for (key, version) in &state.reads {
            let holds = match found(key) {
                None => *version == 0,
                // One that nobody has read yet is newer than what anybody has.
                Some(entry) => entry.version == Some(*version),
            };
            if !holds {
                return None;
            }
        }
        let change = |(key, change): &(String, StateChange)| match change {
            StateChange::Set(value) => Some(Some(value.clone())),
            StateChange::Delete => Some(None),
            StateChange::Add(by) => {
                let before = whole_number(found(key).map(|entry| &entry.value[..]))?;
                Some(Some(before.checked_add(*by)?.to_string().into()))
            }
        };
        state.changes.iter().map(change).collect()
    }

    fn put(&mut self, bucket: &Name, key: &str, value: Option<Bytes>, version: Option<u64>) {
        let entries = self.buckets.entry(bucket.clone()).or_default();
        match value {
            Some(value) => drop(entries.insert(key.to_owned(), ModelEntry { value, version })),
            None => drop(entries.remove(key)),
        }
        if entries.is_empty() {
            self.buckets.remove(bucket);
        }
    }

    pub(super) fn read_state(&mut self, bucket: &Name, keys: &[String], found: &StateFound) -> Result<()> {
        let (entries, bytes) = self.held(bucket);
        ensure!((found.entries, found.bytes) == (entries, bytes), "{found:?}, expected {entries}, {bytes}");
        ensure!(found.values.len() == keys.len(), "{} values", found.values.len());
        for (key, found) in keys.iter().zip(&found.values) {
            let entry = self.buckets.get(bucket).and_then(|entries| entries.get(key));
            match (entry.cloned(), found) {
                (None, None) => {}
                (Some(entry), Some(found)) if entry.value == found.value => match entry.version {
                    Some(version) => ensure!(version == found.version, "{key} is of {}", found.version),
                    None => {
                        self.given(bucket, key, found.version)?;
                        self.put(bucket, key, Some(entry.value), Some(found.version));
                    }
                },
                (entry, found) => anyhow::bail!("{key} is {found:?}, expected {entry:?}"),
            }
        }
        Ok(())
    }

    /// A version that an entry has got: no older one of the same key is like it.
    fn given(&mut self, bucket: &Name, key: &str, version: u64) -> Result<()> {
        let last = self.versions.entry((bucket.clone(), key.to_owned())).or_default();
        ensure!(version > *last, "version {version} of {key} came after {last}");
        *last = version;
        Ok(())
    }

    pub(super) fn set_state(&mut self, bucket: &Name, key: &str, value: &Bytes, version: u64) -> Result<()> {
        self.given(bucket, key, version).context("a change")?;
        self.put(bucket, key, Some(value.clone()), Some(version));
        Ok(())
    }

    pub(super) fn delete_state(&mut self, bucket: &Name, key: &str, deleted: bool) -> Result<()> {
        let there = self.buckets.get(bucket).is_some_and(|entries| entries.contains_key(key));
        ensure!(deleted == there, "deleted is {deleted}");
        self.put(bucket, key, None, None);
        Ok(())
    }

    pub(super) fn empty_bucket(&mut self, bucket: &Name, deleted: u64, more: bool) -> Result<()> {
        let (entries, _) = self.held(bucket);
        ensure!((deleted, more) == (entries, false), "{deleted} and {more}, expected {entries}");
        self.buckets.remove(bucket);
        Ok(())
    }

    fn held(&self, bucket: &Name) -> (u64, u64) {
        let entries = self.buckets.get(bucket).into_iter().flatten();
        let sizes: Vec<usize> = entries.map(|(key, entry)| key.len() + entry.value.len()).collect();
        (sizes.len() as u64, sizes.iter().sum::<usize>() as u64)
    }

    /// All buckets that hold anything.
    pub(super) fn check_buckets(&self, seen: &[BucketSeen]) -> Result<()> {
        let told: Vec<_> = seen.iter().map(|seen| (&seen.bucket, (seen.entries, seen.bytes))).collect();
        let expected: Vec<_> = self.buckets.keys().map(|bucket| (bucket, self.held(bucket))).collect();
        ensure!(told == expected, "the buckets are {told:?}, expected {expected:?}");
        Ok(())
    }
}
