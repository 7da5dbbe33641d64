//! Completions with effects: the Rust side of lua/commit.lua.

use std::collections::{BTreeMap, HashMap};

use super::RedisStore;
use super::claim::{ONCE_SECONDS, Policies, SCRIPT_BYTES_MAX, push_lanes, read_settled};
use super::enqueue::{Lanes, due_text, meta_text};
use super::link::Repeat;
use super::record::{Head, rid_text};
use crate::effects::{Effects, StateChange};
use crate::job::{NewJob, Priority};
use crate::names::{JobId, Name};
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

        let (mut policies, mut classes) = (Policies::default(), Classes::new(&places));
        let mut items = Vec::new();
        for settlement in settlements {
            let policy = policies.place(settlement.retention, settlement.id_memory);
            push_completion(&mut items, settlement, (&lanes, &buckets, policy), &mut classes);
        }
        let mut args: Vec<Vec<u8>> = vec![ONCE_SECONDS.into()];
        push_lanes(&mut args, &lanes);
        push_lanes(&mut args, &places);
        args.push(named.len().to_string().into());
        args.extend(named.iter().map(|(bucket, _)| bucket.as_str().into()));
        policies.push(&mut args);
        args.push(classes.known.len().to_string().into());
        args.extend(classes.args);
        args.extend(items);
        let reply = self.link.script(&self.scripts.commit, &keys, &args, Repeat::Once).await?;
        read_settled(reply, settlements.len())
    }
}

fn push_completion(
    args: &mut Vec<Vec<u8>>,
    settlement: &Settlement,
    (lanes, buckets, policy): (&Lanes, &BTreeMap<&Name, usize>, usize),
    classes: &mut Classes<'_>,
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
        let Some(id) = &child.id else { return };
        args.extend([text(classes.place(child, id)), id.as_str().into(), child.payload.to_vec()]);
    }
}

/// What new jobs have in common, mostly all of one call: it travels and is put together once.
struct Classes<'a> {
    lanes: &'a Lanes,
    known: HashMap<[Vec<u8>; 6], usize>,
    args: Vec<Vec<u8>>,
}

impl<'a> Classes<'a> {
    fn new(lanes: &'a Lanes) -> Self {
        Self { lanes, known: HashMap::new(), args: Vec::new() }
    }

    /// The number of a job's class, from 1; adds it when it is new.
    fn place(&mut self, job: &NewJob, id: &JobId) -> usize {
        let lane = self.lanes.number(&Lane { queue: job.queue.clone(), kind: job.kind.clone() });
        let part = match job.priority {
            Priority::High => "1",
            Priority::Normal => "2",
            Priority::Low => "3",
        };
        let head = Head {
            max_attempts: job.max_attempts,
            queue: &job.queue,
            kind: &job.kind,
            priority: job.priority,
            timeout_ms: job.timeout_ms,
            traceparent: job.traceparent.as_deref(),
            meta: meta_text(&job.meta),
            source: &job.source,
        };
        let (before, after) = head.text();
        let generated = if generated_record(id).is_some() { "1" } else { "" };
        let class =
            [lane.to_string().into(), part.into(), due_text(job.due), before, after, generated.into()];
        let next = self.known.len() + 1;
        *self.known.entry(class).or_insert_with_key(|class| {
            self.args.extend(class.iter().cloned());
            next
        })
    }
}
