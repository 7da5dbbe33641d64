//! Which step comes next: a random one that fits what is there, so that most of them do something.

use hourhand::effects::Progress;
use hourhand::job::{DELAY_MS_MAX, Due, NewJob, State};
use hourhand::names::{JobId, Name};
use hourhand::queue::{
    BATCH_MAX, ClaimRequest, ClaimedJob, JobRef, Lane, LaneClaim, LeaseSeen, ListQuery, LogWrite, Retention,
};

use super::crew::Crew;
use super::ops::Op;
use super::state::{Key, Model};
use crate::bed::{KEEP, id, name};
use crate::random::Random;

pub(super) const KINDS: [&str; 3] = ["a", "b", "c"];
/// A queue of several kinds.
pub(super) const MIXED: &str = "mixed";
/// Ids that callers choose among.
const IDS: usize = 30;
/// Jobs above which more are deleted than come.
const JOBS_MAX: usize = 160;
/// A due time that no run reaches, in milliseconds from now.
pub(super) const FAR_MS: u64 = 3_600_000;

/// The next step, of a store that `model` describes and of which the clock was `now_ms` a moment ago.
pub(super) fn next(random: &mut Random, model: &Model, crew: &mut Crew, now_ms: u64) -> Op {
    if random.once_in(80) {
        crew.crash(random);
    }
    if model.jobs.len() > JOBS_MAX && random.once_in(3) {
        return crowded(random, model, crew);
    }
    match random.below(100) {
        0..=21 => Op::Enqueue(super::generate_jobs::batch(random, crew, now_ms)),
        22..=40 => Op::Claim(claim(random, model, crew)),
        41..=59 => super::generate_jobs::settle(random, model, crew, now_ms),
        60..=63 => Op::WriteLogs(logs(random, model, crew)),
        64 => super::generate_effects::by_hand(random),
        65..=66 => Op::Heartbeat(crew.session(random)),
        67 => Op::EndSession(crew.session(random)),
        68..=70 => reclaim(random, model, crew),
        71 => Op::Offer(offers(random, model, crew)),
        72..=75 => Op::Cancel(jobs(random, model, crew, 3), retention(random)),
        76..=79 => Op::Reschedule(job(random, model, crew), due(random, now_ms)),
        80..=84 => Op::Requeue(jobs(random, model, crew, 5)),
        85..=87 => Op::Delete(jobs(random, model, crew, 2)),
        88 => Op::Pause(queue(random)),
        89..=90 => Op::Resume(queue(random)),
        91 if random.once_in(4) => Op::Purge(queue(random)),
        91 | 92 => Op::Prune,
        93 => Op::Find((!random.once_in(3)).then(|| queue(random)), job(random, model, crew).id),
        94..=95 => Op::List(query(random, now_ms)),
        96 => Op::Logs(job(random, model, crew)),
        97 if random.once_in(2) => Op::StepClock(random.pick(&[-3_600_000, -60_000, 60_000, 7_200_000])),
        97 => Op::PassTime(random.pick(&[100, 2_000, 61_000, FAR_MS + 2_000])),
        _ => refused(random, model, crew, now_ms),
    }
}

/// There is a crowd: some leave.
fn crowded(random: &mut Random, model: &Model, crew: &mut Crew) -> Op {
    if random.once_in(8) {
        return Op::Purge(queue(random));
    }
    Op::Delete(jobs(random, model, crew, 20))
}

pub(super) fn queue(random: &mut Random) -> Name {
    name(random.pick(&[KINDS[0], KINDS[1], KINDS[2], MIXED]))
}

/// An id that callers choose.
pub(super) fn chosen_id(random: &mut Random) -> JobId {
    id(&format!("id{}", random.below(IDS)))
}

/// A job that is there, or, once in a while, one that may not be; for some time it is often the same one, so
/// that things happen to a job one after the other.
fn job(random: &mut Random, model: &Model, crew: &mut Crew) -> JobRef {
    if model.jobs.is_empty() || random.once_in(10) {
        return JobRef { queue: queue(random), id: chosen_id(random) };
    }
    if let Some(job) = &crew.favourite
        && random.once_in(3)
    {
        return job.clone();
    }
    let keys: Vec<&Key> = model.jobs.keys().collect();
    let (queue, id) = random.pick(&keys).clone();
    let job = JobRef { queue, id };
    if crew.favourite.is_none() || random.once_in(10) {
        crew.favourite = Some(job.clone());
    }
    job
}

/// Some jobs, each once.
fn jobs(random: &mut Random, model: &Model, crew: &mut Crew, most: usize) -> Vec<JobRef> {
    let mut jobs: Vec<JobRef> = Vec::new();
    for _ in 0..1 + random.below(most) {
        let one = job(random, model, crew);
        if !jobs.contains(&one) {
            jobs.push(one);
        }
    }
    jobs
}

/// Mostly at once or within reach of the run, else far ahead: time decides rarely.
pub(super) fn due(random: &mut Random, now_ms: u64) -> Due {
    let far = FAR_MS + random.below(1_000) as u64;
    match random.below(12) {
        0..=4 => Due::NOW,
        5..=7 => Due::In(random.below(50) as u64),
        8 => Due::At(now_ms - random.below(1_000) as u64),
        9 => Due::At(now_ms + random.below(40) as u64),
        10 => Due::In(far),
        _ => Due::At(now_ms + far),
    }
}

/// Limits on how long finished jobs are kept.
pub(super) fn retention(random: &mut Random) -> Retention {
    match random.below(10) {
        0..=3 => KEEP,
        4 => Retention { age_ms: Some(0), ..KEEP },
        5 | 6 => Retention { age_ms: Some(random.pick(&[1, 20, FAR_MS])), ..KEEP },
        7 | 8 => Retention { count: Some(random.pick(&[0, 1, 3, 8])), ..KEEP },
        _ => Retention { bytes: Some(random.pick(&[0, 4_000, 20_000])), ..KEEP },
    }
}

fn claim(random: &mut Random, model: &Model, crew: &Crew) -> ClaimRequest {
    let runner = &crew.runners[random.below(crew.runners.len())];
    let mut known: Vec<Lane> = model.lanes.iter().cloned().collect();
    known.push(Lane { queue: name("nowhere"), kind: name("nothing") });
    let mut lanes = Vec::new();
    // Weights, bounds and attempts are a matter of the kind.
    let special = random.once_in(2);
    let policies: Vec<(u32, Option<u32>, Option<u32>)> = KINDS
        .iter()
        .map(|_| {
            let bound = |random: &mut Random, some: &[u32]| random.once_in(2).then(|| random.pick(some));
            (random.pick(&[1, 1, 2, 3]), bound(random, &[0, 1, 2, 5]), bound(random, &[1, 3]))
        })
        .collect();
    for _ in 0..random.below(known.len() + 1) {
        let lane = known.swap_remove(random.below(known.len()));
        let max_attempts = if lane.kind.as_str() == KINDS[0] { 2 } else { 5 };
        let mut claim = LaneClaim::new(lane, max_attempts);
        if let Some(at) = KINDS.iter().position(|kind| special && claim.lane.kind.as_str() == *kind) {
            (claim.weight, claim.kind_max, claim.attempts_cap) = policies[at];
        }
        lanes.push(claim);
    }
    let ahead = random.once_in(3);
    ClaimRequest {
        session: runner.session.clone(),
        lanes,
        due_max: random.pick(&[0, 1, 2, 3, 5, 8, 20]),
        ahead_max: if ahead { random.below(4) } else { 0 },
        look_ahead_ms: random.pick(&[0, 5, 20, 2 * FAR_MS]),
        suspect: random.below(3) > 0,
        first_token: runner.next_token,
        beat: 0,
    }
}

/// A lease that counts, or, less often, one that does not.
pub(super) fn lease(random: &mut Random, model: &Model, crew: &Crew) -> Option<LeaseSeen> {
    let now = model.leases();
    let old: Vec<LeaseSeen> = crew.old.iter().cloned().collect();
    if !old.is_empty() && (now.is_empty() || random.once_in(6)) {
        return Some(random.pick(&old));
    }
    let mut seen = (!now.is_empty()).then(|| random.pick(&now))?;
    if random.once_in(30) {
        seen.lease = crate::bed::forged(&seen.lease);
    }
    Some(seen)
}

fn logs(random: &mut Random, model: &Model, crew: &Crew) -> Vec<LogWrite> {
    let mut logs = Vec::new();
    for _ in 0..1 + random.below(3) {
        let Some(seen) = lease(random, model, crew) else { break };
        let attempt = model.leased(&seen.lease).and_then(|key| Some(model.jobs.get(&key)?.taken()?.attempt));
        let text = format!("line {}\n", random.below(1_000)).repeat(random.below(4));
        let progress = random.once_in(2).then(|| Progress {
            percent: random.below(101) as u8,
            message: random.pick(&["", "1 of 2", "two\nlines"]).to_owned(),
        });
        logs.push(LogWrite { lease: seen.lease, attempt: attempt.unwrap_or(1), text, progress });
    }
    logs
}

/// Leases of lost sessions, all or some; now and then those of a runner that is alive.
fn reclaim(random: &mut Random, model: &Model, crew: &Crew) -> Op {
    let mut leases = model.leases();
    if !random.once_in(4) {
        leases.retain(|seen| crew.lost.contains(&seen.lease.session));
    } else {
        leases.truncate(1 + random.below(3));
    }
    if random.once_in(3) {
        leases.extend(lease(random, model, crew));
    }
    leases.truncate(BATCH_MAX);
    Op::Reclaim(leases, retention(random))
}

/// Jobs that somebody had in his hand some time, each once, as if the store had lost something since. One that waits is due when it
/// was: a runner's word on that counts, and is not shown while it holds the job.
fn offers(random: &mut Random, model: &Model, crew: &Crew) -> Vec<ClaimedJob> {
    let all: Vec<&ClaimedJob> = crew.claimed.iter().collect();
    let mut offers: Vec<ClaimedJob> = Vec::new();
    for _ in 0..1 + random.below(5) {
        if all.is_empty() {
            break;
        }
        let one = random.pick(&all);
        let key = (one.job.queue.clone(), one.job.id.clone());
        let moved = model.jobs.get(&key).is_some_and(|job| job.waits() && job.due() != one.due_ms);
        if !moved && offers.iter().all(|other| other.job.id != one.job.id) {
            offers.push(one.clone());
        }
    }
    offers
}

fn query(random: &mut Random, now_ms: u64) -> ListQuery {
    let mut query = ListQuery { limit: random.pick(&[1, 3, 10, 1_000]), ..ListQuery::default() };
    query.queue = random.once_in(3).then(|| queue(random));
    query.kind = random.once_in(3).then(|| name(random.pick(&KINDS)));
    for _ in 0..random.below(3) {
        let state = random.pick(&State::ALL);
        if !query.states.contains(&state) {
            query.states.push(state);
        }
    }
    query.error = random.once_in(5).then(|| random.pick(&["not yet", "lost", "no such", "x"]).to_owned());
    query.since_ms = random.once_in(4).then(|| now_ms - random.pick(&[0, 5, 100, 1_000]));
    query
}

/// A step that is against the rules.
fn refused(random: &mut Random, model: &Model, crew: &Crew, now_ms: u64) -> Op {
    let op = match random.below(7) {
        0 => {
            let mut jobs = super::generate_jobs::batch(random, crew, now_ms);
            let bad = NewJob { max_attempts: Some(0), ..NewJob::new(name(KINDS[0])) };
            jobs.insert(random.below(jobs.len() + 1), bad);
            Op::Enqueue(jobs)
        }
        1 => {
            let mut jobs = super::generate_jobs::batch(random, crew, now_ms);
            let far = Due::At(now_ms + DELAY_MS_MAX + FAR_MS * 100);
            jobs.push(NewJob { due: far, ..NewJob::new(name(KINDS[0])) });
            Op::Enqueue(jobs)
        }
        2 => Op::Claim(ClaimRequest { due_max: BATCH_MAX + 1, ..claim(random, model, crew) }),
        3 => Op::List(ListQuery { limit: random.pick(&[0, 1_001]), ..query(random, now_ms) }),
        4 => Op::List(ListQuery { cursor: Some("no cursor".to_owned()), ..query(random, now_ms) }),
        5 => super::generate_jobs::foreign_lane(random, model, crew, now_ms),
        _ => return Op::Heartbeat(crew.session(random)),
    };
    if matches!(&op, Op::Settle(settlements) if settlements.is_empty()) {
        return op;
    }
    Op::Refused(Box::new(op))
}
