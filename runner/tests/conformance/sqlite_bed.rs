//! The SQLite store's bed: a file in a folder of its own, and a hand inside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use hourhand::clock::{HostClock, SystemClock};
use hourhand::job::JobView;
use hourhand::queue::sqlite::{Durability, SqlEdit, SqliteOptions, SqliteStore};
use hourhand::queue::{Lane, SessionId};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::bed::{Bed, NAMESPACE, name};
use crate::sqlite_audit::audit;

/// A file with one namespace in use.
pub(crate) struct SqliteBed {
    folder: TempDir,
    clock: Arc<SteppedClock>,
    store: SqliteStore,
}

/// The machine's clocks, moved by hand, in microseconds: both when time passes, the wall clock alone when it is set.
#[derive(Default)]
struct SteppedClock {
    passed: AtomicU64,
    set: AtomicI64,
}

impl HostClock for SteppedClock {
    fn wall_us(&self) -> u64 {
        (SystemClock.wall_us() + self.passed.load(Relaxed)).saturating_add_signed(self.set.load(Relaxed))
    }

    fn boot_us(&self) -> u64 {
        SystemClock.boot_us() + self.passed.load(Relaxed)
    }

    fn boot_id(&self) -> &str {
        SystemClock.boot_id()
    }
}

/// The fault that tests/mutants wants in the SQL: a JSON array of store, text, replacement.
fn faults() -> Vec<SqlEdit> {
    let Ok(text) = std::env::var("HOURHAND_SQL_MUTANT") else { return Vec::new() };
    let (find, replace): (String, String) = serde_json::from_str(&text).expect("a mutant");
    vec![SqlEdit { find, replace }]
}

fn open(folder: &TempDir, clock: &Arc<SteppedClock>, namespace: &str, durability: Durability) -> SqliteStore {
    let clock = Arc::clone(clock) as Arc<dyn HostClock>;
    let options = SqliteOptions { clock, durability, sql_edits: faults(), ..SqliteOptions::default() };
    SqliteStore::open(&folder.path().join("jobs.db"), &name(namespace), options).expect("a path")
}

impl SqliteBed {
    /// Where the file is.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("jobs.db")
    }

    /// The bed's namespace in another file.
    pub(crate) fn open_at(&self, path: &std::path::Path) -> SqliteStore {
        SqliteStore::open(path, &name(NAMESPACE), SqliteOptions::default()).expect("a path")
    }

    /// A connection of a stranger.
    pub(crate) fn client(&self) -> Connection {
        let client = Connection::open(self.folder.path().join("jobs.db")).expect("opened");
        client.busy_timeout(std::time::Duration::from_secs(10)).expect("set");
        client
    }

    fn change(&self, sql: &str, params: impl rusqlite::Params) -> usize {
        self.client().execute(sql, params).expect("changed")
    }
}

#[async_trait]
impl Bed for SqliteBed {
    type S = SqliteStore;

    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::default();
        let store = open(&folder, &clock, NAMESPACE, Durability::Full);
        Self { folder, clock, store }
    }

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn open(&self, namespace: &str) -> SqliteStore {
        // Nobody pulls the plug.
        open(&self.folder, &self.clock, namespace, Durability::Normal)
    }

    async fn lose_record(&self, job: &JobView) {
        let gone = self.change("DELETE FROM jobs WHERE id = ?1", [job.job.id.as_str()]);
        assert_eq!(gone, 1, "the record was there");
    }

    async fn spoil_index(&self, lane: &Lane) {
        for (due_ms, place, attempt) in [(-1, 901, 0), (0, 902, 0), (5, 903, -1)] {
            let sql = "INSERT INTO waiting SELECT lane, 2, ?1, ?2, ?2, ?3, 0 FROM lanes JOIN queues USING (queue) \
                       WHERE name = ?4 AND kind = ?5";
            let added = self.change(sql, (due_ms, place, attempt, lane.queue.as_str(), lane.kind.as_str()));
            assert_eq!(added, 1, "there is such a lane");
        }
    }

    async fn foreign_data(&self) -> Vec<u8> {
        self.client()
            .execute_batch("ALTER TABLE kept RENAME TO kept_before; CREATE TABLE kept (something TEXT);")
            .expect("changed");
        self.contents().await
    }

    async fn contents(&self) -> Vec<u8> {
        let client = self.client();
        let mut tables = client
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'clock' ORDER BY name")
            .expect("a query");
        let names: Vec<String> =
            tables.query_map([], |row| row.get(0)).and_then(|rows| rows.collect()).expect("the tables");
        let mut all = String::new();
        for table in names {
            let mut statement = client.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a query");
            let columns = statement.column_count();
            let mut rows = statement.query([]).expect("rows");
            while let Some(row) = rows.next().expect("a row") {
                for column in 0..columns {
                    all.push_str(&format!("{table} {:?}\n", row.get_ref(column).expect("a value")));
                }
            }
        }
        all.into_bytes()
    }

    async fn audit(&self) -> Vec<String> {
        audit(&self.client())
    }

    async fn backup(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let copy = self.folder.path().join("backup.db");
        let _ = std::fs::remove_file(&copy);
        self.change("VACUUM INTO ?1", [copy.to_str().expect("a plain path")]);
        vec![(Vec::new(), std::fs::read(&copy).expect("a backup"))]
    }

    async fn go_back(&self, to: &[(Vec<u8>, Vec<u8>)]) {
        let path = self.path();
        for suffix in ["", "-wal", "-shm"] {
            let mut file = path.clone().into_os_string();
            file.push(suffix);
            let _ = std::fs::remove_file(file);
        }
        if let [(_, content)] = to {
            let copy = self.folder.path().join("back.db");
            std::fs::write(&copy, content).expect("written");
            std::fs::rename(copy, path).expect("moved");
        }
    }

    async fn lose_session(&self, session: &SessionId) {
        let gone = self.change("DELETE FROM sessions WHERE session = ?1", [&*session.0]);
        assert_eq!(gone, 1, "the session was registered");
    }

    async fn step_clock(&self, ms: i64) -> bool {
        self.clock.set.fetch_add(ms * 1_000, Relaxed);
        true
    }

    async fn pass_time(&self, ms: u64) -> bool {
        self.clock.passed.fetch_add(ms * 1_000, Relaxed);
        true
    }
}
