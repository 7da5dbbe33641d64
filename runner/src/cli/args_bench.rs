//! What can be typed about measurements: `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::names::Name;

/// What `bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Part {
    /// Jobs a second: enqueued one at a time, by 16 callers at once, and in bulk; then claimed, run and settled
    Throughput,
    /// How late jobs start: spread over time on an idle runner, and at half of the most that it can do
    Lateness,
    /// What many scheduled jobs cost the others: the rate without and with them, in turns
    Backlog,
    /// Bytes of a scheduled job in the store, and of a runner: idle, after its work, and with 1,000 jobs at once
    Memory,
    /// From the kill of a runner to the second run of its jobs on another
    Recovery,
    /// Jobs that two runners have run twice: there must be none
    Duplicates,
    /// From the drop of a new handler to the end of its first job
    Reload,
    /// All of these
    All,
}

/// Flags of `bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "It works in a namespace of its own on a Redis server, or in a file of its own beside that of an embedded store, \
                        and deletes it at the end. Runners are its own, too.\nExit codes: 0 measured, 1 something failed, was \
                        interrupted, or a job ran twice; with --budget no other for figures that are below it."
)]
pub(super) struct BenchArgs {
    /// What to measure [default: all]
    #[arg(value_enum, value_name = "PART")]
    pub(super) parts: Vec<Part>,
    /// Jobs of a round, at least 100
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(super) jobs: u64,
    /// Bytes of a job's payload, 32 to 1048576: JSON, {"n": a number, "text": what fills it}
    #[arg(long, value_name = "BYTES", default_value_t = 150, value_parser = clap::value_parser!(u32).range(32..=1_048_576))]
    pub(super) payload: u32,
    /// Each job's payload is this file's bytes, for a handler that wants its own
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub(super) payload_file: Option<PathBuf>,
    /// The handler that is measured, with the manifest beside it [default: a command that does nothing]
    #[arg(long, value_name = "FILE")]
    pub(super) handler: Option<PathBuf>,
    /// Which of the kinds that it serves [default: its only one]
    #[arg(long, value_name = "KIND", requires = "handler")]
    pub(super) kind: Option<Name>,
    /// Jobs that a runner runs at once, 1 to 4096 [default: 128]
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<String>,
    /// Scheduled jobs that `backlog` puts beside the others, and that `memory` counts the bytes of, at least 100
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(super) backlog: u64,
    /// How often each part is repeated: the medians count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) rounds: u32,
    /// Let `throughput` run for so long, with as many jobs as that needs, which all wait before it begins
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub(super) seconds: Option<u32>,
    /// Decides payloads and due times [default: drawn, and said]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Show what Hourhand must reach and aims for beside the figures
    #[arg(long)]
    pub(super) budget: bool,
}
