//! What a handler does through the host that becomes true together with its completion, or not at all (rule 12). Pure, no IO.

use bytes::Bytes;

use crate::job::{NewJob, OnConflict};
use crate::names::Name;

/// Longest key of a state entry, in bytes.
pub const STATE_KEY_BYTES_MAX: usize = 256;
/// Largest value of a state entry, in bytes.
pub const STATE_VALUE_BYTES_MAX: usize = 64 << 10;
/// Entries that one attempt may read or change.
pub const STATE_ENTRIES_MAX: usize = 200;
/// Bytes of values that one attempt may read and write.
pub const STATE_BYTES_MAX: usize = 4 << 20;
/// Jobs that one attempt may enqueue, whatever its manifest says: they are written in one step.
pub const CHILDREN_MAX: usize = 2_000;
/// Lanes (queue and kind) that the jobs of one attempt may go to.
pub const CHILDREN_LANES_MAX: usize = 64;
/// Bytes of payloads of all jobs that one attempt enqueues.
pub const CHILDREN_BYTES_MAX: usize = 4 << 20;
/// The meta key under which a child carries its depth. Whoever enqueues may set it, which only shortens its own chain.
pub const META_DEPTH: &str = "hourhand.depth";
/// The meta key under which a child carries its parent: `queue/id`.
pub const META_PARENT: &str = "hourhand.parent";

/// Buffered until the attempt completes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects {
    /// Jobs to enqueue, each with an id and [`OnConflict::Keep`](crate::job::OnConflict::Keep), in this order; at most [`CHILDREN_MAX`].
    pub children: Vec<NewJob>,
    /// What happens to its bucket of state.
    pub state: Option<StateEffects>,
}

impl Effects {
    /// True when there is nothing to write or to check.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty() && self.state.as_ref().is_none_or(StateEffects::is_empty)
    }
}

/// Reads and changes of one bucket by one attempt. Each key occurs once in each list.
#[derive(Debug, Clone, PartialEq)]
pub struct StateEffects {
    /// Which bucket.
    pub bucket: Name,
    /// What was read before it was changed by this attempt: the version found, 0 for no entry. Any other version at the moment
    /// of the write is a conflict.
    pub reads: Vec<(String, u64)>,
    /// What to change.
    pub changes: Vec<(String, StateChange)>,
}

impl StateEffects {
    /// True when nothing was read or changed.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.changes.is_empty()
    }
}

/// A change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateChange {
    /// To this value.
    Set(Bytes),
    /// To nothing.
    Delete,
    /// A decimal integer (no entry is 0) grows by this much. An entry that is no integer of 64 bits then, or would not be one after it,
    /// is a conflict.
    Add(i64),
}

/// An entry as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateValue {
    /// Its value.
    pub value: Bytes,
    /// Grows with each change, never 0; a deleted and re-made entry has one that it never had.
    pub version: u64,
}

/// What a bucket held at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateFound {
    /// The entries asked for, in that order.
    pub values: Vec<Option<StateValue>>,
    /// Entries of the whole bucket.
    pub entries: u64,
    /// Bytes of keys and values of the whole bucket.
    pub bytes: u64,
}

/// An entry of a bucket, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    /// Its key.
    pub key: String,
    /// Its value and version.
    pub found: StateValue,
}

/// A bucket, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSeen {
    /// Which.
    pub bucket: Name,
    /// Its entries.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// How far a running job has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100.
    pub percent: u8,
    /// What it is at, for people. At most [`PROGRESS_BYTES_MAX`] bytes.
    pub message: String,
}

/// Longest message of a [`Progress`], in bytes.
pub const PROGRESS_BYTES_MAX: usize = 500;

/// What a job has last said of its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressSeen {
    /// 0 to 100.
    pub percent: u8,
    /// What it was at.
    pub message: String,
    /// Which attempt said so.
    pub attempt: u32,
    /// When the store heard it, in microseconds since 1970.
    pub at_us: u64,
}

impl Effects {
    /// Checks every limit that needs no clock.
    ///
    /// # Errors
    /// A message that says what was expected and what came.
    pub fn validate(&self) -> Result<(), String> {
        let jobs = self.children.len();
        if jobs > CHILDREN_MAX {
            return Err(format!("{jobs} jobs to enqueue: expected at most {CHILDREN_MAX}"));
        }
        let bytes: usize = self.children.iter().map(|child| child.payload.len()).sum();
        if bytes > CHILDREN_BYTES_MAX {
            return Err(format!(
                "jobs to enqueue with {bytes} bytes of payload: expected at most {CHILDREN_BYTES_MAX}"
            ));
        }
        for (index, child) in self.children.iter().enumerate() {
            child.validate().map_err(|text| format!("job {index} to enqueue: {text}"))?;
            if child.id.is_none() || child.on_conflict != OnConflict::Keep || child.age_ms != 0 {
                return Err(format!(
                    "job {index} to enqueue: expected an id, to keep what has it already, and no age"
                ));
            }
        }
        self.state.as_ref().map_or(Ok(()), StateEffects::validate)
    }
}

impl StateEffects {
    fn validate(&self) -> Result<(), String> {
        let mut reads: Vec<&str> = self.reads.iter().map(|(key, _)| key.as_str()).collect();
        let mut changes: Vec<&str> = self.changes.iter().map(|(key, _)| key.as_str()).collect();
        for keys in [&mut reads, &mut changes] {
            keys.sort_unstable();
            if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("state key {:?} twice: expected each once", twice[0]));
            }
            check_keys(keys)?;
        }
        for (key, change) in &self.changes {
            if let StateChange::Set(value) = change {
                check_value(key, value)?;
            }
        }
        Ok(())
    }
}

/// Checks the keys of one call.
///
/// # Errors
/// A message that says what was expected and what came.
pub fn check_keys(keys: &[impl AsRef<str>]) -> Result<(), String> {
    if keys.len() > STATE_ENTRIES_MAX {
        return Err(format!("{} state entries: expected at most {STATE_ENTRIES_MAX}", keys.len()));
    }
    for key in keys {
        let bytes = key.as_ref().len();
        if !(1..=STATE_KEY_BYTES_MAX).contains(&bytes) {
            return Err(format!("state key of {bytes} bytes: expected 1 to {STATE_KEY_BYTES_MAX}"));
        }
    }
    Ok(())
}

/// Checks a value.
///
/// # Errors
/// A message that says what was expected and what came.
pub fn check_value(key: &str, value: &[u8]) -> Result<(), String> {
    let bytes = value.len();
    if bytes > STATE_VALUE_BYTES_MAX {
        return Err(format!(
            "state value of {bytes} bytes for {key:?}: expected at most {STATE_VALUE_BYTES_MAX}"
        ));
    }
    Ok(())
}

/// The whole number that an entry holds, if it is one: decimal digits, at most 19, with a minus or none; 0 when there is no
/// entry. lua/includes/state.lua has the same.
pub fn whole_number(value: Option<&[u8]>) -> Option<i64> {
    let Some(value) = value else { return Some(0) };
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if !(1..=19).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_digits_and_fits_64_bits() {
        for (text, number) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("007", Some(7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("00000000000000000001", None),
            ("", None),
            ("-", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("1\n", None),
        ] {
            assert_eq!(whole_number(Some(text.as_bytes())), number, "{text:?}");
        }
        assert_eq!(whole_number(None), Some(0));
    }

    #[test]
    fn effects_against_the_rules_are_told() {
        let name = |text: &str| Name::new(text).expect("a name");
        let child = NewJob { id: "x".parse().ok(), ..NewJob::new(name("k")) };
        let state = |reads: &[&str], changes: Vec<(String, StateChange)>| Effects {
            state: Some(StateEffects {
                bucket: name("b"),
                reads: reads.iter().map(|key| ((*key).to_owned(), 0)).collect(),
                changes,
            }),
            ..Effects::default()
        };
        let children = |children: Vec<NewJob>| Effects { children, state: None };
        for (effects, part) in [
            (children(vec![child.clone(); CHILDREN_MAX + 1]), "2001 jobs"),
            (children(vec![NewJob { id: None, ..child.clone() }]), "expected an id"),
            (children(vec![NewJob { on_conflict: OnConflict::Reject, ..child.clone() }]), "expected an id"),
            (children(vec![NewJob { max_attempts: Some(0), ..child.clone() }]), "max_attempts of 0"),
            (
                children(vec![NewJob { payload: vec![0; 1 << 20].into(), ..child.clone() }; 5]),
                "5242880 bytes of payload",
            ),
            (state(&["a", "b", "a"], Vec::new()), "\"a\" twice"),
            (state(&[""], Vec::new()), "key of 0 bytes"),
            (state(&["x".repeat(257).as_str()], Vec::new()), "key of 257 bytes"),
            (
                state(&[], vec![("k".to_owned(), StateChange::Set(vec![0; (64 << 10) + 1].into()))]),
                "value of 65537 bytes",
            ),
        ] {
            let told = effects.validate().expect_err(part);
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(children(vec![child; CHILDREN_MAX]).validate(), Ok(()));
    }
}
