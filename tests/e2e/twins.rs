//! Runners in containers: the same name, the same host name, both process number 1.

use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

on_both_stores! {
    a_live_twin_in_another_container_is_not_robbed
    a_container_that_starts_again_takes_its_jobs_back
}

const TWIN: [&str; 2] = ["--name", "runner-0"];

fn with(state_dir: &str) -> Vec<&str> {
    TWIN.iter().copied().chain(["--state-dir", state_dir]).collect()
}

/// Its twins start beside it: one with a state folder of its own, one on the same volume.
fn a_live_twin_in_another_container_is_not_robbed(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let Some(first) = here.runner_as_pid_1(&with("volume")) else { return };
    for n in 0..3 {
        here.ok(&["enqueue", "nap", r#"{"ms":7000}"#, "--id", &format!("n{n}")]);
    }
    here.counts("nap", "all run", Duration::from_secs(20), |q| q["running"] == 3);
    let apart = here.runner_as_pid_1(&with("another-volume"));
    let beside = here.runner_as_pid_1(&with("volume"));
    here.counts("nap", "all complete", Duration::from_secs(30), |q| q["completed"] == 3);
    for n in 0..3 {
        let job = here.job(&format!("n{n}"));
        assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    }
    drop((first, apart, beside));
}

/// On the same volume at once, without it after the lease.
fn a_container_that_starts_again_takes_its_jobs_back(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    for (n, (again_with, within)) in [("volume", 2), ("another-volume", 7)].into_iter().enumerate() {
        let Some(mut first) = here.runner_as_pid_1(&with("volume")) else { return };
        let id = format!("n{n}");
        here.ok(&["enqueue", "nap", r#"{"ms":1000}"#, "--id", &id, "--timeout", "30s"]);
        here.job_in(&id, "running", Duration::from_secs(10));
        first.kill();
        let _again = here.runner_as_pid_1(&with(again_with)).expect("as before");
        let job = here.job_in(&id, "completed", Duration::from_secs(within + 1));
        assert_eq!((&job["attempt"], &job["crashes"]), (&2.into(), &1.into()), "{job:#}");
    }
}
