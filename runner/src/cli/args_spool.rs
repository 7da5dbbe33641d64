//! What can be typed about the spool.

use clap::{Args, Subcommand};

use crate::names::{JobId, Name};

/// Flags of whoever uses the spool.
#[derive(Debug, Args)]
#[command(next_help_heading = "Spool")]
pub(super) struct SpoolArgs {
    /// Let jobs wait on this machine while the store does not answer, and drain them: on or off [default: off]
    #[arg(long, value_name = "SWITCH", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    spool: Option<String>,
    #[command(flatten)]
    place: SpoolPlace,
    /// Most jobs that wait there [default: 100000]
    #[arg(long, value_name = "N")]
    spool_jobs: Option<String>,
    /// Most bytes that they take [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    spool_bytes: Option<String>,
}

impl SpoolArgs {
    /// The settings among the flags, by key.
    pub(super) fn settings(&self) -> [(&'static str, &Option<String>); 4] {
        [
            ("spool", &self.spool),
            ("spool_dir", &self.place.spool_dir),
            ("spool_jobs", &self.spool_jobs),
            ("spool_bytes", &self.spool_bytes),
        ]
    }
}

/// Where the spool is.
#[derive(Debug, Args)]
pub(super) struct SpoolPlace {
    /// The folder in which they wait; a runner that is given one drains it [default: spool in the state folder]
    #[arg(long, value_name = "DIR", help_heading = "Spool")]
    spool_dir: Option<String>,
}

/// What can be done with the spool.
#[derive(Debug, Subcommand)]
pub(super) enum SpoolCommand {
    /// List the jobs in the spool, in order
    List {
        /// How many at most, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
        /// Go on where an earlier list ended
        #[arg(long)]
        cursor: Option<String>,
        #[command(flatten)]
        place: SpoolPlace,
    },
    /// Hand the jobs in the spool to the store, in order
    Drain {
        /// Also those that were meant for a store by another name: this one was known by it
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        place: SpoolPlace,
    },
    /// Delete jobs that the store has refused
    Delete {
        /// Which jobs
        #[arg(required = true)]
        id: Vec<JobId>,
        /// The queue that they were meant for
        #[arg(long)]
        queue: Option<Name>,
        /// Also those that wait for their store, which then never gets them
        #[arg(long)]
        waiting: bool,
        #[command(flatten)]
        place: SpoolPlace,
    },
}

impl SpoolCommand {
    /// The settings among the flags, by key.
    pub(super) fn settings(&self) -> [(&'static str, &Option<String>); 1] {
        let (Self::List { place, .. } | Self::Drain { place, .. } | Self::Delete { place, .. }) = self;
        [("spool_dir", &place.spool_dir)]
    }
}
