//! What can be typed about jobs: `enqueue`, `job` and `dead`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::args::By;
use super::args_spool::SpoolArgs;
use crate::job::{OnConflict, Priority, State};
use crate::names::{JobId, Name};

/// Flags of `enqueue`.
#[derive(Debug, Args)]
#[command(
    after_help = "The payload is taken byte for byte. Text that starts with @ goes through stdin or a file."
)]
pub(super) struct EnqueueArgs {
    /// What the job is: which handler runs it
    #[arg(required_unless_present = "ndjson")]
    pub(super) kind: Option<Name>,
    /// The payload: text, @FILE for a file's bytes, or - for stdin [default: empty]
    #[arg(allow_negative_numbers = true, conflicts_with = "payload_file")]
    pub(super) payload: Option<OsString>,
    /// The payload is this file's bytes
    #[arg(long, value_name = "FILE")]
    pub(super) payload_file: Option<PathBuf>,
    /// How long the job waits, such as 30m or 1h30m: at most 100 years
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, conflicts_with = "at")]
    pub(super) delay: Option<String>,
    /// When the job starts, in RFC 3339; an instant in the past means now
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    pub(super) at: Option<String>,
    /// The job's id, unique within its queue [default: one is made]
    #[arg(long)]
    pub(super) id: Option<JobId>,
    /// What to do when the id exists: keep, replace, reschedule or reject [default: keep]
    #[arg(long, value_name = "HOW", requires = "id")]
    pub(super) on_conflict: Option<OnConflict>,
    /// Where the job waits [default: the kind's own name]
    #[arg(long)]
    pub(super) queue: Option<Name>,
    /// How urgent it is: high, normal or low [default: normal]
    #[arg(long)]
    pub(super) priority: Option<Priority>,
    /// Attempts that it may use [default: the handler's, else 5]
    #[arg(long, value_name = "N")]
    pub(super) max_attempts: Option<u32>,
    /// Wall time of an attempt, never more than the handler's [default: the handler's, else 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) timeout: Option<String>,
    /// A fact for the handler and for people; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    pub(super) meta: Vec<(String, String)>,
    /// Wait until the job has finished, print its outcome, and exit 0 only if it completed
    #[arg(long, conflicts_with = "ndjson")]
    pub(super) wait: bool,
    /// Of a Redis store: how many replicas must have a job before it counts as taken [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) wait_replicas: Option<String>,
    /// Many jobs, one JSON object a line, with these options' names as keys; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = SINGLE)]
    pub(super) ndjson: Option<PathBuf>,
    /// Start at this line, the first being 1
    #[arg(long, value_name = "N", requires = "ndjson", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) from_line: Option<u64>,
    #[command(flatten)]
    pub(super) spool: SpoolArgs,
}

/// Arguments of a single job, which a line of NDJSON says itself.
const SINGLE: [&str; 12] = [
    "kind",
    "payload",
    "payload_file",
    "delay",
    "at",
    "id",
    "on_conflict",
    "queue",
    "priority",
    "max_attempts",
    "timeout",
    "meta",
];

pub(super) fn meta(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("expected KEY=VALUE, got {text:?}")),
    }
}

/// What can be done with jobs.
#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// List jobs
    List(ListArgs),
    /// Show everything about a job
    Show(OneJob),
    /// Print what a job's attempts wrote
    Logs {
        /// Which job
        #[command(flatten)]
        job: OneJob,
        /// Go on until the job has finished
        #[arg(long)]
        follow: bool,
    },
    /// Cancel jobs, running ones too
    Cancel(SomeJobs),
    /// Bring finished jobs back as new; a waiting retry becomes due now
    Retry(SomeJobs),
    /// Change when a waiting job is due
    Reschedule {
        /// Which job
        #[command(flatten)]
        job: OneJob,
        /// How long from now
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, required_unless_present = "at")]
        delay: Option<String>,
        /// At which instant
        #[arg(long, value_name = "INSTANT", allow_hyphen_values = true, conflicts_with = "delay")]
        at: Option<String>,
    },
    /// Delete jobs that are not running: record, log and history
    Delete(SomeJobs),
}

/// One job.
#[derive(Debug, Args)]
pub(super) struct OneJob {
    /// The job's id
    pub(super) id: JobId,
    /// Its queue [default: all are asked]
    #[arg(long)]
    pub(super) queue: Option<Name>,
}

/// Several jobs.
#[derive(Debug, Args)]
pub(super) struct SomeJobs {
    /// The jobs' ids
    #[arg(required = true)]
    pub(super) id: Vec<JobId>,
    /// Their queue [default: all are asked]
    #[arg(long)]
    pub(super) queue: Option<Name>,
}

/// Which jobs to list.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only of this kind
    #[arg(long)]
    pub(super) kind: Option<Name>,
    /// Only of this queue
    #[arg(long)]
    pub(super) queue: Option<Name>,
    /// Only in these states
    #[arg(long, value_delimiter = ',')]
    pub(super) state: Vec<State>,
    #[command(flatten)]
    pub(super) page: PageArgs,
}

/// Which part of a list.
#[derive(Debug, Args)]
pub(super) struct PageArgs {
    /// Only since then: an instant, or a duration back from now. Counts from the enqueue, for
    /// finished jobs from their end
    #[arg(long, value_name = "WHEN")]
    pub(super) since: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: u64,
    /// Go on where an earlier list ended
    #[arg(long)]
    pub(super) cursor: Option<String>,
}

/// What can be done with dead letters.
#[derive(Debug, Subcommand)]
pub(super) enum DeadCommand {
    /// List dead letters, or count them by day, kind or error
    List {
        /// Count them by this
        #[arg(long, conflicts_with_all = ["limit", "cursor"])]
        by: Option<By>,
        #[command(flatten)]
        filter: DeadFilter,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Bring dead letters back as new jobs
    Retry(DeadSelection),
    /// Delete dead letters
    Delete(DeadSelection),
}

/// Which dead letters to list.
#[derive(Debug, Args)]
pub(super) struct DeadFilter {
    /// Only of this kind
    #[arg(long)]
    pub(super) kind: Option<Name>,
    /// Only of this queue
    #[arg(long)]
    pub(super) queue: Option<Name>,
    /// Only those whose reason or message contains this text
    #[arg(long, value_name = "TEXT")]
    pub(super) error: Option<String>,
}

/// Which dead letters to change.
#[derive(Debug, Args)]
pub(super) struct DeadSelection {
    /// These jobs
    #[arg(conflicts_with_all = ["kind", "error", "since", "all"])]
    pub(super) id: Vec<JobId>,
    #[command(flatten)]
    pub(super) filter: DeadFilter,
    /// Only those that gave up since then: an instant, or a duration back from now
    #[arg(long, value_name = "WHEN")]
    pub(super) since: Option<String>,
    /// All of them (of the queue, if one is named)
    #[arg(long, conflicts_with_all = ["kind", "error", "since"])]
    pub(super) all: bool,
}
