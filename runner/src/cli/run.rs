//! `run`: from the settings to the runner, and from its end to the exit code.

use super::context::Context;
use super::exit::{Code, Fault};
use crate::app::{self, Reread, RunnerEnd};
use crate::config::{Problems, RunSettings};
use crate::queue::StoreError;

/// Runs a runner until it ends.
pub(super) fn run(context: &mut Context, until_idle: bool) -> Result<Code, Fault> {
    let settings = RunSettings::resolve(&context.layers, &context.machine, until_idle)?;
    app::check_handlers_dir(&settings.handlers).map_err(|e| Fault::usage(format!("{e:#}")))?;
    let reread = Reread::new(&context.layers, &context.machine);
    code_of(app::run_rereading(reread, settings))
}

/// What the end of a runner means for the command.
pub(super) fn code_of(end: anyhow::Result<RunnerEnd>) -> Result<Code, Fault> {
    match end {
        Ok(RunnerEnd::Clean) => Ok(Code::Done),
        Ok(RunnerEnd::Unsettled) => Ok(Code::Away),
        Err(error) => match error.downcast::<StoreError>() {
            Ok(error) => Err(error.into()),
            Err(error) => match error.downcast::<Problems>() {
                Ok(problems) => Err(problems.into()),
                Err(error) => Err(Fault::failed(format!("{error:#}"))),
            },
        },
    }
}
