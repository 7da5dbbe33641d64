//! Jobs that run twice: two runners take from one queue, and each run is told apart by random bytes that its guest draws.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Bench;
use super::dice::Dice;
use super::figures::Figures;
use super::load::Load;
use super::modules;
use super::plan::Measured;
use super::tally::{Run, Tally, completed};
use crate::cli::exit::Fault;
use crate::job::Due;

/// Jobs are due within so many milliseconds, as the seed decides.
const SPREAD_MS: u64 = 2_000;
/// A run too many may come a moment after the last.
const AFTERWARDS: Duration = Duration::from_millis(200);

pub(super) async fn run(bench: &Bench) -> Result<Vec<Figures>, Fault> {
    let handler = Measured::built_in(modules::nonce())?;
    let mut rounds = Vec::new();
    for round in 0..bench.plan.rounds {
        bench.say("duplicates", round, "two runners");
        rounds.push(one(bench, &handler, round).await?);
        bench.round_over();
    }
    Ok(rounds)
}

async fn one(bench: &Bench, handler: &Measured, round: u32) -> Result<Figures, Fault> {
    let jobs = bench.plan.jobs;
    bench.site.check_room(jobs, bench.plan.payload_bytes())?;
    let world = bench.site.world()?;
    let tally = Arc::new(Tally::default());
    let first = bench.site.runner(&world, handler, Some(tally.clone())).await?;
    let second = bench.site.runner(&world, handler, Some(tally.clone())).await?;
    let mut dice = Dice::new(bench.plan.seed.wrapping_add(u64::from(round)));
    let delays: Vec<Due> = (0..jobs).map(|_| Due::In(dice.below(SPREAD_MS))).collect();
    let load = Load { plan: &bench.plan, kind: &handler.kind };
    load.bulk(&*world.store, jobs, |number| delays[number]).await?;
    completed(&*world.store, &handler.kind, jobs, None).await?;
    tokio::time::sleep(AFTERWARDS).await;
    first.end().await?;
    second.end().await?;
    bench.site.end(world).await?;
    Ok(judge(&tally.runs(), jobs))
}

fn judge(runs: &[Run], jobs: usize) -> Figures {
    let complete = || runs.iter().filter_map(|run| Some((run.record, run.result.as_deref()?)));
    let ended: HashSet<u64> = complete().map(|(record, _)| record).collect();
    let nonces: HashSet<&[u8]> = complete().map(|(_, nonce)| nonce).collect();
    let count = complete().count();
    vec![
        ("jobs", jobs as f64),
        ("runs", runs.len() as f64),
        ("duplicate_jobs", (count - ended.len()) as f64),
        ("duplicate_nonces", (count - nonces.len()) as f64),
        ("missing_jobs", jobs.saturating_sub(ended.len()) as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn a_job_or_a_nonce_that_is_there_twice_counts_and_so_does_a_job_that_is_not_there() {
        let run = |record: u64, nonce: Option<&'static str>| Run {
            record,
            at: monotonic(),
            lateness_us: 0,
            result: nonce.map(bytes::Bytes::from),
        };
        let counts =
            |runs: &[Run], jobs| judge(runs, jobs).iter().map(|(_, n)| *n as u64).collect::<Vec<_>>();
        let (one, two) = (run(1, Some("a")), run(2, Some("b")));
        assert_eq!(counts(&[one.clone(), two.clone()], 2), [2, 2, 0, 0, 0]);
        // A run that was given back is none.
        assert_eq!(counts(&[run(2, None), one.clone(), two.clone()], 2), [2, 3, 0, 0, 0]);
        assert_eq!(counts(&[one.clone(), two.clone(), run(2, Some("c"))], 2), [2, 3, 1, 0, 0]);
        assert_eq!(counts(&[one.clone(), two, run(3, Some("a"))], 3), [3, 3, 0, 1, 0]);
        assert_eq!(counts(&[one], 2), [2, 1, 0, 0, 1]);
    }
}
