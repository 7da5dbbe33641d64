//! Wounds that the file can be dealt behind the store's back: the doctor finds each, and mends it so that the audit, which
//! knows nothing of the doctor, finds nothing wrong any more.

use hourhand::queue::Store;
use rusqlite::Connection;

use crate::bed::*;
use crate::doctor::{findings, populate, remember};
use crate::sqlite_audit::audit_mended;
use crate::sqlite_bed::SqliteBed;

/// What is found, and statements to be run; `$name` stands for the record of the job `name`.
type Wound = (&'static str, &'static str);

const JOBS: [Wound; 9] = [
    ("lost-job", "DELETE FROM waiting WHERE record = $waits"),
    ("lost-job", "DELETE FROM waiting"),
    ("lost-job", "DELETE FROM leases WHERE record = $runs"),
    ("lost-job", "UPDATE past SET queue = NULL, ended_ms = NULL, bytes = NULL WHERE record = $done"),
    ("lost-job", "UPDATE past SET queue = queue + 1 WHERE record = $dead"),
    ("bad-record", "UPDATE jobs SET priority = 9 WHERE record = $waits"),
    ("bad-record", "UPDATE jobs SET lane = 77 WHERE record = $done"),
    ("bad-record", "UPDATE jobs SET max_attempts = -1 WHERE record = $urgent"),
    ("bad-past", "UPDATE past SET state = 'z' WHERE record IN ($retried, $dead)"),
];

const ENTRIES: [Wound; 10] = [
    ("orphan-entry", "DELETE FROM jobs WHERE record = $waits"),
    ("orphan-entry", "INSERT INTO waiting VALUES (1, 2, -1, 901, 901, 0, 0), (77, 2, 5, 902, $waits, 0, 0)"),
    (
        "wrong-entry",
        "INSERT INTO waiting SELECT lane, 3, due_ms, place, record, 0, 0 FROM waiting WHERE record = $waits",
    ),
    ("wrong-entry", "UPDATE waiting SET due_ms = 1 WHERE record = $waits"),
    ("wrong-entry", "UPDATE waiting SET due_ms = -1, attempt = -3 WHERE record = $waits"),
    ("wrong-entry", "UPDATE waiting SET crashes = 2, part = 4 WHERE record = $retried"),
    ("wrong-entry", "INSERT INTO waiting VALUES (1, 2, 5, 1, $runs, 0, 0), (1, 2, 5, 2, $done, 0, 0)"),
    (
        "wrong-entry",
        "UPDATE past SET queue = 1, ended_ms = 1, bytes = 1, forget_ms = 1 WHERE record = $retried; \
         UPDATE kept SET jobs = jobs + 1, bytes = bytes + 1 WHERE state = 'w'",
    ),
    ("orphan-lease", "DELETE FROM jobs WHERE record = $runs"),
    ("bad-lease", "UPDATE leases SET lane = lane + 1 WHERE record = $runs"),
];

const REST: [Wound; 15] = [
    ("orphan-past", "DELETE FROM jobs WHERE record IN ($retried, $done)"),
    ("orphan-log", "INSERT INTO logs VALUES (4444, 1, 'text'), (4444, 2, 'text')"),
    (
        "wrong-id",
        "INSERT INTO ids (queue, id, record, ns) VALUES (1, 'ghost', 4444, 1), (1, 'alias', $waits, 1), (77, 'x', 1, 1)",
    ),
    ("wrong-id", "UPDATE ids SET forget_ms = NULL WHERE id = 'forgotten'"),
    ("lost-id", "DELETE FROM ids WHERE id IN ('waits', 'runs')"),
    ("lost-id", "UPDATE ids SET record = $dead WHERE id = 'waits'"),
    (
        "double-id",
        "UPDATE sequence SET last = 4444; INSERT INTO jobs SELECT 4444, lane, id, given, priority, enqueued_ms, due_ms, max_attempts, timeout_ms, meta, traceparent, \
         source, payload FROM jobs WHERE record = $waits; INSERT INTO waiting SELECT lane, part, due_ms, 4444, 4444, 0, 0 \
         FROM waiting WHERE record = $waits",
    ),
    ("unlisted-id", "UPDATE namespaces SET lookalikes = 0"),
    ("bad-lane", "INSERT INTO lanes (queue, kind) VALUES (77, 'k'), (1, 'no kind')"),
    ("counter", "UPDATE kept SET jobs = 9 WHERE state = 'd'"),
    ("counter", "DELETE FROM kept"),
    ("counter", "UPDATE namespaces SET id_bytes = 3, stale = -1; UPDATE queues SET failed = -5"),
    ("sequence", "UPDATE sequence SET last = 2"),
    ("sequence", "DELETE FROM sequence"),
    ("counter", "INSERT INTO kept VALUES (1, 'q', 3, 4)"),
];

const STATE: [Wound; 7] = [
    ("bad-state", "UPDATE state SET version = 0 WHERE key = 'k'"),
    ("bad-state", "INSERT INTO state VALUES (1, 'no name', 'k', x'00', 1)"),
    ("counter", "UPDATE buckets SET bytes = 1"),
    ("counter", "DELETE FROM buckets"),
    ("counter", "INSERT INTO buckets VALUES (1, 'ghost', 1, 1)"),
    ("counter", "DELETE FROM state WHERE key = 'k'"),
    ("orphan-progress", "INSERT INTO progress VALUES (4444, 1, 's', 1, 5, 50, 'x')"),
];

const TABLES: [Wound; 7] = [
    (
        "unknown-name",
        "CREATE TABLE odd (x TEXT); INSERT INTO odd VALUES ('kept'); CREATE INDEX odd_x ON odd (x)",
    ),
    ("unknown-name", "CREATE TABLE odd (x); CREATE TABLE quarantine_odd (x); CREATE VIEW seen AS SELECT 1"),
    ("wrong-type", "DROP INDEX finished"),
    ("wrong-type", "DROP TABLE wakes"),
    ("wrong-type", "DROP TABLE state"),
    (
        "wrong-type",
        "DROP TABLE kept; CREATE TABLE kept (something TEXT); INSERT INTO kept VALUES ('foreign')",
    ),
    ("wrong-type", "ALTER TABLE sequence ADD COLUMN more TEXT"),
];

fn deal(client: &Connection, sql: &str) {
    let mut sql = sql.to_owned();
    while let Some(at) = sql.find('$') {
        let name: String = sql[at + 1..].chars().take_while(|c| c.is_ascii_alphabetic()).collect();
        let record: u64 = client
            .query_row("SELECT record FROM jobs WHERE id = ?1", [&name], |row| row.get(0))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        sql.replace_range(at..=at + name.len(), &record.to_string());
    }
    client.execute_batch(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Rows that hold a job's data, wherever they are.
fn rows(client: &Connection) -> u64 {
    let count = |table: &str| -> u64 {
        client.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count")
    };
    ["jobs", "past", "logs", "leases", "waiting", "aside", "quarantine"]
        .iter()
        .map(|table| count(table))
        .sum()
}

async fn each_is_found_and_mended(wounds: &[Wound]) {
    for (check, sql) in wounds {
        let bed = SqliteBed::start().await;
        let store = bed.store();
        populate(store).await;
        remember(store).await;
        let client = bed.client();
        deal(&client, sql);
        let before = (bed.contents().await, rows(&client));
        let found = findings(store).await;
        assert!(found.iter().any(|f| f.check == *check), "{check} {sql}: {found:#?}");
        assert!(found.iter().all(|f| f.repaired.is_none()), "{sql}: {found:#?}");
        assert!(bed.contents().await == before.0, "{sql}: a look changes nothing");
        let mended = store.doctor(true).await.expect("the doctor mends");
        assert!(mended.iter().all(|f| f.repaired.is_some()), "{sql}: {mended:#?}");
        // What follows from another damage may be mended with it.
        assert!(mended.iter().any(|f| f.check == *check), "{check} {sql}: {mended:#?}");
        assert_eq!(findings(store).await, [], "{sql}: mended {mended:#?}");
        assert_eq!(audit_mended(&client), [""; 0], "{sql}: mended {mended:#?}");
        assert!(rows(&client) >= before.1, "{sql}: something was deleted: {mended:#?}");
        let listed = list_all(store, &hourhand::queue::ListQuery { limit: 100, ..Default::default() }).await;
        let records: usize =
            client.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0)).expect("the records");
        assert_eq!(listed.len(), records, "{sql}: mended {mended:#?}");
        enqueue_one(store, &job("a")).await;
        assert_eq!(Hand::new(store, "s2").claim(&["a"], 1).await.len(), 1, "{sql}: the store works");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_nowhere_or_cannot_be_read() {
    each_is_found_and_mended(&JOBS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_and_leases_without_their_jobs() {
    each_is_found_and_mended(&ENTRIES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hangs_on_jobs_and_what_counts_them() {
    each_is_found_and_mended(&REST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_and_what_it_is_told_to_be() {
    each_is_found_and_mended(&STATE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_others_and_tables_that_are_gone() {
    each_is_found_and_mended(&TABLES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_nowhere_goes_on_as_it_was() {
    let bed = SqliteBed::start().await;
    let store = bed.store();
    populate(store).await;
    let query = hourhand::queue::ListQuery { limit: 100, ..Default::default() };
    let before = list_all(store, &query).await;
    deal(&bed.client(), "DELETE FROM waiting; UPDATE past SET queue = NULL, ended_ms = NULL, bytes = NULL");
    store.doctor(true).await.expect("the doctor mends");
    let after = list_all(store, &query).await;
    assert_eq!(after.len(), before.len());
    assert!(before.iter().all(|view| after.contains(view)), "{before:#?}\n{after:#?}");
}

/// Offsets in the header of the file: SQLite's number of the version that wrote it last.
const WRITTEN_BY_AT: u64 = 96;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_an_old_sqlite_wrote_is_told() {
    use std::os::unix::fs::FileExt;
    let bed = SqliteBed::start().await;
    let store = bed.store();
    populate(store).await;
    bed.client().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("all is in the file");
    let file = std::fs::OpenOptions::new().write(true).open(bed.path()).expect("the file");
    file.write_all_at(&3_046_001u32.to_be_bytes(), WRITTEN_BY_AT).expect("written");
    // Closing it here would give up the locks of this process's connections, which are idle now.
    drop(file);
    let found = findings(store).await;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].check, found[0].repaired.as_deref()), ("old-sqlite", None));
    assert!(found[0].message.contains("SQLite 3.46.1"), "{found:#?}");
    let mended = store.doctor(true).await.expect("the doctor mends");
    assert!(mended.len() == 1 && mended[0].repaired.is_some(), "{mended:#?}");
    assert_eq!(findings(store).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_told_and_not_mended() {
    use std::os::unix::fs::FileExt;
    let bed = SqliteBed::start().await;
    populate(bed.store()).await;
    bed.client().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("all is in the file");
    let copy = bed.path().with_file_name("copy.db");
    std::fs::copy(bed.path(), &copy).expect("copied");
    let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("the file");
    let page: u64 = bed.client().query_row("PRAGMA page_size", [], |row| row.get(0)).expect("a size");
    for at in 4..12 {
        file.write_all_at(&[0xAB; 64], at * page).expect("written");
    }
    drop(file);
    let store = bed.open_at(&copy);
    let found = store.doctor(true).await.expect("the doctor looks");
    assert!(!found.is_empty(), "something is found");
    assert!(found.iter().all(|f| f.check == "integrity" && f.repaired.is_none()), "{found:#?}");
    std::fs::write(&copy, vec![b'x'; 5_000]).expect("written");
    let found = bed.open_at(&copy).doctor(false).await.expect("the doctor looks");
    assert!(found.len() == 1 && found[0].check == "integrity", "{found:#?}");
}
