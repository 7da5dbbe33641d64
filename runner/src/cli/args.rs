//! What can be typed: commands, arguments and flags, with their help.
//!
//! Flags that are settings stay text here: [`config`](crate::config) reads them together with variables and
//! file, so that all are checked by one rule and reported together.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::args_bench::BenchArgs;
use super::args_jobs::{DeadCommand, EnqueueArgs, JobCommand};
use super::args_local::{DevArgs, NewArgs, TestArgs, TryArgs};
use super::args_spool::{SpoolArgs, SpoolCommand};
use super::args_state::StateCommand;
use crate::config::LogFormat;
use crate::names::Name;

/// Delayed and scheduled jobs, on time, each in a fresh WebAssembly sandbox.
#[derive(Debug, Parser)]
#[command(name = "hourhand", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Settings come from the flag, else HOURHAND_<NAME>, else hourhand.toml, else (for the store) \
                        REDIS_URL, else the default.\nExit codes: 0 done, 1 failed, 2 wrong use, 3 not found, 4 conflict or \
                        ambiguous, 5 store out of reach."
)]
pub(super) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(super) common: Common,
    /// What to do.
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags of every command")]
pub(super) struct Common {
    /// Where the jobs are: sqlite://path, redis://host:port/db, rediss://..., or the primary that sentinels know,
    /// redis+sentinel://host:port,host:port/master-name/db [default: sqlite://hourhand.db]
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// What an acknowledged job survives in an sqlite store: full (a power cut) or normal (a crash) [default: full]
    #[arg(long, global = true, value_name = "LEVEL")]
    durability: Option<String>,
    /// The deployment's own world in the store [default: hourhand]
    #[arg(long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// Answer with JSON; `run` has no answer and logs in JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Settings file [default: hourhand.toml in the working directory, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<String>,
    /// Log level (off, error, warn, info, debug, trace) or directives [default: info for run, off for handler, error for bench, else warn]
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
    /// How log lines look: text or json [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a runner: claim due jobs and run their handlers
    Run(Box<RunArgs>),
    /// Work on handlers: build and load them whenever they change, and show their jobs as they run
    Dev(DevArgs),
    /// Enqueue a job, or many from NDJSON
    Enqueue(Box<EnqueueArgs>),
    /// Look at jobs that wait on this machine for their store, and hand them over
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Look at jobs and change them
    #[command(subcommand)]
    Job(JobCommand),
    /// Look at queues, pause, resume and purge them
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at dead letters, retry and delete them
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Look at what handlers remember, and change it
    #[command(subcommand)]
    State(StateCommand),
    /// Make, try, test and look at handlers
    #[command(subcommand)]
    Handler(HandlerCommand),
    /// Look at runners
    #[command(subcommand)]
    Runner(RunnerCommand),
    /// Show counts of every queue, and the runners
    Stats,
    /// Look whether everything in the store is as it should be, how its server is set up, and whether jobs run on time
    Doctor(DoctorArgs),
    /// Measure store and runner on this machine, in a namespace of its own that is deleted at the end
    Bench(Box<BenchArgs>),
    /// Move jobs from one store to another
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Mend what is wrong in the store. Nothing is deleted: what is in the way is set aside
    #[arg(long)]
    pub(super) repair: bool,
    /// Fail (exit 1) for warnings too
    #[arg(long)]
    pub(super) strict: bool,
    /// Enqueue a real job due in 1 s and report how late it ran: on a runner of the doctor's own, or with =KIND on the live
    /// runners' handler for that kind, with the payload null
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true)]
    pub(super) smoke: Option<Option<Name>>,
    /// How long after its due time the smoke job may take to end [default: 30s]
    #[arg(long, value_name = "DURATION", requires = "smoke")]
    pub(super) within: Option<String>,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The handlers folder [default: handlers]
    #[arg(long, value_name = "DIR")]
    handlers: Option<String>,
    /// How often it is scanned, whatever the file system's events say, 1s to 1h [default: 2s]
    #[arg(long, value_name = "DURATION")]
    handlers_scan: Option<String>,
    /// Whether events of the file system bring a scan forward: on or off [default: on]
    #[arg(long, value_name = "SWITCH")]
    handlers_events: Option<String>,
    /// Jobs that run at once, 1 to 4096 [default: 128]
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// How long a runner may be out of touch; what a crash costs in delay, at least 1s [default: 5s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
    /// How long running jobs may take to finish after SIGTERM [default: 25s]
    #[arg(long, value_name = "DURATION")]
    grace: Option<String>,
    /// Only jobs of these kinds [default: all that have a handler]
    #[arg(long, value_name = "A,B")]
    kinds: Option<String>,
    /// Only jobs of these queues [default: all]
    #[arg(long, value_name = "A,B")]
    queues: Option<String>,
    /// End once no job that runners can serve is scheduled, ready or running
    #[arg(long)]
    pub(super) until_idle: bool,
    /// What this runner is called in records and lists [default: host:pid]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What all guests may use together [default: half of the machine or cgroup]
    #[arg(long, value_name = "SIZE")]
    memory_total: Option<String>,
    /// Where compiled handlers are kept, or off [default: hourhand in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<String>,
    /// Where this host's sessions hold their locks [default: hourhand in the user's state folder]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
    /// How long completed and cancelled jobs are kept, or none for no limit [default: 1h]
    #[arg(long, value_name = "DURATION", help_heading = "Retention")]
    completed_age: Option<String>,
    /// How many of them a queue, or none [default: 10000]
    #[arg(long, value_name = "N", help_heading = "Retention")]
    completed_count: Option<String>,
    /// How many bytes of them a queue, or none [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Retention")]
    completed_bytes: Option<String>,
    /// How long dead letters are kept, or none [default: 30d]
    #[arg(long, value_name = "DURATION", help_heading = "Retention")]
    dead_age: Option<String>,
    /// How many of them a queue, or none [default: none]
    #[arg(long, value_name = "N", help_heading = "Retention")]
    dead_count: Option<String>,
    /// How many bytes of them a queue, or none [default: none]
    #[arg(long, value_name = "SIZE", help_heading = "Retention")]
    dead_bytes: Option<String>,
    /// How long the id of a finished job is remembered, 0 for no longer than its record [default: 24h]
    #[arg(long, value_name = "DURATION", help_heading = "Retention")]
    id_memory_age: Option<String>,
    /// How many bytes of such ids [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Retention")]
    id_memory_bytes: Option<String>,
    #[command(flatten)]
    spool: SpoolArgs,
}

/// What can be done with queues.
#[derive(Debug, Subcommand)]
pub(super) enum QueueCommand {
    /// List all queues
    List,
    /// Show one queue
    Show {
        /// Which queue
        queue: Name,
    },
    /// Let runners leave a queue alone, also one that has no job yet
    Pause {
        /// Which queue
        queue: Name,
    },
    /// Let runners take from a queue again
    Resume {
        /// Which queue
        queue: Name,
    },
    /// Delete the scheduled and ready jobs of a queue
    Purge {
        /// Which queue
        queue: Name,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What can be done with whole stores.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Copy everything of a namespace into another store; stop the runners of the source first
    Copy(CopyArgs),
}

/// Flags of `store copy`.
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    /// The store to copy: it is not changed
    #[arg(long, value_name = "URL", env = COPY_FROM, hide_env_values = true)]
    pub(super) from: String,
    /// The store to copy it into: what is there already is left alone
    #[arg(long, value_name = "URL", env = COPY_TO, hide_env_values = true)]
    pub(super) to: String,
}

/// Where the two stores of `store copy` may stand instead.
pub(super) const COPY_FROM: &str = "HOURHAND_COPY_FROM";
pub(super) const COPY_TO: &str = "HOURHAND_COPY_TO";

/// What can be done with handlers.
#[derive(Debug, Subcommand)]
pub(super) enum HandlerCommand {
    /// Make a project for a new handler, which builds and whose tests pass
    New(NewArgs),
    /// Run one job in the sandbox, without a store, and show what came of it
    Run(Box<TryArgs>),
    /// Run the cases of a folder: what is expected of each payload
    Test(TestArgs),
    /// Load a handlers folder and list what is in it
    List {
        /// The handlers folder [default: handlers]
        #[arg(long, value_name = "DIR")]
        handlers: Option<String>,
    },
    /// List the versions of a kind's module that can serve: what lies in the folder, and the last that were loaded
    Versions(VersionArgs),
    /// Let the version before serve, whatever lies in the folder, until `unpin`
    Rollback {
        #[command(flatten)]
        of: VersionArgs,
        /// The version, by the first 12 or more digits of its hash [default: the one before]
        #[arg(long, value_name = "HASH")]
        to: Option<String>,
    },
    /// Let a version serve, whatever lies in the folder, until `unpin`
    Pin {
        #[command(flatten)]
        of: VersionArgs,
        /// The version, by the first 12 or more digits of its hash [default: what lies in the folder]
        hash: Option<String>,
    },
    /// Let what lies in the folder serve again
    Unpin(VersionArgs),
    /// Check a module: what it is, what it serves, and whether it would load
    Check {
        /// The module
        file: PathBuf,
    },
}

/// A kind of a handlers folder, and where versions are kept.
#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Which kind
    pub(super) kind: Name,
    /// The handlers folder [default: handlers]
    #[arg(long, value_name = "DIR")]
    handlers: Option<String>,
    /// The runner's cache, where it keeps the last versions [default: hourhand in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<String>,
}

impl VersionArgs {
    fn settings(&self) -> [(&'static str, &Option<String>); 2] {
        [("handlers", &self.handlers), ("cache_dir", &self.cache_dir)]
    }
}

/// What can be done with runners.
#[derive(Debug, Subcommand)]
pub(super) enum RunnerCommand {
    /// List the runners that the store has heard of
    List,
}

/// What dead letters are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// The day (UTC) on which they gave up
    Day,
    /// Their kind
    Kind,
    /// Why they gave up: reason and first line, with numbers shown as #
    Error,
}

impl Cli {
    /// The settings among the flags, by key.
    pub(super) fn settings(&self) -> BTreeMap<&'static str, String> {
        let common = &self.common;
        // `dev` has a store of its own.
        let dev_store = Some(super::dev::store(common.store.as_ref()));
        let is_dev = matches!(self.command, Command::Dev(_));
        let mut all = vec![
            ("store", if is_dev { &dev_store } else { &common.store }),
            ("durability", &common.durability),
            ("namespace", &common.namespace),
            ("log", &common.log),
            ("log_format", &common.log_format),
        ];
        // What is waited for in the store that the file names is no matter of its own one.
        let none = Some("0".to_owned());
        match &self.command {
            Command::Run(run) => all.extend(run.settings().into_iter().chain(run.spool.settings())),
            Command::Enqueue(enqueue) => {
                all.push(("wait_replicas", &enqueue.wait_replicas));
                all.extend(enqueue.spool.settings());
            }
            Command::Spool(command) => all.extend(command.settings()),
            Command::Handler(HandlerCommand::List { handlers }) => all.push(("handlers", handlers)),
            Command::Handler(
                HandlerCommand::Versions(of)
                | HandlerCommand::Unpin(of)
                | HandlerCommand::Pin { of, .. }
                | HandlerCommand::Rollback { of, .. },
            ) => all.extend(of.settings()),
            Command::Bench(bench) => all.push(("concurrency", &bench.concurrency)),
            Command::Dev(dev) => all.extend([("concurrency", &dev.concurrency), ("wait_replicas", &none)]),
            _ => {}
        }
        all.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect()
    }

    /// The level and the format of log lines when nobody says. A runner has no answer but its log; what is wrong
    /// with a handler is in the answer of `handler`, and need not be logged too.
    pub(super) fn log_defaults(&self) -> (&'static str, LogFormat) {
        match &self.command {
            Command::Run(_) if self.common.json => ("info", LogFormat::Json),
            Command::Run(_) => ("info", LogFormat::Text),
            Command::Handler(_) => ("off", LogFormat::Text),
            // That jobs of a runner are taken over which it kills is no news.
            Command::Bench(_) => ("error", LogFormat::Text),
            Command::Dev(_) if self.common.json => ("warn", LogFormat::Json),
            _ => ("warn", LogFormat::Text),
        }
    }
}

impl RunArgs {
    fn settings(&self) -> [(&'static str, &Option<String>); 20] {
        [
            ("handlers", &self.handlers),
            ("handlers_scan", &self.handlers_scan),
            ("handlers_events", &self.handlers_events),
            ("concurrency", &self.concurrency),
            ("lease", &self.lease),
            ("grace", &self.grace),
            ("kinds", &self.kinds),
            ("queues", &self.queues),
            ("name", &self.name),
            ("memory_total", &self.memory_total),
            ("cache_dir", &self.cache_dir),
            ("state_dir", &self.state_dir),
            ("completed_age", &self.completed_age),
            ("completed_count", &self.completed_count),
            ("completed_bytes", &self.completed_bytes),
            ("dead_age", &self.dead_age),
            ("dead_count", &self.dead_count),
            ("dead_bytes", &self.dead_bytes),
            ("id_memory_age", &self.id_memory_age),
            ("id_memory_bytes", &self.id_memory_bytes),
        ]
    }
}

/// The arguments without a flag and its value, and that value: for [`super::secret`].
pub(super) fn without(flag: &str, args: &[OsString]) -> (Vec<OsString>, Option<OsString>) {
    let mut kept = Vec::with_capacity(args.len());
    let mut found = None;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if arg == "--" {
            kept.push(arg.clone());
            kept.extend(rest.cloned());
            break;
        }
        let value = |arg: &OsString| arg.to_str()?.strip_prefix(flag)?.strip_prefix('=').map(OsString::from);
        if arg == flag {
            found = rest.next().cloned();
        } else if let Some(value) = value(arg) {
            found = Some(value);
        } else {
            kept.push(arg.clone());
        }
    }
    (kept, found)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::layers;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_has_its_flag_and_reaches_the_settings() {
        // What is said of enqueues alone, a runner has no flag for.
        let of_enqueues = |key: &str| key == "wait_replicas";
        for (command, enqueues) in [(vec!["run"], false), (vec!["enqueue", "kind"], true)] {
            let mut args = vec!["hourhand".to_owned()];
            args.extend(command.into_iter().map(str::to_owned));
            let keys: Vec<&str> =
                layers::KEYS.into_iter().filter(|key| of_enqueues(key) == enqueues).collect();
            for key in &keys {
                args.push(format!("{}=value of {key}", layers::flag_of(key)));
            }
            let settings = Cli::try_parse_from(&args).expect("every key has its flag").settings();
            for key in keys {
                assert_eq!(settings.get(key), Some(&format!("value of {key}")), "{key}");
            }
        }
    }

    #[test]
    fn every_leaf_command_takes_store_namespace_and_json() {
        fn leaves(command: &clap::Command, path: Vec<String>, found: &mut Vec<Vec<String>>) {
            let subcommands: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
            if subcommands.is_empty() {
                found.push(path.clone());
            }
            for sub in subcommands {
                let mut path = path.clone();
                path.push(sub.get_name().to_owned());
                leaves(sub, path, found);
            }
        }
        let mut found = Vec::new();
        let mut command = Cli::command();
        command.build();
        leaves(&command, vec!["hourhand".to_owned()], &mut found);
        assert!(found.len() > 15, "{found:?}");
        for path in found {
            let mut args = path.clone();
            args.extend(["--store", "redis://h", "--namespace", "n", "--json", "--help"].map(str::to_owned));
            let error = Cli::try_parse_from(&args).expect_err("help ends it");
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{path:?}: {error}");
        }
    }

    #[test]
    fn the_store_flag_is_found_in_both_forms_and_not_after_a_double_dash() {
        let os = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            without("--store", &os(&["h", "--store", "u", "run", "--json"])),
            (os(&["h", "run", "--json"]), Some("u".into()))
        );
        assert_eq!(
            without("--store", &os(&["h", "run", "--store=u"])),
            (os(&["h", "run"]), Some("u".into()))
        );
        let after = os(&["h", "job", "cancel", "--", "--store", "u"]);
        assert_eq!(without("--store", &after), (after.clone(), None));
        let longer = os(&["h", "enqueue", "--from-line", "3"]);
        assert_eq!(without("--from", &longer), (longer.clone(), None));
    }
}
