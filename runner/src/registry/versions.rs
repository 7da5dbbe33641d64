//! The last versions that were loaded, kept so that one can serve again: in the cache folder, where nobody else
//! may write, by the handlers folder and the module's name. A file is named by its hash, and is one only
//! while its bytes have it. Its time of modification tells when it was last loaded after another one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::{clock, own_dir};

/// Versions of one module that are kept.
pub const VERSIONS_KEPT: usize = 5;
/// All versions of all modules and folders together, in bytes and in number: the oldest go first.
const BYTES_MAX: u64 = 1 << 30;
const FILES_MAX: usize = 5_000;
const EXTENSION: &str = "wasm";

/// What is kept of one handlers folder.
#[derive(Debug, Clone)]
pub struct Versions {
    /// Of all handlers folders.
    root: PathBuf,
    /// Of this one.
    dir: PathBuf,
    writes: bool,
}

/// A version that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The hash of its bytes: 64 hex digits.
    pub sha256: String,
    /// When it was last loaded after another one, in milliseconds since 1970.
    pub since_ms: u64,
    /// Its size, in bytes.
    pub size_bytes: u64,
}

impl Versions {
    /// Of the handlers folder `handlers`, below `cache_dir`. Reads and makes nothing yet.
    pub fn of_folder(cache_dir: &Path, handlers: &Path) -> Self {
        // Links are not resolved: a deployment may put another folder under the same name.
        let handlers = std::path::absolute(handlers).unwrap_or_else(|_| handlers.to_owned());
        let key = sha256_of(handlers.as_os_str().as_encoded_bytes());
        let root = cache_dir.join("versions");
        Self { dir: root.join(&key[..16]), root, writes: true }
    }

    /// The same for somebody who only looks.
    pub fn read_only(self) -> Self {
        Self { writes: false, ..self }
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The versions of a module that are kept, the last one first; none where nothing was ever kept.
    ///
    /// # Errors
    /// When the folder cannot be read, or others may write it.
    pub fn list(&self, stem: &str) -> io::Result<Vec<Version>> {
        let dir = match own_dir::check(&self.dir.join(stem)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            checked => checked?,
        };
        let mut found: Vec<(Duration, Version)> = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let (name, metadata) = (entry.file_name(), entry.metadata()?);
            let Some(sha256) = name.to_str().and_then(hash_in) else { continue };
            let served = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let since_ms = served.as_millis() as u64;
            let version = Version { sha256: sha256.to_owned(), since_ms, size_bytes: metadata.len() };
            found.push((served, version));
        }
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.sha256.cmp(&b.1.sha256)));
        Ok(found.into_iter().map(|(_, version)| version).collect())
    }

    /// The modules of which there are versions.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn stems(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut stems: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        stems.sort();
        Ok(stems)
    }

    /// The bytes of a version, if they are here and whole.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn bytes(&self, stem: &str, sha256: &str) -> io::Result<Option<Vec<u8>>> {
        let dir = own_dir::check(&self.dir.join(stem))?;
        match fs::read(file_in(&dir, sha256)) {
            Ok(bytes) => Ok((sha256_of(&bytes) == sha256).then_some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps a version that was loaded. A failure is said: without it there is one version less to go back
    /// to.
    pub(super) fn keep(&self, stem: &str, sha256: &str, bytes: &[u8]) {
        if !self.writes {
            return;
        }
        if let Err(error) = self.try_keep(stem, sha256, bytes) {
            tracing::warn!(
                dir = %self.dir.display(), handler = stem, hash = &sha256[..12], %error,
                "this version cannot be kept: nobody can go back to it"
            );
        }
    }

    fn try_keep(&self, stem: &str, sha256: &str, bytes: &[u8]) -> io::Result<()> {
        let before = self.list(stem)?;
        if before.first().is_some_and(|version| version.sha256 == sha256) {
            return Ok(());
        }
        let dir = own_dir::make(&self.dir.join(stem))?;
        let path = file_in(&dir, sha256);
        // Runners in containers may share a cache, and all have the same number.
        let number = getrandom::u64().map_err(io::Error::other)?;
        let temporary = dir.join(format!(".{number:016x}.tmp"));
        let written = (|| {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.set_modified(UNIX_EPOCH + Duration::from_micros(clock::wall_us()))?;
            fs::rename(&temporary, &path)
        })();
        if written.is_err() {
            // What is left of the attempt; if this fails too, `trim` takes it later.
            let _ = fs::remove_file(&temporary);
        }
        written?;
        for old in self.list(stem)?.iter().skip(VERSIONS_KEPT) {
            fs::remove_file(file_in(&dir, &old.sha256))?;
        }
        trim(&self.root, BYTES_MAX, FILES_MAX);
        Ok(())
    }
}

/// Where a version is, in the folder of its module.
fn file_in(dir: &Path, sha256: &str) -> PathBuf {
    dir.join(format!("{sha256}.{EXTENSION}"))
}

/// The hash of some bytes: 64 hex digits.
pub fn sha256_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The hash in the name of a kept file.
fn hash_in(name: &str) -> Option<&str> {
    let hash = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    (hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hash)
}

/// Removes the oldest files below `root` until the rest fits.
fn trim(root: &Path, bytes_max: u64, files_max: usize) {
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<(Duration, u64, PathBuf)> = below(root.to_owned())
        .flat_map(below)
        .flat_map(below)
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?, metadata.len(), path))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    let mut number = files.len();
    for (_, size, path) in files {
        if total <= bytes_max && number <= files_max {
            return;
        }
        if fs::remove_file(&path).is_ok() {
            total -= size;
            number -= 1;
        }
        // Of a module, and of a folder, of which nothing is left. Others are not empty, and stay.
        for dir in path.ancestors().skip(1).take(2) {
            let _ = fs::remove_dir(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn versions(cache: &Path) -> Versions {
        Versions::of_folder(cache, Path::new("/srv/handlers"))
    }

    fn hashes(versions: &Versions) -> Vec<String> {
        versions.list("k").unwrap().into_iter().map(|version| version.sha256).collect()
    }

    #[test]
    fn the_last_five_are_kept_and_one_that_serves_again_is_the_last() {
        let cache = tempfile::tempdir().unwrap();
        let versions = versions(cache.path());
        assert_eq!(versions.list("k").unwrap(), []);
        let all: Vec<String> = (0..7_u8).map(|n| sha256_of(&[n])).collect();
        for (n, sha256) in (0..7_u8).zip(&all) {
            versions.keep("k", sha256, &[n]);
            versions.keep("k", sha256, &[n]);
        }
        let newest_first: Vec<String> = all.iter().rev().take(5).cloned().collect();
        assert_eq!(hashes(&versions), newest_first);
        versions.keep("k", &all[3], &[3]);
        assert_eq!(hashes(&versions)[..2], [all[3].clone(), all[6].clone()]);
        assert_eq!(versions.bytes("k", &all[3]).unwrap(), Some(vec![3]));
        assert_eq!(versions.bytes("k", &all[0]).unwrap(), None);
        assert_eq!(versions.stems().unwrap(), ["k"]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(versions.dir()), mode(&versions.dir().join("k"))), (0o700, 0o700));
        // Of another folder there is nothing.
        let other = Versions::of_folder(cache.path(), Path::new("/srv/other"));
        assert_eq!(other.list("k").unwrap(), []);
    }

    #[test]
    fn what_is_damaged_is_not_there_and_a_folder_that_others_may_write_is_not_trusted() {
        let cache = tempfile::tempdir().unwrap();
        let versions = versions(cache.path());
        let sha256 = sha256_of(b"module");
        versions.keep("k", &sha256, b"module");
        fs::write(file_in(&versions.dir().join("k"), &sha256), b"mOdule").unwrap();
        assert_eq!(versions.bytes("k", &sha256).unwrap(), None);
        fs::set_permissions(versions.dir().join("k"), fs::Permissions::from_mode(0o777)).unwrap();
        let error = versions.list("k").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(versions.bytes("k", &sha256).is_err());
    }

    #[test]
    fn who_only_looks_keeps_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let versions = versions(cache.path()).read_only();
        versions.keep("k", &sha256_of(b"module"), b"module");
        assert!(!versions.dir().exists());
    }

    #[test]
    fn all_together_are_bounded_and_the_oldest_go_first() {
        let cache = tempfile::tempdir().unwrap();
        let versions = versions(cache.path());
        for (stem, byte) in [("a", 1), ("b", 2), ("c", 3)] {
            let bytes = vec![byte; 100];
            versions.keep(stem, &sha256_of(&bytes), &bytes);
        }
        trim(&versions.root, 250, 10);
        assert_eq!(versions.stems().unwrap(), ["b", "c"]);
        trim(&versions.root, 250, 1);
        assert_eq!(versions.stems().unwrap(), ["c"]);
        trim(&versions.root, 0, 1);
        assert!(!versions.dir().exists() && versions.root.exists());
    }
}
