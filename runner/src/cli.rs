//! The command line: parse, hand over, answer, and say by the exit code how it went.
//!
//! Each command is a file; all of them write through [`output`] alone and know the store by its trait. What
//! a command could not do is one [`exit::Fault`], printed here.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

mod args;
mod args_bench;
mod args_jobs;
mod args_local;
mod args_spool;
mod args_state;
mod bench;
mod bulk;
mod context;
mod copy;
mod dead;
mod dev;
mod doctor;
mod enqueue;
mod exit;
mod grants;
mod handler_new;
mod handler_run;
mod handler_test;
mod handlers;
mod jobs;
mod lines;
mod listing;
mod local;
mod logs;
mod no_op;
mod output;
mod own_runner;
mod payload;
mod queues;
mod run;
mod secret;
mod show;
mod spool;
mod state;
mod stop;
mod table;
mod verbs;
mod versions;

use args::{Cli, Command, HandlerCommand, RunnerCommand, StoreCommand};
use context::Context;
use exit::{Code, Fault};
use output::complain;

use crate::config::{self, LogSettings};
use crate::{sandbox, telemetry};

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|word| word == sandbox::COMPILE_COMMAND) {
        return sandbox::compile_child(&args[2..]);
    }
    compile_in_processes();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come this way too. Nobody there to read them is no error.
            let _ = error.print();
            return if error.use_stderr() { Code::Usage.into() } else { Code::Done.into() };
        }
    };
    secret::hide(&args);
    answer(&cli)
        .unwrap_or_else(|fault| {
            complain(&fault);
            fault.code
        })
        .into()
}

/// Has modules compiled by processes of this very binary, also when its file has been replaced since.
fn compile_in_processes() {
    const THIS_BINARY: &str = "/proc/self/exe";
    if std::fs::metadata(THIS_BINARY).is_ok() {
        sandbox::compile_with(THIS_BINARY.into());
    }
}

/// Does what the command says. A fault of the command is worse than one of its answer's way out.
fn answer(cli: &Cli) -> Result<Code, Fault> {
    let mut context = Context::new(cli)?;
    let (level, format) = cli.log_defaults();
    let log = LogSettings::resolve(&context.layers, level, format)
        .map_err(|_| config::all_problems(&context.layers, &context.machine))?;
    telemetry::start(&log);
    let done = dispatch(cli, &mut context);
    let written = context.out.finish();
    let code = done?;
    written.map(|()| code)
}

fn dispatch(cli: &Cli, context: &mut Context) -> Result<Code, Fault> {
    match &cli.command {
        // A runner makes its own runtimes.
        Command::Run(run) => run::run(context, run.until_idle),
        Command::Dev(args) => dev::run(context, args),
        Command::Bench(args) => bench::run(context, args, cli.common.config.as_deref()),
        Command::Handler(HandlerCommand::New(args)) => handler_new::run(context, args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "hourhand", &mut script);
            context.out.bytes(&script);
            Ok(Code::Done)
        }
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| Fault::failed(format!("cannot start: {e}")))?;
            let done = runtime.block_on(ask(command, context));
            // A thread that still reads stdin does not hold the process.
            runtime.shutdown_background();
            done
        }
    }
}

/// The commands that ask the store.
async fn ask(command: &Command, context: &mut Context) -> Result<Code, Fault> {
    match command {
        Command::Enqueue(args) => enqueue::run(context, args).await,
        Command::Spool(command) => spool::run(context, command).await,
        Command::Job(command) => jobs::run(context, command).await,
        Command::Queue(command) => queues::run(context, command).await,
        Command::Dead(command) => dead::run(context, command).await,
        Command::State(command) => state::run(context, command).await,
        Command::Runner(RunnerCommand::List) => queues::runner_list(context).await,
        Command::Stats => queues::stats(context).await,
        Command::Doctor(args) => doctor::run(context, args).await,
        Command::Store(StoreCommand::Copy(args)) => copy::run(context, args).await,
        Command::Handler(HandlerCommand::Run(args)) => handler_run::run(context, args).await,
        Command::Handler(HandlerCommand::Test(args)) => handler_test::run(context, args).await,
        Command::Handler(HandlerCommand::List { .. }) => handlers::list(context).await,
        Command::Handler(HandlerCommand::Check { file }) => handlers::check(context, file),
        Command::Handler(HandlerCommand::Versions(of)) => versions::list(context, of),
        Command::Handler(HandlerCommand::Rollback { of, to }) => {
            versions::rollback(context, of, to.as_deref())
        }
        Command::Handler(HandlerCommand::Pin { of, hash }) => versions::pin(context, of, hash.as_deref()),
        Command::Handler(HandlerCommand::Unpin(of)) => versions::unpin(context, of),
        Command::Run(_)
        | Command::Dev(_)
        | Command::Bench(_)
        | Command::Handler(HandlerCommand::New(_))
        | Command::Completions { .. } => Ok(Code::Done),
    }
}
