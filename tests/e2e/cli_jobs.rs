//! The command line with a runner: cancel, logs, dead letters and who is served.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

const SOON: Duration = Duration::from_secs(20);

on_both_stores! {
    a_running_job_is_cancelled_and_cannot_be_deleted_or_moved
    following_a_log_ends_with_the_job_and_shows_what_it_wrote
    dead_letters_are_listed_counted_brought_back_and_deleted
    a_kind_that_nobody_serves_is_warned_of_and_a_served_one_is_not
    waiting_prints_the_outcome_and_the_result
}

fn a_running_job_is_cancelled_and_cannot_be_deleted_or_moved(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let _runner = here.runner(&[]);
    here.ok(&["enqueue", "nap", r#"{"ms":60000}"#, "--id", "n", "--timeout", "100s"]);
    here.job_in("n", "running", SOON);
    for args in [
        &["job", "delete", "n"][..],
        &["job", "retry", "n"],
        &["job", "reschedule", "n", "--delay", "1s"],
        &["enqueue", "nap", "--id", "n", "--on-conflict", "replace"],
    ] {
        assert_eq!(here.run(args).status.code(), Some(4), "{args:?}");
    }
    let answer = here.json(&["job", "cancel", "n"]);
    assert_eq!(
        answer["items"][0],
        json!({"id": "n", "queue": "nap", "result": "cancelled", "state": "cancelled"})
    );
    assert_eq!(here.job("n")["state"], "cancelled");
}

fn following_a_log_ends_with_the_job_and_shows_what_it_wrote(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    here.ok(&["enqueue", "nonce", "--id", "n", "--delay", "1s"]);
    let _runner = here.runner(&[]);
    let followed = here.ok(&["job", "logs", "n", "--follow"]);
    assert!(followed.starts_with("== attempt 1 ==\n") && followed.contains("n "), "{followed}");
    let logs = here.json(&["job", "logs", "n"]);
    let text = logs["items"][0]["text"].as_str().expect("text");
    assert_eq!(followed, format!("== attempt 1 ==\n{text}"));
    assert_eq!(here.ok(&["job", "logs", "n"]), text);
}

fn dead_letters_are_listed_counted_brought_back_and_deleted(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["boom"]);
    let _runner = here.runner(&[]);
    let lines: String = (0..620)
        .map(|n| {
            let what = if n % 4 == 0 { "apple" } else { "pear" };
            format!("{{\"kind\":\"boom\",\"id\":\"{n}\",\"max_attempts\":1,\"payload\":{{\"msg\":\"{what} {n}\"}}}}\n")
        })
        .collect();
    std::fs::write(here.dir.path().join("jobs"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs"]);
    here.counts("boom", "all are dead", SOON, |q| q["dead"] == 620);

    let by_error = here.json(&["dead", "list", "--by", "error"]);
    let counts: Vec<(&Value, &Value)> =
        by_error["items"].as_array().unwrap().iter().map(|i| (&i["error"], &i["count"])).collect();
    assert_eq!(
        counts,
        [(&json!("error: pear #"), &json!(465)), (&json!("error: apple #"), &json!(155))],
        "messages that differ in a number are one error"
    );
    assert_eq!(here.json(&["dead", "list", "--by", "kind"])["items"][0]["kind"], "boom");
    let filtered = here.json(&["dead", "list", "--error", "apple", "--limit", "1000"]);
    assert_eq!(filtered["items"].as_array().unwrap().len(), 155);

    assert_eq!(here.json(&["dead", "delete", "--error", "pear"]), json!({"deleted": 465, "skipped": 0}));
    here.ok(&["queue", "pause", "boom"]);
    assert_eq!(
        here.json(&["dead", "retry", "--all", "--queue", "boom"]),
        json!({"requeued": 155, "skipped": 0})
    );
    let waiting = here.json(&["queue", "show", "boom"]);
    assert_eq!((&waiting["dead"], &waiting["ready"]), (&json!(0), &json!(155)), "paused ones wait");
    assert_eq!(here.job("0")["attempt"], 0);
    here.ok(&["queue", "resume", "boom"]);
    here.counts("boom", "all are dead again", SOON, |q| q["dead"] == 155);
    here.ok(&["dead", "retry", "0"]);
    here.job_in("0", "dead", SOON);
    assert_eq!(here.json(&["dead", "delete", "--since", "1h"])["deleted"], 155);
}

fn a_kind_that_nobody_serves_is_warned_of_and_a_served_one_is_not(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let _runner = here.runner(&["--name", "r1"]);
    let stderr = |kind: &str| {
        let output = here.run(&["enqueue", kind, "1"]);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let runner = eventually("the runner has shown itself", SOON, || {
        let runner = here.json(&["runner", "list"])["items"].get(0)?.clone();
        (runner["kinds"] == json!(["echo"])).then_some(runner)
    });
    assert_eq!(stderr("echo"), "");
    assert!(stderr("other").contains("no live runner serves kind other"));
    assert_eq!((&runner["runner"], &runner["live"]), (&json!("r1"), &json!(true)));
    let stats = here.json(&["stats"]);
    let served: Vec<&Value> = stats["queues"].as_array().unwrap().iter().map(|q| &q["served"]).collect();
    assert_eq!(served, [&json!(true), &json!(false)]);
}

fn waiting_prints_the_outcome_and_the_result(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "boom"]);
    let _runner = here.runner(&[]);
    let told = here.ok(&["enqueue", "echo", "hello", "--id", "e", "--wait"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0] == "e" && lines[1].starts_with("completed in ") && lines[2] == "hello", "{told}");
    let job = here.json(&["enqueue", "echo", "again", "--wait"]);
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!("again")));
    let output = here.run(&["enqueue", "boom", r#"{"msg":"no"}"#, "--max-attempts", "1", "--wait", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"]["message"], "no");
    let again = here.run(&["enqueue", "echo", "hello", "--id", "e", "--wait", "--json"]);
    assert_eq!(again.status.code(), Some(0), "a finished job is kept, and had completed");
}
