//! What scheduled jobs cost those that are due: the same work beside an empty store and a full one, in turns.

use super::Bench;
use super::figures::Figures;
use super::load::FAR;
use super::site::World;
use super::throughput::drain;
use crate::cli::exit::Fault;
use crate::job::Due;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let (jobs, backlog) = (bench.plan.jobs, bench.plan.backlog);
    bench.site.check_room(jobs + backlog, bench.plan.payload_bytes())?;
    let (empty, full) = (bench.site.world()?, bench.site.world()?);
    bench.say("backlog", 0, "schedules the backlog");
    let scheduled = bench.load().bulk(&*full.store, backlog, |_| FAR).await?;
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        let (without, with) = if round % 2 == 0 {
            let without = one(bench, round, &empty, "without").await?;
            (without, one(bench, round, &full, "with").await?)
        } else {
            let with = one(bench, round, &full, "with").await?;
            (one(bench, round, &empty, "without").await?, with)
        };
        rounds.push(vec![
            ("without_per_second", without),
            ("with_per_second", with),
            ("ratio", with / without),
            ("scheduled_jobs", backlog as f64),
            ("schedule_per_second", scheduled.per_second),
        ]);
        bench.round_over();
    }
    bench.site.end(empty).await?;
    bench.site.end(full).await?;
    Ok(rounds)
}

async fn one(bench: &Bench, round: u32, world: &World, which: &str) -> Result<f64, Fault> {
    bench.say("backlog", round, which);
    let load = bench.load();
    world.store.pause(load.kind).await?;
    load.bulk(&*world.store, bench.plan.jobs, |_| Due::NOW).await?;
    Ok(drain(bench, world, bench.plan.jobs, None).await?.per_second())
}
