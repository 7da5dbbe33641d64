//! The file of the embedded store: who makes it, what is no store, and what happens when it is taken away.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cli::{check, text};
use crate::harness::backing::SqliteFile;
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::free_port;

const SOON: Duration = Duration::from_secs(20);

/// What stands in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn whoever_puts_the_first_thing_in_makes_the_store_and_says_so() {
    for makes in [&["enqueue", "k"][..], &["queue", "pause", "q"], &["enqueue", "--ndjson", "jobs"]] {
        let here = Hourhand::new("", &[]);
        fs::write(here.dir.path().join("jobs"), "{\"kind\":\"k\"}\n").expect("a file");
        let file = here.dir.path().canonicalize().expect("a path").join("hourhand.db");
        let said = format!("there is no store {} yet: making it", file.display());
        let first = here.run(makes);
        check(&first, 0, &said);
        assert!(file.is_file(), "nobody named a store: it is in the working directory");
        let second = here.run(makes);
        check(&second, 0, "");
        assert!(!text(&second.stderr).contains("making it"), "{}", text(&second.stderr));
    }
    let here = Hourhand::new("", &["echo"]);
    let runner = here.runner(&[]);
    let log = runner.log();
    assert!(log.contains("there is no store yet: making it") && log.contains("hourhand.db"), "{log}");
    assert!(log.contains("store=\"sqlite://hourhand.db (namespace hourhand, durability full)"), "{log}");
}

#[test]
fn a_command_that_looks_makes_no_store() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &[]);
    for args in [
        &["stats"][..],
        &["job", "list"],
        &["job", "show", "x"],
        &["job", "cancel", "x"],
        &["queue", "list"],
        &["queue", "resume", "q"],
        &["queue", "purge", "q", "--yes"],
        &["dead", "retry", "--all"],
        &["runner", "list"],
    ] {
        let output = here.run(args);
        check(&output, 5, &format!("{}: there is no such file", file.path().display()));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
    let wrong =
        [&["enqueue", "a b"][..], &["enqueue", "k", "--delay", "5"], &["enqueue", "--ndjson", "/nowhere"]];
    for args in wrong {
        assert_eq!(here.run(args).status.code(), Some(2), "{args:?}");
    }
    assert!(!file.path().exists(), "wrong use leaves nothing behind");
}

#[test]
fn what_cannot_be_a_store_is_said_with_the_way_out() {
    let here = Hourhand::new("", &["echo"]);
    let dir = here.dir.path().canonicalize().expect("a path");
    let at = |name: &str| dir.join(name).display().to_string();
    fs::create_dir(at("folder")).expect("a folder");
    fs::write(at("text.db"), "these are my notes, and no database at all\n".repeat(100)).expect("a file");
    let other = rusqlite::Connection::open(at("other.db")).expect("a database");
    other.execute_batch("CREATE TABLE bills (amount)").expect("a table");
    here.ok(&["enqueue", "k", "--store", &format!("sqlite://{}", at("newer.db"))]);
    let newer = rusqlite::Connection::open(at("newer.db")).expect("a database");
    newer.execute_batch("PRAGMA user_version = 99").expect("a version");
    drop((other, newer));
    let before = names(&dir);
    for (path, code, part) in [
        (at("folder"), 2, "folder is a folder: expected the path of a file"),
        (at("nowhere/hourhand.db"), 2, "there is no folder"),
        (at("text.db"), 1, "text.db is no SQLite database: name another file"),
        (at("other.db"), 1, "other.db is a database of another program"),
        (at("newer.db"), 1, "newer.db is of version 99, and this Hourhand knows versions up to"),
        // Nobody may write there, not even root.
        (
            "/proc/hourhand.db".to_owned(),
            5,
            "this user needs the right to read and write the file and its folder",
        ),
    ] {
        let store = format!("sqlite://{path}");
        check(&here.run(&["enqueue", "k", "--store", &store]), code, part);
        if Path::new(&path).exists() {
            check(&here.run(&["stats", "--store", &store]), code, part);
        }
        if code != 5 {
            check(&here.run(&["run", "--store", &store]), code, part);
        }
    }
    assert_eq!(names(&dir), before, "nothing was made, and nothing left behind");
}

#[test]
fn durability_is_of_the_embedded_store_alone() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &["echo"]);
    here.ok(&["enqueue", "echo", "1", "--id", "full", "--durability", "full"]);
    here.ok(&["enqueue", "echo", "1", "--id", "normal", "--durability", "normal"]);
    let runner = here.runner(&["--durability", "normal"]);
    assert!(runner.log().contains("durability normal"), "{}", runner.log());
    for id in ["full", "normal"] {
        here.job_in(id, "completed", SOON);
    }
    let redis = format!("redis://:S3cr3t@127.0.0.1:{}", free_port());
    let output = here.command(&["stats", "--store", &redis]).env("HOURHAND_DURABILITY", "normal").output();
    let output = output.expect("run the binary");
    check(
        &output,
        2,
        "HOURHAND_DURABILITY: only the embedded store (sqlite://path) has it, and the store is redis://",
    );
    assert!(!text(&output.stderr).contains("S3cr3t"), "{}", text(&output.stderr));
}

#[test]
fn a_lock_that_is_held_too_long_is_said_and_nothing_is_half_done() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &[]);
    here.ok(&["enqueue", "k", "--id", "before"]);
    let lock = file.lock();
    let output = here.run(&["enqueue", "k", "--id", "during"]);
    check(&output, 5, "another program has held the file for too long");
    assert_eq!(here.run(&["job", "show", "during"]).status.code(), Some(3), "nothing was done");
    assert_eq!(here.job("before")["state"], "ready", "whoever looks need not wait");
    drop(lock);
    here.ok(&["enqueue", "k", "--id", "during"]);
    assert_eq!(here.json(&["stats"])["queues"][0]["enqueued_total"], 2);
}

#[test]
fn a_file_that_is_deleted_under_a_runner_is_made_anew_and_that_is_said() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &["echo"]);
    let runner = here.runner(&[]);
    here.ok(&["enqueue", "echo", "1", "--id", "before", "--wait"]);
    let folder = file.path().parent().expect("a folder").to_owned();
    for name in names(&folder) {
        fs::remove_file(folder.join(name)).expect("removed");
    }
    here.ok(&["enqueue", "echo", "2", "--id", "after", "--wait"]);
    assert!(runner.log().contains("was replaced or deleted"), "{}", runner.log());
    assert_eq!(here.run(&["job", "show", "before"]).status.code(), Some(3), "it went with its file");
    // Signals of the new file reach the runner too.
    let mut lateness: Vec<f64> = (0..5)
        .map(|n| {
            let id = format!("n{n}");
            here.ok(&["enqueue", "echo", "3", "--id", &id]);
            here.job_in(&id, "completed", SOON)["lateness_ms"].as_f64().expect("a number")
        })
        .collect();
    lateness.sort_by(f64::total_cmp);
    assert!(lateness[2] < 500.0, "nobody woke the runner: {lateness:?}");
}
