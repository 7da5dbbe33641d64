//! A runner of a command's own, in a thread of this process: made as `run` makes one, with the command's settings.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::exit::Fault;
use super::run::code_of;
use crate::app::{self, Audience, Parts, RunnerEnd};
use crate::config::RunSettings;
use crate::names::Name;
use crate::registry::{Registry, Status};
use crate::worker::Onlooker;

/// The runner. One that is dropped is told to stop, and waited for.
pub(super) struct OwnRunner {
    /// What it is for, in messages.
    what: &'static str,
    thread: Option<JoinHandle<anyhow::Result<RunnerEnd>>>,
    over: Option<oneshot::Sender<()>>,
    ready: oneshot::Receiver<Result<Registry, String>>,
}

impl OwnRunner {
    /// Starts it. `kind` is what it must serve to be ready, if anything.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(super) fn start(
        what: &'static str,
        settings: RunSettings,
        kind: Option<&Name>,
        onlooker: Option<Arc<dyn Onlooker>>,
    ) -> Result<Self, Fault> {
        let (over, is_over) = oneshot::channel();
        let (ready, is_ready) = oneshot::channel();
        let of = kind.cloned();
        let parts = move |parts: Parts| {
            parts.io.clone().spawn(async move {
                let served = match &of {
                    Some(kind) => serves(&parts, kind).await,
                    None => Ok(()),
                };
                let _ = ready.send(served.map(|()| parts.registry));
            });
        };
        let audience = Audience {
            over: Box::pin(async {
                let _ = is_over.await;
            }),
            hears_warnings: false,
            ..Audience::new(Box::new(parts), onlooker)
        };
        let thread = std::thread::Builder::new().name("own-runner".to_owned());
        let thread = thread
            .spawn(move || app::run_before(audience, settings))
            .map_err(|error| Fault::failed(format!("cannot make a runner for {what}: {error}")))?;
        Ok(Self { what, thread: Some(thread), over: Some(over), ready: is_ready })
    }

    /// Waits until it serves its kind; its handlers.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) async fn ready(&mut self) -> Result<Registry, Fault> {
        match (&mut self.ready).await {
            Ok(Ok(registry)) => Ok(registry),
            Ok(Err(problem)) => {
                Err(Fault::failed(format!("the handler of {} does not load: {problem}", self.what)))
            }
            // Why it ended is told by its end.
            Err(_) => Err(Fault::failed(format!("the runner for {} ended before it served", self.what))),
        }
    }

    /// Lets it stop, as SIGTERM would, and waits for that.
    ///
    /// # Errors
    /// What it failed of.
    pub(super) async fn end(mut self) -> Result<(), Fault> {
        self.over.take();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let what = self.what;
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        let ended = joined.map_err(|error| Fault::failed(format!("the runner for {what}: {error}")))?;
        let ended = ended.map_err(|_| Fault::failed(format!("the runner for {what} panicked")))?;
        code_of(ended).map(drop)
    }
}

impl Drop for OwnRunner {
    fn drop(&mut self) {
        self.over.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
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
