//! SIGTERM in its variants.

use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

on_both_stores! {
    a_stop_lets_short_jobs_finish_and_releases_long_ones_unspent
    a_second_signal_gives_the_jobs_back_and_ends_it_now
    a_stop_while_the_store_is_away_ends_within_the_grace_and_says_so
}

fn a_stop_lets_short_jobs_finish_and_releases_long_ones_unspent(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut runner = here.runner(&["--grace", "2s"]);
    here.ok(&["enqueue", "nap", r#"{"ms":1000}"#, "--id", "short"]);
    here.ok(&["enqueue", "nap", r#"{"ms":25000}"#, "--id", "long"]);
    here.job_in("short", "running", Duration::from_secs(10));
    here.job_in("long", "running", Duration::from_secs(10));
    assert_eq!(runner.stop().code(), Some(0));
    assert_eq!(here.job("short")["state"], "completed");
    let long = here.job("long");
    assert_eq!(long["state"], "ready", "{long:#}");
    assert_eq!(long["attempt"], 0, "a shut-down uses no attempt: {long:#}");
    assert_eq!(long["crashes"], 0);
    assert_eq!(here.json(&["runner", "list"])["items"].as_array().unwrap().len(), 0);
}

fn a_second_signal_gives_the_jobs_back_and_ends_it_now(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut runner = here.runner(&["--grace", "60s"]);
    here.ok(&["enqueue", "nap", r#"{"ms":25000}"#, "--id", "long"]);
    here.job_in("long", "running", Duration::from_secs(10));
    runner.signal(libc::SIGTERM);
    crate::harness::waiting::eventually("it is stopping", Duration::from_secs(5), || {
        runner.log().contains("the runner stops").then_some(())
    });
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(Duration::from_secs(5)).code(), Some(0));
    let long = here.job("long");
    assert_eq!((&long["state"], &long["attempt"], &long["crashes"]), (&"ready".into(), &0.into(), &0.into()));
}

fn a_stop_while_the_store_is_away_ends_within_the_grace_and_says_so(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut runner = here.runner(&["--grace", "2s"]);
    here.ok(&["enqueue", "nap", r#"{"ms":300}"#, "--id", "n"]);
    here.job_in("n", "running", Duration::from_secs(10));
    store.take_away();
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(Duration::from_secs(8)).code(), Some(5));
    // What could not be told is taken over at once by the next runner of this host.
    store.bring_back();
    let _again = here.runner(&[]);
    let job = here.job_in("n", "completed", Duration::from_secs(3));
    assert_eq!(job["attempt"], 2, "{job:#}");
}

#[test]
fn a_stop_before_the_store_was_ever_there_is_clean() {
    let here = Hourhand::new("redis://127.0.0.1:1", &["echo"]);
    let mut runner = here.runner_unready(&[]);
    crate::harness::waiting::eventually("it tries", Duration::from_secs(20), || {
        runner.log().contains("store").then_some(())
    });
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(Duration::from_secs(5)).code(), Some(0));
}
