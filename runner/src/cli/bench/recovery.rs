//! From the kill of a runner to the second run of its jobs on another machine's: a state folder of its own makes it one.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::child::ChildRunner;
use super::figures::Figures;
use super::load::Load;
use super::modules;
use super::plan::Measured;
use super::tally::{Tally, counts, until};
use crate::cli::exit::Fault;
use crate::cli::own_runner::OwnRunner;
use crate::clock::monotonic;
use crate::job::Due;
use crate::registry::Registry;

/// Jobs that run when their runner is killed, unless it has fewer slots.
const JOBS: u32 = 64;
/// How long the other may take beyond the lease and the jobs themselves.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let handler = Measured::built_in(modules::nap())?;
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        bench.say("recovery", round, "a runner is killed");
        rounds.push(one(bench, &handler).await?);
        bench.round_over();
    }
    Ok(rounds)
}

async fn one(bench: &Bench, handler: &Measured) -> Result<Figures, Fault> {
    let world = bench.site.world()?;
    let jobs = JOBS.min(bench.site.concurrency());
    let first = ChildRunner::start(bench, &world, handler, bench.site.concurrency()).await?;
    // The second has nothing to run until the first has all.
    let tally = Arc::new(Tally::default());
    let settings = bench.site.runner_settings(&world, None)?;
    let folder = settings.handlers.clone();
    let mut second = OwnRunner::start("the measurement", settings, None, Some(tally.clone()))?;
    let registry = second.ready().await?;
    let load = Load { plan: &bench.plan, kind: &handler.kind };
    load.bulk(&*world.store, jobs as usize, |_| Due::NOW).await?;
    let queue = &handler.kind;
    until("not all jobs run", PATIENCE, async || {
        Ok(counts(&*world.store, queue).await?.running == u64::from(jobs))
    })
    .await?;
    super::site::place(handler, &folder)?;
    serves(&registry, handler).await?;
    let running = counts(&*world.store, queue).await?.running;
    let killed = monotonic();
    first.kill()?;
    if running == 0 {
        return Err(Fault::failed(
            "this machine is too slow: all jobs had ended before their runner was killed",
        ));
    }
    let within = Duration::from_millis(2 * bench.site.lease_ms() + 2 * modules::NAP_MS) + PATIENCE;
    until("not all jobs have run again", within, async || {
        let counts = counts(&*world.store, queue).await?;
        Ok(counts.completed_total == u64::from(jobs))
    })
    .await?;
    let (begun, runs) = (tally.begun(), tally.runs());
    // It goes with its runner, before its folder does.
    drop(registry);
    second.end().await?;
    bench.site.end(world).await?;
    let ms = |at: Option<&crate::clock::Monotonic>| {
        at.map_or(f64::NAN, |at| at.saturating_duration_since(killed).as_secs_f64() * 1_000.0)
    };
    Ok(vec![
        ("first_again_ms", ms(begun.iter().min())),
        ("all_again_ms", ms(begun.iter().max())),
        ("all_done_ms", ms(runs.iter().map(|run| &run.at).max())),
        ("ran_twice_jobs", begun.len() as f64),
        ("lease_ms", bench.site.lease_ms() as f64),
    ])
}

/// Waits until a runner serves what was put into its folder.
async fn serves(registry: &Registry, handler: &Measured) -> Result<(), Fault> {
    until("the handler does not load", PATIENCE, async || {
        Ok(registry.snapshot().handlers.contains_key(&handler.kind))
    })
    .await
}
