//! `bench`: measures store and runner on this machine.
//!
//! Each part is a file and gives figures by name, once a round; what counts is their median. All of it takes place on a
//! [`site`](Site) of its own, which goes at the end, whatever the end is.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use self::figures::{Figures, Measurement};
use self::load::Load;
use self::plan::Plan;
use self::site::Site;
use super::args_bench::{BenchArgs, Part};
use super::context::Context;
use super::exit::{Code, Fault};
use super::output::note;
use super::stop::Stop;

mod backlog;
mod budget;
mod child;
mod dice;
mod duplicates;
mod figures;
mod lateness;
mod load;
mod machine;
mod memory;
mod modules;
mod plan;
mod recovery;
mod reload;
mod report;
mod site;
mod tally;
mod throughput;

/// A run.
struct Bench {
    plan: Plan,
    site: Site,
    bar: ProgressBar,
    /// The settings file that the command was given, for runners in processes of their own.
    config: Option<PathBuf>,
    /// Jobs a second that were measured last.
    rate: Cell<Option<f64>>,
}

/// Measures what the arguments say.
pub(super) fn run(context: &mut Context, args: &BenchArgs, config: Option<&str>) -> Result<Code, Fault> {
    // One thread, as a program has it that enqueues: a call that waits for another thread to send it waits for that thread to wake.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fault::failed(format!("cannot start: {error}")))?;
    let done = runtime.block_on(measure(context, args, config));
    runtime.shutdown_background();
    done
}

async fn measure(context: &mut Context, args: &BenchArgs, config: Option<&str>) -> Result<Code, Fault> {
    let mut stop = Stop::new()?;
    let plan = Plan::new(context, args).await?;
    let site = tokio::select! {
        site = Site::new(context, &plan) => site?,
        () = stop.told() => return Err(interrupted()),
    };
    let bar = progress(&plan);
    let config = config.map(PathBuf::from);
    let bench = Bench { plan, site, bar, config, rate: Cell::new(None) };
    let mut measured = Vec::new();
    let ended = tokio::select! {
        ended = bench.all(&mut measured) => ended,
        () = stop.told() => Err(interrupted()),
    };
    bench.bar.finish_and_clear();
    let Bench { plan, site, .. } = bench;
    let (facts, concurrency) = (site.facts.clone(), site.concurrency());
    let cleared = site.clear().await;
    // What was measured counts, whatever came then.
    if !measured.is_empty() {
        let settings = report::Settings::new(&plan, concurrency);
        report::print(&mut context.out, &settings, &facts, &measured, args.budget);
    }
    match (ended, cleared) {
        (Ok(()), Ok(())) => Ok(code(&measured)),
        (Ok(()), Err(fault)) | (Err(fault), Ok(())) => Err(fault),
        (Err(mut fault), Err(left)) => {
            fault.message = format!("{}\n{}", fault.message, left.message);
            Err(fault)
        }
    }
}

/// A job that ran twice without a crash is a fault of ours.
fn code(measured: &[Measurement]) -> Code {
    let wrong = ["duplicate_jobs", "duplicate_nonces", "missing_jobs"];
    let found = measured
        .iter()
        .filter(|measurement| measurement.part == Part::Duplicates)
        .any(|measurement| wrong.iter().any(|name| measurement.max(name).is_some_and(|count| count > 0.0)));
    if found {
        note("error: jobs ran twice, or got lost");
        return Code::Failed;
    }
    Code::Done
}

fn interrupted() -> Fault {
    Fault::failed("interrupted")
}

/// A bar on a terminal; nothing elsewhere.
fn progress(plan: &Plan) -> ProgressBar {
    let bar = ProgressBar::new(plan.parts.len() as u64 * u64::from(plan.rounds));
    match ProgressStyle::with_template("{bar:20} {pos}/{len} {wide_msg}") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

impl Bench {
    async fn all(&self, measured: &mut Vec<Measurement>) -> Result<(), Fault> {
        for (at, part) in self.plan.parts.iter().copied().enumerate() {
            self.bar.set_position(at as u64 * u64::from(self.plan.rounds));
            let rounds = match part {
                Part::Throughput => throughput::run(self).await,
                Part::Lateness => lateness::run(self).await,
                Part::Backlog => backlog::run(self).await,
                Part::Memory => memory::run(self).await,
                Part::Recovery => recovery::run(self).await,
                Part::Duplicates => duplicates::run(self).await,
                Part::Reload | Part::All => reload::run(self).await,
            };
            let rounds: Vec<Figures> = rounds.map_err(|mut fault| {
                fault.message = format!("{}: {}", report::word(part), fault.message);
                fault
            })?;
            measured.push(Measurement::new(part, &rounds));
        }
        Ok(())
    }

    /// Says what is being done.
    fn say(&self, part: &'static str, round: u32, what: &str) {
        self.bar.set_message(format!("{part}, round {} of {}: {what}", round + 1, self.plan.rounds));
    }

    /// A round is over.
    fn round_over(&self) {
        self.bar.inc(1);
    }

    /// Jobs for the handler that is measured.
    fn load(&self) -> Load<'_> {
        Load { plan: &self.plan, kind: &self.plan.handler.kind }
    }

    /// The settings file that was named.
    fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }
}
