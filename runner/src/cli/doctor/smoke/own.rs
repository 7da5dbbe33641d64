//! A runner of the doctor's own, for one kind: made as `run` makes one, with a handlers folder that holds a module that does
//! nothing. It leaves all other kinds and queues alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::module::NO_OP;
use crate::app::{self, Audience, Parts, RunnerEnd};
use crate::cli::context::Context;
use crate::cli::exit::Fault;
use crate::cli::run::code_of;
use crate::config::RunSettings;
use crate::manifest::OperatorSettings;
use crate::names::Name;
use crate::registry::Status;

/// How long its jobs may take to end once it stops.
const GRACE: Duration = Duration::from_secs(1);

/// The runner, in a thread of this process.
pub(super) struct OwnRunner {
    thread: JoinHandle<anyhow::Result<RunnerEnd>>,
    over: oneshot::Sender<()>,
    ready: oneshot::Receiver<Result<(), String>>,
    /// Its handlers, and the lock of its session.
    _folder: TempDir,
}

impl OwnRunner {
    /// Starts it.
    pub(super) fn start(context: &Context, kind: &Name) -> Result<Self, Fault> {
        let failed =
            |error: std::io::Error| Fault::failed(format!("cannot make a runner for the smoke job: {error}"));
        let folder = tempfile::Builder::new().prefix("hourhand-smoke-").tempdir().map_err(failed)?;
        let settings = settings(context, kind, folder.path())?;
        fs::create_dir(&settings.handlers).map_err(failed)?;
        fs::write(settings.handlers.join(format!("{kind}.wasm")), NO_OP).map_err(failed)?;

        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let of = kind.clone();
        let parts = move |parts: Parts| {
            parts.io.clone().spawn(async move {
                let _ = ready.send(serves(&parts, &of).await);
            });
        };
        let audience = Audience {
            over: Box::pin(async {
                let _ = is_over.await;
            }),
            hears_warnings: false,
            ..Audience::new(Box::new(parts), None)
        };
        let thread = std::thread::Builder::new().name("smoke-runner".to_owned());
        let thread = thread.spawn(move || app::run_before(audience, settings)).map_err(failed)?;
        Ok(Self { thread, over, ready: is_ready, _folder: folder })
    }

    /// Waits until it serves its kind.
    pub(super) async fn ready(&mut self) -> Result<(), Fault> {
        match (&mut self.ready).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problem)) => {
                Err(Fault::failed(format!("the smoke job's handler does not load: {problem}")))
            }
            // Why it ended is told by its end.
            Err(_) => Err(Fault::failed("the runner for the smoke job ended before it served")),
        }
    }

    /// Lets it stop, as SIGTERM would, and waits for that.
    pub(super) async fn end(self) -> Result<(), Fault> {
        let _ = self.over.send(());
        let thread = self.thread;
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        let ended =
            joined.map_err(|error| Fault::failed(format!("the runner for the smoke job: {error}")))?;
        let ended = ended.map_err(|_| Fault::failed("the runner for the smoke job panicked"))?;
        code_of(ended).map(drop)
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

/// Waits until the module is loaded.
async fn serves(parts: &Parts, kind: &Name) -> Result<(), String> {
    parts.registry.settled().await;
    let snapshot = parts.registry.snapshot();
    let file = snapshot.files.iter().find(|file| file.kind == kind.as_str());
    match file.map(|file| (file.status, &file.error)) {
        Some((Status::Active, _)) => Ok(()),
        Some((_, Some(error))) => Err(error.clone()),
        _ => Err("it was not found".to_owned()),
    }
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
