//! The manifest beside a module: when it is to be read, and what is known of it. No IO but for [`read`], no clock of its own.
//!
//! It is small, so that whoever scans the folder reads it at once, and a change to it waits for no compiler.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::config::Problems;
use crate::manifest::{self, MANIFEST_BYTES_MAX, Manifest};

use super::folder::{Beside, FileId};
use super::regular;
use super::tracked::{HOLD_BACK, MISSING, MISSING_SCANS, OLD_MS, Problem, QUIET, RESTLESS, RETRY};

/// See the module's text.
#[derive(Debug)]
pub(super) struct TrackedManifest {
    id: Option<FileId>,
    changed_at: Monotonic,
    /// Since when there has been a state that is not known.
    unsettled_at: Monotonic,
    moved_in: bool,
    missing: Option<(u32, Monotonic)>,
    tried_at: Option<Monotonic>,
    /// The state whose contents are known.
    settled: Option<FileId>,
    good: Option<Arc<Manifest>>,
    good_since_ms: u64,
    problem: Option<Problem>,
}

/// What became of reading a manifest.
#[derive(Debug)]
pub(super) enum ManifestRead {
    /// It is one.
    Good(Arc<Manifest>),
    /// It is none, for these reasons.
    Broken(String),
    /// It could not be read.
    Unreadable(String),
    /// It is not what was seen any more.
    Changed,
}

impl TrackedManifest {
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            id: None,
            changed_at: now,
            unsettled_at: now,
            moved_in: false,
            missing: None,
            tried_at: None,
            settled: None,
            good: None,
            good_since_ms: 0,
            problem: None,
        }
    }

    /// What counts: the last one that could be read.
    pub(super) fn good(&self) -> Option<&Arc<Manifest>> {
        self.good.as_ref()
    }

    /// Since when, in milliseconds since 1970.
    pub(super) fn since_ms(&self) -> u64 {
        self.good_since_ms
    }

    /// What is wrong with the newest one.
    pub(super) fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }

    /// There is one, and nothing is known of it or of any before it yet.
    pub(super) fn undecided(&self) -> bool {
        self.id.is_some() && self.good.is_none() && self.problem.is_none()
    }

    pub(super) fn keeps_the_start_waiting(&self, now: Monotonic) -> bool {
        self.undecided() && now.duration_since(self.unsettled_at) < RESTLESS
    }

    pub(super) fn take_in(&mut self, seen: Beside, now: Monotonic, wall_ms: u64) {
        match seen {
            Beside::Unknown => {}
            Beside::Nothing => self.see_nothing(now),
            Beside::File(id) => self.see(id, now, wall_ms),
        }
    }

    fn see(&mut self, id: FileId, now: Monotonic, wall_ms: u64) {
        self.missing = None;
        if self.id == Some(id) {
            return;
        }
        if self.id == self.settled {
            self.unsettled_at = now;
        }
        self.moved_in = id.age_ms(wall_ms) >= OLD_MS;
        self.id = Some(id);
        self.changed_at = now;
    }

    fn see_nothing(&mut self, now: Monotonic) {
        if self.id.is_none() {
            return;
        }
        let (scans, since) = self.missing.unwrap_or((0, now));
        self.missing = Some((scans + 1, since));
        if scans + 1 >= MISSING_SCANS && now.duration_since(since) >= MISSING {
            *self = Self::new(now);
        }
    }

    /// The state that is to be read now.
    pub(super) fn due(&self, now: Monotonic) -> Option<FileId> {
        let id = self.id.filter(|id| self.settled != Some(*id) && self.missing.is_none())?;
        let rested = self.tried_at.is_none_or(|tried| now.duration_since(tried) >= RETRY);
        let quiet = self.moved_in || now.duration_since(self.changed_at) >= QUIET;
        let tried_this = self.tried_at.is_some_and(|tried| tried >= self.changed_at);
        let restless = now.duration_since(self.unsettled_at) >= RETRY;
        (quiet && !tried_this || rested && (tried_this || restless)).then_some(id)
    }

    /// Takes in what became of reading it.
    pub(super) fn read(&mut self, id: FileId, read: ManifestRead, now: Monotonic, wall_ms: u64) {
        self.tried_at = Some(now);
        match read {
            ManifestRead::Good(manifest) => {
                if self.good.as_ref() != Some(&manifest) {
                    self.good = Some(manifest);
                    self.good_since_ms = wall_ms;
                }
                self.problem = None;
                self.settled = Some(id);
            }
            // Perhaps somebody still writes it: it is looked at once more.
            ManifestRead::Broken(_) if self.is_young(&id, now, wall_ms) => {}
            ManifestRead::Broken(message) => {
                self.fail(message, wall_ms);
                self.settled = Some(id);
            }
            ManifestRead::Unreadable(message) => self.fail(message, wall_ms),
            ManifestRead::Changed => self.tried_at = None,
        }
    }

    /// By its own time, by the time that we have seen it, and by that since which it has not come to rest: its own may be in the
    /// future.
    fn is_young(&self, id: &FileId, now: Monotonic, wall_ms: u64) -> bool {
        Duration::from_millis(id.age_ms(wall_ms)) < HOLD_BACK
            && now.duration_since(self.changed_at) < HOLD_BACK
            && now.duration_since(self.unsettled_at) < RESTLESS
    }

    fn fail(&mut self, message: String, since_ms: u64) {
        if self.problem.as_ref().is_none_or(|before| before.message != message) {
            self.problem = Some(Problem { sha256: None, message, since_ms });
        }
    }

    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        if self.missing.is_some() {
            return Some(MISSING);
        }
        self.id.filter(|id| self.settled != Some(*id))?;
        let at = match self.tried_at.filter(|tried| *tried >= self.changed_at) {
            Some(tried) => tried + RETRY,
            None if self.moved_in => now,
            None => self.changed_at + QUIET,
        };
        Some(at.saturating_duration_since(now))
    }
}

/// Reads the manifest of the module at `path`, if it is the one that was seen, before and after.
pub(super) fn read(path: &Path, id: &FileId) -> ManifestRead {
    let path = path.with_extension("toml");
    let shown = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match text(&path, id) {
        Ok(Some(text)) => match text {
            Ok(text) => parsed(&shown, &text),
            Err(message) => ManifestRead::Broken(format!("{shown}: {message}")),
        },
        Ok(None) => ManifestRead::Changed,
        // Gone between scan and reading: the next scan says so.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => ManifestRead::Changed,
        Err(error) => ManifestRead::Unreadable(format!("{shown}: cannot be read: {error}")),
    }
}

/// The manifest of the module at `path` as it lies there now, for whoever does not watch the folder. Blocking.
///
/// # Errors
/// All that is wrong with it.
pub fn manifest_beside(path: &Path) -> Result<Option<Manifest>, Problems> {
    let toml = path.with_extension("toml");
    let id = match fs::metadata(&toml) {
        Ok(metadata) if metadata.is_file() => FileId::of(&metadata),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Problems::one(format!("{}: cannot be read: {error}", toml.display()))),
    };
    match read(path, &id) {
        ManifestRead::Good(manifest) => Ok(Some((*manifest).clone())),
        ManifestRead::Broken(message) | ManifestRead::Unreadable(message) => Err(Problems::one(message)),
        ManifestRead::Changed => {
            Err(Problems::one(format!("{}: it has just changed: try again", toml.display())))
        }
    }
}

fn parsed(shown: &str, text: &str) -> ManifestRead {
    match manifest::parse(shown, text) {
        Ok(mut manifest) => {
            resolve_dirs(&mut manifest);
            ManifestRead::Good(Arc::new(manifest))
        }
        Err(problems) => ManifestRead::Broken(problems.to_string()),
    }
}

/// Folders with their links resolved, as the ceiling's are: a link must not lead out of it. One that is not there stays as it is.
pub(super) fn resolve_dirs(manifest: &mut Manifest) {
    for dir in &mut manifest.allow.dirs {
        if let Ok(real) = fs::canonicalize(&dir.host) {
            dir.host = real;
        }
    }
}

/// The whole file, or what is wrong with its form; `None` when it is not the one that was seen.
fn text(path: &Path, id: &FileId) -> std::io::Result<Option<Result<String, String>>> {
    let mut file = regular::open(path)?;
    if FileId::of(&file.metadata()?) != *id {
        return Ok(None);
    }
    if id.len > MANIFEST_BYTES_MAX {
        return Ok(Some(Err(format!("expected at most {MANIFEST_BYTES_MAX} bytes, got {}", id.len))));
    }
    let mut bytes = Vec::with_capacity(id.len as usize);
    (&mut file).take(id.len + 1).read_to_end(&mut bytes)?;
    if FileId::of(&file.metadata()?) != *id {
        return Ok(None);
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| "expected UTF-8 text, got other bytes".to_owned())))
}
