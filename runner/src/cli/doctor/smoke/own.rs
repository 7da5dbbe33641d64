//! A runner of the doctor's own, for one kind: made as `run` makes one, with a handlers folder that holds a module that does
//! nothing. It leaves all other kinds and queues alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::cli::context::Context;
use crate::cli::exit::Fault;
use crate::cli::no_op::NO_OP;
use crate::cli::own_runner::OwnRunner;
use crate::config::RunSettings;
use crate::manifest::OperatorSettings;
use crate::names::Name;

/// How long its jobs may take to end once it stops.
const GRACE: Duration = Duration::from_secs(1);

/// The runner, and its handlers and the lock of its session.
pub(super) struct SmokeRunner {
    runner: OwnRunner,
    _folder: TempDir,
}

impl SmokeRunner {
    /// Starts it.
    pub(super) fn start(context: &Context, kind: &Name) -> Result<Self, Fault> {
        let failed =
            |error: std::io::Error| Fault::failed(format!("cannot make a runner for the smoke job: {error}"));
        let folder = tempfile::Builder::new().prefix("hourhand-smoke-").tempdir().map_err(failed)?;
        let settings = settings(context, kind, folder.path())?;
        fs::create_dir(&settings.handlers).map_err(failed)?;
        fs::write(settings.handlers.join(format!("{kind}.wasm")), NO_OP).map_err(failed)?;
        let runner = OwnRunner::start("the smoke job", settings, Some(kind), None)?;
        Ok(Self { runner, _folder: folder })
    }

    /// Waits until it serves its kind.
    pub(super) async fn ready(&mut self) -> Result<(), Fault> {
        self.runner.ready().await.map(drop)
    }

    /// Lets it stop, as SIGTERM would, and waits for that.
    pub(super) async fn end(self) -> Result<(), Fault> {
        self.runner.end().await
    }
}

/// Those of `run`, but for what would let it touch more than its own job.
fn settings(context: &Context, kind: &Name, folder: &Path) -> Result<RunSettings, Fault> {
    let mut settings = RunSettings::resolve(&context.layers, &context.machine, false)?;
    settings.name = format!("{} (doctor)", context.machine.runner_name());
    settings.handlers = folder.join("handlers");
    settings.state_dir = folder.join("state");
    settings.cache_dir = None;
    settings.kinds = Some(BTreeSet::from([kind.clone()]));
    settings.queues = Some(BTreeSet::from([kind.clone()]));
    settings.concurrency = 1;
    settings.grace = GRACE;
    settings.operator = OperatorSettings::default();
    // What waits in the operator's spool is for `spool drain`, and for runners that were given it.
    settings.spool.drained = false;
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use super::*;
    use crate::cli::output::Out;
    use crate::config::Layers;
    use crate::config::machine::Machine;

    #[test]
    fn the_operators_spool_is_not_drained() {
        let variables = [("HOURHAND_SPOOL", "on"), ("HOURHAND_SPOOL_DIR", "/srv/spool")];
        let variables = variables.map(|(key, value)| (OsString::from(key), OsString::from(value)));
        let layers = Layers::new(BTreeMap::new(), variables).expect("valid");
        let context = Context { layers, out: Out::stdout(false), machine: Machine::read() };
        let run = RunSettings::resolve(&context.layers, &context.machine, false).expect("valid");
        assert!(run.spool.drained, "`run` drains it");
        let own = settings(&context, &Name::new("k").expect("a name"), Path::new("/own")).expect("valid");
        assert!(!own.spool.drained);
        assert!(own.state_dir.starts_with("/own") && own.handlers.starts_with("/own"));
    }
}
