//! Random jobs to enqueue, and random ends of those that were claimed.

use bytes::Bytes;
use hourhand::job::{AGE_MS_MAX, NewJob, OnConflict, Priority};
use hourhand::names::{JobId, Name};
use hourhand::outcome::{Outcome, Reason};
use hourhand::queue::{IdMemory, Lane, LeaseSeen, RunFacts, Settlement};

use super::crew::Crew;
use super::generate::{FAR_MS, KINDS, chosen_id, due, lease, queue, retention};
use super::job::ModelJob;
use super::ops::Op;
use super::state::Model;
use crate::bed::name;
use crate::random::Random;

const CONFLICTS: [OnConflict; 4] =
    [OnConflict::Keep, OnConflict::Replace, OnConflict::Reschedule, OnConflict::Reject];

/// Some jobs, of which several may have one id.
pub(super) fn batch(random: &mut Random, crew: &Crew, now_ms: u64) -> Vec<NewJob> {
    let most = if random.once_in(40) { 40 } else { 4 };
    (0..1 + random.below(most)).map(|_| job(random, crew, now_ms)).collect()
}

fn job(random: &mut Random, crew: &Crew, now_ms: u64) -> NewJob {
    let kind = name(random.pick(&KINDS));
    let (queue, id) = place(random, crew, &kind);
    let text = |random: &mut Random| "xyz".repeat(random.below(5));
    NewJob {
        id,
        queue,
        priority: random.pick(&[Priority::High, Priority::Normal, Priority::Normal, Priority::Low]),
        due: due(random, now_ms),
        age_ms: if random.once_in(6) { random.pick(&[1, 30, AGE_MS_MAX]) } else { 0 },
        payload: payload(random),
        max_attempts: random.pick(&[None, None, Some(1), Some(2), Some(4), Some(1_000)]),
        timeout_ms: random.pick(&[None, Some(1_000)]),
        meta: (0..random.below(3)).map(|i| (format!("key{i}"), text(random))).collect(),
        traceparent: random.once_in(4).then(|| format!("00-{}", text(random))),
        source: text(random),
        on_conflict: random.pick(&CONFLICTS),
        ..NewJob::new(kind)
    }
}

/// Queue and id of a job of a kind: an id that others use too, one that the store once made, or none.
fn place(random: &mut Random, crew: &Crew, kind: &Name) -> (Name, Option<JobId>) {
    let made = crew.made.len();
    if made > 0 && random.once_in(20) {
        let (queue, id) = crew.made[random.below(made)].clone();
        return (queue, Some(id));
    }
    let queue = if random.once_in(3) { queue(random) } else { kind.clone() };
    let id = (!random.once_in(3)).then(|| chosen_id(random));
    (queue, id)
}

fn payload(random: &mut Random) -> Bytes {
    let length = if random.once_in(20) { random.below(5_000) } else { random.below(60) };
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(random.below(256) as u8)).collect()
}

/// Ends of jobs, or of what was one.
pub(super) fn settle(random: &mut Random, model: &Model, crew: &Crew, now_ms: u64) -> Op {
    // One call brings one limit on number and bytes: of several the store may choose.
    let limits = retention(random);
    let mut settlements: Vec<Settlement> = Vec::new();
    for _ in 0..1 + random.below(4) {
        let Some(seen) = lease(random, model, crew) else { break };
        let mut one = settlement(random, model, crew, seen, now_ms);
        one.retention = limits;
        if limits.age_ms.is_some_and(|age_ms| age_ms > 0) && random.once_in(2) {
            one.retention.age_ms = random.pick(&[None, Some(10), Some(FAR_MS)]);
        }
        settlements.push(one);
    }
    if random.once_in(10) {
        settlements.extend(settlements.first().cloned());
    }
    Op::Settle(settlements)
}

/// A settlement of another lane than its job has, among others that would be right.
pub(super) fn foreign_lane(random: &mut Random, model: &Model, crew: &Crew, now_ms: u64) -> Op {
    let Op::Settle(mut settlements) = settle(random, model, crew, now_ms) else { return Op::Prune };
    let Some(seen) = model.leases().pop() else { return Op::Settle(Vec::new()) };
    let mut wrong = settlement(random, model, crew, seen, now_ms);
    settlements.retain(|other| other.lease != wrong.lease);
    // A store may write settlements with effects one by one.
    settlements.iter_mut().chain([&mut wrong]).for_each(|settlement| settlement.effects = None);
    wrong.lane = Lane { kind: name("other"), ..wrong.lane };
    settlements.push(wrong);
    Op::Settle(settlements)
}

fn settlement(random: &mut Random, model: &Model, crew: &Crew, seen: LeaseSeen, now_ms: u64) -> Settlement {
    let job = model.leased(&seen.lease).and_then(|key| model.jobs.get(&key));
    let run = run_facts(random, job, &seen, now_ms);
    // What was held and has not started can only be given back.
    let outcome = match (run.is_some(), random.below(14)) {
        (true, 0..=3) => Outcome::Completed { result: random.pick(&[None, Some(Bytes::from("result"))]) },
        (true, 4..=7) => Outcome::Retry {
            reason: random.pick(&[Reason::Error, Reason::Panic, Reason::Timeout]),
            message: random.pick(&["", "not yet"]).to_owned(),
            delay_ms: delay(random),
        },
        (true, 8) => Outcome::Dead { reason: Reason::Permanent, message: "no such order".to_owned() },
        (true, 9) => Outcome::Snoozed { delay_ms: delay(random) },
        (_, 0..=11) => Outcome::Released { message: random.pick(&[None, Some("stopping".to_owned())]) },
        _ => Outcome::Cancelled,
    };
    let effects = super::generate_effects::effects(random, model, now_ms);
    let id_memory = IdMemory { age_ms: random.pick(&[0, 30, FAR_MS]), ..IdMemory::default() };
    let claimed = crew.claimed.iter().find(|claimed| claimed.lease == seen.lease);
    let receipt = claimed.map(|claimed| claimed.receipt.clone()).unwrap_or_default();
    Settlement {
        lease: seen.lease,
        lane: seen.lane,
        outcome,
        run,
        retention: retention(random),
        id_memory,
        effects,
        receipt,
    }
}

fn delay(random: &mut Random) -> u64 {
    random.pick(&[0, 0, 1, 4, 20, FAR_MS])
}

/// A run from the claim until a moment ago; none of a job that is held.
fn run_facts(random: &mut Random, job: Option<&ModelJob>, seen: &LeaseSeen, now_ms: u64) -> Option<RunFacts> {
    let due_ms = job.map_or(seen.claimed_ms, ModelJob::due);
    if due_ms > now_ms || random.once_in(12) {
        return None;
    }
    let started_us = (due_ms.max(seen.claimed_ms) * 1_000).min(now_ms * 1_000);
    Some(RunFacts {
        started_us,
        duration_us: now_ms * 1_000 - started_us,
        lateness_us: random.below(100_000) as u64,
        runner: crate::bed::info(&seen.lease.session).name,
        handler: format!("{:012x}", random.below(1 << 20)),
    })
}
