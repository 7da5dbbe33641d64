//! How late jobs start that are spread over time: on a runner that has nothing else to do, and at half of the rate that it
//! can do.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::figures::{Figures, at};
use super::site::World;
use super::tally::{Tally, counts, until};
use crate::cli::exit::Fault;
use crate::clock::monotonic;
use crate::job::Due;

/// Jobs for the idle runner, and how far apart, in milliseconds.
const IDLE_JOBS: usize = 1_000;
const IDLE_APART_MS: f64 = 10.0;
/// The part of the most that it can do, and for how long, in seconds.
const LOAD: f64 = 0.5;
const LOAD_SECONDS: f64 = 10.0;
/// At least so long before the first of them is due, they are in the store, in milliseconds.
const LEAD_MS: f64 = 500.0;
/// How long they may take to end after the last is due.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        let say = |what: &str| bench.say("lateness", round, what);
        say("jobs far apart");
        let idle = spread(bench, IDLE_JOBS.min(bench.plan.jobs), IDLE_APART_MS).await?;
        say("what this machine can do");
        let rate = super::throughput::rate(bench).await? * LOAD;
        say("half of what it can do");
        let jobs = ((rate * LOAD_SECONDS) as usize).clamp(1, bench.plan.jobs * 4);
        bench.site.check_room(jobs, bench.plan.payload_bytes())?;
        let loaded = spread(bench, jobs, 1_000.0 / rate).await?;
        rounds.push(vec![
            ("idle_p50_ms", at(&idle, 0.5)),
            ("idle_p99_ms", at(&idle, 0.99)),
            ("idle_max_ms", at(&idle, 1.0)),
            ("loaded_p50_ms", at(&loaded, 0.5)),
            ("loaded_p99_ms", at(&loaded, 0.99)),
            ("loaded_max_ms", at(&loaded, 1.0)),
            ("load_per_second", rate),
            ("load_jobs", jobs as f64),
        ]);
        bench.round_over();
    }
    Ok(rounds)
}

/// How late so many jobs start that are due so many milliseconds apart: sorted, in milliseconds.
async fn spread(bench: &Bench, jobs: usize, apart_ms: f64) -> Result<Vec<f64>, Fault> {
    let mut lead_ms = LEAD_MS + jobs as f64 / 20.0;
    loop {
        let world = bench.site.world()?;
        let late = try_spread(bench, &world, jobs, apart_ms, lead_ms).await?;
        bench.site.end(world).await?;
        if let Some(late) = late {
            return Ok(late);
        }
        // They were due before all of them were in the store.
        lead_ms *= 3.0;
    }
}

async fn try_spread(
    bench: &Bench,
    world: &World,
    jobs: usize,
    apart_ms: f64,
    lead_ms: f64,
) -> Result<Option<Vec<f64>>, Fault> {
    let (store, load) = (&*world.store, bench.load());
    let tally = Arc::new(Tally::default());
    let runner = bench.site.runner(world, &bench.plan.handler, Some(tally.clone())).await?;
    // By the store's clock.
    let first_ms = store.counts().await?.now_ms as f64 + lead_ms;
    let began = monotonic();
    load.bulk(store, jobs, |number| Due::At((first_ms + number as f64 * apart_ms) as u64)).await?;
    if began.elapsed().as_secs_f64() * 1_000.0 > lead_ms - LEAD_MS / 2.0 {
        runner.end().await?;
        return Ok(None);
    }
    let last = Duration::from_secs_f64((lead_ms + jobs as f64 * apart_ms) / 1_000.0);
    until("not all jobs have run", last + PATIENCE, async || {
        if tally.count() >= jobs {
            return Ok(true);
        }
        // Nobody asks the store while it has better things to do.
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(false)
    })
    .await?;
    let counts = counts(store, load.kind).await?;
    runner.end().await?;
    if counts.failed_total > 0 || tally.runs().iter().any(|run| run.result.is_none()) {
        return Err(Fault::failed("a job failed: only handlers that complete are measured"));
    }
    Ok(Some(tally.lateness_ms()))
}
