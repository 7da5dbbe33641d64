//! From the drop of a new handler to the end of its first job, which waits for it.

use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::figures::Figures;
use super::load::Load;
use super::modules;
use super::plan::Measured;
use super::tally::{Tally, counts, until};
use crate::cli::exit::Fault;
use crate::cli::own_runner::OwnRunner;
use crate::clock::monotonic;
use crate::job::Due;

/// Drops of a round.
const DROPS: u32 = 3;
/// How long each may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let large = if bench.plan.handler.built_in { Some(Measured::built_in(modules::large())?) } else { None };
    let handler = large.as_ref().unwrap_or(&bench.plan.handler);
    let world = bench.site.world()?;
    let tally = Arc::new(Tally::default());
    let settings = bench.site.runner_settings(&world, None)?;
    let folder = settings.handlers.clone();
    let mut runner = OwnRunner::start("the measurement", settings, None, Some(tally.clone()))?;
    let registry = runner.ready().await?;
    let (store, kind) = (&*world.store, &handler.kind);
    let load = Load { plan: &bench.plan, kind };
    let mut figures = Vec::new();
    for drop in 0..bench.plan.rounds * DROPS {
        bench.say("reload", drop / DROPS, "a new file");
        load.bulk(store, 1, |_| Due::NOW).await?;
        // Another file each time, so that nothing is known of it.
        let module = modules::marked(&handler.module, &format!("{} {drop}", bench.plan.seed));
        let bytes = module.len();
        let new = Measured { module, ..handler.clone() };
        let began = monotonic();
        super::site::place(&new, &folder)?;
        let jobs = u64::from(drop) + 1;
        until("the first job has not ended", PATIENCE, async || {
            Ok(tally.count() as u64 >= jobs && counts(store, kind).await?.completed_total >= jobs)
        })
        .await?;
        let took = began.elapsed();
        if tally.runs().iter().any(|run| run.result.is_none()) {
            return Err(Fault::failed("a job failed: only handlers that complete are measured"));
        }
        figures
            .push(vec![("drop_to_first_job_ms", took.as_secs_f64() * 1_000.0), ("file_bytes", bytes as f64)]);
        std::fs::remove_file(folder.join(format!("{}.wasm", handler.stem)))
            .map_err(|error| Fault::failed(format!("cannot delete a handler: {error}")))?;
        until("a handler that is gone still serves", PATIENCE, async || {
            Ok(!registry.snapshot().handlers.contains_key(kind))
        })
        .await?;
        if (drop + 1) % DROPS == 0 {
            bench.round_over();
        }
    }
    // It goes with its runner, before its folder does.
    drop(registry);
    runner.end().await?;
    bench.site.end(world).await?;
    Ok(figures)
}
