//! What can be typed about the spool.

use clap::{Args, Subcommand};

use crate::names::{JobId, Name};

/// Where the spool is.
#[derive(Debug, Args)]
pub(super) struct SpoolPlace {
    /// The folder of the spool [default: spool in the state folder]
    #[arg(long, value_name = "DIR", help_heading = "Spool")]
    pub(super) spool_dir: Option<String>,
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
