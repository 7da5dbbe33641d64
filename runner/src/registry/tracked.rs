//! One file of the handlers folder: when it is to be loaded, and what is known of it. No IO, no clock of
//! its own.
//!
//! A file is loaded when it has been quiet for a moment, at once when it was moved in (its contents are
//! old). A file that is touched without end is loaded all the same, once its length stands. A failure is held
//! back while the file is young, because a copy may still be under way; the last good version serves on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::sandbox::{LoadError, Module};

use super::folder::{FileId, Seen};
use super::loading::{LoadOrder, Loaded};
use super::manifests::TrackedManifest;
use super::pinned::Pinned;
use super::verdict;

/// A file that did not change for so long is taken as complete.
pub(super) const QUIET: Duration = Duration::from_millis(250);
/// The least time between two scans.
pub(super) const QUIET_CHECK: Duration = Duration::from_millis(50);
/// Contents older than this when first seen were moved in as a whole, in milliseconds.
pub(super) const OLD_MS: u64 = 2_000;
/// A file that keeps changing its time is tried so often.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// How long a file may look wrong, and how long it may end in the middle, before it is reported.
pub(super) const HOLD_BACK: Duration = Duration::from_secs(2);
const HOLD_BACK_INCOMPLETE: Duration = Duration::from_secs(10);
/// A file of the start that has changed again and again for so long is not waited for any more.
pub(super) const RESTLESS: Duration = Duration::from_secs(10);
/// Scans, and time, after which a file that is not there counts as deleted.
pub(super) const MISSING_SCANS: u32 = 2;
pub(super) const MISSING: Duration = Duration::from_millis(500);

/// One file.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) stem: String,
    id: Option<FileId>,
    changed_at: Monotonic,
    length_changed_at: Monotonic,
    moved_in: bool,
    /// It was written anew under our eyes: its own times need not be of our clock.
    in_place: bool,
    missing: Option<(u32, Monotonic)>,
    loading: bool,
    /// The state whose result is known.
    settled: Option<FileId>,
    /// Since when the state is another one.
    unsettled_at: Monotonic,
    tried_at: Option<Monotonic>,
    ordered_at: Monotonic,
    held: Option<Held>,
    pub(super) good: Option<Good>,
    pub(super) problem: Option<Problem>,
    pub(super) pinned: Option<Pinned>,
    /// Was there at the start, and nothing is known of it yet.
    initial: bool,
    /// Was there at the start.
    first_scan: bool,
    /// Since when it has been changing under our eyes. The time that it waited for the load thread is not
    /// counted: this moves on with it.
    changing_since: Option<Monotonic>,
    /// The manifest beside it.
    pub(super) manifest: TrackedManifest,
}

/// A version that may serve.
#[derive(Debug, Clone)]
pub(super) struct Good {
    pub(super) module: Arc<Module>,
    pub(super) since_ms: u64,
}

/// Why the newest contents do not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) sha256: Option<String>,
    pub(super) message: String,
    pub(super) since_ms: u64,
}

/// A failure that is not reported yet.
#[derive(Debug)]
struct Held {
    problem: Problem,
    report_at: Monotonic,
}

impl Tracked {
    pub(super) fn new(stem: String, now: Monotonic) -> Self {
        Self {
            stem,
            id: None,
            changed_at: now,
            length_changed_at: now,
            moved_in: false,
            in_place: false,
            missing: None,
            loading: false,
            settled: None,
            unsettled_at: now,
            tried_at: None,
            ordered_at: now,
            held: None,
            good: None,
            problem: None,
            pinned: None,
            initial: false,
            first_scan: false,
            changing_since: None,
            manifest: TrackedManifest::new(now),
        }
    }

    /// Takes in what a scan saw of it. `first_scan`: it was there at the start.
    pub(super) fn take_in(&mut self, seen: &Seen, first_scan: bool, now: Monotonic, wall_ms: u64) {
        self.take_in_pin(seen);
        self.first_scan |= first_scan;
        self.manifest.take_in(seen.manifest, now, wall_ms);
        if seen.absent {
            let known = self.id.is_some() || self.good.is_some() || self.problem.is_some();
            if known && self.is_missing(now) {
                let fresh = Self::new(self.stem.clone(), now);
                let gone = std::mem::replace(self, fresh);
                (self.pinned, self.manifest) = (gone.pinned, gone.manifest);
            }
            return;
        }
        self.missing = None;
        self.initial |= first_scan && seen.id.is_some();
        if let Some(id) = seen.id {
            self.see(id, now, wall_ms);
        }
    }

    fn take_in_pin(&mut self, seen: &Seen) {
        match (&seen.pin, &mut self.pinned) {
            (Some(pin), Some(pinned)) if pinned.pin.wanted == pin.wanted => {
                pinned.pin.since_ms = pin.since_ms
            }
            (Some(pin), _) => {
                let mut pinned = Pinned::new(&seen.path, pin.clone(), self.serving().cloned());
                pinned.offer(self.good.as_ref());
                self.pinned = Some(pinned);
            }
            (None, Some(_)) => {
                tracing::info!(file = %seen.path.display(), "handler unpinned: what lies in the folder serves");
                self.pinned = None;
            }
            (None, None) => {}
        }
    }

    /// The version that serves.
    pub(super) fn serving(&self) -> Option<&Good> {
        self.pinned.as_ref().map_or(self.good.as_ref(), |pinned| pinned.good.as_ref())
    }

    /// Forgets what is known of contents that do not serve, so that they are tried once more.
    pub(super) fn try_again(&mut self) {
        if self.problem.take().is_some() {
            self.settled = None;
            self.tried_at = None;
        }
        if let Some(pinned) = &mut self.pinned {
            pinned.try_again();
        }
    }

    /// It was there at the start, nothing is known of it yet, and it is not one that never comes to rest.
    /// However long it waits for its turn to be loaded, it counts.
    pub(super) fn keeps_the_start_waiting(&self, now: Monotonic) -> bool {
        let restless = self.changing_since.is_some_and(|since| now.duration_since(since) >= RESTLESS);
        let waits_for_pin = self.pinned.as_ref().is_some_and(Pinned::is_open);
        self.initial && (self.loading || !restless)
            || self.first_scan && self.manifest.keeps_the_start_waiting(now)
            || waits_for_pin
    }

    fn see(&mut self, id: FileId, now: Monotonic, wall_ms: u64) {
        if self.id == Some(id) {
            return;
        }
        if self.id == self.settled {
            self.unsettled_at = now;
        }
        if !self.id.is_some_and(|before| before.same_length(&id)) {
            self.length_changed_at = now;
            // Other contents: what was wrong with the old ones is no matter any more.
            self.held = None;
        }
        if self.id.is_some() {
            self.changing_since.get_or_insert(now);
        }
        self.in_place = self.id.is_some_and(|before| before.same_file(&id));
        self.moved_in = !self.in_place && id.age_ms(wall_ms) >= OLD_MS;
        self.id = Some(id);
        self.changed_at = now;
    }

    /// Whether a file that the scan did not see is to be forgotten.
    pub(super) fn is_gone(&mut self, path: &Path, now: Monotonic) -> bool {
        let gone = self.is_missing(now);
        if gone && self.serving().is_some() {
            tracing::info!(file = %path.display(), "handler removed; its jobs wait");
        }
        gone
    }

    /// Notes that a scan did not see the file. True when it has been missing for long enough.
    fn is_missing(&mut self, now: Monotonic) -> bool {
        let (scans, since) = self.missing.unwrap_or((0, now));
        self.missing = Some((scans + 1, since));
        scans + 1 >= MISSING_SCANS && now.duration_since(since) >= MISSING && !self.loading
    }

    pub(super) fn order(
        &mut self,
        path: &Path,
        bytes_max: u64,
        now: Monotonic,
        wall_ms: u64,
    ) -> Option<LoadOrder> {
        let id = self.id.filter(|_| !self.loading)?;
        if let Some(held) = self.held.take_if(|held| held.report_at <= now) {
            self.report(path, held.problem);
            self.initial = false;
        }
        if self.settled == Some(id) || !self.is_due(now) {
            return None;
        }
        if let Some(problem) = self.refuse_unread(id, bytes_max, wall_ms) {
            self.report(path, problem);
            self.settled = Some(id);
            self.initial = false;
            return None;
        }
        self.loading = true;
        self.ordered_at = now;
        self.tried_at = Some(now);
        let good = self.good.as_ref().map(|good| good.module.sha256().to_owned());
        let bad = self.problem.as_ref().and_then(|problem| problem.sha256.clone());
        let held = self.held.as_ref().and_then(|held| held.problem.sha256.clone());
        let known = good.into_iter().chain(bad).chain(held).collect();
        Some(LoadOrder { path: path.to_owned(), stem: self.stem.clone(), id, known })
    }

    fn is_due(&self, now: Monotonic) -> bool {
        let rested = self.tried_at.is_none_or(|tried| now.duration_since(tried) >= RETRY);
        let quiet = self.moved_in || now.duration_since(self.changed_at) >= QUIET;
        let tried_this = self.tried_at.is_some_and(|tried| tried >= self.changed_at);
        // Touched without end: its length stands, and so do its contents, most probably.
        let restless = now.duration_since(self.unsettled_at) >= RETRY
            && now.duration_since(self.length_changed_at) >= RETRY;
        (quiet && (!tried_this || rested && self.held.is_none())) || (restless && rested)
    }

    /// What is wrong with a file whose contents need not be read to know.
    fn refuse_unread(&self, id: FileId, bytes_max: u64, since_ms: u64) -> Option<Problem> {
        let message = verdict::refused_unread(&self.stem, id.len, bytes_max)?;
        Some(Problem { sha256: None, message, since_ms })
    }

    pub(super) fn loaded(&mut self, order: &LoadOrder, loaded: Loaded, now: Monotonic, wall_ms: u64) {
        self.loading = false;
        if let Some(since) = &mut self.changing_since {
            *since += now.duration_since(self.ordered_at.max(*since));
        }
        let current = self.id == Some(order.id);
        let changed = matches!(loaded, Loaded::Changed);
        match loaded {
            Loaded::Known(sha256) => {
                if self.good.as_ref().is_some_and(|good| good.module.sha256() == sha256) {
                    self.problem = None;
                    self.held = None;
                }
                self.settled = Some(order.id);
            }
            Loaded::Version(module) => {
                self.good = Some(Good { module, since_ms: wall_ms });
                self.problem = None;
                self.held = None;
                self.settled = Some(order.id);
            }
            Loaded::Failed { sha256, error } => self.failed(order, sha256, &error, now, wall_ms),
            Loaded::Unreadable(message) => {
                let message = format!("cannot be read: {message}");
                self.report(&order.path, Problem { sha256: None, message, since_ms: wall_ms });
            }
            Loaded::NotNow(message) => {
                self.report(&order.path, Problem { sha256: None, message, since_ms: wall_ms });
            }
            Loaded::Changed if current => {
                // The next scan sees what it is now.
                self.tried_at = None;
            }
            Loaded::Changed => {}
        }
        if let Some(pinned) = &mut self.pinned {
            pinned.offer(self.good.as_ref());
        }
        // A failure that is held back is not known yet: a copy may be under way.
        self.initial &= changed || self.held.is_some();
    }

    fn failed(&mut self, order: &LoadOrder, sha256: String, error: &LoadError, now: Monotonic, wall_ms: u64) {
        let age = match self.in_place {
            true => now.duration_since(self.changed_at),
            false => Duration::from_millis(order.id.age_ms(wall_ms)),
        };
        let hold = match error {
            LoadError::Incomplete(_) => HOLD_BACK_INCOMPLETE,
            _ => HOLD_BACK,
        };
        let problem = Problem { sha256: Some(sha256), message: error.to_string(), since_ms: wall_ms };
        let same_as_held = self.held.as_ref().is_some_and(|held| held.problem.sha256 == problem.sha256);
        if age >= hold {
            self.held = None;
            self.report(&order.path, problem);
            self.settled = Some(order.id);
        } else if !same_as_held {
            self.held = Some(Held { problem, report_at: now + (hold - age) });
        }
    }

    /// Says what is wrong, once for each content.
    fn report(&mut self, path: &Path, problem: Problem) {
        let same = |before: &Problem| {
            before.sha256 == problem.sha256 && (before.sha256.is_some() || before.message == problem.message)
        };
        if self.problem.as_ref().is_some_and(same) {
            return;
        }
        let serving = self.good.as_ref().map_or("none", |good| &good.module.sha256()[..12]);
        tracing::error!(file = %path.display(), error = problem.message, serving, "handler does not load");
        self.problem = Some(problem);
    }

    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        let until = |at: Monotonic| at.saturating_duration_since(now);
        if self.missing.is_some() {
            return Some(MISSING);
        }
        let held = self.held.as_ref().map(|held| until(held.report_at));
        let unsettled = self.id.is_some_and(|id| self.settled != Some(id)) && !self.loading;
        let load = unsettled.then(|| match self.tried_at.filter(|tried| *tried >= self.changed_at) {
            Some(tried) => until(tried + RETRY),
            None => until(self.changed_at + QUIET),
        });
        let pin = self.pinned.as_ref().and_then(|pinned| pinned.next_check(now));
        held.into_iter()
            .chain(load)
            .chain(pin)
            .chain(self.manifest.next_check(now))
            .min()
            .map(|wait| wait.max(QUIET_CHECK))
    }
}
