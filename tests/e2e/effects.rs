//! What a handler does through its host becomes true together with its completion, or not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

const SOON: Duration = Duration::from_secs(60);

on_both_stores! {
    children_come_with_the_completion_and_say_where_from
    an_attempt_that_fails_has_done_nothing
    what_is_not_granted_names_the_line_in_the_record
    jobs_that_read_and_write_the_same_entry_lose_nothing
    what_is_counted_blindly_adds_up_over_runners
}

fn here(store: &str, manifest: &str) -> Hourhand {
    let here = Hourhand::new(store, &["reach", "nonce"]);
    here.manifest("reach", manifest);
    here
}

fn enqueue(here: &Hourhand, id: &str, steps: &Value) {
    here.ok(&["enqueue", "reach", &json!({"strict": true, "steps": steps}).to_string(), "--id", id]);
}

/// What a completed job has answered.
fn answers(job: &Value) -> Value {
    serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON")
}

/// What the bucket holds under `n`, as a last job sees it.
fn n(here: &Hourhand) -> Value {
    enqueue(here, "last", &json!([{"do": "get", "key": "n"}]));
    answers(&here.job_in("last", "completed", SOON))[0].clone()
}

fn children_come_with_the_completion_and_say_where_from(on: StoreKind) {
    let store = on.start();
    let here = here(&store.url(), "[allow]\nenqueue = ['nonce']");
    let _runner = here.runner(&[]);
    let payload = json!({"strict": true, "steps": [
        {"do": "enqueue", "kind": "nonce", "times": 5},
        {"do": "enqueue", "kind": "nonce", "id": "chosen", "delay_ms": 1_500, "meta": [["k", "v"]]},
    ]});
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let line = json!({"kind": "reach", "id": "parent", "payload": payload, "traceparent": trace});
    std::fs::write(here.dir.path().join("jobs.ndjson"), format!("{line}\n")).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    let parent = here.job_in("parent", "completed", SOON);
    here.counts("nonce", "all children end", SOON, |q| q["completed"] == 6);
    let children = here.all_jobs(&["--queue", "nonce"]);
    let made: BTreeSet<&str> = children.iter().filter_map(|job| job["id"].as_str()).collect();
    let told = answers(&parent);
    let told: BTreeSet<&str> = told
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|ids| ids.as_array().unwrap())
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(made, told);
    for child in &children {
        assert_eq!(child["source"], "job:reach/parent", "{child:#}");
        assert_eq!(child["traceparent"], trace, "{child:#}");
        assert_eq!(
            (&child["meta"]["hourhand.parent"], &child["meta"]["hourhand.depth"]),
            (&json!("reach/parent"), &json!("1"))
        );
    }
    let chosen = here.job("chosen");
    assert_eq!(chosen["meta"]["k"], "v");
    let ms = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert!(
        ms(&chosen["due_at"]) - ms(&parent["finished_at"]) >= 1_499,
        "from the completion on: {chosen:#}"
    );
    // The same id again, while it is remembered: the job is there already, and the parent completes all the same.
    enqueue(&here, "again", &json!([{"do": "enqueue", "kind": "nonce", "id": "chosen"}]));
    here.job_in("again", "completed", SOON);
    assert_eq!(here.all_jobs(&["--queue", "nonce"]).len(), 6);
}

fn an_attempt_that_fails_has_done_nothing(on: StoreKind) {
    let store = on.start();
    let here = here(&store.url(), "[allow]\nenqueue = ['nonce']\nstate = true\n[retry]\nattempts = 1");
    let _runner = here.runner(&[]);
    for (id, end) in [("fails", json!({"do": "fail", "message": "no"})), ("panics", json!({"do": "panic"}))] {
        let steps = json!([{"do": "enqueue", "kind": "nonce"}, {"do": "set", "key": "n", "value": 7}, end]);
        enqueue(&here, id, &steps);
        here.job_in(id, "dead", SOON);
    }
    assert_eq!(n(&here), Value::Null);
    assert_eq!(here.all_jobs(&["--kind", "nonce"]).len(), 0);
}

fn what_is_not_granted_names_the_line_in_the_record(on: StoreKind) {
    let store = on.start();
    let here = here(&store.url(), "[allow]\nenqueue = ['other']\n[retry]\nattempts = 1");
    let _runner = here.runner(&[]);
    for (id, step, line) in [
        (
            "jobs",
            json!({"do": "enqueue", "kind": "nonce"}),
            r#"reach.toml: [allow] enqueue = ["other", "nonce"]"#,
        ),
        ("state", json!({"do": "get", "key": "a"}), "reach.toml: [allow] state = true"),
        ("secret", json!({"do": "secret", "name": "pin"}), r#"reach.toml: [allow] secrets = ["pin"]"#),
    ] {
        enqueue(&here, id, &json!([step]));
        let dead = here.job_in(id, "dead", SOON);
        assert_eq!(dead["error"]["reason"], "denied", "{dead:#}");
        assert!(dead["error"]["message"].as_str().unwrap().contains(line), "{dead:#}");
    }
}

fn jobs_that_read_and_write_the_same_entry_lose_nothing(on: StoreKind) {
    const JOBS: usize = 100;
    let store = on.start();
    let here = here(&store.url(), "[allow]\nstate = 'counters'");
    let _runners: Vec<_> = (0..2).map(|_| here.runner(&["--concurrency", "4"])).collect();
    // It looks first, so that what it adds must fit what it has seen.
    let steps = json!([{"do": "get", "key": "n"}, {"do": "increment", "key": "n", "by": 1}]);
    // All at once, so that they are in each other's way.
    let line = format!("{}\n", json!({"kind": "reach", "payload": {"strict": true, "steps": steps}}));
    std::fs::write(here.dir.path().join("jobs.ndjson"), line.repeat(JOBS)).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    here.counts("reach", "all end", SOON, |q| q["completed"] == JOBS);
    let jobs = here.all_jobs(&["--queue", "reach"]);
    let seen: BTreeSet<u64> = jobs.iter().map(|job| answers(job)[1].as_u64().unwrap()).collect();
    assert_eq!(seen, (1..=JOBS as u64).collect(), "each saw what the one before had left");
    for job in &jobs {
        assert_eq!(
            (&job["attempt"], &job["error"]),
            (&json!(1), &json!(null)),
            "a conflict costs no attempt: {job:#}"
        );
    }
    let again: usize =
        jobs.iter().map(|job| job["history"].as_array().unwrap().len().saturating_sub(3)).sum();
    println!("{again} events beyond the usual");
    assert!(again > 0, "no two were in each other's way: nothing was tried");
    assert_eq!(n(&here), json!(JOBS));
}

fn what_is_counted_blindly_adds_up_over_runners(on: StoreKind) {
    const JOBS: usize = 200;
    let store = on.start();
    let here = here(&store.url(), "[allow]\nstate = true");
    let _runners: Vec<_> = (0..2).map(|_| here.runner(&[])).collect();
    let steps = json!([{"do": "increment", "key": "n", "by": 3}]);
    let payload = json!({"strict": true, "steps": steps});
    let line = format!("{}\n", json!({"kind": "reach", "payload": payload}));
    std::fs::write(here.dir.path().join("jobs.ndjson"), line.repeat(JOBS)).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    here.counts("reach", "all end", SOON, |q| q["completed"] == JOBS);
    assert_eq!(n(&here), json!(3 * JOBS));
}
