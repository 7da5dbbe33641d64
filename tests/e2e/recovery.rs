//! Runners that die, stall and come back.

use std::time::Duration;

use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

on_both_stores! {
    the_jobs_of_a_killed_runner_run_again_within_a_lease_and_a_second
    a_restart_on_the_same_host_takes_its_jobs_back_at_once
    a_live_twin_of_the_same_name_is_not_robbed
    a_stopped_runner_cannot_settle_what_another_took
    a_stopped_runner_settles_what_nobody_took
    a_runner_whose_registration_was_deleted_recovers_all_the_same
}

/// Enqueues naps and waits until all of them run.
fn naps(here: &Hourhand, count: usize, ms: u64) {
    let payload = format!(r#"{{"ms":{ms}}}"#);
    for n in 0..count {
        here.ok(&["enqueue", "nap", &payload, "--id", &format!("n{n}")]);
    }
    here.counts("nap", "all run", Duration::from_secs(20), |q| q["running"] == count as u64);
}

fn all_completed(here: &Hourhand, count: usize, within: Duration) -> Vec<Value> {
    here.counts("nap", "all complete", within, |q| q["completed"] == count as u64);
    here.all_jobs(&["--queue", "nap", "--state", "completed"])
}

fn the_jobs_of_a_killed_runner_run_again_within_a_lease_and_a_second(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut first = here.runner(&["--state-dir", "state-of-the-first"]);
    naps(&here, 10, 3_000);
    let second = here.runner(&["--state-dir", "state-of-the-second"]);
    first.kill();
    let killed = jiff::Timestamp::now();
    for job in all_completed(&here, 10, Duration::from_secs(30)) {
        assert_eq!(job["attempt"], 2, "{job:#}");
        assert_eq!(job["crashes"], 1, "{job:#}");
        let started: jiff::Timestamp = job["started_at"].as_str().unwrap().parse().unwrap();
        let after = started.as_millisecond() - killed.as_millisecond();
        assert!(after <= 6_000, "ran again {after} ms after the kill: {job:#}");
    }
    drop(second);
}

fn a_restart_on_the_same_host_takes_its_jobs_back_at_once(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut first = here.runner(&["--name", "runner-0"]);
    naps(&here, 10, 2_000);
    first.kill();
    let _again = here.runner(&["--name", "runner-0"]);
    let served = jiff::Timestamp::now();
    for job in all_completed(&here, 10, Duration::from_secs(30)) {
        assert_eq!(job["attempt"], 2, "{job:#}");
        let started: jiff::Timestamp = job["started_at"].as_str().unwrap().parse().unwrap();
        assert!(started.as_millisecond() - served.as_millisecond() < 1_000, "{job:#}");
    }
}

fn a_live_twin_of_the_same_name_is_not_robbed(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let first = here.runner(&["--name", "twin"]);
    naps(&here, 5, 8_000);
    let second = here.runner(&["--name", "twin"]);
    for job in all_completed(&here, 5, Duration::from_secs(30)) {
        assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    }
    drop((first, second));
}

fn a_stopped_runner_cannot_settle_what_another_took(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let stalled = here.runner(&["--state-dir", "s1"]);
    naps(&here, 3, 4_000);
    stalled.signal(libc::SIGSTOP);
    let _other = here.runner(&["--state-dir", "s2"]);
    here.counts("nap", "the other has them", Duration::from_secs(20), |q| {
        q["running"] == 3
            && here.all_jobs(&["--queue", "nap", "--state", "running"]).iter().all(|j| j["attempt"] == 2)
    });
    stalled.signal(libc::SIGCONT);
    let jobs = all_completed(&here, 3, Duration::from_secs(30));
    eventually("the late outcomes are refused", Duration::from_secs(10), || {
        let log = stalled.log();
        let refused = log.lines().filter(|l| l.contains("late outcomes refused"));
        let jobs = refused.filter_map(|l| l.split("jobs=").nth(1)?.trim().parse::<u32>().ok());
        (jobs.sum::<u32>() == 3).then_some(())
    });
    for job in jobs {
        assert_eq!(job["attempt"], 2);
        let completed =
            job["history"].as_array().unwrap().iter().filter(|e| e["event"] == "completed").count();
        assert_eq!(completed, 1, "{job:#}");
    }
}

fn a_stopped_runner_settles_what_nobody_took(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let stalled = here.runner(&[]);
    naps(&here, 3, 1_000);
    stalled.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(7));
    stalled.signal(libc::SIGCONT);
    for job in all_completed(&here, 3, Duration::from_secs(10)) {
        assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    }
}

fn a_runner_whose_registration_was_deleted_recovers_all_the_same(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut first = here.runner(&["--state-dir", "s1"]);
    naps(&here, 5, 1_000 * 20);
    first.kill();
    store.forget_sessions();
    let _second = here.runner(&["--state-dir", "s2"]);
    here.counts("nap", "all run again", Duration::from_secs(12), |q| {
        q["running"] == 5
            && here.all_jobs(&["--queue", "nap", "--state", "running"]).iter().all(|j| j["attempt"] == 2)
    });
}
