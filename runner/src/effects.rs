//! What a handler does through the host that becomes true together with its completion, or not at all (rule 12). Pure, no IO.

use bytes::Bytes;

use crate::job::NewJob;
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
