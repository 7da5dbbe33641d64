//! Random effects, and what operators do to state.

use bytes::Bytes;
use hourhand::effects::{Effects, StateChange, StateEffects};
use hourhand::job::{NewJob, OnConflict};
use hourhand::names::Name;

use super::generate::{KINDS, due, queue};
use super::ops::Op;
use super::state::Model;
use crate::bed::{id, name};
use crate::random::Random;

const BUCKETS: [&str; 2] = ["counts", "seen"];
/// Keys of a bucket.
const KEYS: usize = 6;
/// Ids of children.
const CHILDREN: usize = 400;

fn bucket(random: &mut Random) -> Name {
    name(random.pick(&BUCKETS))
}

fn key(random: &mut Random) -> String {
    format!("k{}", random.below(KEYS))
}

fn value(random: &mut Random) -> Bytes {
    let text = random.pick(&["", "7", "-7", "9223372036854775800", "text", "\u{0} raw"]);
    Bytes::copy_from_slice(text.as_bytes())
}

/// Effects of a run, or none.
pub(super) fn effects(random: &mut Random, model: &Model, now_ms: u64) -> Option<Box<Effects>> {
    if random.once_in(3) {
        return None;
    }
    let children = (0..random.below(4)).filter_map(|_| child(random, model, now_ms)).collect();
    let state = random.once_in(2).then(|| state(random, model));
    Some(Box::new(Effects { children, state }))
}

/// A job of an id that nobody has, or that one has which waits.
fn child(random: &mut Random, model: &Model, now_ms: u64) -> Option<NewJob> {
    let kind = name(random.pick(&KINDS));
    let queue = if random.once_in(3) { queue(random) } else { kind.clone() };
    let id = id(&format!("child{}", random.below(CHILDREN)));
    let place = (queue.clone(), id.clone());
    let settled = model.jobs.get(&place).is_some_and(|job| !job.waits());
    if settled || model.remembered.contains_key(&place) {
        return None;
    }
    let payload = Bytes::from(vec![b'c'; random.below(30)]);
    Some(NewJob {
        id: Some(id),
        queue,
        due: due(random, now_ms),
        payload,
        on_conflict: OnConflict::Keep,
        meta: vec![("hourhand.depth".to_owned(), "1".to_owned())],
        ..NewJob::new(kind)
    })
}

fn state(random: &mut Random, model: &Model) -> StateEffects {
    let bucket = bucket(random);
    let mut effects = StateEffects { bucket: bucket.clone(), reads: Vec::new(), changes: Vec::new() };
    for _ in 0..random.below(3) {
        let key = key(random);
        if effects.reads.iter().any(|(read, _)| *read == key) {
            continue;
        }
        let entry = model.buckets.get(&bucket).and_then(|entries| entries.get(&key));
        let version = entry.and_then(|entry| entry.version).unwrap_or(0);
        // Mostly what is there.
        let version = if random.once_in(8) { version + 1 } else { version };
        effects.reads.push((key, version));
    }
    for _ in 0..random.below(4) {
        let key = key(random);
        if effects.changes.iter().any(|(changed, _)| *changed == key) {
            continue;
        }
        let by = random.pick(&[1, -1, 5, -1_000_000_007, i64::MAX, i64::MIN]);
        let change = match random.below(5) {
            0 | 1 => StateChange::Set(value(random)),
            2 => StateChange::Delete,
            _ => StateChange::Add(by),
        };
        effects.changes.push((key, change));
    }
    effects
}

/// What somebody does to state who is no runner.
pub(super) fn by_hand(random: &mut Random) -> Op {
    let bucket = bucket(random);
    match random.below(10) {
        0..=5 => {
            let keys = (0..random.below(2 * KEYS)).map(|_| key(random)).collect();
            Op::ReadState(bucket, keys)
        }
        6 | 7 => Op::SetState(bucket, key(random), value(random)),
        8 => Op::DeleteState(bucket, key(random)),
        _ => Op::EmptyBucket(bucket),
    }
}
