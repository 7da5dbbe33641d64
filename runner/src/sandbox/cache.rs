//! Compiled code, kept between starts.
//!
//! One file a module and engine, in a folder that only this user may enter: compiled code is native code.
//! Whatever is wrong with a file (truncated, flipped, of another engine) makes it a miss, never an error:
//! the module is compiled anew.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::own_dir;

use super::world::JOB_WIT;
use super::wrap::WRAPPER;

const MAGIC: &[u8; 8] = b"HHCODE01";
const HEADER_BYTES: usize = MAGIC.len() + 8 + 32;
/// All files together, in bytes; the least recently used go first.
const BYTES_MAX: u64 = 512 << 20;
const EXTENSION: &str = "code";

/// The folder, and what its files are good for.
#[derive(Debug)]
pub(super) struct CodeCache {
    dir: PathBuf,
    /// Engine version and settings, the interface, and the code that wraps: another one reads none of our files.
    compatibility: u64,
    bytes_max: u64,
}

impl CodeCache {
    /// Makes the folder, and refuses one that others may write or put another in the place of.
    pub(super) fn open(dir: PathBuf, engine: &Engine) -> io::Result<Self> {
        let dir = own_dir::make(&dir)?;
        Ok(Self { dir, compatibility: engine_compatibility(engine), bytes_max: BYTES_MAX })
    }

    fn path(&self, sha256: &str) -> PathBuf {
        self.dir.join(format!("{sha256}-{:016x}.{EXTENSION}", self.compatibility))
    }

    /// The compiled code of the module with this hash, if it is here and whole.
    pub(super) fn get(&self, sha256: &str, engine: &Engine) -> Option<Component> {
        let path = self.path(sha256);
        let file = fs::read(&path).ok()?;
        let code = checked(&file)?;
        // SAFETY: the code was written by this user's runner into a folder that nobody else may write
        // (checked in `open`), its hash is right, and wasmtime checks version and settings again.
        let component = unsafe { Component::deserialize(engine, code) }.ok()?;
        touch(&path);
        Some(component)
    }

    /// Keeps the code, which may be here already in the form that is kept. A failure is said and costs a
    /// compilation at the next start.
    pub(super) fn put(&self, sha256: &str, component: &Component, kept_form: Option<&[u8]>) {
        let result = match kept_form {
            Some(bytes) => self.write(sha256, |file| file.write_all(bytes)),
            None => component
                .serialize()
                .map_err(io::Error::other)
                .and_then(|code| self.write(sha256, |file| write_framed(file, &code))),
        };
        match result {
            Ok(()) => self.trim(),
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "compiled code could not be kept");
            }
        }
    }

    /// Under another name first, so that a reader and a crash never see half of it.
    fn write(&self, sha256: &str, put: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let path = self.path(sha256);
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = (|| {
            let mut file = File::create(&temporary)?;
            put(&mut file)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        })();
        if written.is_err() {
            // What is left of the attempt; if this fails too, `trim` takes it later.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the least recently used files until the rest fits.
    fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let mut files: Vec<(Duration, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                let name = entry.file_name();
                let ours = name.to_str().is_some_and(|n| n.ends_with(EXTENSION) || n.ends_with(".tmp"));
                let used = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
                ours.then(|| (used, metadata.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= self.bytes_max {
                return;
            }
            if fs::remove_file(&path).is_ok() {
                total -= size;
            }
        }
    }
}

/// What compiled code depends on: engine version and settings, the interface, and the code that wraps.
pub(super) fn engine_compatibility(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    (WRAPPER, JOB_WIT).hash(&mut hasher);
    hasher.finish()
}

/// Writes code in the form that is kept: what it is, how long it is, and its hash first.
pub(super) fn write_framed(out: &mut impl Write, code: &[u8]) -> io::Result<()> {
    out.write_all(MAGIC)?;
    out.write_all(&(code.len() as u64).to_le_bytes())?;
    out.write_all(&Sha256::digest(code))?;
    out.write_all(code)
}

/// The code in a file, if the file is whole.
pub(super) fn checked(file: &[u8]) -> Option<&[u8]> {
    let (header, code) = file.split_at_checked(HEADER_BYTES)?;
    let (magic, header) = header.split_at_checked(MAGIC.len())?;
    let (length, hash) = header.split_at_checked(8)?;
    let whole = magic == MAGIC
        && u64::from_le_bytes(length.try_into().ok()?) == code.len() as u64
        && Sha256::digest(code).as_slice() == hash;
    whole.then_some(code)
}

/// Marks a file as used now; where that fails, it merely goes earlier.
fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(UNIX_EPOCH + Duration::from_micros(crate::clock::wall_us()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component with nothing in it.
    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn engine() -> Engine {
        Engine::default()
    }

    fn only_file(dir: &Path) -> PathBuf {
        let files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }

    #[test]
    fn what_was_kept_comes_back_and_whatever_is_damaged_is_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, engine) = (dir.path().join("code"), engine());
        let cache = CodeCache::open(dir.clone(), &engine).unwrap();
        assert!(cache.get("aa", &engine).is_none());
        cache.put("aa", &Component::from_binary(&engine, EMPTY).unwrap(), None);
        assert!(cache.get("aa", &engine).is_some());
        assert!(cache.get("bb", &engine).is_none());

        let file = only_file(&dir);
        let whole = fs::read(&file).unwrap();
        let cuts =
            (0..HEADER_BYTES + 2).chain((HEADER_BYTES..whole.len()).step_by(4_096)).chain([whole.len() - 1]);
        for cut in cuts {
            fs::write(&file, &whole[..cut]).unwrap();
            assert!(cache.get("aa", &engine).is_none(), "cut at {cut}");
        }
        for at in (0..HEADER_BYTES).chain((HEADER_BYTES..whole.len()).step_by(97)) {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&file, &flipped).unwrap();
            assert!(cache.get("aa", &engine).is_none(), "flipped at {at}");
        }
        // What is damaged is written anew.
        cache.put("aa", &Component::from_binary(&engine, EMPTY).unwrap(), None);
        assert!(cache.get("aa", &engine).is_some());
    }

    #[test]
    fn an_engine_with_other_settings_reads_none_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let one = engine();
        let cache = CodeCache::open(dir.path().join("code"), &one).unwrap();
        cache.put("aa", &Component::from_binary(&one, EMPTY).unwrap(), None);
        let other = Engine::new(wasmtime::Config::new().epoch_interruption(true)).unwrap();
        let cache = CodeCache::open(dir.path().join("code"), &other).unwrap();
        assert!(cache.get("aa", &other).is_none());
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let engine = engine();
        let mut cache = CodeCache::open(dir.path().join("code"), &engine).unwrap();
        let component = Component::from_binary(&engine, EMPTY).unwrap();
        for (age_s, hash) in [(30, "aa"), (20, "bb"), (10, "cc")] {
            cache.put(hash, &component, None);
            let used = Duration::from_micros(crate::clock::wall_us()) - Duration::from_secs(age_s);
            File::open(cache.path(hash)).unwrap().set_modified(UNIX_EPOCH + used).unwrap();
        }
        assert!(cache.get("aa", &engine).is_some(), "used just now");
        let size = fs::metadata(cache.path("aa")).unwrap().len();
        cache.bytes_max = 2 * size;
        cache.trim();
        assert!(cache.get("bb", &engine).is_none());
        assert!(cache.get("aa", &engine).is_some() && cache.get("cc", &engine).is_some());
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("code");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        let error = CodeCache::open(shared, &engine()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
