//! Session files: how a restart on the same host knows that its predecessor is gone.
//!
//! Each session locks a file of its own for as long as its process lives; the kernel frees the lock
//! when that ends, however it ends. A file whose lock can be taken belongs to a session that is gone,
//! and its jobs may be taken over at once. Names and process ids prove nothing: they are not asked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::queue::SessionId;

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
        let file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
        file.lock()?;
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
        let made = SessionFile::create(&self.state_dir, store_identity, &self.session);
        let made = made.inspect_err(|error| {
            tracing::warn!(
                %error, dir = %self.state_dir.display(),
                "cannot keep a session file: after a crash, jobs wait for the lease; choose another --state-dir"
            );
        });
        *self.file.lock() = made.ok();
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
        let mut found = Vec::new();
        let entries = match fs::read_dir(folder(state_dir, store_identity)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { found }),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            let Some(session) = session_of(&path) else { continue };
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            match file.try_lock() {
                Ok(()) => found.push((session, path, file)),
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
        drop(crashed);
        fs::write(&path, "").unwrap();

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
    fn a_file_follows_the_name_of_its_store() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFile::new(dir.path(), &id("mine"));
        let there = |store: &str| folder(dir.path(), store).join("mine.session").exists();
        kept.keep("store1");
        assert!(there("store1"));
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
