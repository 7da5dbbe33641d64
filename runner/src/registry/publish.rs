//! From what is known of the files to a [`Snapshot`]: which file serves which kind, and how each is
//! doing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::config::Problems;
use crate::manifest::{self, Effective, Operator};
use crate::names::Name;
use crate::sandbox::{Limits, Module, Sandbox};

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
    /// Serves if this one is chosen.
    handler: Arc<Handler>,
    since_ms: u64,
    notes: Vec<String>,
}

impl Published {
    /// The snapshot for what is known now; `None` when it is the one that is out already.
    pub(super) fn next(
        &mut self,
        files: &Files,
        sandbox: &Sandbox,
        operator: &Operator,
        wall_ms: u64,
    ) -> Option<Snapshot> {
        let mut statuses = broken_files(files);
        let candidates = self.candidates(files, sandbox, operator, &mut statuses, wall_ms);
        let mut handlers = BTreeMap::new();
        for (kind, mut of_kind) in candidates {
            // The file that is named after the kind, else the first by name.
            of_kind.sort_by_key(|candidate| (candidate.file.stem != kind.as_str(), candidate.path));
            for (place, candidate) in of_kind.iter().enumerate() {
                let mut status = status(candidate);
                if place == 0 {
                    handlers.insert(kind.clone(), Arc::clone(&candidate.handler));
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
        self.say(&statuses);
        self.generation += 1;
        self.handlers = handlers.clone();
        self.files = statuses.clone();
        Some(Snapshot { generation: self.generation, handlers, files: statuses })
    }

    /// Who could serve what. A file whose newest manifest is not good, or not known yet, stays as it was: what was published
    /// of it serves on.
    fn candidates<'a>(
        &self,
        files: &'a Files,
        sandbox: &Sandbox,
        operator: &Operator,
        statuses: &mut Vec<HandlerStatus>,
        wall_ms: u64,
    ) -> BTreeMap<Name, Vec<Candidate<'a>>> {
        let mut candidates: BTreeMap<Name, Vec<Candidate<'a>>> = BTreeMap::new();
        for (path, file) in files.iter() {
            let Some(good) = file.serving() else { continue };
            let manifest = &file.manifest;
            let made = match manifest.problem() {
                _ if manifest.undecided() => None,
                Some(problem) => {
                    statuses.push(broken_manifest(path, file, problem.message.clone(), problem.since_ms));
                    None
                }
                None => match made(path, file, good, sandbox, operator) {
                    Ok(made) => Some(made),
                    Err(problems) => {
                        statuses.push(self.disagreeing(path, file, good, &problems.to_string(), wall_ms));
                        None
                    }
                },
            };
            let of_file = match made {
                Some(made) => made
                    .into_iter()
                    .map(|(handler, notes)| Candidate {
                        path,
                        file,
                        handler: self.known(handler),
                        since_ms: good.since_ms.max(manifest.since_ms()),
                        notes,
                    })
                    .collect(),
                None => self.as_published(path, file),
            };
            for candidate in of_file {
                candidates.entry(candidate.handler.kind.clone()).or_default().push(candidate);
            }
        }
        candidates
    }
    /// The handler that is out already, where it is the same, so that jobs and drains see one version as one.
    fn known(&self, handler: Handler) -> Arc<Handler> {
        match self.handlers.get(&handler.kind) {
            Some(current) if same(current, &handler) => Arc::clone(current),
            _ => Arc::new(handler),
        }
    }

    /// What serves of a file now.
    fn as_published<'a>(&self, path: &'a Path, file: &'a Tracked) -> Vec<Candidate<'a>> {
        let of_file = self.handlers.values().filter(|handler| handler.file == path);
        let candidate = |handler: &Arc<Handler>| {
            let active = |s: &&HandlerStatus| s.status == Status::Active && s.kind == handler.kind.as_str();
            let status = self.files.iter().find(active);
            Candidate {
                path,
                file,
                handler: self.on_pinned_code(handler, file),
                since_ms: status.map_or(0, |status| status.since_ms),
                notes: status.map(|status| status.notes.clone()).unwrap_or_default(),
            }
        };
        of_file.map(candidate).collect()
    }

    /// The same handler on the version that is pinned: who goes back must not wait for a manifest that is mended.
    fn on_pinned_code(&self, handler: &Arc<Handler>, file: &Tracked) -> Arc<Handler> {
        let pinned = file.pinned.as_ref().filter(|pinned| pinned.is_met());
        let Some(good) = pinned.and_then(|pinned| pinned.good.as_ref()) else { return Arc::clone(handler) };
        let mut on_it = Handler::clone(handler);
        on_it.run_on(&good.module);
        self.known(on_it)
    }

    /// A module that serves nothing with its manifest, or without one: then there is no other file to blame.
    fn disagreeing(
        &self,
        path: &Path,
        file: &Tracked,
        good: &Good,
        message: &str,
        wall_ms: u64,
    ) -> HandlerStatus {
        let message = one_line(message);
        let of_manifest = file.manifest.good().is_some();
        let blamed = if of_manifest { path.with_extension("toml") } else { path.to_owned() };
        let same = |s: &&HandlerStatus| s.file == blamed && s.error.as_ref() == Some(&message);
        let since_ms = self.files.iter().find(same).map(|status| status.since_ms);
        if since_ms.is_none() && !of_manifest {
            tracing::error!(file = %blamed.display(), error = message, "handler does not serve");
        }
        let sha256 = (!of_manifest).then(|| good.module.sha256().to_owned());
        broken(blamed, &file.stem, sha256, message, since_ms.unwrap_or(wall_ms))
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
                notes: Vec::new(),
                ..of(old)
            };
            self.retired.push(Retired { handler: Arc::downgrade(old), status });
        }
        self.retired.retain(|retired| retired.handler.strong_count() > 0);
    }

    /// Logs what is new in the list and was not logged before: files that do not serve for another's or their manifest's sake,
    /// and what the layers do not agree about.
    fn say(&self, statuses: &[HandlerStatus]) {
        let is_new = |status: &&HandlerStatus| {
            !self.files.iter().any(|s| s.file == status.file && s.error == status.error)
        };
        for status in statuses.iter().filter(is_new) {
            let Some(error) = &status.error else { continue };
            if status.sha256.is_some() && error.contains("is already served by") {
                tracing::error!(file = %status.file.display(), error, "handler does not serve");
            } else if status.file.extension().is_some_and(|extension| extension == "toml") {
                tracing::error!(file = %status.file.display(), error, "manifest does not count");
            }
        }
        let said: BTreeSet<&String> = self.files.iter().flat_map(|status| &status.notes).collect();
        let notes: BTreeSet<&String> = statuses.iter().flat_map(|status| &status.notes).collect();
        for note in notes.difference(&said) {
            tracing::warn!("{note}");
        }
    }
}

fn same_handlers(a: &BTreeMap<Name, Arc<Handler>>, b: &BTreeMap<Name, Arc<Handler>>) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((ka, ha), (kb, hb))| ka == kb && Arc::ptr_eq(ha, hb))
}

/// Whether two handlers are one version: the same code of the same file, with the same limits, grants and policies.
fn same(a: &Handler, b: &Handler) -> bool {
    Arc::ptr_eq(&a.module, &b.module)
        && (&a.kind, &a.file, &a.limits, &a.grants) == (&b.kind, &b.file, &b.limits, &b.grants)
        && (a.max_attempts, a.attempts_cap, a.backoff, a.keep_results)
            == (b.max_attempts, b.attempts_cap, b.backoff, b.keep_results)
        && (a.concurrency, a.weight, a.retention_finished, a.retention_dead)
            == (b.concurrency, b.weight, b.retention_finished, b.retention_dead)
}

/// The handlers of a file by its module, its manifest and the operator's word, each with what they do not agree about.
fn made(
    path: &Path,
    file: &Tracked,
    good: &Good,
    sandbox: &Sandbox,
    operator: &Operator,
) -> Result<Vec<(Handler, Vec<String>)>, Problems> {
    let declared = good.module.declared();
    let manifest = file.manifest.good().map(|manifest| &**manifest);
    let kinds = manifest::kinds(&file.stem, declared, manifest)?;
    let made = kinds.iter().map(|kind| {
        let declared = declared.iter().find(|declared| declared.kind == *kind);
        let effective = manifest::effective(kind, declared, manifest, operator)?;
        Ok(handler(kind, path, &good.module, effective, sandbox))
    });
    made.collect()
}

/// Files whose newest contents do not load, and pins that cannot be followed.
fn broken_files(files: &Files) -> Vec<HandlerStatus> {
    let mut all = Vec::new();
    for (path, file) in files.iter() {
        let mut add = |sha256, error: &str, since_ms| {
            let broken = broken(path.clone(), &file.stem, sha256, error.to_owned(), since_ms);
            all.push(HandlerStatus { pin: pin_status(file), ..broken });
        };
        if let Some(problem) = &file.problem {
            add(problem.sha256.clone(), &problem.message, problem.since_ms);
        }
        if let Some(pinned) = &file.pinned
            && let Some(problem) = &pinned.problem
        {
            add(None, problem, pinned.pin.since_ms);
        }
    }
    all
}

/// A module whose manifest does not count.
fn broken_manifest(path: &Path, file: &Tracked, message: String, since_ms: u64) -> HandlerStatus {
    broken(path.with_extension("toml"), &file.stem, None, one_line(&message), since_ms)
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

fn one_line(message: &str) -> String {
    message.replace('\n', "; ")
}

fn broken(file: PathBuf, stem: &str, sha256: Option<String>, error: String, since_ms: u64) -> HandlerStatus {
    HandlerStatus {
        kind: stem.to_owned(),
        file,
        sha256,
        status: Status::Broken,
        since_ms,
        error: Some(error),
        limits: Limits::default(),
        grants: Arc::default(),
        concurrency: None,
        weight: 1,
        notes: Vec::new(),
        build: None,
        pin: None,
    }
}

/// A handler as lists have it.
fn of(handler: &Handler) -> HandlerStatus {
    HandlerStatus {
        kind: handler.kind.to_string(),
        file: handler.file.clone(),
        sha256: Some(handler.sha256.clone()),
        status: Status::Active,
        since_ms: 0,
        error: None,
        limits: handler.limits.clone(),
        grants: Arc::clone(&handler.grants),
        concurrency: handler.concurrency,
        weight: handler.weight,
        notes: Vec::new(),
        build: Some(handler.module.build().clone()),
        pin: None,
    }
}

fn status(candidate: &Candidate<'_>) -> HandlerStatus {
    let notes = candidate.notes.clone();
    HandlerStatus {
        since_ms: candidate.since_ms,
        notes,
        pin: pin_status(candidate.file),
        ..of(&candidate.handler)
    }
}

fn handler(
    kind: &Name,
    path: &Path,
    module: &Arc<Module>,
    effective: Effective,
    sandbox: &Sandbox,
) -> (Handler, Vec<String>) {
    let sha256 = module.sha256().to_owned();
    let mut limits = effective.limits;
    limits.memory_bytes = limits.memory_bytes.min(sandbox.memory_bytes_max());
    let handler = Handler {
        kind: kind.clone(),
        file: PathBuf::from(path),
        hash: sha256.chars().take(12).collect(),
        sha256,
        module: Arc::clone(module),
        limits,
        max_attempts: effective.max_attempts,
        backoff: effective.backoff,
        keep_results: effective.keep_results,
        grants: Arc::new(effective.grants),
        concurrency: effective.concurrency,
        weight: effective.weight,
        attempts_cap: effective.attempts_cap,
        retention_finished: effective.retention_finished,
        retention_dead: effective.retention_dead,
    };
    (handler, effective.notes)
}
