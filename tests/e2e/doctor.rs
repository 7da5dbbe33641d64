//! `hourhand doctor`: what it says of a store that is as it should be, and of one that somebody has damaged.

use serde_json::json;

use crate::cli::{check, text};
use crate::harness::at_redis;
use crate::harness::backing::{Backing, SqliteFile, StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::{RedisServer, free_port};

on_both_stores! {
    a_sound_store_has_nothing_wrong
    a_job_that_is_nowhere_is_told_and_put_back
    what_has_no_job_any_more_is_set_aside
}

/// Takes the job `lost` out of where it waits, and leaves the rest of it.
fn lose_place(store: &Backing) {
    match store {
        Backing::Redis(server) => {
            at_redis::command(server, &["DEL", "hourhand:{0}:due:k:k:n"]);
        }
        Backing::Sqlite(file) => {
            file.client().execute("DELETE FROM waiting", []).expect("waiting is a table");
        }
    }
}

/// Takes every job away, and leaves their places.
fn lose_jobs(store: &Backing) {
    match store {
        Backing::Redis(server) => {
            at_redis::command(server, &["DEL", "hourhand:{0}:jobs"]);
        }
        Backing::Sqlite(file) => {
            file.client().execute("DELETE FROM jobs", []).expect("jobs is a table");
        }
    }
}

fn a_sound_store_has_nothing_wrong(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    here.ok(&["enqueue", "nonce", "--id", "done"]);
    here.ok(&["enqueue", "nonce", "--delay", "1h"]);
    here.ok(&["run", "--handlers", "handlers", "--until-idle", "--kinds", "other"]);
    for args in [&["doctor"][..], &["doctor", "--repair"]] {
        let output = here.run(args);
        check(&output, 0, "");
        assert_eq!(text(&output.stderr), "");
        let last = text(&output.stdout).lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("nothing is wrong"), "{output:?}");
    }
    let said = here.json(&["doctor"]);
    let items = said["items"].as_array().expect("a list");
    assert!(items.iter().all(|item| item["severity"] == "warning" && item["fix"].is_string()), "{items:?}");
    assert!(said["server"]["claim_median_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{said:#}");
    assert_eq!(said["cursor"], json!(null));
}

fn a_job_that_is_nowhere_is_told_and_put_back(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    here.ok(&["enqueue", "k", "a payload", "--id", "lost", "--delay", "1h"]);
    let before = here.job("lost");
    lose_place(&store);
    let output = here.run(&["doctor"]);
    check(&output, 1, "1 found: doctor --repair mends what can be mended, and deletes nothing");
    assert!(text(&output.stdout).contains("\nlost-job: job lost of queue k: it waits "), "{output:?}");
    let output = here.run(&["doctor", "--json"]);
    check(&output, 1, "");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&found["items"][0]["check"], &found["items"][0]["repaired"]),
        (&json!("lost-job"), &json!(null))
    );
    let output = here.run(&["doctor", "--repair"]);
    check(&output, 0, "all 1 repaired");
    assert!(text(&output.stdout).contains("(put back into its place)\n"), "{output:?}");
    assert_eq!(here.job("lost"), before);
    assert_eq!(here.all_jobs(&["--state", "scheduled"]), [before]);
}

fn what_has_no_job_any_more_is_set_aside(on: StoreKind) {
    let store = on.start();
    let mut here = Hourhand::new(&store.url(), &[]);
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    lose_jobs(&store);
    check(&here.run(&["doctor"]), 1, "2 found");
    let mended = here.json(&["doctor", "--repair"]);
    let items = mended["items"].as_array().unwrap();
    let damages = items.iter().filter(|item| item["severity"] == "error");
    let checks: Vec<_> = damages.map(|item| &item["check"]).collect();
    assert_eq!(checks, ["orphan-entry", "wrong-id"]);
    let output = here.run(&["doctor"]);
    check(&output, 0, "warning: the store has set aside 1 orphans");
    assert!(text(&output.stdout).contains("nothing is wrong"), "{output:?}");
    // What was set aside stays to be looked at.
    here.store.clear();
}

#[test]
fn a_damaged_file_is_told_and_cannot_be_repaired() {
    let file = SqliteFile::new();
    let mut here = Hourhand::new(&file.url(), &[]);
    for n in 0..50 {
        here.ok(&["enqueue", "k", &"x".repeat(3_000), "--id", &format!("n{n}")]);
    }
    file.client().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("all is in the file");
    let mut bytes = std::fs::read(file.path()).expect("the file");
    let half = bytes.len() / 2;
    bytes[half..half + 20_000].fill(0xAB);
    std::fs::write(file.path(), bytes).expect("damaged");
    for args in [&["doctor"][..], &["doctor", "--repair"]] {
        let output = here.run(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stdout).contains("integrity: file "), "{output:?}");
        assert!(text(&output.stdout).contains("keep a copy"), "{output:?}");
    }
    here.store.clear();
}

#[test]
fn a_store_that_is_away_is_no_finding() {
    let here = Hourhand::new(&format!("redis://127.0.0.1:{}", free_port()), &[]);
    check(&here.run(&["doctor"]), 5, "store out of reach");
    let here = Hourhand::new("sqlite://none.db", &[]);
    check(&here.run(&["doctor", "--repair"]), 5, "there is no such file");
}

#[test]
fn foreign_data_under_our_names_is_moved_aside_whole() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    at_redis::command(&redis, &["SET", "hourhand:{0}:totals:odd", "somebody's"]);
    at_redis::command(&redis, &["SET", "hourhand:elsewhere", "somebody's"]);
    let output = here.run(&["doctor"]);
    check(&output, 1, "1 found");
    assert!(text(&output.stdout).contains("\nunknown-name: key hourhand:{0}:totals:odd: "), "{output:?}");
    check(&here.run(&["doctor", "--repair"]), 0, "all 1 repaired");
    for key in ["hourhand:{0}:quarantine:totals:odd", "hourhand:elsewhere"] {
        let value = at_redis::command(&redis, &["GET", key]);
        assert_eq!(redis::from_redis_value::<String>(value).expect("a string"), "somebody's", "{key}");
    }
}
