//! Memory: of a scheduled job in the store, and of a runner in a process of its own.

use std::time::Duration;

use super::Bench;
use super::child::ChildRunner;
use super::figures::Figures;
use super::load::{FAR, Load};
use super::modules;
use super::plan::Measured;
use super::tally::{completed, counts};
use crate::cli::exit::Fault;
use crate::clock::monotonic;
use crate::job::Due;

/// Jobs that run at once, each in memory of its own.
const SLOTS: u32 = 1_000;
/// What a runner does at its start is over by then.
const SETTLED: Duration = Duration::from_secs(1);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        bench.say("memory", round, "of a scheduled job");
        let mut figures = scheduled(bench).await?;
        bench.say("memory", round, "of a runner");
        figures.extend(worked(bench).await?);
        bench.say("memory", round, "of a runner with 1,000 jobs at once");
        figures.extend(crowded(bench).await?);
        rounds.push(figures);
        bench.round_over();
    }
    Ok(rounds)
}

/// Bytes that the store takes more when so many jobs are in it. Others that use the same server count as well.
async fn scheduled(bench: &Bench) -> Result<Figures, Fault> {
    let jobs = bench.plan.backlog;
    bench.site.check_room(jobs, bench.plan.payload_bytes())?;
    let world = bench.site.world()?;
    let before = world.used_bytes().await?;
    bench.load().bulk(&*world.store, jobs, |_| FAR).await?;
    world.rest().await?;
    let after = world.used_bytes().await?;
    bench.site.end(world).await?;
    Ok(vec![
        ("scheduled_job_bytes", after.saturating_sub(before) as f64 / jobs as f64),
        ("scheduled_jobs", jobs as f64),
    ])
}

/// Resident memory of a runner: before its first job, and after its last.
async fn worked(bench: &Bench) -> Result<Figures, Fault> {
    let (world, handler, jobs) = (bench.site.world()?, &bench.plan.handler, bench.plan.jobs);
    let runner = ChildRunner::start(bench, &world, handler, bench.site.concurrency()).await?;
    tokio::time::sleep(SETTLED).await;
    let idle = runner.resident_bytes()?;
    bench.load().bulk(&*world.store, jobs, |_| Due::NOW).await?;
    completed(&*world.store, &handler.kind, jobs, None).await?;
    let after = runner.resident_bytes()?;
    runner.kill()?;
    bench.site.end(world).await?;
    Ok(vec![("runner_idle_bytes", idle as f64), ("runner_after_bytes", after as f64)])
}

/// Resident memory while many jobs run.
async fn crowded(bench: &Bench) -> Result<Figures, Fault> {
    let world = bench.site.world()?;
    let handler = Measured::built_in(modules::nap())?;
    let runner = ChildRunner::start(bench, &world, &handler, SLOTS).await?;
    let load = Load { plan: &bench.plan, kind: &handler.kind };
    load.bulk(&*world.store, SLOTS as usize, |_| Due::NOW).await?;
    let until = monotonic() + Duration::from_millis(4 * modules::NAP_MS);
    let (mut most, mut bytes) = (0, 0);
    // While as many as ever run.
    while most < u64::from(SLOTS) && monotonic() < until {
        let running = counts(&*world.store, &handler.kind).await?.running;
        if running > most {
            (most, bytes) = (running, 0);
        }
        if running == most {
            bytes = bytes.max(runner.resident_bytes()?);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Claimed they are; a moment later all of them have begun.
    tokio::time::sleep(Duration::from_millis(modules::NAP_MS / 6)).await;
    bytes = bytes.max(runner.resident_bytes()?);
    runner.kill()?;
    bench.site.end(world).await?;
    Ok(vec![("runner_crowded_bytes", bytes as f64), ("crowd_jobs", most as f64)])
}
