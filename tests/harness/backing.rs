//! The store of a test: a Redis of its own, or an SQLite file in a folder of its own. A scenario that is written
//! against a [`Backing`] runs on both by [`on_both_stores!`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hourhand::names::Name;
use hourhand::queue::Store;
use hourhand::queue::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

use super::at_redis;
use super::redis_server::RedisServer;

/// Makes two tests of each scenario, one a store: functions of this module that take a [`StoreKind`].
macro_rules! on_both_stores {
    ($($scenario:ident)+) => {
        mod on_redis {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::harness::backing::StoreKind::Redis);
            })+
        }
        mod on_sqlite {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::harness::backing::StoreKind::Sqlite);
            })+
        }
    };
}
pub(crate) use on_both_stores;

/// Where a Redis keeps its append-only file, in its folder.
const AOF_DIR: &str = "appendonlydir";

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a folder's entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copy a file");
    }
}

/// Which store a scenario runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Redis,
    Sqlite,
}

impl StoreKind {
    /// An empty store.
    pub fn start(self) -> Backing {
        match self {
            Self::Redis => Backing::Redis(RedisServer::start()),
            Self::Sqlite => Backing::Sqlite(SqliteFile::new()),
        }
    }

    /// An empty store that [`Backing::take_away`] and [`Backing::bring_back`] work on.
    pub fn start_lasting(self) -> Backing {
        match self {
            Self::Redis => Backing::Redis(RedisServer::start_with_aof()),
            Self::Sqlite => self.start(),
        }
    }
}

/// The store of one test. It ends with it.
pub enum Backing {
    Redis(RedisServer),
    Sqlite(SqliteFile),
}

impl Backing {
    /// Where it is.
    pub fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Sqlite(file) => file.url(),
        }
    }

    /// Makes an embedded store, which the first who puts something into it would make.
    pub fn make(&self) {
        if let Self::Sqlite(file) = self {
            let namespace = Name::new("hourhand").expect("a name");
            let store =
                SqliteStore::open(&file.path(), &namespace, SqliteOptions::default()).expect("a path");
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(store.identity()).expect("a new store");
        }
    }

    /// Lets it answer no call that changes anything, for so long: a script that does not end, or a process that
    /// keeps the file's write lock.
    pub fn block(&self, span: Duration) {
        match self {
            Self::Redis(server) => at_redis::block(server, span),
            Self::Sqlite(file) => {
                let lock = file.lock();
                std::thread::sleep(span);
                drop(lock);
            }
        }
    }

    /// Takes it out of reach for whatever changes it, until [`bring_back`](Self::bring_back). What it holds stays.
    pub fn take_away(&mut self) {
        match self {
            Self::Redis(server) => server.kill(),
            Self::Sqlite(file) => file.held = Some(file.lock()),
        }
    }

    /// Ends what [`take_away`](Self::take_away) did.
    pub fn bring_back(&mut self) {
        match self {
            Self::Redis(server) => server.restart(),
            Self::Sqlite(file) => file.held = None,
        }
    }

    /// Nobody is told of what is written, until [`unmute`](Self::unmute).
    pub fn mute(&self) {
        match self {
            Self::Redis(server) => {
                at_redis::command(server, &["ACL", "SETUSER", "default", "resetchannels"]);
            }
            Self::Sqlite(file) => {
                let trigger = "CREATE TRIGGER mute BEFORE INSERT ON wakes BEGIN SELECT RAISE(IGNORE); END";
                file.client().execute_batch(trigger).expect("a trigger");
            }
        }
    }

    /// Ends what [`mute`](Self::mute) did.
    pub fn unmute(&self) {
        match self {
            Self::Redis(server) => {
                at_redis::command(server, &["ACL", "SETUSER", "default", "allchannels"]);
            }
            Self::Sqlite(file) => file.client().execute_batch("DROP TRIGGER mute").expect("it was there"),
        }
    }

    /// Loses everything, while it goes on.
    pub fn empty(&self) {
        match self {
            Self::Redis(server) => {
                at_redis::command(server, &["FLUSHALL"]);
            }
            Self::Sqlite(file) => file.remove(),
        }
    }

    /// Everything that it holds, for [`go_back`](Self::go_back). Needs a store that lasts.
    pub fn backup(&self) -> TempDir {
        let backup = tempfile::tempdir().expect("a folder for a backup");
        match self {
            Self::Redis(server) => copy_files(&server.dir().join(AOF_DIR), backup.path()),
            Self::Sqlite(file) => {
                let copy = backup.path().join("hourhand.db");
                let copied = file.client().execute("VACUUM INTO ?1", [copy.to_str().expect("a plain path")]);
                copied.expect("a backup");
            }
        }
        backup
    }

    /// Loses everything that came after a backup: a Redis that crashed and starts with a shorter log, a file that somebody has put
    /// in the place of the other.
    pub fn go_back(&mut self, to: &TempDir) {
        match self {
            Self::Redis(server) => {
                server.kill();
                let live = server.dir().join(AOF_DIR);
                fs::remove_dir_all(&live).expect("remove the log");
                fs::create_dir(&live).expect("a folder for the log");
                copy_files(to.path(), &live);
                server.restart();
            }
            Self::Sqlite(file) => {
                let staged = file.dir.path().join("staged.db");
                fs::copy(to.path().join("hourhand.db"), &staged).expect("a copy of the backup");
                file.remove();
                fs::rename(staged, file.path()).expect("put in its place");
            }
        }
    }

    /// Deletes the registration of every session, behind the store's back.
    pub fn forget_sessions(&self) {
        match self {
            Self::Redis(server) => {
                at_redis::command(server, &["DEL", "hourhand:{0}:sessions"]);
            }
            Self::Sqlite(file) => {
                let gone = file.client().execute("DELETE FROM sessions", []).expect("sessions are a table");
                assert!(gone > 0, "there were sessions");
            }
        }
    }
}

/// A database that is made by whoever uses it first.
pub struct SqliteFile {
    dir: TempDir,
    held: Option<WriteLock>,
}

impl SqliteFile {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder for the store"), held: None }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("hourhand.db")
    }

    pub fn url(&self) -> String {
        format!("sqlite://{}", self.path().display())
    }

    /// Deletes the file and those beside it.
    fn remove(&self) {
        for name in ["hourhand.db", "hourhand.db-wal", "hourhand.db-shm"] {
            let _ = fs::remove_file(self.dir.path().join(name));
        }
    }

    /// A connection of a stranger, which has no part in the store's own care.
    pub fn client(&self) -> Connection {
        client(&self.path())
    }

    /// Takes the lock that every write needs, and keeps it until it is dropped.
    pub fn lock(&self) -> WriteLock {
        WriteLock::take(&self.path())
    }
}

fn client(path: &Path) -> Connection {
    let client = Connection::open(path).expect("open the database");
    client.busy_timeout(Duration::from_secs(30)).expect("patience");
    client
}

/// The file's write lock in the hands of somebody else.
pub struct WriteLock(Connection);

impl WriteLock {
    fn take(path: &Path) -> Self {
        let client = client(path);
        client.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
        Self(client)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        let _ = self.0.execute_batch("ROLLBACK");
    }
}
