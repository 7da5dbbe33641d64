//! `hourhand doctor --smoke`: a real job from the enqueue to its outcome, and nothing of it left.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::free_port;
use crate::harness::waiting::eventually;

on_both_stores! {
    without_a_runner_the_doctor_runs_its_own_job_and_leaves_nothing
    with_a_kind_the_live_runners_run_it
    a_job_that_does_not_end_is_taken_back
}

fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The messages of what went wrong with the smoke job.
fn complaints(said: &Value) -> String {
    let items = said["items"].as_array().expect("a list").iter().filter(|item| item["check"] == "smoke");
    items.map(|item| item["message"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("; ")
}

fn without_a_runner_the_doctor_runs_its_own_job_and_leaves_nothing(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let mut queues = Vec::new();
    for round in 0..2 {
        let output = here.run(&["doctor", "--smoke", "--json"]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let smoke = &said["smoke"];
        assert_eq!((&smoke["kind"], &smoke["state"]), (&json!("hourhand_smoke"), &json!("completed")));
        let ms = |name: &str| smoke[name].as_f64().unwrap_or_else(|| panic!("{name}: {smoke:#}"));
        assert!(ms("lateness_ms") >= 0.0 && ms("settled_ms") >= ms("lateness_ms"), "{smoke:#}");
        assert!(ms("total_ms") >= 1_000.0, "it was due in a second: {smoke:#}");
        assert_eq!(here.all_jobs(&[]), [] as [Value; 0]);
        assert_eq!(here.json(&["runner", "list"])["items"], json!([]));
        queues.push(here.json(&["queue", "list"])["items"].clone());
        assert_eq!(queues[round][0]["completed_total"], round + 1);
        assert_eq!(queues[round].as_array().map(Vec::len), Some(1), "one queue, however often: {queues:#?}");
    }
    let output = here.run(&["doctor", "--smoke"]);
    check(&output, 0, "");
    assert!(
        text(&output.stdout).contains("\nsmoke: a job of kind hourhand_smoke completed on "),
        "{output:?}"
    );
}

fn with_a_kind_the_live_runners_run_it(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nonce", "order_close"]);
    store.make();
    #[allow(clippy::disallowed_methods, reason = "a test's own deadline")]
    let began = Instant::now();
    let output = here.run(&["doctor", "--smoke=nonce", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(complaints(&said(&output)), "no live runner serves kind nonce: nothing was enqueued");
    assert!(began.elapsed() < Duration::from_secs(20), "at once");
    let mut runner = here.runner(&["--name", "live"]);
    let output = here.run(&["doctor", "--smoke=nonce", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let smoke = said(&output)["smoke"].clone();
    assert_eq!((&smoke["runner"], &smoke["state"]), (&json!("live"), &json!("completed")));
    assert_eq!(here.all_jobs(&[]), [] as [Value; 0]);
    // A handler that wants another payload says so, and its dead letter does not stay.
    let output = here.run(&["doctor", "--smoke=order_close", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(complaints(&said(&output)).starts_with("the job ended dead: "), "{output:?}");
    assert_eq!(here.all_jobs(&[]), [] as [Value; 0]);
    here.ok(&["queue", "pause", "nonce"]);
    let output = here.run(&["doctor", "--smoke=nonce", "--json"]);
    assert_eq!(complaints(&said(&output)), "queue nonce is paused: nothing was enqueued");
    assert!(runner.stop().success());
}

fn a_job_that_does_not_end_is_taken_back(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["spin"]);
    let mut runner = here.runner(&[]);
    let output = here.run(&["doctor", "--smoke=spin", "--within", "2s", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = said(&output);
    assert_eq!(complaints(&said), "the job did not end within 2 s: it still ran");
    assert_eq!(said["smoke"]["state"], json!(null));
    assert_eq!(here.all_jobs(&[]), [] as [Value; 0]);

    for signal in [libc::SIGINT, libc::SIGHUP] {
        let mut child = here.command(&["doctor", "--smoke=spin", "--json"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        eventually("the smoke job runs", Duration::from_secs(60), || {
            here.all_jobs(&[]).first().filter(|job| job["state"] == "running").map(drop)
        });
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(child.id() as i32, signal) };
        assert_eq!(sent, 0);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{signal}: {output:?}");
        assert_eq!(here.all_jobs(&[]), [] as [Value; 0]);
    }
    assert!(runner.stop().success());
}

#[test]
fn a_store_that_is_away_takes_no_smoke_job() {
    let here = Hourhand::new(&format!("redis://127.0.0.1:{}", free_port()), &[]);
    check(&here.run(&["doctor", "--smoke"]), 5, "store out of reach");
    check(&here.run(&["doctor", "--within", "1s"]), 2, "--smoke");
    check(&here.run(&["doctor", "--smoke", "--within", "soon"]), 2, "--within");
}
