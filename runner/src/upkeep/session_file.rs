//! Session files: how a restart on the same host knows that its predecessor is gone.
//!
//! Each session locks a file of its own for as long as its process lives; the kernel frees the lock
//! when that ends, however it ends. A file whose lock can be taken belongs to a session that is gone,
//! and its jobs may be taken over at once. Names and process ids prove nothing: they are not asked.
//!
//! Only one and the same kernel can say so. Where the folder is shared between machines (NFS, a cluster's volume), locks
//! may be each machine's own, or be given up by a server that did not hear from it. So a file names the boot of its machine, which all of its
//! containers share, and a lock counts only within one boot: other files are left to the lease.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::clock::{self, HostClock, SystemClock};
use crate::queue::SessionId;

/// Files of other boots are removed after so long, in milliseconds: the lease has long dealt with their sessions.
const OTHER_BOOT_KEPT_MS: u128 = 24 * 3_600 * 1_000;

/// A new session's locked file. Dropping it removes the file and frees the lock.
pub struct SessionFile {
    path: PathBuf,
    _locked: File,
}

/// The file of a runner's session, in the folder of the store as it is called at the moment.
pub struct KeptFile {
    state_dir: PathBuf,
    session: SessionId,
    file: Mutex<Option<SessionFile>>,
}

/// Files of sessions that are gone, each locked by us so that no second runner recovers it too.
pub struct GoneSessions {
    found: Vec<(SessionId, PathBuf, File)>,
}

impl SessionFile {
    /// Makes and locks the file of `session`, in the folder of this store.
    ///
    /// # Errors
    /// When the folder cannot be made or written.
    pub fn create(state_dir: &Path, store_identity: &str, session: &SessionId) -> io::Result<Self> {
        let dir = folder(state_dir, store_identity);
        make_private(&dir)?;
        // Locked before it has its name: nobody ever sees it free.
        let unnamed = dir.join(format!("{session}.new"));
        let mut file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
        file.lock()?;
        file.write_all(SystemClock.boot_id().as_bytes())?;
        let path = dir.join(format!("{session}.session"));
        fs::rename(&unnamed, &path)?;
        Ok(Self { path, _locked: file })
    }
}

impl KeptFile {
    /// No file yet.
    pub fn new(state_dir: &Path, session: &SessionId) -> Self {
        Self { state_dir: state_dir.to_owned(), session: session.clone(), file: Mutex::new(None) }
    }

    /// Makes the file for the store of this name, and removes the one before. Where none can be kept (a read-only system), a restart
    /// is noticed by the lease only: that is said.
    pub fn keep(&self, store_identity: &str) {
        let mut kept = self.file.lock();
        let dir = folder(&self.state_dir, store_identity);
        if kept.as_ref().is_some_and(|file| file.path.parent() == Some(&*dir)) {
            return;
        }
        let made = SessionFile::create(&self.state_dir, store_identity, &self.session);
        let made = made.inspect_err(|error| {
            tracing::warn!(
                %error, dir = %self.state_dir.display(),
                "cannot keep a session file: after a crash, jobs wait for the lease; choose another --state-dir"
            );
        });
        *kept = made.ok();
    }

    /// The session has ended with nothing in hand.
    pub fn remove(&self) {
        self.file.lock().take();
    }

    /// Leaves the file to whoever starts next: this session ends with jobs in hand.
    pub fn leave(&self) {
        // The lock goes with the process.
        std::mem::forget(self.file.lock().take());
    }
}

impl Drop for SessionFile {
    fn drop(&mut self) {
        // While locked: nobody else can take it for a gone session in between.
        let _ = fs::remove_file(&self.path);
    }
}

impl GoneSessions {
    /// Finds and locks the files of this store's sessions whose processes are gone.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn find(state_dir: &Path, store_identity: &str) -> io::Result<Self> {
        Self::of_boot(state_dir, store_identity, SystemClock.boot_id())
    }

    fn of_boot(state_dir: &Path, store_identity: &str, boot: &str) -> io::Result<Self> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(folder(state_dir, store_identity)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { found }),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            let Some(session) = session_of(&path) else { continue };
            let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
            match file.try_lock() {
                Ok(()) if is_of_boot(&mut file, boot)? => found.push((session, path, file)),
                Ok(()) if is_old(&file)? => fs::remove_file(&path)?,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Self { found })
    }

    /// Which sessions.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.found.iter().map(|(session, _, _)| session.clone()).collect()
    }

    /// Their jobs have been taken over: the files are of no more use.
    pub fn forget(self) {
        for (_, path, _locked) in self.found {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether the session of a file began in this boot of this machine.
fn is_of_boot(file: &mut File, boot: &str) -> io::Result<bool> {
    let mut written = String::new();
    // What is no text is nobody's boot.
    match file.take(1_024).read_to_string(&mut written) {
        Ok(_) => Ok(written == boot && !boot.is_empty() && boot != clock::BOOT_UNKNOWN),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_old(file: &File) -> io::Result<bool> {
    let modified = file.metadata()?.modified()?;
    let modified_ms = modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Ok(u128::from(clock::wall_ms()).saturating_sub(modified_ms) > OTHER_BOOT_KEPT_MS)
}

fn folder(state_dir: &Path, store_identity: &str) -> PathBuf {
    state_dir.join("sessions").join(store_identity)
}

fn session_of(path: &Path) -> Option<SessionId> {
    let name = path.file_name()?.to_str()?.strip_suffix(".session")?;
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| SessionId(name.into()))
}

fn make_private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> SessionId {
        SessionId(name.into())
    }

    #[test]
    fn a_live_session_is_not_gone_and_a_dead_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let live = SessionFile::create(dir.path(), "store1", &id("live")).unwrap();
        let crashed = SessionFile::create(dir.path(), "store1", &id("crashed")).unwrap();
        // A crash frees the lock and leaves the file.
        let path = crashed.path.clone();
        let left = fs::read(&path).unwrap();
        drop(crashed);
        fs::write(&path, left).unwrap();

        let gone = GoneSessions::find(dir.path(), "store1").unwrap();
        assert_eq!(gone.sessions(), [id("crashed")]);
        let second = GoneSessions::find(dir.path(), "store1").unwrap();
        assert_eq!(second.sessions(), [], "somebody is recovering it");
        gone.forget();
        assert!(!path.exists());
        drop(live);
        assert_eq!(GoneSessions::find(dir.path(), "store1").unwrap().sessions(), []);
    }

    #[test]
    fn the_lock_of_another_machine_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = SessionFile::create(dir.path(), "store1", &id("theirs")).unwrap();
        let path = file.path.clone();
        // As it looks where locks are not shared.
        fs::write(&path, "another boot").unwrap();
        let bytes = fs::read(&path).unwrap();
        drop(file);
        fs::write(&path, bytes).unwrap();
        assert_eq!(GoneSessions::find(dir.path(), "store1").unwrap().sessions(), []);
        assert!(path.exists(), "it may be somebody's");
        let gone = GoneSessions::of_boot(dir.path(), "store1", "another boot").unwrap();
        assert_eq!(gone.sessions(), [id("theirs")]);
        drop(gone);
        for unknown in ["", clock::BOOT_UNKNOWN] {
            fs::write(&path, unknown).unwrap();
            assert_eq!(
                GoneSessions::of_boot(dir.path(), "store1", unknown).unwrap().sessions(),
                [],
                "{unknown:?}"
            );
        }
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        File::open(&path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(GoneSessions::find(dir.path(), "store1").unwrap().sessions(), []);
        assert!(!path.exists(), "the lease has dealt with it");
    }

    #[test]
    fn a_file_follows_the_name_of_its_store() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFile::new(dir.path(), &id("mine"));
        let there = |store: &str| folder(dir.path(), store).join("mine.session").exists();
        for again in ["a file", "the same file"] {
            kept.keep("store1");
            assert!(there("store1"), "{again}");
        }
        kept.keep("store2");
        assert!(!there("store1") && there("store2"));
        kept.leave();
        assert!(there("store2"), "left to whoever starts next");
        kept.keep("store3");
        kept.remove();
        assert!(!there("store3"));
    }

    #[test]
    fn another_store_and_foreign_files_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(GoneSessions::find(dir.path(), "none").unwrap().sessions(), []);
        let folder = folder(dir.path(), "store1");
        fs::create_dir_all(&folder).unwrap();
        for name in ["notes.txt", ".session", "a b.session", "..session"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(GoneSessions::find(dir.path(), "store1").unwrap().sessions(), []);
        assert_eq!(GoneSessions::find(dir.path(), "store2").unwrap().sessions(), []);
    }
}
