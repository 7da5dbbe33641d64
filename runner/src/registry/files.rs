//! All files of the handlers folder: what a scan and a load change, and what is to be done next. No IO, no
//! clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::sandbox::Module;

use super::folder::{FileId, Seen};
use super::loading::{LoadOrder, Loaded};
use super::manifests::ManifestRead;
use super::pinned::PinOrder;
use super::tracked::Tracked;

/// All files of the folder, by path.
#[derive(Debug)]
pub(super) struct Files {
    bytes_max: u64,
    by_path: BTreeMap<PathBuf, Tracked>,
    /// The files of the first scan are those that `settled` waits for.
    scanned: bool,
}

impl Files {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, by_path: BTreeMap::new(), scanned: false }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PathBuf, &Tracked)> {
        self.by_path.iter()
    }

    /// Every file of the first scan is loaded, broken or gone, or does not come to rest.
    pub(super) fn initial_settled(&self, now: Monotonic) -> bool {
        !self.by_path.values().any(|file| file.keeps_the_start_waiting(now))
    }

    /// Takes in what one scan saw, and says what is to be loaded.
    pub(super) fn observe(&mut self, seen: Vec<Seen>, now: Monotonic, wall_ms: u64) -> Vec<LoadOrder> {
        let mut there = BTreeSet::new();
        for file in seen {
            there.insert(file.path.clone());
            let tracked =
                self.by_path.entry(file.path.clone()).or_insert_with(|| Tracked::new(file.stem.clone(), now));
            tracked.take_in(&file, !self.scanned, now, wall_ms);
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

    /// Which pinned versions are to be loaded.
    pub(super) fn pins_due(&mut self, now: Monotonic) -> Vec<PinOrder> {
        let order =
            |(path, file): (&PathBuf, &mut Tracked)| file.pinned.as_mut()?.order(path, &file.stem, now);
        self.by_path.iter_mut().filter_map(order).collect()
    }

    /// Takes in what became of a pinned version.
    pub(super) fn pin_loaded(&mut self, order: &PinOrder, loaded: Result<Arc<Module>, String>, wall_ms: u64) {
        if let Some(pinned) = self.by_path.get_mut(&order.path).and_then(|file| file.pinned.as_mut()) {
            pinned.loaded(order, loaded, wall_ms);
        }
    }

    /// Whatever does not serve is tried once more, whether it has changed or not.
    pub(super) fn try_again(&mut self) {
        self.by_path.values_mut().for_each(Tracked::try_again);
    }

    /// The manifests that are to be read now, by the path of their module.
    pub(super) fn manifests_due(&self, now: Monotonic) -> Vec<(PathBuf, FileId)> {
        self.by_path.iter().filter_map(|(path, file)| Some((path.clone(), file.manifest.due(now)?))).collect()
    }

    /// Takes in what a manifest says.
    pub(super) fn manifest_read(
        &mut self,
        path: &Path,
        id: FileId,
        read: ManifestRead,
        now: Monotonic,
        wall_ms: u64,
    ) {
        if let Some(file) = self.by_path.get_mut(path) {
            file.manifest.read(id, read, now, wall_ms);
        }
    }

    /// How long until a file needs another look that no event will bring.
    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        self.by_path.values().filter_map(|file| file.next_check(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Beside;
    use super::super::manifests::TrackedManifest;
    use super::super::tracked::Problem;
    use super::*;
    use crate::clock;
    use crate::sandbox::LoadError;
    use std::sync::Arc;

    const WALL_MS: u64 = 1_000_000;

    /// A folder with one file, on a clock that the test moves.
    struct Folder {
        files: Files,
        start: Monotonic,
        now_ms: u64,
        manifest: Beside,
    }

    impl Folder {
        fn new() -> Self {
            Self { files: Files::new(1_000), start: clock::monotonic(), now_ms: 0, manifest: Beside::Nothing }
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
                manifest: self.manifest,
                pin: None,
                absent: false,
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

    impl Folder {
        /// A scan beside a module that is long since known.
        fn scan_manifest(&mut self, now_ms: u64, manifest: Beside) -> bool {
            self.manifest = manifest;
            self.scan(now_ms, 10, 0);
            !self.files.manifests_due(self.now()).is_empty()
        }

        fn read(&mut self, manifest: Beside, text: &str) {
            let Beside::File(id) = manifest else { panic!("no file") };
            let read = match crate::manifest::parse("k.toml", text) {
                Ok(manifest) => ManifestRead::Good(Arc::new(manifest)),
                Err(problems) => ManifestRead::Broken(problems.to_string()),
            };
            self.files.manifest_read(Path::new("k.wasm"), id, read, self.now(), WALL_MS + self.now_ms);
        }

        fn manifest(&self) -> &TrackedManifest {
            &self.files.by_path.values().next().unwrap().manifest
        }

        fn timeout(&self) -> Option<u64> {
            self.manifest().good()?.timeout_ms
        }
    }

    fn manifest_of(inode: u64, len: u64, modified_ms: u64) -> Beside {
        Beside::File(FileId::fake(inode, len, modified_ms))
    }

    #[test]
    fn a_manifest_counts_when_it_was_quiet_and_goes_when_it_is_deleted() {
        let mut folder = Folder::new();
        let first = manifest_of(2, 5, WALL_MS);
        assert!(!folder.scan_manifest(0, first), "just written");
        assert!(folder.manifest().undecided() && !folder.files.initial_settled(folder.now()));
        assert!(folder.scan_manifest(250, first));
        folder.read(first, "timeout = '1s'");
        assert_eq!((folder.timeout(), folder.manifest().undecided()), (Some(1_000), false));
        assert!(!folder.scan_manifest(3_000, first), "known");
        // Moved in: at once, and the old one counts until then.
        let second = manifest_of(3, 5, WALL_MS);
        assert!(folder.scan_manifest(4_000, second));
        assert_eq!((folder.timeout(), folder.manifest().undecided()), (Some(1_000), false));
        folder.read(second, "timeout = '2s'");
        assert_eq!(folder.timeout(), Some(2_000));
        // What cannot be looked at is not gone, and one scan without it is not either.
        folder.scan_manifest(5_000, Beside::Unknown);
        folder.scan_manifest(6_000, Beside::Nothing);
        assert_eq!(folder.timeout(), Some(2_000));
        assert!(folder.files.next_check(folder.now()).is_some());
        folder.scan_manifest(6_500, Beside::Nothing);
        assert_eq!((folder.timeout(), folder.manifest().undecided()), (None, false));
    }

    #[test]
    fn a_broken_manifest_is_said_when_it_is_no_longer_young_and_the_good_one_counts_on() {
        let mut folder = Folder::new();
        let good = manifest_of(2, 5, 0);
        assert!(folder.scan_manifest(0, good));
        folder.read(good, "timeout = '1s'");
        let bad = manifest_of(2, 6, WALL_MS + 1_000);
        assert!(!folder.scan_manifest(1_000, bad));
        assert!(folder.scan_manifest(1_300, bad));
        folder.read(bad, "timeout = ");
        assert!(folder.manifest().problem().is_none(), "somebody may still be writing it");
        assert!(!folder.scan_manifest(1_400, bad), "not again and again");
        assert!(folder.scan_manifest(3_400, bad));
        folder.read(bad, "timeout = ");
        assert!(folder.manifest().problem().unwrap().message.starts_with("k.toml:1: "));
        assert_eq!(folder.timeout(), Some(1_000));
        assert!(!folder.scan_manifest(9_000, bad), "said once");
        let mended = manifest_of(2, 7, WALL_MS + 9_500);
        folder.scan_manifest(9_500, mended);
        assert!(folder.scan_manifest(9_800, mended));
        folder.read(mended, "timeout = '3s'");
        assert_eq!((folder.timeout(), folder.manifest().problem()), (Some(3_000), None));
    }

    #[test]
    fn a_broken_manifest_from_the_future_or_without_rest_is_said_all_the_same() {
        let mut folder = Folder::new();
        let future = manifest_of(2, 5, WALL_MS + 3_600_000);
        folder.scan_manifest(0, future);
        assert!(folder.scan_manifest(300, future));
        folder.read(future, "timeout = ");
        assert!(folder.scan_manifest(2_400, future));
        folder.read(future, "timeout = ");
        assert!(folder.manifest().problem().is_some() && !folder.manifest().undecided());

        let mut folder = Folder::new();
        for step in 0..130 {
            let manifest = manifest_of(2, 5, WALL_MS + step * 100);
            if folder.scan_manifest(step * 100, manifest) {
                folder.read(manifest, "timeout = ");
            }
        }
        assert!(folder.manifest().problem().is_some());
    }

    #[test]
    fn a_manifest_touched_without_end_is_read_every_two_seconds() {
        let mut folder = Folder::new();
        let mut reads = 0;
        for step in 0..600 {
            let manifest = manifest_of(2, 5, WALL_MS + step * 100);
            if folder.scan_manifest(step * 100, manifest) {
                reads += 1;
                folder.read(manifest, "timeout = '1s'");
            }
        }
        assert!((20..=30).contains(&reads), "{reads}");
        assert_eq!(folder.timeout(), Some(1_000));
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
    fn a_file_that_cannot_be_compiled_now_is_tried_again_with_nothing_known_of_it() {
        let mut folder = Folder::new();
        let order = folder.scan(0, 10, 0).unwrap();
        folder.end(&order, Loaded::NotNow("cannot start".to_owned()));
        assert_eq!(folder.problem().unwrap().message, "cannot start");
        assert!(folder.files.next_check(folder.now()).is_some());
        let order = folder.scan(2_000, 10, 0).expect("tried again");
        assert!(order.known.is_empty(), "{:?}", order.known);
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
    fn the_start_waits_for_the_load_thread_as_long_as_it_takes() {
        let mut folder = Folder::new();
        let order = folder.scan(0, 10, 0).unwrap();
        for minute in 1..=60 {
            // Its turn does not come; it is even written anew meanwhile.
            folder.scan(minute * 60_000, 10 + minute, WALL_MS + minute * 60_000);
            assert!(!folder.files.initial_settled(folder.now()), "after {minute} minutes");
        }
        folder.end(&order, Loaded::Changed);
        assert!(!folder.files.initial_settled(folder.now()), "it has changed once");
        let order = folder.scan(3_601_000, 70, WALL_MS + 3_600_000).unwrap();
        folder.now_ms += 60_000;
        assert!(!folder.files.initial_settled(folder.now()));
        folder.end(&order, Loaded::Known("aa".to_owned()));
        assert!(folder.files.initial_settled(folder.now()));
    }

    #[test]
    fn the_start_gives_up_a_file_that_keeps_changing_for_ten_seconds() {
        let mut folder = Folder::new();
        for step in 0..=100 {
            let now = step * 100;
            assert!(folder.scan(now, 10 + step, WALL_MS + now).is_none());
            assert!(!folder.files.initial_settled(folder.now()), "at {now} ms");
        }
        folder.scan(10_100, 200, WALL_MS + 10_100);
        assert!(folder.files.initial_settled(folder.now()));
        // Gone is no matter either.
        let mut folder = Folder::new();
        folder.scan(0, 10, WALL_MS);
        folder.scan_nothing(100);
        assert!(!folder.files.initial_settled(folder.now()));
        folder.scan_nothing(700);
        assert!(folder.files.initial_settled(folder.now()));
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
        // A young one only when its failure is reported: it may be a copy that has just paused.
        let mut folder = Folder::new();
        folder.scan(0, 10, WALL_MS);
        let order = folder.scan(300, 10, WALL_MS).unwrap();
        folder.fail(&order, "aa", refused());
        assert!(!folder.files.initial_settled(folder.now()));
        folder.scan(2_300, 10, WALL_MS);
        assert!(folder.problem().is_some() && folder.files.initial_settled(folder.now()));
        // What comes later is nobody's to wait for.
        assert!(Folder::new().files.initial_settled(folder.now()));
    }
}
