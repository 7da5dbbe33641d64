//! What is known of each file of the folder, and what to do next about it. No IO, no clock of its own.
//!
//! A file is loaded when it has been quiet for a moment, at once when it was moved in (its contents are
//! old). A file that is touched without end is loaded all the same, once its length stands. A failure is held
//! back while the file is young, because a copy may still be under way; the last good version serves on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::names::Name;
use crate::sandbox::{LoadError, Module};

use super::folder::{FileId, Seen};
use super::loading::{LoadOrder, Loaded};

/// A file that did not change for so long is taken as complete.
const QUIET: Duration = Duration::from_millis(250);
/// The least time between two scans.
pub(super) const QUIET_CHECK: Duration = Duration::from_millis(50);
/// Contents older than this when first seen were moved in as a whole, in milliseconds.
const OLD_MS: u64 = 2_000;
/// A file that keeps changing its time is tried so often.
const RETRY: Duration = Duration::from_secs(2);
/// How long a file may look wrong, and how long it may end in the middle, before it is reported.
const HOLD_BACK: Duration = Duration::from_secs(2);
const HOLD_BACK_INCOMPLETE: Duration = Duration::from_secs(10);
/// Scans, and time, after which a file that is not there counts as deleted.
const MISSING_SCANS: u32 = 2;
const MISSING: Duration = Duration::from_millis(500);

/// All files of the folder, by path.
#[derive(Debug)]
pub(super) struct Files {
    bytes_max: u64,
    by_path: BTreeMap<PathBuf, Tracked>,
    /// The files of the first scan are those that `settled` waits for.
    scanned: bool,
}

/// One file.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) stem: String,
    id: Option<FileId>,
    first_seen: Monotonic,
    changed_at: Monotonic,
    length_changed_at: Monotonic,
    moved_in: bool,
    missing: Option<(u32, Monotonic)>,
    loading: bool,
    /// The state whose result is known.
    settled: Option<FileId>,
    /// Since when the state is another one.
    unsettled_at: Monotonic,
    tried_at: Option<Monotonic>,
    held: Option<Held>,
    pub(super) good: Option<Good>,
    pub(super) problem: Option<Problem>,
    /// Was there at the start, and nothing is known of it yet.
    initial: bool,
    manifest_said: bool,
}

/// The version that serves.
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

impl Files {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, by_path: BTreeMap::new(), scanned: false }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, &Tracked)> {
        self.by_path.iter()
    }

    /// Every file of the first scan was loaded, or tried, or has not come to rest for long.
    pub(super) fn initial_settled(&self, now: Monotonic) -> bool {
        let waits =
            |file: &Tracked| file.initial && now.duration_since(file.first_seen) < HOLD_BACK_INCOMPLETE;
        !self.by_path.values().any(waits)
    }

    /// Takes in what one scan saw, and says what is to be loaded.
    pub(super) fn observe(&mut self, seen: Vec<Seen>, now: Monotonic, wall_ms: u64) -> Vec<LoadOrder> {
        let mut there = std::collections::BTreeSet::new();
        for file in seen {
            there.insert(file.path.clone());
            let tracked =
                self.by_path.entry(file.path.clone()).or_insert_with(|| Tracked::new(file.stem.clone(), now));
            tracked.missing = None;
            tracked.initial |= !self.scanned && file.id.is_some();
            tracked.say_manifest(&file);
            if let Some(id) = file.id {
                tracked.see(id, now, wall_ms);
            }
        }
        self.scanned = true;
        self.by_path.retain(|path, file| there.contains(path) || !file.is_gone(path, now));
        let bytes_max = self.bytes_max;
        self.by_path
            .iter_mut()
            .filter(|(path, _)| there.contains(*path))
            .filter_map(|(path, file)| file.order(path, bytes_max, now, wall_ms))
            .collect()
    }

    /// Takes in what became of an order.
    pub(super) fn loaded(&mut self, order: &LoadOrder, loaded: Loaded, now: Monotonic, wall_ms: u64) {
        if let Some(file) = self.by_path.get_mut(&order.path) {
            file.loaded(order, loaded, now, wall_ms);
        }
    }

    /// How long until a file needs another look that no event will bring.
    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        self.by_path.values().filter_map(|file| file.next_check(now)).min()
    }
}

impl Tracked {
    fn new(stem: String, now: Monotonic) -> Self {
        Self {
            stem,
            id: None,
            first_seen: now,
            changed_at: now,
            length_changed_at: now,
            moved_in: false,
            missing: None,
            loading: false,
            settled: None,
            unsettled_at: now,
            tried_at: None,
            held: None,
            good: None,
            problem: None,
            initial: false,
            manifest_said: false,
        }
    }

    fn say_manifest(&mut self, file: &Seen) {
        if file.has_manifest && !self.manifest_said {
            self.manifest_said = true;
            let manifest = file.path.with_extension("toml");
            tracing::warn!(file = %manifest.display(), "manifests are not read by this version: what the module declares counts");
        }
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
        self.moved_in = id.age_ms(wall_ms) >= OLD_MS;
        self.id = Some(id);
        self.changed_at = now;
    }

    /// Whether a file that the scan did not see is to be forgotten.
    fn is_gone(&mut self, path: &std::path::Path, now: Monotonic) -> bool {
        let (scans, since) = self.missing.unwrap_or((0, now));
        self.missing = Some((scans + 1, since));
        let gone = scans + 1 >= MISSING_SCANS && now.duration_since(since) >= MISSING && !self.loading;
        if gone && self.good.is_some() {
            tracing::info!(file = %path.display(), "handler removed; its jobs wait");
        }
        gone
    }

    fn order(
        &mut self,
        path: &std::path::Path,
        bytes_max: u64,
        now: Monotonic,
        wall_ms: u64,
    ) -> Option<LoadOrder> {
        let id = self.id.filter(|_| !self.loading)?;
        if let Some(held) = self.held.take_if(|held| held.report_at <= now) {
            self.report(path, held.problem);
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
        let message = if self.stem.ends_with(".next") || self.stem == "schedules" {
            format!("the name {:?} is reserved", self.stem)
        } else if id.len > bytes_max {
            format!(
                "it is over the module limit of {bytes_max} bytes; build it with strip = true and lto = true"
            )
        } else {
            return None;
        };
        Some(Problem { sha256: None, message, since_ms })
    }

    fn loaded(&mut self, order: &LoadOrder, loaded: Loaded, now: Monotonic, wall_ms: u64) {
        self.loading = false;
        if !matches!(loaded, Loaded::Changed) {
            self.initial = false;
        }
        let current = self.id == Some(order.id);
        match loaded {
            Loaded::Known(sha256) => {
                if self.good.as_ref().is_some_and(|good| good.module.sha256() == sha256) {
                    self.problem = None;
                    self.held = None;
                }
                self.settled = Some(order.id);
            }
            Loaded::Version(module) => {
                let stem = if module.declared().is_empty() { Name::new(&self.stem).err() } else { None };
                if let Some(invalid) = stem {
                    let sha256 = Some(module.sha256().to_owned());
                    self.report(
                        &order.path,
                        Problem { sha256, message: invalid.to_string(), since_ms: wall_ms },
                    );
                } else {
                    self.good = Some(Good { module, since_ms: wall_ms });
                    self.problem = None;
                }
                self.held = None;
                self.settled = Some(order.id);
            }
            Loaded::Failed { sha256, error } => self.failed(order, sha256, &error, now, wall_ms),
            Loaded::Unreadable(message) => {
                let message = format!("cannot be read: {message}");
                self.report(&order.path, Problem { sha256: None, message, since_ms: wall_ms });
            }
            Loaded::Changed if current => {
                // The next scan sees what it is now.
                self.tried_at = None;
            }
            Loaded::Changed => {}
        }
    }

    fn failed(&mut self, order: &LoadOrder, sha256: String, error: &LoadError, now: Monotonic, wall_ms: u64) {
        let age = Duration::from_millis(order.id.age_ms(wall_ms));
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
    fn report(&mut self, path: &std::path::Path, problem: Problem) {
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

    fn next_check(&self, now: Monotonic) -> Option<Duration> {
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
        held.into_iter().chain(load).min().map(|wait| wait.max(QUIET_CHECK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const WALL_MS: u64 = 1_000_000;

    /// A folder with one file, on a clock that the test moves.
    struct Folder {
        files: Files,
        start: Monotonic,
        now_ms: u64,
    }

    impl Folder {
        fn new() -> Self {
            Self { files: Files::new(1_000), start: clock::monotonic(), now_ms: 0 }
        }

        fn now(&self) -> Monotonic {
            self.start + Duration::from_millis(self.now_ms)
        }

        /// A scan at `now_ms` that sees the file with this length and modification time.
        fn scan(&mut self, now_ms: u64, len: u64, modified_ms: u64) -> Option<LoadOrder> {
            self.now_ms = now_ms;
            let seen = Seen {
                path: PathBuf::from("k.wasm"),
                stem: "k".to_owned(),
                id: Some(FileId::fake(1, len, modified_ms)),
                has_manifest: false,
            };
            let mut orders = self.files.observe(vec![seen], self.now(), WALL_MS + now_ms);
            assert!(orders.len() <= 1);
            orders.pop()
        }

        fn scan_nothing(&mut self, now_ms: u64) {
            self.now_ms = now_ms;
            assert!(self.files.observe(Vec::new(), self.now(), WALL_MS + now_ms).is_empty());
        }

        fn end(&mut self, order: &LoadOrder, loaded: Loaded) {
            self.files.loaded(order, loaded, self.now(), WALL_MS + self.now_ms);
        }

        fn fail(&mut self, order: &LoadOrder, sha256: &str, error: LoadError) {
            self.end(order, Loaded::Failed { sha256: sha256.to_owned(), error });
        }

        fn problem(&self) -> Option<&Problem> {
            self.files.by_path.values().next()?.problem.as_ref()
        }
    }

    fn refused() -> LoadError {
        LoadError::Refused("no".to_owned())
    }

    #[test]
    fn a_file_is_loaded_when_it_was_quiet_and_then_not_again() {
        let mut folder = Folder::new();
        assert!(folder.scan(0, 10, WALL_MS).is_none(), "just written");
        assert!(folder.scan(200, 20, WALL_MS + 200).is_none(), "still written");
        assert!(folder.scan(400, 20, WALL_MS + 200).is_none());
        let order = folder.scan(450, 20, WALL_MS + 200).expect("quiet for 250 ms");
        assert!(folder.scan(800, 20, WALL_MS + 200).is_none(), "under way");
        folder.end(&order, Loaded::Known("aa".to_owned()));
        assert!(folder.scan(10_000, 20, WALL_MS + 200).is_none());
        assert_eq!(folder.files.next_check(folder.now()), None);
    }

    #[test]
    fn a_file_that_was_moved_in_is_loaded_at_once() {
        let mut folder = Folder::new();
        assert!(folder.scan(0, 10, WALL_MS - 2_000).is_some());
    }

    #[test]
    fn a_failure_of_a_young_file_is_held_back_and_then_reported_once() {
        for (error, held_ms) in [(refused(), 2_000), (LoadError::Incomplete("half".to_owned()), 10_000)] {
            let mut folder = Folder::new();
            folder.scan(0, 10, WALL_MS);
            let order = folder.scan(250, 10, WALL_MS).unwrap();
            folder.fail(&order, "aa", error.clone());
            assert!(folder.problem().is_none());
            let check = folder.files.next_check(folder.now()).unwrap();
            assert!(check <= Duration::from_millis(2_000), "{check:?}");
            assert!(folder.scan(held_ms - 100, 10, WALL_MS).is_none_or(|again| again.known == ["aa"]));
            folder.end(&order, Loaded::Known("aa".to_owned()));
            folder.scan(held_ms, 10, WALL_MS);
            let since = folder.problem().expect("reported").since_ms;
            // The same contents written anew are no new failure.
            folder.end(&order, Loaded::Known("aa".to_owned()));
            folder.scan(20_000, 10, WALL_MS + 20_000);
            let again = folder.scan(20_300, 10, WALL_MS + 20_000).unwrap();
            assert_eq!(again.known, ["aa"]);
            folder.fail(&again, "aa", error);
            assert_eq!(folder.problem().unwrap().since_ms, since);
        }
    }

    #[test]
    fn a_copy_that_pauses_and_goes_on_is_not_reported() {
        let mut folder = Folder::new();
        folder.scan(0, 10, WALL_MS);
        let half = folder.scan(300, 10, WALL_MS).unwrap();
        folder.fail(&half, "half", LoadError::Incomplete("half".to_owned()));
        for step in 0..200 {
            let now = 2_000 + step * 100;
            assert!(folder.scan(now, 20 + step, WALL_MS + now).is_none(), "still growing at {now}");
            assert!(folder.problem().is_none());
        }
        assert!(folder.scan(22_200, 219, WALL_MS + 21_900).is_some());
    }

    #[test]
    fn a_file_touched_without_end_is_tried_every_two_seconds_and_not_more() {
        let mut folder = Folder::new();
        let mut tried = Vec::new();
        for step in 0..600 {
            let now = step * 100;
            if let Some(order) = folder.scan(now, 10, WALL_MS + now) {
                tried.push(now);
                folder.end(&order, Loaded::Known("aa".to_owned()));
            }
        }
        assert!((20..=30).contains(&tried.len()), "{tried:?}");
        assert!(tried.windows(2).all(|pair| pair[1] - pair[0] >= 2_000), "{tried:?}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_tried_again_and_said_once() {
        let mut folder = Folder::new();
        let order = folder.scan(0, 10, 0).unwrap();
        folder.end(&order, Loaded::Unreadable("permission denied".to_owned()));
        let since = folder.problem().unwrap().since_ms;
        assert!(folder.scan(1_000, 10, 0).is_none());
        let order = folder.scan(2_000, 10, 0).expect("tried again");
        folder.end(&order, Loaded::Unreadable("permission denied".to_owned()));
        assert_eq!(folder.problem().unwrap().since_ms, since);
    }

    #[test]
    fn too_large_a_file_is_refused_unread_and_said_once_while_it_grows() {
        let mut folder = Folder::new();
        let mut first = None;
        for step in 0..20 {
            assert!(folder.scan(step * 1_000, 2_000 + step, WALL_MS + step * 1_000).is_none());
            assert!(folder.scan(step * 1_000 + 300, 2_000 + step, WALL_MS + step * 1_000).is_none());
            let problem = folder.problem().expect("said").clone();
            assert_eq!(first.get_or_insert(problem.clone()), &problem);
        }
    }

    #[test]
    fn a_file_is_forgotten_after_two_scans_without_it() {
        let mut folder = Folder::new();
        let order = folder.scan(0, 10, 0).unwrap();
        folder.end(&order, Loaded::Known("aa".to_owned()));
        folder.scan_nothing(2_000);
        assert_eq!(folder.files.iter().count(), 1);
        folder.scan(2_100, 10, 0);
        folder.scan_nothing(4_000);
        folder.scan_nothing(4_100);
        assert_eq!(folder.files.iter().count(), 1, "two scans, but hardly any time");
        folder.scan_nothing(4_500);
        assert_eq!(folder.files.iter().count(), 0);
    }

    #[test]
    fn what_was_there_first_is_settled_when_it_was_tried() {
        let mut folder = Folder::new();
        let order = folder.scan(0, 10, 0).unwrap();
        assert!(!folder.files.initial_settled(folder.now()));
        folder.end(&order, Loaded::Changed);
        assert!(!folder.files.initial_settled(folder.now()));
        let order = folder.scan(2_000, 10, 0).unwrap();
        folder.fail(&order, "aa", refused());
        assert!(folder.files.initial_settled(folder.now()));
        // What comes later is nobody's to wait for.
        assert!(Folder::new().files.initial_settled(folder.now()));
    }
}
