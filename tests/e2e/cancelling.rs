//! Cancelling jobs that run, on whatever runner they are.

use std::time::Duration;

use serde_json::json;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

/// Far below what the guests here would take, and far above what a cancel may.
const SOON: Duration = Duration::from_secs(30);

on_both_stores! {
    a_cancel_stops_a_running_guest_wherever_it_is
    progress_shows_while_a_job_runs_and_stays_after_it
}

fn a_cancel_stops_a_running_guest_wherever_it_is(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["reach"]);
    // One slot each: four jobs are on four runners.
    let _runners: Vec<_> =
        (0..4).map(|n| here.runner(&["--concurrency", "1", "--name", &format!("runner-{n}")])).collect();
    let guests = [
        ("spins", json!([{"do": "spin"}])),
        ("sleeps", json!([{"do": "sleep", "ms": 3_600_000}])),
        ("asks", json!([{"do": "until_cancelled", "nap_ms": 50}, {"do": "set", "key": "a", "value": 1}])),
        // Not without a pause: ten million calls of the host are soon made, and are the most that an attempt may make.
        ("asks-and-stays", json!([{"do": "until_cancelled", "nap_ms": 1}, {"do": "sleep", "ms": 3_600_000}])),
    ];
    for (id, steps) in &guests {
        here.ok(&["enqueue", "reach", &json!({"steps": steps}).to_string(), "--id", id]);
    }
    here.counts("reach", "all run", SOON, |q| q["running"] == 4);
    let running = here.all_jobs(&["--queue", "reach", "--state", "running"]);
    for (id, _) in &guests {
        #[allow(clippy::disallowed_methods, reason = "a figure for people")]
        let asked = std::time::Instant::now();
        here.ok(&["job", "cancel", id]);
        let job = here.job_in(id, "cancelled", SOON);
        println!("{id} is cancelled after {} ms", asked.elapsed().as_millis());
        assert_eq!(
            (&job["attempt"], &job["error"], &job["result"]),
            (&json!(1), &json!(null), &json!(null)),
            "{job:#}"
        );
    }
    for id in ["asks", "asks-and-stays"] {
        assert!(here.ok(&["job", "logs", id]).contains("INFO told"), "{id} was told");
    }
    assert_eq!(running.len(), 4);
    // A runner that was rid of one takes the next.
    here.ok(&["enqueue", "reach", r#"{"steps":[]}"#, "--id", "next"]);
    here.job_in("next", "completed", SOON);
}

fn progress_shows_while_a_job_runs_and_stays_after_it(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["reach"]);
    let _runner = here.runner(&[]);
    let script = json!({"steps": [
        {"do": "progress", "percent": 40, "message": "page 2 of 5"},
        {"do": "until_cancelled", "nap_ms": 20},
    ]});
    here.ok(&["enqueue", "reach", &script.to_string(), "--id", "p"]);
    eventually("its progress shows", SOON, || {
        let job = here.job("p");
        (job["state"] == "running" && job["progress"]["message"] == "page 2 of 5").then_some(())
    });
    assert!(here.ok(&["job", "show", "p"]).contains("40 %"));
    here.ok(&["job", "cancel", "p"]);
    let job = here.job_in("p", "cancelled", SOON);
    assert_eq!(job["progress"]["percent"], 40, "{job:#}");
    // What a short job said last is written with its outcome.
    let script = json!({"steps": [{"do": "progress", "percent": 99, "message": "nearly"}]});
    here.ok(&["enqueue", "reach", &script.to_string(), "--id", "q"]);
    assert_eq!(here.job_in("q", "completed", SOON)["progress"]["message"], "nearly");
}
