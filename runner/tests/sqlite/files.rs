//! Files that are something else, damaged, or out of reach: each a clear error, and nothing of them is changed.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hourhand::queue::sqlite::{SqliteOptions, SqliteStore};
use hourhand::queue::{ListQuery, Store, StoreError, Wake};
use rusqlite::Connection;

use crate::bed::{Hand, job, name};
use crate::child::{Child, run, say};
use crate::kit::{assert_whole, beside, close, quick_store, store, stranger};

/// Every kind of call; their errors.
async fn errors(store: &impl Store) -> Vec<StoreError> {
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a"], 10);
    let page = ListQuery { limit: 100, ..ListQuery::default() };
    let answers = [
        store.enqueue(&[job("a")]).await.map(drop),
        store.claim(&request).await.map(drop),
        store.list(&page).await.map(drop),
        store.counts().await.map(drop),
        store.prune().await.map(drop),
        store.leases(None).await.map(drop),
        store.identity().await.map(drop),
    ];
    answers.into_iter().filter_map(Result::err).collect()
}

/// Every call on the file is refused with such a word, and the file stays as it is.
async fn assert_refused(file: &Path, word: &str) {
    let before = std::fs::read(file).ok();
    let store = store(file);
    for _ in 0..2 {
        let errors = errors(&store).await;
        assert_eq!(errors.len(), 7, "{word}: {errors:?}");
        for error in errors {
            assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
        }
    }
    drop(store);
    assert_eq!(std::fs::read(file).ok(), before, "{word}: unchanged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, content).expect("written");
        file
    };
    for content in [&b"\n"[..], b"hello", &[0; 5_000], &b"{\"a\": 1}\n".repeat(2_000)] {
        assert_refused(&file("notes.txt", content), "no SQLite database: name another file").await;
    }
    // A header that promises a database, and nothing behind it.
    assert_refused(&file("header.db", b"SQLite format 3\0 and then something"), "name another file").await;

    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign).expect("made").execute_batch("CREATE TABLE songs (title)").expect("made");
    assert_refused(&foreign, "a database of another program: name another file").await;
    let marked = folder.path().join("marked.db");
    Connection::open(&marked).expect("made").execute_batch("PRAGMA application_id = 77").expect("made");
    assert_refused(&marked, "a database of another program: name another file").await;

    let newer = folder.path().join("newer.db");
    let ours = quick_store(&newer);
    ours.enqueue(&[job("a")]).await.expect("taken");
    close(ours, &newer);
    Connection::open(&newer).expect("opened").execute_batch("PRAGMA user_version = 99").expect("set");
    assert_refused(&newer, "is of version 99").await;
    assert_refused(&newer, "use a newer Hourhand").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_another_program_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (live, dead) = (folder.path().join("live.db"), folder.path().join("dead.db"));
    let client = Connection::open(&live).expect("made");
    client.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE songs (title);").expect("made");
    // What its program would leave behind if it was killed now.
    for suffix in ["", "-wal"] {
        std::fs::copy(beside(&live, suffix), beside(&dead, suffix)).expect("copied");
    }
    let log = std::fs::read(beside(&dead, "-wal")).expect("its log");
    assert!(!log.is_empty());
    assert_refused(&dead, "a database of another program").await;
    assert_eq!(std::fs::read(beside(&dead, "-wal")).expect("its log"), log, "unchanged");
}

#[test]
fn a_folder_and_a_file_in_no_folder_are_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = folder.path().join("none yet").join("jobs.db");
    for (path, word) in [
        (folder.path(), "is a folder: expected the path of a file, such as"),
        (&none, "none yet; make it first"),
    ] {
        match SqliteStore::open(path, &name("faults"), SqliteOptions::default()) {
            Err(StoreError::Invalid(text)) => assert!(text.contains(word), "{text}"),
            other => panic!("{:?}", other.err()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_goes_is_named_and_the_store_works_once_it_is_there_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("inner");
    let file = inner.join("jobs.db");
    std::fs::create_dir(&inner).expect("made");
    let store = store(&file);
    std::fs::remove_dir(&inner).expect("removed");
    let mut wakes = store.wakes();
    for _ in 0..2 {
        let errors = errors(&store).await;
        assert_eq!(errors.len(), 7);
        for error in errors {
            assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
            assert!(error.to_string().contains("inner; make it first"), "{error}");
        }
        // And so it is when it goes while the store is open.
        std::fs::create_dir(&inner).expect("made");
        store.enqueue(&[job("a")]).await.expect("taken");
        assert_eq!(wakes.recv().await, Some(Wake::Missed), "and the listener has found it");
        std::fs::remove_dir_all(&inner).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_file_and_names_of_any_kind_are_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["empty.db", "with space.db", "zwölf% 小时.db", "file:a.db", ":memory:", "jobs"] {
        let file = folder.path().join(name);
        if name == "empty.db" {
            std::fs::write(&file, b"").expect("made");
        }
        let store = quick_store(&file);
        store.enqueue(&[job("a")]).await.expect(name);
        assert_eq!(Hand::new(&store, "s").claim(&["a"], 5).await.len(), 1, "{name}");
        assert!(file.exists(), "{name}");
        close(store, &file);
        assert_eq!(quick_store(&file).counts().await.expect(name).queues[0].running, 1);
    }
    let link = folder.path().join("link.db");
    std::fs::create_dir(folder.path().join("far")).expect("made");
    std::os::unix::fs::symlink("far/jobs.db", &link).expect("made");
    let store = quick_store(&link);
    store.enqueue(&[job("a")]).await.expect("taken");
    assert!(folder.path().join("far/jobs.db-wal").exists(), "its log is beside the file");
}

/// A user without any rights beyond his own tries the store.
pub(crate) fn powerless(file: &Path) {
    // SAFETY: plain calls that change who this process is.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setresgid(65_534, 65_534, 65_534), 0);
            assert_eq!(libc::setresuid(65_534, 65_534, 65_534), 0);
        }
    }
    run(async {
        for error in errors(&store(file)).await {
            say(&format!("{error:?}"));
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_or_folder_that_may_not_be_written_is_refused_with_what_is_needed() {
    let folder = tempfile::tempdir().expect("a folder");
    let chmod = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("made");
    let (file, missing) = (inner.join("jobs.db"), inner.join("missing.db"));
    let ours = quick_store(&file);
    ours.enqueue(&[job("a")]).await.expect("taken");
    close(ours, &file);
    let before = std::fs::read(&file).expect("read");
    chmod(folder.path(), 0o755);
    // A read-only file in a folder for all and a file for all in a read-only folder, which may be looked at, a new file
    // there, and a file for nobody.
    for (folder_mode, file_mode, path, errors) in [
        (0o777, 0o444, &file, 4),
        (0o555, 0o666, &file, 4),
        (0o555, 0o666, &missing, 7),
        (0o755, 0o000, &file, 7),
    ] {
        chmod(&inner, folder_mode);
        chmod(&file, file_mode);
        let child = Child::start("powerless", path);
        let said: Vec<String> = std::iter::from_fn(|| child.line()).collect();
        let case = format!("{folder_mode:o} {file_mode:o} {}: {said:#?}", path.display());
        assert_eq!(said.len(), errors, "{case}");
        assert!(said.iter().all(|line| line.contains("this user needs the right to")), "{case}");
        assert!(said.iter().all(|line| line.contains("the file and its folder")), "{case}");
        chmod(&inner, 0o755);
        chmod(&file, 0o644);
        assert_eq!(std::fs::read(&file).expect("read"), before, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_within_the_file_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.db");
    let ours = quick_store(&good);
    for _ in 0..8 {
        ours.enqueue(&vec![job("a"); 250]).await.expect("taken");
    }
    close(ours, &good);
    let whole = std::fs::read(&good).expect("read");
    let (third, size) = (whole.len() / 3, whole.len());
    let overwritten = |from: usize, to: usize, with: u8| {
        let mut damaged = whole.clone();
        damaged[from..to].fill(with);
        damaged
    };
    let cases = [
        overwritten(third, 2 * third, 0xaa),
        overwritten(third, 2 * third, 0),
        overwritten(4_096, size, 0xff),
        overwritten(100, 4_096, 0x5a),
        whole[..size / 2].to_vec(),
        whole[..5_000].to_vec(),
    ];
    for (case, content) in cases.into_iter().enumerate() {
        let bad = folder.path().join(format!("bad {case}.db"));
        std::fs::write(&bad, content).expect("written");
        let store = quick_store(&bad);
        let mut errors = errors(&store).await;
        errors.extend(Hand::new(&store, "t").store.prune().await.err());
        let query = ListQuery { limit: 1_000, ..ListQuery::default() };
        errors.extend(store.list(&query).await.err());
        assert!(!errors.is_empty(), "case {case} shows");
        for error in errors {
            let text = error.to_string();
            assert!(matches!(error, StoreError::Refused(_)), "case {case}: {error:?}");
            assert!(text.contains("is damaged") && text.contains("hourhand doctor"), "case {case}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_taken_away_costs_what_it_held_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let mut child = Child::start("worker", &file);
    for _ in 0..40 {
        child.line().expect("it works");
    }
    child.kill();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(beside(&file, suffix)).expect("removed");
    }
    let client = stranger(&file);
    let version: u32 = client.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    assert!(version > 0, "the file itself says what it is");
    drop(client);
    let store = store(&file);
    store.enqueue(&[job("a")]).await.expect("taken");
    assert_whole(&file);
}
