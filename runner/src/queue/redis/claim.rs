//! Claiming and settling: the Rust side of lua/claim.lua and lua/settle.lua; the usual end of a job is in `complete`.

use redis::Value;

use super::RedisStore;
use super::commit::together;
use super::enqueue::Lanes;
use super::link::Repeat;
use super::record::{lease_parts, read_record_with, rid_text};
use super::reply::{Items, text, unexpected};
use crate::names::Name;
use crate::outcome::Outcome;
use crate::queue::checks::{check_claim, check_settlements, random_text};
use crate::queue::life::event_text;
use crate::queue::{
    BATCH_PAYLOAD_BYTES_MAX, ClaimRequest, Claimed, ClaimedJob, IdMemory, LaneClaim, Lease, Retention,
    Settled, Settlement, StoreError,
};

/// How long the answer to a settle is kept that cannot be told from what it wrote, in seconds.
pub(super) const ONCE_SECONDS: &str = "20";
/// Bytes of results or logs that one script takes.
pub(super) const SCRIPT_BYTES_MAX: usize = 1 << 20;

impl RedisStore {
    pub(super) async fn claim_jobs(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        check_claim(request)?;
        let mut keys = self.keys.globals().to_vec();
        let mut args: Vec<String> = vec![
            request.session.to_string(),
            request.first_token.to_string(),
            request.due_max.to_string(),
            request.ahead_max.to_string(),
            request.look_ahead_ms.to_string(),
            u8::from(request.suspect).to_string(),
            BATCH_PAYLOAD_BYTES_MAX.to_string(),
            request.beat.to_string(),
        ];
        for claim in &request.lanes {
            keys.extend(self.keys.due(&claim.lane));
            args.extend([claim.lane.queue.to_string(), claim.lane.kind.to_string(), policy_text(claim)]);
        }
        // Not sent again after a lost reply: its jobs are under leases that the runner audits.
        let reply = self.link.script(&self.scripts.claim, &keys, &args, Repeat::Never).await?;
        read_claimed(reply, request)
    }

    pub(super) async fn settle_jobs(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        check_settlements(settlements)?;
        let mut settled = Vec::with_capacity(settlements.len());
        while settled.len() < settlements.len() {
            let rest = &settlements[settled.len()..];
            let committing = together(rest);
            if committing > 0 {
                settled.extend(self.commit_some(&rest[..committing]).await?);
                continue;
            }
            let plain = rest.iter().take_while(|settlement| settlement.commits().is_none());
            let step = fitting(plain.map(|settlement| match &settlement.outcome {
                Outcome::Completed { result: Some(result) } => result.len(),
                _ => 0,
            }));
            settled.extend(self.settle_plain(&rest[..step]).await?);
        }
        Ok(settled)
    }

    pub(super) async fn settle_some(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let once = random_text(20)?;
        let lanes = Lanes::of(settlements.iter().map(|s| s.lane.clone()));
        let mut keys = self.lane_keys(&lanes);
        keys.push(self.keys.once(&once));
        let args = settle_arguments(settlements, &lanes, once);
        let reply = self.link.script(&self.scripts.settle, &keys, &args, Repeat::Once).await?;
        read_settled(reply, settlements.len())
    }

    /// The globals and seven keys for each lane, as most scripts expect them.
    pub(super) fn lane_keys(&self, lanes: &Lanes) -> Vec<String> {
        let mut keys = self.keys.globals().to_vec();
        for lane in &lanes.list {
            keys.extend(self.keys.due(lane));
            keys.extend(self.keys.done(&lane.queue));
        }
        keys
    }
}

/// What a claim is told of a lane's kind: see lua/claim.lua. Most kinds have nothing to say but their attempts.
fn policy_text(claim: &LaneClaim) -> String {
    let LaneClaim { max_attempts, weight, kind_max, attempts_cap, .. } = claim;
    if (*weight, *kind_max, *attempts_cap) == (1, None, None) {
        return max_attempts.to_string();
    }
    let or_dash = |number: &Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    format!("{max_attempts} {} {} {}", (*weight).max(1), or_dash(kind_max), or_dash(attempts_cap))
}

/// How many of the first items, of these sizes in bytes, fit one script: all but those of unusual size.
pub(super) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0;
    let fit = sizes.take_while(|size| {
        bytes += size;
        bytes <= SCRIPT_BYTES_MAX
    });
    fit.count().max(1)
}

/// One character an answer: D done, S stale, C conflict.
pub(super) fn read_settled(reply: Value, asked: usize) -> Result<Vec<Settled>, StoreError> {
    let answers = read_answers(reply, asked)?.into_iter().map(|c| match c {
        'D' => Settled::Done,
        'C' => Settled::Conflict,
        _ => Settled::Stale,
    });
    Ok(answers.collect())
}

/// An answer of one character for each of so many.
pub(super) fn read_answers(reply: Value, asked: usize) -> Result<Vec<char>, StoreError> {
    let answers: Vec<char> = text(reply)?.chars().collect();
    if answers.len() == asked {
        Ok(answers)
    } else {
        Err(unexpected("answers for others than were asked for"))
    }
}

fn read_claimed(reply: Value, request: &ClaimRequest) -> Result<Claimed, StoreError> {
    let mut items = Items::of(reply)?;
    let now_us = items.number()?;
    let next_due_ms = items.text()?.parse().ok();
    let (damaged, beat) = (items.number()?, items.number()?);
    let mut jobs = Vec::with_capacity(items.len() / 3);
    let mut names = Names { lanes: &request.lanes, last: 0 };
    while !items.is_empty() {
        let record: u64 = items.number()?;
        let text = items.bytes()?;
        let job = read_record_with(record, &text, |name| names.of(name), |from| text.slice(from..));
        let (job, _) = job.ok_or_else(|| unexpected("a record that is none"))?;
        let receipt = items.bytes()?;
        let lease = std::str::from_utf8(&receipt).ok().and_then(lease_parts);
        let lease = lease.ok_or_else(|| unexpected("a lease that is none"))?;
        jobs.push(ClaimedJob {
            job,
            lease: Lease { record, session: request.session.clone(), token: lease.token },
            attempt: lease.attempt,
            max_attempts: lease.max_attempts,
            crashes: lease.crashes,
            due_ms: lease.due_ms,
            receipt,
        });
    }
    Ok(Claimed { jobs, now_us, answered_us: now_us, next_due_ms, damaged, beat })
}

/// Names that a claim asked for, so that jobs share them.
struct Names<'a> {
    lanes: &'a [LaneClaim],
    /// Where the last one was found: jobs of one lane follow each other.
    last: usize,
}

impl Names<'_> {
    fn of(&mut self, text: &str) -> Option<Name> {
        let (before, from) = self.lanes.split_at(self.last);
        for (place, LaneClaim { lane, .. }) in (self.last..).zip(from).chain((0..).zip(before)) {
            for name in [&lane.queue, &lane.kind] {
                if name.as_str() == text {
                    self.last = place;
                    return Some(name.clone());
                }
            }
        }
        Name::new(text).ok()
    }
}

fn settle_arguments(settlements: &[Settlement], lanes: &Lanes, once: String) -> Vec<Vec<u8>> {
    let mut policies = Policies::default();
    let mut items: Vec<Vec<u8>> = Vec::with_capacity(settlements.len() * 9);
    for settlement in settlements {
        let policy = policies.place(settlement.retention, settlement.id_memory);
        let lease = &settlement.lease;
        let (op, delay_ms, result) = match &settlement.outcome {
            Outcome::Completed { result } => ("c", 0, result.as_deref().unwrap_or_default()),
            Outcome::Retry { delay_ms, .. } => ("r", *delay_ms, &[][..]),
            Outcome::Dead { .. } => ("d", 0, &[][..]),
            Outcome::Snoozed { delay_ms } => ("s", *delay_ms, &[][..]),
            Outcome::Released { .. } => ("l", 0, &[][..]),
            Outcome::Cancelled => ("x", 0, &[][..]),
        };
        items.push(lanes.number(&settlement.lane).to_string().into());
        items.push(rid_text(lease.record).into());
        items.push(lease.session.0.as_bytes().to_vec());
        items.push(lease.token.to_string().into());
        items.push(op.into());
        items.push(delay_ms.min(crate::job::DELAY_MS_MAX).to_string().into());
        items.push(policy.to_string().into());
        items.push(event_text(settlement.run.as_ref(), &settlement.outcome).into());
        items.push(result.to_vec());
    }
    let mut args: Vec<Vec<u8>> = vec![once.into(), ONCE_SECONDS.into()];
    push_lanes(&mut args, lanes);
    policies.push(&mut args);
    args.extend(items);
    args
}

/// The distinct policies of a call.
#[derive(Debug, Default)]
pub(super) struct Policies(Vec<(Retention, IdMemory)>);

impl Policies {
    /// The policy's number, from 1; adds it when it is new.
    pub(super) fn place(&mut self, retention: Retention, memory: IdMemory) -> usize {
        let policy = (retention, memory);
        let place = self.0.iter().position(|known| *known == policy).unwrap_or_else(|| {
            self.0.push(policy);
            self.0.len() - 1
        });
        place + 1
    }

    /// How many, and five arguments each.
    pub(super) fn push(self, args: &mut Vec<Vec<u8>>) {
        args.push(self.0.len().to_string().into());
        for (retention, memory) in self.0 {
            push_policy(args, retention, memory);
        }
    }
}

/// A script's lanes: how many, then queue and kind of each.
pub(super) fn push_lanes(args: &mut Vec<Vec<u8>>, lanes: &Lanes) {
    args.push(lanes.list.len().to_string().into());
    for lane in &lanes.list {
        args.extend([lane.queue.as_str().into(), lane.kind.as_str().into()]);
    }
}

/// The five arguments of what is kept of finished jobs: see lua/includes/finish.lua.
pub(super) fn push_policy(args: &mut Vec<Vec<u8>>, retention: Retention, memory: IdMemory) {
    // Beyond a double's exact range nothing differs from for ever.
    let limit = |n: Option<u64>| n.filter(|n| *n < 1 << 52).map(|n| n.to_string().into()).unwrap_or_default();
    args.extend([retention.age_ms, retention.count, retention.bytes].map(limit));
    args.extend([memory.age_ms, memory.bytes].map(|n| n.min(1 << 52).to_string().into()));
}
