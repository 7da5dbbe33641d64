//! Completions with effects: the Rust side of lua/commit.lua.

use std::collections::BTreeMap;

use super::RedisStore;
use super::claim::{ONCE_SECONDS, Policies, SCRIPT_BYTES_MAX, push_lanes, read_settled};
use super::enqueue::{Lanes, due_text, meta_text};
use super::link::Repeat;
use super::record::{Head, rid_text};
use crate::effects::{Effects, StateChange};
use crate::job::{NewJob, Priority};
use crate::names::Name;
use crate::outcome::Outcome;
use crate::queue::checks::{generated_record, random_text};
use crate::queue::life::event_text;
use crate::queue::{Lane, Settled, Settlement, StoreError};

/// Completions of one script; and their new jobs, unless it is one alone.
const TOGETHER: usize = 32;
const TOGETHER_JOBS: usize = 250;

/// How many of the first settlements commit in one script: those with effects, as far as they are small. 0 when the first has none.
pub(super) fn together(settlements: &[Settlement]) -> usize {
    let (mut jobs, mut bytes) = (0, 0);
    let fit =
        settlements.iter().map_while(Settlement::commits).take(TOGETHER).enumerate().take_while(|(n, e)| {
            jobs += e.children.len();
            bytes += size_of(e);
            *n == 0 || (jobs <= TOGETHER_JOBS && bytes <= SCRIPT_BYTES_MAX)
        });
    fit.count()
}

fn size_of(effects: &Effects) -> usize {
    let children: usize = effects.children.iter().map(|child| 200 + child.payload.len()).sum();
    let changes = effects.state.iter().flat_map(|state| &state.changes);
    let state: usize = changes
        .map(|(key, change)| match change {
            StateChange::Set(value) => key.len() + value.len(),
            _ => key.len(),
        })
        .sum();
    children + state
}

impl RedisStore {
    /// Writes completions together with their effects.
    pub(super) async fn commit_some(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let lanes = Lanes::of(settlements.iter().map(|s| s.lane.clone()));
        let children = settlements.iter().filter_map(Settlement::commits).flat_map(|e| &e.children);
        let places = Lanes::of(children.map(|job| Lane { queue: job.queue.clone(), kind: job.kind.clone() }));
        let mut buckets: BTreeMap<&Name, usize> = BTreeMap::new();
        for state in settlements.iter().filter_map(|s| s.commits()?.state.as_ref()) {
            let number = buckets.len() + 1;
            buckets.entry(&state.bucket).or_insert(number);
        }
        let mut named: Vec<(&Name, usize)> = buckets.iter().map(|(name, number)| (*name, *number)).collect();
        named.sort_unstable_by_key(|(_, number)| *number);
        let mut keys = self.lane_keys(&lanes);
        keys.extend(places.list.iter().flat_map(|lane| self.keys.due(lane).into_iter().take(3)));
        keys.extend(named.iter().map(|(bucket, _)| self.keys.state(bucket)));
        keys.push(self.keys.once(&random_text(20)?));

        let mut policies = Policies::default();
        let mut items = Vec::new();
        for settlement in settlements {
            let policy = policies.place(settlement.retention, settlement.id_memory);
            push_completion(&mut items, settlement, (&lanes, &places, &buckets), policy);
        }
        let mut args: Vec<Vec<u8>> = vec![ONCE_SECONDS.into()];
        push_lanes(&mut args, &lanes);
        push_lanes(&mut args, &places);
        args.push(named.len().to_string().into());
        args.extend(named.iter().map(|(bucket, _)| bucket.as_str().into()));
        policies.push(&mut args);
        args.extend(items);
        let reply = self.link.script(&self.scripts.commit, &keys, &args, Repeat::Once).await?;
        read_settled(reply, settlements.len())
    }
}

fn push_completion(
    args: &mut Vec<Vec<u8>>,
    settlement: &Settlement,
    (lanes, places, buckets): (&Lanes, &Lanes, &BTreeMap<&Name, usize>),
    policy: usize,
) {
    let (Some(effects), Outcome::Completed { result }) = (settlement.commits(), &settlement.outcome) else {
        return;
    };
    let text = |number: usize| number.to_string().into_bytes();
    let lease = &settlement.lease;
    // What the store says of a conflict follows.
    let conflict = Outcome::Released { message: Some(String::new()) };
    args.extend([
        text(lanes.number(&settlement.lane)),
        rid_text(lease.record).into(),
        lease.session.0.as_bytes().to_vec(),
        lease.token.to_string().into(),
        text(policy),
        event_text(settlement.run.as_ref(), &settlement.outcome).into(),
        event_text(settlement.run.as_ref(), &conflict).into(),
        result.as_deref().unwrap_or_default().to_vec(),
    ]);
    match &effects.state {
        None => args.extend([text(0), text(0), text(0)]),
        Some(state) => {
            args.extend([text(buckets.get(&state.bucket).copied().unwrap_or(0)), text(state.reads.len())]);
            for (key, version) in &state.reads {
                args.extend([key.as_bytes().to_vec(), version.to_string().into()]);
            }
            args.push(text(state.changes.len()));
            for (key, change) in &state.changes {
                let (letter, value) = match change {
                    StateChange::Set(value) => ("s", value.to_vec()),
                    StateChange::Delete => ("d", Vec::new()),
                    StateChange::Add(by) => ("a", by.to_string().into()),
                };
                args.extend([key.as_bytes().to_vec(), letter.into(), value]);
            }
        }
    }
    args.push(text(effects.children.len()));
    for child in &effects.children {
        push_child(args, child, places);
    }
}

fn push_child(args: &mut Vec<Vec<u8>>, child: &NewJob, places: &Lanes) {
    let Some(id) = &child.id else { return };
    let place = places.number(&Lane { queue: child.queue.clone(), kind: child.kind.clone() });
    let part = match child.priority {
        Priority::High => "1",
        Priority::Normal => "2",
        Priority::Low => "3",
    };
    let made = match generated_record(id).zip(id.as_str().split_once('-')) {
        Some((record, (_, random))) => format!("{}-{random}", rid_text(record)),
        None => String::new(),
    };
    let head = Head {
        max_attempts: child.max_attempts,
        queue: &child.queue,
        kind: &child.kind,
        id,
        priority: child.priority,
        timeout_ms: child.timeout_ms,
        traceparent: child.traceparent.as_deref(),
        meta: meta_text(&child.meta),
        source: &child.source,
    };
    let (before, mut after) = head.text();
    after.extend_from_slice(&child.payload);
    args.extend([
        place.to_string().into(),
        format!("{}/{id}", child.queue).into(),
        part.into(),
        due_text(child.due),
        made.into(),
        before,
        after,
    ]);
}
