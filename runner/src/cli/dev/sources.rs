//! The files of a project that people write, and whether their contents have changed. No events, no clock: a look at
//! the folder is the truth.
//!
//! What builds leave behind is not looked at, so that a build does not set off the next one: folders that are known
//! for it, modules, and files that change with every build and with nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folders that hold what tools made, or what is no source of a handler.
const IGNORED_FOLDERS: [&str; 9] =
    ["target", "node_modules", "dist", "build", "__pycache__", "venv", "env", "fixtures", "pkg"];
/// A larger file is known by its length and times alone, in bytes.
const HASHED_BYTES_MAX: u64 = 4 << 20;
/// More files than a project of handlers has: whatever is beyond is not looked at.
const FILES_MAX: usize = 20_000;

/// A file as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Length, inode and times: as long as these stand, so do the contents.
    facts: (u64, u64, i64, i64, i64, i64),
    contents: [u8; 32],
}

/// The files of one project.
#[derive(Debug)]
pub(super) struct Sources {
    root: PathBuf,
    files: BTreeMap<PathBuf, Seen>,
    folders: BTreeSet<PathBuf>,
    /// Files that changed while builds ran, and how often in a row.
    suspects: BTreeMap<PathBuf, u32>,
    outputs: BTreeSet<PathBuf>,
}

/// So often a file changes during builds, one after the other, before it counts as what they make.
const SUSPECT_MAX: u32 = 2;

impl Sources {
    /// Nothing of the folder is known yet: the first look finds all.
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            suspects: BTreeMap::new(),
            outputs: BTreeSet::new(),
        }
    }

    /// Looks again. The files that have changed, come or gone since the last look.
    pub(super) fn look(&mut self) -> Vec<PathBuf> {
        let before = std::mem::take(&mut self.files);
        self.folders.clear();
        let root = self.root.clone();
        self.walk(&root, &before);
        let changed = self
            .files
            .iter()
            .filter(|(path, seen)| before.get(*path).is_none_or(|was| was.contents != seen.contents));
        let gone = before.keys().filter(|path| !self.files.contains_key(*path));
        let all: Vec<PathBuf> = changed.map(|(path, _)| path).chain(gone).cloned().collect();
        all.into_iter().filter(|path| !self.outputs.contains(path)).collect()
    }

    /// Looks after a build, which may have written among the sources. The files for which there is to be another
    /// build.
    pub(super) fn look_after_build(&mut self) -> Vec<PathBuf> {
        let changed = self.look();
        self.suspects.retain(|path, _| changed.contains(path));
        for path in &changed {
            let times = self.suspects.entry(path.clone()).or_insert(0);
            *times += 1;
            if *times >= SUSPECT_MAX {
                self.outputs.insert(path.clone());
            }
        }
        // Cargo writes its lock file when it builds for the first time.
        let is_lock = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name == "Cargo.lock" || name == "package-lock.json")
        };
        changed.into_iter().filter(|path| !is_lock(path) && !self.outputs.contains(path)).collect()
    }

    /// The folders that hold sources, the project's own among them.
    pub(super) fn folders(&self) -> &BTreeSet<PathBuf> {
        &self.folders
    }

    fn walk(&mut self, dir: &Path, before: &BTreeMap<PathBuf, Seen>) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        self.folders.insert(dir.to_owned());
        for entry in entries.filter_map(Result::ok) {
            if self.files.len() >= FILES_MAX {
                return;
            }
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // Links are followed for files alone: a folder that is linked may lead back up.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if !is_ignored_folder(&name) {
                    self.walk(&path, before);
                }
            } else if !is_ignored_file(&name)
                && let Ok(metadata) = fs::metadata(&path)
                && metadata.is_file()
                && let Some(seen) = see(&path, &metadata, before.get(&path))
            {
                self.files.insert(path, seen);
            }
        }
    }
}

fn is_ignored_folder(name: &str) -> bool {
    // `.cargo` holds settings of the build; `.git`, `.venv`, `.hourhand` and the like do not.
    IGNORED_FOLDERS.contains(&name) || (name.starts_with('.') && name != ".cargo")
}

/// Modules, and what editors put beside the file that they work on.
fn is_ignored_file(name: &str) -> bool {
    let ends = [".wasm", "~", ".swp", ".swx", ".tmp", ".staged", ".db", ".db-wal", ".db-shm"];
    ends.iter().any(|end| name.ends_with(end)) || name.starts_with(".#") || name == "4913"
}

fn see(path: &Path, metadata: &Metadata, before: Option<&Seen>) -> Option<Seen> {
    let m = metadata;
    let facts = (m.len(), m.ino(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    if let Some(before) = before.filter(|before| before.facts == facts) {
        return Some(before.clone());
    }
    let contents = if m.len() <= HASHED_BYTES_MAX {
        Sha256::digest(fs::read(path).ok()?).into()
    } else {
        Sha256::digest(format!("{facts:?}")).into()
    };
    Some(Seen { facts, contents })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
    }

    fn folder() -> (Folder, Sources) {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        let sources = Sources::new(folder.0.path().to_owned());
        (folder, sources)
    }

    #[test]
    fn a_change_is_one_of_contents_among_sources() {
        let (folder, mut sources) = folder();
        folder.write("src/lib.rs", "1");
        folder.write("target/release/lib.rs", "1");
        folder.write("greet.wasm", "1");
        folder.write(".git/index", "1");
        let lib = folder.0.path().join("src/lib.rs");
        assert_eq!(sources.look(), std::slice::from_ref(&lib));
        assert_eq!(sources.look(), [] as [PathBuf; 0]);
        folder.write("src/lib.rs", "1");
        assert_eq!(sources.look(), [] as [PathBuf; 0], "it was touched");
        folder.write("src/lib.rs", "2");
        assert_eq!(sources.look(), std::slice::from_ref(&lib));
        for made in
            ["target/release/lib.rs", "greet.wasm", "src/lib.rs~", ".git/index", "node_modules/a/b.js"]
        {
            folder.write(made, "2");
        }
        assert_eq!(sources.look(), [] as [PathBuf; 0]);
        folder.write(".cargo/config.toml", "");
        assert_eq!(sources.look(), [folder.0.path().join(".cargo/config.toml")]);
        fs::remove_file(&lib).expect("removed");
        assert_eq!(sources.look(), [lib]);
        assert!(sources.folders().contains(&folder.0.path().join("src")));
        assert!(!sources.folders().contains(&folder.0.path().join("target")));
    }

    #[test]
    fn what_each_build_writes_sets_off_no_endless_builds() {
        let (folder, mut sources) = folder();
        folder.write("src/lib.rs", "1");
        sources.look();
        let mut builds = 0;
        for n in 0..10 {
            folder.write("stamp.txt", &n.to_string());
            folder.write("Cargo.lock", &n.to_string());
            builds += 1;
            if sources.look_after_build().is_empty() {
                break;
            }
        }
        assert_eq!(builds, 2);
        folder.write("src/lib.rs", "2");
        assert_eq!(sources.look(), [folder.0.path().join("src/lib.rs")]);
        folder.write("stamp.txt", "again");
        assert!(sources.look_after_build().is_empty());
        folder.write("src/lib.rs", "3");
        assert_eq!(sources.look_after_build().len(), 1, "somebody saved while it was built");
    }
}
