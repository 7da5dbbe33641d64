//! The build loop: waits for a change, builds the projects that it is in, and installs what came of them. A build that
//! fails leaves everything as it was.

use std::sync::mpsc::Sender;

use super::install::HandlersFolder;
use super::screen::News;
use super::sources::Sources;
use super::watch::Watch;
use crate::cli::local::project::{BuildError, BuildStop, Project};
use crate::clock;
use crate::wire::job_out::ms_of_us;

/// A project with what is known of its files.
struct Watched {
    project: Project,
    sources: Sources,
    dirty: bool,
}

/// Builds until it is stopped.
pub(super) fn run(projects: Vec<Project>, mut folder: HandlersFolder, stop: &BuildStop, news: &Sender<News>) {
    let mut all: Vec<Watched> = projects
        .into_iter()
        .map(|project| Watched { sources: Sources::new(project.dir.clone()), project, dirty: true })
        .collect();
    let mut watch = Watch::new();
    let mut said = false;
    for watched in &mut all {
        watched.sources.look();
    }
    watch.follow(all.iter().flat_map(|watched| watched.sources.folders()));
    // What was saved between the look and the watch.
    look(&mut all);
    while !stop.is_told() {
        for (number, watched) in all.iter_mut().enumerate().filter(|(_, watched)| watched.dirty) {
            build(number, watched, &mut folder, stop, news);
        }
        watch.follow(all.iter().flat_map(|watched| watched.sources.folders()));
        if let Some(trouble) = watch.new_trouble(&mut said) {
            let _ = news.send(News::Remark(format!(
                "no events for some folders ({trouble}): changes are found by looking every half second"
            )));
        }
        while !stop.is_told() && !all.iter().any(|watched| watched.dirty) {
            if watch.wait() {
                look(&mut all);
            }
        }
    }
}

fn look(all: &mut [Watched]) {
    for watched in all {
        watched.dirty |= !watched.sources.look().is_empty();
    }
}

fn build(
    number: usize,
    watched: &mut Watched,
    folder: &mut HandlersFolder,
    stop: &BuildStop,
    news: &Sender<News>,
) {
    let project = watched.project.name();
    let _ = news.send(News::Building { project: project.clone(), tool: watched.project.tool_name() });
    let started = clock::monotonic();
    let built = watched.project.build(stop);
    let build_ms = ms_of_us(clock::monotonic().duration_since(started).as_micros() as u64);
    watched.dirty = !watched.sources.look_after_build().is_empty();
    let told = match built {
        Ok(artifacts) => match folder.install(number, &artifacts) {
            Ok(changed) => News::Built { project, build_ms, changed },
            Err(error) => News::NotBuilt { project, error: error.to_string() },
        },
        Err(BuildError::Stopped) => return,
        Err(error) => News::NotBuilt { project, error: error.to_string() },
    };
    let _ = news.send(told);
}
