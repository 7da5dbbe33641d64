//! A runner drains the spool of its machine, and hears of changes by SIGHUP.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::cli::check;
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::waiting::eventually;
use crate::reload_files::without_terminal;

on_both_stores! {
    a_runner_that_is_given_the_folder_drains_it
}

const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn log_has(runner: &Runner, text: &str) {
    eventually(text, PATIENCE, || runner.log().contains(text).then_some(()));
}

fn a_runner_that_is_given_the_folder_drains_it(on: StoreKind) {
    let mut store = on.start_lasting();
    store.make();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    let _runner = here.runner(&["--spool-dir", "shared/spool"]);
    store.take_away();
    for n in 0..3 {
        let id = format!("n{n}");
        let args = ["enqueue", "nonce", "--id", &id, "--spool", "--spool-dir", "shared/spool"];
        check(&here.run(&args), 0, "spooled: ");
    }
    store.bring_back();
    here.counts("nonce", "they are drained", PATIENCE, |q| q["enqueued_total"] == 3);
    for n in 0..3 {
        here.job_in(&format!("n{n}"), "completed", PATIENCE);
    }
    here.counts("nonce", "each job once", Duration::ZERO, |q| q["enqueued_total"] == 3);
}

#[test]
fn sighup_turns_draining_on_and_off_and_a_broken_file_changes_nothing() {
    let mut store = StoreKind::Sqlite.start();
    store.make();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    let settings = here.dir.path().join("hourhand.toml");
    let enqueue = |id: &str| {
        let output = here.run(&["enqueue", "nonce", "--id", id, "--spool"]);
        check(&output, 0, "spooled: ");
    };
    fs::write(&settings, "spool = 'off'\nlease = '5s'\n").unwrap();
    store.take_away();
    enqueue("a");
    store.bring_back();
    let runner = here.runner_made(&[], without_terminal);
    log_has(&runner, "the runner serves");

    fs::write(&settings, "spool = 'perhaps'\nlease = 'long'\n").unwrap();
    runner.signal(libc::SIGHUP);
    log_has(&runner, "the settings are wrong: all stays as it was");
    log_has(&runner, "hourhand.toml:1: spool: expected on or off");
    log_has(&runner, "hourhand.toml:2: lease: ");
    std::thread::sleep(Duration::from_millis(1_500));
    fs::write(&settings, "").unwrap();
    assert_eq!(here.json(&["spool", "list"])["items"][0]["id"], json!("a"), "nobody drains it");

    fs::write(&settings, "spool = 'on'\nlease = '6s'\n").unwrap();
    runner.signal(libc::SIGHUP);
    here.counts("nonce", "it is drained and runs", PATIENCE, |q| q["completed"] == 1);
    log_has(&runner, "these settings differ, and count after a restart");
    let warned: Vec<String> =
        runner.log().lines().filter(|l| l.contains("after a restart")).map(str::to_owned).collect();
    assert!(warned.len() == 1 && warned[0].contains("lease") && !warned[0].contains("spool"), "{warned:?}");

    fs::write(&settings, "spool = 'off'\nlease = '5s'\n").unwrap();
    runner.signal(libc::SIGHUP);
    eventually("it is off", PATIENCE, || {
        (runner.log().matches("the spool's settings count now").count() == 2).then_some(())
    });
    store.take_away();
    enqueue("b");
    store.bring_back();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(here.json(&["spool", "list"])["items"][0]["id"], json!("b"));
    here.ok(&["spool", "drain"]);
    here.job_in("b", "completed", PATIENCE);
}
