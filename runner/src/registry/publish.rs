//! From what is known of the files to a [`Snapshot`]: which file serves which kind, and how each is
//! doing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::job::MAX_ATTEMPTS_DEFAULT;
use crate::names::Name;
use crate::sandbox::{Declared, Limits, Module, Sandbox};

use super::files::Files;
use super::tracked::{Good, Tracked};
use super::{Handler, HandlerStatus, PinStatus, Snapshot, Status};

/// What was published last, and what is left of versions before.
#[derive(Debug, Default)]
pub(super) struct Published {
    generation: u64,
    handlers: BTreeMap<Name, Arc<Handler>>,
    files: Vec<HandlerStatus>,
    retired: Vec<Retired>,
}

/// A version that serves no new jobs. Some may still run on it.
#[derive(Debug)]
struct Retired {
    handler: Weak<Handler>,
    status: HandlerStatus,
}

/// One file that could serve a kind.
struct Candidate<'a> {
    path: &'a Path,
    file: &'a Tracked,
    good: &'a Good,
    declared: Option<&'a Declared>,
}

impl Published {
    /// The snapshot for what is known now; `None` when it is the one that is out already.
    pub(super) fn next(&mut self, files: &Files, sandbox: &Sandbox, wall_ms: u64) -> Option<Snapshot> {
        let candidates = candidates(files);
        let mut handlers = BTreeMap::new();
        let mut statuses = broken_files(files);
        for (kind, mut of_kind) in candidates {
            // The file that is named after the kind, else the first by name.
            of_kind.sort_by_key(|candidate| (candidate.file.stem != kind.as_str(), candidate.path));
            for (place, candidate) in of_kind.iter().enumerate() {
                let limits = limits(candidate.declared, sandbox);
                let mut status = status(&kind, candidate, limits.clone());
                if place == 0 {
                    handlers.insert(kind.clone(), self.handler(&kind, candidate, limits));
                } else {
                    status.status = Status::Broken;
                    status.error =
                        Some(format!("kind {kind} is already served by {}", of_kind[0].path.display()));
                }
                statuses.push(status);
            }
        }
        self.retire(&handlers, wall_ms);
        statuses.extend(self.retired.iter().map(|retired| retired.status.clone()));
        statuses.sort_by(|a, b| (&a.kind, &a.file, a.status as u8).cmp(&(&b.kind, &b.file, b.status as u8)));
        if statuses == self.files && same_handlers(&handlers, &self.handlers) {
            return None;
        }
        self.say_conflicts(&statuses);
        self.generation += 1;
        self.handlers = handlers.clone();
        self.files = statuses.clone();
        Some(Snapshot { generation: self.generation, handlers, files: statuses })
    }

    /// The handler that is out already, where it is the same, so that jobs and drains see one version as
    /// one.
    fn handler(&self, kind: &Name, candidate: &Candidate<'_>, limits: Limits) -> Arc<Handler> {
        let module = &candidate.good.module;
        if let Some(current) = self.handlers.get(kind)
            && Arc::ptr_eq(&current.module, module)
            && current.file == candidate.path
        {
            return Arc::clone(current);
        }
        Arc::new(handler(kind, candidate.path, module, candidate.declared, limits))
    }

    fn retire(&mut self, handlers: &BTreeMap<Name, Arc<Handler>>, since_ms: u64) {
        for (kind, old) in &self.handlers {
            if handlers.get(kind).is_some_and(|new| Arc::ptr_eq(old, new)) {
                continue;
            }
            let status = HandlerStatus {
                kind: kind.to_string(),
                file: old.file.clone(),
                sha256: Some(old.sha256.clone()),
                status: Status::Draining,
                since_ms,
                error: None,
                limits: old.limits.clone(),
                compile_time: Some(old.module.compile_time().unwrap_or_default()),
                pin: None,
            };
            self.retired.push(Retired { handler: Arc::downgrade(old), status });
        }
        self.retired.retain(|retired| retired.handler.strong_count() > 0);
    }

    fn say_conflicts(&self, statuses: &[HandlerStatus]) {
        let is_conflict = |s: &&HandlerStatus| s.status == Status::Broken && s.sha256.is_some();
        for status in statuses.iter().filter(is_conflict) {
            if let Some(error) = status.error.as_deref().filter(|e| e.contains("is already served by"))
                && !self.files.contains(status)
            {
                tracing::error!(file = %status.file.display(), error, "handler does not serve");
            }
        }
    }
}

fn same_handlers(a: &BTreeMap<Name, Arc<Handler>>, b: &BTreeMap<Name, Arc<Handler>>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((ka, ha), (kb, hb))| ka == kb && Arc::ptr_eq(ha, hb))
}

/// Who could serve what: the kinds that a module declares, else the kind of its file's name.
fn candidates(files: &Files) -> BTreeMap<Name, Vec<Candidate<'_>>> {
    let mut candidates: BTreeMap<Name, Vec<Candidate<'_>>> = BTreeMap::new();
    for (path, file) in files.iter() {
        let Some(good) = file.serving() else { continue };
        for declared in good.module.declared() {
            let candidate = Candidate { path, file, good, declared: Some(declared) };
            candidates.entry(declared.kind.clone()).or_default().push(candidate);
        }
        if good.module.declared().is_empty()
            && let Ok(kind) = Name::new(&file.stem)
        {
            candidates.entry(kind).or_default().push(Candidate { path, file, good, declared: None });
        }
    }
    candidates
}

/// Files whose newest contents do not load, and pins that cannot be followed.
fn broken_files(files: &Files) -> Vec<HandlerStatus> {
    let mut broken = Vec::new();
    for (path, file) in files.iter() {
        let mut add = |sha256, since_ms, error| {
            broken.push(HandlerStatus {
                kind: file.stem.clone(),
                file: path.clone(),
                sha256,
                status: Status::Broken,
                since_ms,
                error: Some(error),
                limits: Limits::default(),
                compile_time: None,
                pin: pin_status(file),
            });
        };
        if let Some(problem) = &file.problem {
            add(problem.sha256.clone(), problem.since_ms, problem.message.clone());
        }
        if let Some(pinned) = &file.pinned
            && let Some(problem) = &pinned.problem
        {
            add(None, pinned.pin.since_ms, problem.clone());
        }
    }
    broken
}

fn pin_status(file: &Tracked) -> Option<PinStatus> {
    let pin = &file.pinned.as_ref()?.pin;
    let of_good = file.good.as_ref().map(|good| good.module.sha256().to_owned());
    let of_problem = file.problem.as_ref().and_then(|problem| problem.sha256.clone());
    Some(PinStatus {
        wanted: pin.wanted.clone().unwrap_or_else(|error| error),
        since_ms: pin.since_ms,
        folder_sha256: of_problem.or(of_good),
    })
}

fn status(kind: &Name, candidate: &Candidate<'_>, limits: Limits) -> HandlerStatus {
    HandlerStatus {
        kind: kind.to_string(),
        file: candidate.path.to_owned(),
        sha256: Some(candidate.good.module.sha256().to_owned()),
        status: Status::Active,
        since_ms: candidate.good.since_ms,
        error: None,
        limits,
        compile_time: Some(candidate.good.module.compile_time().unwrap_or_default()),
        pin: pin_status(candidate.file),
    }
}

fn limits(declared: Option<&Declared>, sandbox: &Sandbox) -> Limits {
    let default = Limits::default();
    Limits {
        timeout_ms: declared.and_then(|d| d.timeout_ms).unwrap_or(default.timeout_ms),
        memory_bytes: default.memory_bytes.min(sandbox.memory_bytes_max()),
        ..default
    }
}

fn handler(
    kind: &Name,
    path: &Path,
    module: &Arc<Module>,
    declared: Option<&Declared>,
    limits: Limits,
) -> Handler {
    let sha256 = module.sha256().to_owned();
    Handler {
        kind: kind.clone(),
        file: PathBuf::from(path),
        hash: sha256.chars().take(12).collect(),
        sha256,
        module: Arc::clone(module),
        limits,
        max_attempts: declared.and_then(|d| d.max_attempts).unwrap_or(MAX_ATTEMPTS_DEFAULT),
        backoff: declared.and_then(|d| d.backoff).unwrap_or_default(),
        keep_results: declared.is_some_and(|d| d.keep_results),
        grants: Arc::default(),
        concurrency: None,
        weight: 1,
        retention_finished: None,
        retention_dead: None,
    }
}
