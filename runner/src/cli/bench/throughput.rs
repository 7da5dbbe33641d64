//! Jobs a second: taken by the store, and then claimed, run in a fresh sandbox each, and settled.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::figures::Figures;
use super::site::World;
use super::tally::{Counter, counts};
use crate::cli::exit::Fault;
use crate::cli::output::note;
use crate::clock::monotonic;
use crate::job::Due;

/// How long jobs are enqueued one by one: on a slow disk each of them may take milliseconds.
const ONE_BY_ONE: Duration = Duration::from_secs(2);
/// So much more jobs than are expected to run wait when it goes by time.
const MORE: f64 = 1.5;

/// What a drain came to.
pub(super) struct Drained {
    pub(super) jobs: usize,
    pub(super) seconds: f64,
}

impl Drained {
    pub(super) fn per_second(&self) -> f64 {
        self.jobs as f64 / self.seconds
    }
}

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        rounds.push(one(bench, round).await?);
        bench.round_over();
    }
    Ok(rounds)
}

async fn one(bench: &Bench, round: u32) -> Result<Figures, Fault> {
    let say = |what: &str| bench.say("throughput", round, what);
    let within = match bench.plan.seconds {
        Some(seconds) => {
            say("what this machine can do");
            Some((seconds, (rate(bench).await? * f64::from(seconds) * MORE) as usize))
        }
        None => None,
    };
    let jobs = bench.plan.jobs;
    let all = within.map_or(jobs, |(_, needed)| needed.max(jobs));
    bench.site.check_room(all, bench.plan.payload_bytes())?;
    let (world, load) = (bench.site.world()?, bench.load());
    // What is enqueued by all ways waits, and runs then.
    world.store.pause(load.kind).await?;
    say("enqueues");
    let single = load.single(&*world.store, jobs / 10, ONE_BY_ONE).await?;
    let pipelined = load.pipelined(&*world.store, jobs * 3 / 10, ONE_BY_ONE).await?;
    let bulk = load.bulk(&*world.store, jobs - single.jobs - pipelined.jobs, |_| Due::NOW).await?;
    if all > jobs {
        load.bulk(&*world.store, all - jobs, |_| Due::NOW).await?;
    }
    say("runs");
    let drained = drain(bench, &world, all, within.map(|(seconds, _)| seconds)).await?;
    bench.site.end(world).await?;
    if let Some((seconds, _)) = within
        && drained.seconds < f64::from(seconds) * 0.99
    {
        note(&format!("warning: all {all} jobs had run after {:.1} s", drained.seconds));
    }
    bench.rate.set(Some(drained.per_second()));
    Ok(vec![
        ("enqueue_single_per_second", single.per_second),
        ("enqueue_pipelined_per_second", pipelined.per_second),
        ("enqueue_bulk_per_second", bulk.per_second),
        ("jobs_per_second", drained.per_second()),
        ("ran_jobs", drained.jobs as f64),
        ("ran_seconds", drained.seconds),
    ])
}

/// Jobs a second on this machine: what was measured last, or is measured now.
pub(super) async fn rate(bench: &Bench) -> Result<f64, Fault> {
    if let Some(rate) = bench.rate.get() {
        return Ok(rate);
    }
    bench.site.check_room(bench.plan.jobs, bench.plan.payload_bytes())?;
    let world = bench.site.world()?;
    world.store.pause(bench.load().kind).await?;
    bench.load().bulk(&*world.store, bench.plan.jobs, |_| Due::NOW).await?;
    let drained = drain(bench, &world, bench.plan.jobs, None).await?;
    bench.site.end(world).await?;
    bench.rate.set(Some(drained.per_second()));
    Ok(drained.per_second())
}

/// Lets a runner have so many jobs that wait in a paused queue, all of them or for so many seconds: from the moment at which it
/// may claim.
pub(super) async fn drain(
    bench: &Bench,
    world: &World,
    jobs: usize,
    seconds: Option<u32>,
) -> Result<Drained, Fault> {
    let queue = &bench.plan.handler.kind;
    let counter = Arc::new(Counter::default());
    let runner = bench.site.runner(world, &bench.plan.handler, Some(counter.clone())).await?;
    world.rest().await?;
    let before = counts(&*world.store, queue).await?.completed_total as usize;
    let began = monotonic();
    world.store.resume(queue).await?;
    let until = seconds.map(|seconds| began + Duration::from_secs(seconds.into()));
    let done = counter.settled(&*world.store, queue, before, jobs, until).await? - before;
    let seconds = began.elapsed().as_secs_f64();
    if until.is_some() {
        world.store.pause(queue).await?;
    }
    runner.end().await?;
    Ok(Drained { jobs: done, seconds })
}
