//! What can be typed about handlers on one's own machine: `handler new`, `handler run`, `handler test` and `dev`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::args_jobs::meta;
use crate::names::{JobId, Name};

/// What a new handler is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Lang {
    /// Rust, with hourhand-sdk
    #[default]
    Rust,
    /// JavaScript, built with componentize-js
    Js,
    /// Python, built with componentize-py
    Python,
    /// A plain program: payload on stdin, result on stdout (here in Rust)
    Plain,
}

/// Flags of `handler new`.
#[derive(Debug, Args)]
pub(super) struct NewArgs {
    /// The kind that it serves, which also names the project
    pub(super) name: Name,
    /// What it is written in
    #[arg(long, value_enum, default_value_t)]
    pub(super) lang: Lang,
    /// The folder to make [default: the name, in the working directory]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Where hourhand-sdk is, for Rust [default: the source of this hourhand if it is there, else the registry's]
    #[arg(long, value_name = "PATH")]
    pub(super) sdk: Option<PathBuf>,
}

/// Flags of `handler run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the job completed, 1 it did not, 2 wrong use, a module that does not load among it."
)]
pub(super) struct TryArgs {
    /// The module. The manifest beside it counts, as it does for a runner
    pub(super) file: PathBuf,
    /// The payload: text, @FILE for a file's bytes, or - for stdin [default: empty]
    #[arg(long, allow_hyphen_values = true, conflicts_with = "payload_file")]
    pub(super) payload: Option<OsString>,
    /// The payload is this file's bytes
    #[arg(long, value_name = "FILE")]
    pub(super) payload_file: Option<PathBuf>,
    /// Which of the kinds that the module serves [default: its only one]
    #[arg(long)]
    pub(super) kind: Option<Name>,
    /// The job's id
    #[arg(long, default_value = "try-1")]
    pub(super) id: JobId,
    /// Where it says that it waited [default: the kind's own name]
    #[arg(long)]
    pub(super) queue: Option<Name>,
    /// Which attempt it is, from 1
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) attempt: u32,
    /// Attempts that it may use [default: the handler's, else 5]
    #[arg(long, value_name = "N")]
    pub(super) max_attempts: Option<u32>,
    /// Wall time of the attempt, never more than the handler's [default: the handler's, else 30s]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(super) timeout: Option<String>,
    /// When it says that it was due, in RFC 3339 [default: now]
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    pub(super) due: Option<String>,
    /// A fact for the handler; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = meta)]
    pub(super) meta: Vec<(String, String)>,
    /// Its manifest [default: FILE with .toml in place of .wasm, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) manifest: Option<PathBuf>,
    /// Answers to its HTTP requests, in TOML or JSON: none goes to the network [default: the network, as the manifest allows]
    #[arg(long, value_name = "FILE")]
    pub(super) http: Option<PathBuf>,
    /// Its state before the run: a JSON object [default: empty]
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
}

/// Flags of `handler test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all cases passed, 1 one did not or the build failed, 2 wrong use or a case that \
                        cannot be read."
)]
pub(super) struct TestArgs {
    /// A project's folder, which is built first, or a module [default: the working directory]
    pub(super) path: Option<PathBuf>,
    /// The folder of the cases [default: fixtures beside the project's files or the module]
    #[arg(long, value_name = "DIR")]
    pub(super) fixtures: Option<PathBuf>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub(super) only: Option<String>,
    /// Write what came into the cases as what is expected from now on
    #[arg(long)]
    pub(super) bless: bool,
}

/// Flags of `dev`.
#[derive(Debug, Args)]
#[command(
    after_help = "The store is .hourhand/dev.db in the working directory; only --store or HOURHAND_DEV_STORE names \
                        another one, so that no other job is run by accident.\nWhile it runs, a line KIND PAYLOAD \
                        on its stdin enqueues a job."
)]
pub(super) struct DevArgs {
    /// Folders of handler projects [default: the working directory]
    #[arg(value_name = "DIR")]
    pub(super) dirs: Vec<PathBuf>,
    /// Jobs that run at once, 1 to 4096 [default: 128]
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<String>,
}
