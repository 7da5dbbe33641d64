//! What the tests share: opening the store, and looking at its file from outside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hourhand::clock::monotonic;
use hourhand::queue::sqlite::{Durability, SqliteOptions, SqliteStore};
use rusqlite::Connection;

use crate::bed::name;
use crate::sqlite_audit::audit;

/// How long anything may take that should be soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The store in a file, as a user has it.
pub(crate) fn store(path: &Path) -> SqliteStore {
    store_with(path, SqliteOptions::default())
}

/// The store in a file, without waiting for the disk: for tests of something else.
pub(crate) fn quick_store(path: &Path) -> SqliteStore {
    store_with(path, SqliteOptions { durability: Durability::Normal, ..SqliteOptions::default() })
}

pub(crate) fn store_with(path: &Path, options: SqliteOptions) -> SqliteStore {
    SqliteStore::open(path, &name("faults"), options).expect("a path")
}

/// A connection of a stranger.
pub(crate) fn stranger(path: &Path) -> Connection {
    let client = Connection::open(path).expect("opened");
    client.busy_timeout(PATIENCE).expect("set");
    client
}

/// The database is whole, and so is what the store has in it.
pub(crate) fn assert_whole(path: &Path) {
    let client = stranger(path);
    let verdict: String =
        client.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("the check answers");
    assert_eq!(verdict, "ok");
    assert_eq!(audit(&client), Vec::<String>::new());
}

/// A file that SQLite keeps beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// How many bytes a file has; 0 when there is none.
pub(crate) fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Looks until something is true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let until = monotonic() + PATIENCE;
    while !is_true() {
        assert!(monotonic() < until, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a store, and waits until its file is closed.
pub(crate) fn close(store: SqliteStore, path: &Path) {
    drop(store);
    eventually("the store closes its file", || !beside(path, "-wal").exists());
}

/// Says something to whoever reads the output of the tests.
#[allow(clippy::print_stdout, reason = "a measurement, for who wants to see it")]
pub(crate) fn tell(text: &str) {
    println!("{text}");
}
