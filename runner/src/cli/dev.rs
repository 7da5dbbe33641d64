//! `dev`: builds handlers whenever they change, runs them on a store of its own, and shows their jobs as they run.
//!
//! The runner is the one of `run`, with somebody who looks on. Three threads tell the screen what happens: the
//! runner's, the one that builds, and the one that reads stdin. All end with the runner.

mod builder;
mod install;
mod screen;
mod sources;
mod typed;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use super::args_local::DevArgs;
use super::context::Context;
use super::exit::{Code, Fault};
use super::local::project::{BuildStop, Project, WHAT_IS_ONE};
use super::output::note;
use super::run::code_of;
use crate::app::{self, Audience, Parts};
use crate::config::{NAMESPACE_DEFAULT, RunSettings};
use crate::queue::{ClaimedJob, Settlement};
use crate::registry::{Snapshot, Status};
use crate::sandbox::JobLog;
use crate::worker::Onlooker;

use install::HandlersFolder;
use screen::{Begun, News, Screen, Served};

/// Where everything of `dev` is, in the working directory.
const FOLDER: &str = ".hourhand";
/// The variable that names another store than its own.
pub(super) const STORE_VARIABLE: &str = "HOURHAND_DEV_STORE";
/// How often logs of running jobs are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The store of `dev` unless somebody names one for it: never the one that a variable or a file names for all
/// commands, whose jobs are not there to be tried on.
pub(super) fn store(flag: Option<&String>) -> String {
    let variable = || std::env::var(STORE_VARIABLE).ok().filter(|url| !url.is_empty());
    flag.cloned().or_else(variable).unwrap_or_else(|| format!("sqlite://{FOLDER}/dev.db"))
}

/// Works until SIGTERM or SIGINT.
pub(super) fn run(context: &mut Context, args: &DevArgs) -> Result<Code, Fault> {
    let projects = projects(&args.dirs)?;
    let folder = Path::new(FOLDER);
    let handlers = folder.join("handlers");
    let mut settings = RunSettings::resolve(&context.layers, &context.machine, false)?;
    make_folder(folder, &handlers)?;
    settings.handlers.clone_from(&handlers);
    settings.state_dir = folder.join("state");
    introduce(&projects, &settings);

    let (news, heard) = mpsc::channel();
    let stop = BuildStop::default();
    let installed = HandlersFolder::new(handlers, projects.len());
    let runner = spawn("dev-runner", {
        let (news, source) = (news.clone(), context.machine.source());
        move || {
            let end = app::run_before(audience(news.clone(), source), settings);
            let _ = news.send(News::Over);
            end
        }
    })?;
    let builder = spawn("dev-build", {
        let (stop, news) = (stop.clone(), news);
        move || builder::run(projects, installed, &stop, &news)
    })?;
    let mut screen = Screen::new(&mut context.out);
    loop {
        match heard.recv_timeout(LOOK_EVERY) {
            Ok(News::Over) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(news) => screen.show(news),
            Err(RecvTimeoutError::Timeout) => screen.show_logs(),
        }
        screen.flush();
    }
    stop.stop();
    let joined = builder.join();
    // What was told while everything came to its end.
    while let Ok(news) = heard.try_recv() {
        screen.show(news);
    }
    let end = runner.join().map_err(|_| Fault::failed("the runner panicked"))?;
    joined.map_err(|_| Fault::failed("the thread that builds panicked"))?;
    code_of(end)
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<std::thread::JoinHandle<T>, Fault> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| Fault::failed(format!("cannot start a thread: {error}")))
}

fn projects(dirs: &[PathBuf]) -> Result<Vec<Project>, Fault> {
    let here = [PathBuf::from(".")];
    let dirs = if dirs.is_empty() { &here } else { dirs };
    let mut projects: Vec<Project> = Vec::new();
    for dir in dirs {
        let Some(project) = Project::find(dir) else {
            return Err(Fault::usage(format!(
                "{}: expected {WHAT_IS_ONE}: hourhand handler new makes one",
                dir.display()
            )));
        };
        if !projects.contains(&project) {
            projects.push(project);
        }
    }
    Ok(projects)
}

/// Makes the folder, which is nobody's to commit.
fn make_folder(folder: &Path, handlers: &Path) -> Result<(), Fault> {
    let made = fs::create_dir_all(handlers).and_then(|()| {
        let ignore = folder.join(".gitignore");
        if ignore.exists() { Ok(()) } else { fs::write(ignore, "# of hourhand dev\n*\n") }
    });
    made.map_err(|error| Fault::failed(format!("cannot make {}: {error}", folder.display())))
}

/// Says how to use it, on stderr.
fn introduce(projects: &[Project], settings: &RunSettings) {
    let store = &settings.store;
    let names: Vec<String> = projects.iter().map(Project::name).collect();
    // In another terminal the working directory may be another one; a password is never shown.
    let url = match store.url.file().and_then(|file| std::path::absolute(file).ok()) {
        Some(file) => format!("sqlite://{}", file.display()),
        None => store.url.to_string(),
    };
    let namespace = match store.namespace.as_str() {
        NAMESPACE_DEFAULT => String::new(),
        other => format!(" --namespace {other}"),
    };
    note(&format!("working on {}; Ctrl-C ends it", names.join(", ")));
    note("to enqueue a job, type KIND PAYLOAD here, or in another terminal:");
    note(&format!("  hourhand enqueue KIND PAYLOAD --store {url}{namespace}"));
}

fn audience(news: Sender<News>, source: String) -> Audience {
    let onlooker = Arc::new(Looker(news.clone()));
    let parts = move |parts: Parts| {
        parts.io.spawn(tell_of_handlers(parts.registry.clone(), news.clone()));
        let reader = std::thread::Builder::new().name("dev-typed".to_owned());
        if let Err(error) = reader.spawn({
            let news = news.clone();
            move || typed::run(&parts, &source, &news)
        }) {
            let _ = news.send(News::Remark(format!("stdin is not read: {error}")));
        }
    };
    Audience::new(Box::new(parts), Some(onlooker))
}

async fn tell_of_handlers(registry: crate::registry::Registry, news: Sender<News>) {
    let mut generations = registry.subscribe();
    loop {
        let _ = news.send(News::Serving(served(&registry.snapshot())));
        if generations.changed().await.is_err() {
            return;
        }
    }
}

fn served(snapshot: &Snapshot) -> Vec<Served> {
    let current = snapshot.files.iter().filter(|file| matches!(file.status, Status::Active | Status::Broken));
    current
        .map(|file| Served {
            kind: file.kind.clone(),
            handler: file.sha256.as_deref().unwrap_or_default().chars().take(12).collect(),
            error: file.error.clone(),
        })
        .collect()
}

/// Tells the screen of each run.
#[derive(Debug)]
struct Looker(Sender<News>);

impl Onlooker for Looker {
    fn begun(&self, job: &ClaimedJob, log: &Arc<JobLog>) {
        let begun = Begun {
            token: job.lease.token,
            id: job.job.id.to_string(),
            kind: job.job.kind.to_string(),
            attempt: (job.attempt, job.max_attempts),
            log: Arc::clone(log),
        };
        let _ = self.0.send(News::Begun(begun));
    }

    fn ended(&self, settlement: &Settlement) {
        let _ = self.0.send(News::Ended(Box::new(settlement.clone())));
    }
}
