//! The thin path: enqueue, claim, sandbox, settle, show.

use std::time::Duration;

use serde_json::json;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

const SOON: Duration = Duration::from_secs(20);

on_both_stores! {
    a_job_goes_all_the_way_and_its_record_tells_its_life
    a_delayed_job_waits_and_a_failing_one_is_tried_again_until_it_is_dead
    a_job_without_a_handler_waits_for_one
    waiting_for_a_job_tells_how_it_ended
}

fn a_job_goes_all_the_way_and_its_record_tells_its_life(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let _runner = here.runner(&[]);
    let payload = r#"{"b":1, "a": [ ] ,"a":2}"#;
    let enqueued = here.json(&["enqueue", "echo", payload, "--id", "one", "--meta", "tenant=t1"]);
    assert_eq!(enqueued["id"], "one");
    assert_eq!(enqueued["created"], true);
    let job = here.job_in("one", "completed", SOON);
    assert_eq!(job["payload"], payload);
    assert_eq!(job["result"], payload, "byte for byte through the sandbox and back");
    assert_eq!(job["attempt"], 1);
    assert_eq!(job["crashes"], 0);
    assert_eq!(job["queue"], "echo");
    assert_eq!(job["priority"], "normal");
    assert_eq!(job["max_attempts"], 5);
    assert_eq!(job["meta"], json!({"tenant": "t1"}));
    assert_eq!(job["error"], json!(null));
    assert_eq!(job["handler"].as_str().map(str::len), Some(12));
    assert!(job["lateness_ms"].as_f64().is_some_and(|ms| (0.0..5_000.0).contains(&ms)), "{job:#}");
    let events: Vec<&str> =
        job["history"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["enqueued", "started", "completed"]);
}

fn a_delayed_job_waits_and_a_failing_one_is_tried_again_until_it_is_dead(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "boom"]);
    let _runner = here.runner(&[]);
    here.ok(&["enqueue", "echo", "1", "--id", "later", "--delay", "1500ms"]);
    here.ok(&["enqueue", "boom", r#"{"msg":"no luck"}"#, "--id", "bad", "--max-attempts", "1"]);
    assert_eq!(here.job("later")["state"], "scheduled");
    let dead = here.job_in("bad", "dead", SOON);
    assert_eq!(dead["error"]["reason"], "error");
    assert!(dead["error"]["message"].as_str().unwrap().contains("no luck"), "{dead:#}");
    let done = here.job_in("later", "completed", SOON);
    let at = |key: &str| done[key].as_str().unwrap().to_owned();
    assert!(at("started_at") >= at("due_at"), "{done:#}");
    assert!(done["lateness_ms"].as_f64().unwrap() < 1_000.0, "{done:#}");
}

fn a_job_without_a_handler_waits_for_one(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let _runner = here.runner(&[]);
    let output = here.run(&["enqueue", "nonce", "null", "--id", "n"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonce"), "a warning that nobody serves it");
    here.ok(&["enqueue", "echo", "1", "--id", "e", "--wait"]);
    assert_eq!(here.job("n")["state"], "ready");
    assert_eq!(here.job("n")["attempt"], 0);
    here.install("nonce", "nonce");
    assert_eq!(here.job_in("n", "completed", SOON)["attempt"], 1);
}

fn waiting_for_a_job_tells_how_it_ended(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "boom"]);
    let _runner = here.runner(&[]);
    let good = here.run(&["enqueue", "echo", "\"hi\"", "--wait"]);
    assert_eq!(good.status.code(), Some(0));
    let bad = here.run(&["enqueue", "boom", r#"{"msg":"x"}"#, "--max-attempts", "1", "--wait"]);
    assert_eq!(bad.status.code(), Some(1));
}
