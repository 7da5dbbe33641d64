//! Effects that commit with a completion: new jobs, and changes of state.

use super::enqueue::enqueue_children;
use super::state::{Held, entry};
use super::tx::Tx;
use crate::effects::{Effects, StateChange, StateEffects, whole_number};
use crate::queue::StoreError;

/// What a completion makes of its bucket: the new values, in the order of the changes; or why it cannot.
enum Judged {
    Values(Vec<Option<Vec<u8>>>),
    Conflict(String),
}

/// Writes what a run did through the host, or says why state does not let it, and writes nothing.
pub(super) fn commit(tx: &Tx<'_>, effects: &Effects) -> Result<Option<String>, StoreError> {
    let values = match &effects.state {
        None => Vec::new(),
        Some(state) => match judge(tx, state)? {
            Judged::Values(values) => values,
            Judged::Conflict(why) => return Ok(Some(why)),
        },
    };
    enqueue_children(tx, &effects.children)?;
    if let Some(state) = effects.state.as_ref().filter(|state| !state.changes.is_empty()) {
        let version = tx.next_number()?;
        let mut held = Held::load(tx, &state.bucket)?;
        for ((key, _), value) in state.changes.iter().zip(&values) {
            held.put(tx, key, value.as_deref(), version)?;
        }
        held.save(tx)?;
    }
    Ok(None)
}

fn judge(tx: &Tx<'_>, state: &StateEffects) -> Result<Judged, StoreError> {
    let bucket = &state.bucket;
    for (key, version) in &state.reads {
        if entry(tx, bucket, key)?.map_or(0, |found| found.version) != *version {
            let why = format!("state had changed since it was read: {key} of bucket {bucket}");
            return Ok(Judged::Conflict(why));
        }
    }
    let mut values = Vec::with_capacity(state.changes.len());
    for (key, change) in &state.changes {
        values.push(match change {
            StateChange::Set(value) => Some(value.to_vec()),
            StateChange::Delete => None,
            StateChange::Add(by) => {
                let found = entry(tx, bucket, key)?;
                let before = whole_number(found.as_ref().map(|found| &found.value[..]));
                let Some(sum) = before.and_then(|before| before.checked_add(*by)) else {
                    let why = format!("state had changed and cannot grow by {by}: {key} of bucket {bucket}");
                    return Ok(Judged::Conflict(why));
                };
                Some(sum.to_string().into_bytes())
            }
        });
    }
    Ok(Judged::Values(values))
}
