//! What handlers end in, and what the record says of it: by the module `faults`, which serves many kinds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

const SOON: Duration = Duration::from_secs(30);

on_both_stores! {
    a_snooze_is_no_failure
    each_way_to_fail_has_its_reason_and_its_text
    a_permanent_failure_runs_once_and_a_flaky_one_until_it_works
    dead_letters_over_their_limit_are_counted_and_told
}

fn a_snooze_is_no_failure(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["faults"]);
    let _runner = here.runner(&[]);
    let payload = r#"{"ms":1000,"times":5,"fails":2}"#;
    here.ok(&["enqueue", "snooze", payload, "--id", "s", "--max-attempts", "3"]);
    let job = here.job_in("s", "completed", SOON);
    assert_eq!((&job["attempt"], &job["result"]), (&json!(3), &json!("3")), "{job:#}");
    let events: Vec<&str> =
        job["history"].as_array().unwrap().iter().filter_map(|e| e["event"].as_str()).collect();
    let count = |event: &str| events.iter().filter(|e| **e == event).count();
    // The guest reckons by the time since its enqueue: on a busy machine, late starts leave less time to snooze in.
    let snoozed = count("snoozed");
    assert!((1..=5).contains(&snoozed), "{events:?}");
    assert_eq!(count("started"), snoozed + 3, "after them two failures and one success: {events:?}");
    assert_eq!((count("retry"), count("completed")), (2, 1), "{events:?}");
}

fn each_way_to_fail_has_its_reason_and_its_text(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["faults"]);
    let _runner = here.runner(&[]);
    for (kind, reason, words) in [
        ("exit7", "exit", "7"),
        ("abort_now", "trap", "unreachable"),
        ("panic_text", "panic", "bad id 7"),
        ("panic_in_drop", "panic", "faults/src/panics.rs:"),
        ("spawn_thread", "panic", "failed to spawn thread"),
    ] {
        here.ok(&["enqueue", kind, "--id", kind, "--max-attempts", "1"]);
        let job = here.job_in(kind, "dead", SOON);
        assert_eq!((&job["error"]["reason"], &job["attempt"]), (&json!(reason), &json!(1)), "{job:#}");
        assert!(job["error"]["message"].as_str().unwrap().contains(words), "{job:#}");
    }
    here.ok(&["enqueue", "exit0", "--id", "exit0"]);
    assert_eq!(here.job_in("exit0", "completed", SOON)["attempt"], 1);
}

fn a_permanent_failure_runs_once_and_a_flaky_one_until_it_works(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["faults"]);
    let _runner = here.runner(&[]);
    here.ok(&["enqueue", "permanent", r#"{"msg":"never"}"#, "--id", "p", "--max-attempts", "10"]);
    here.ok(&["enqueue", "flaky", r#"{"fails":2,"after_ms":200}"#, "--id", "f"]);
    let dead = here.job_in("p", "dead", SOON);
    let error = |job: &Value| (job["error"]["reason"].clone(), job["error"]["message"].clone());
    assert_eq!(
        (error(&dead), &dead["attempt"]),
        ((json!("permanent"), json!("never")), &json!(1)),
        "{dead:#}"
    );
    let done = here.job_in("f", "completed", SOON);
    assert_eq!((&done["attempt"], &done["result"]), (&json!(3), &json!("3")), "{done:#}");
    assert_eq!(done["max_attempts"], 20, "what the module declares: {done:#}");
}

fn dead_letters_over_their_limit_are_counted_and_told(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["faults"]);
    let runner = here.runner(&["--dead-count", "3"]);
    for n in 0..8 {
        here.ok(&["enqueue", "permanent", r#"{"msg":"never"}"#, "--id", &format!("p{n}")]);
    }
    let counts = here.counts("permanent", "all end", SOON, |q| {
        q["dead"] == 3 && q["dead_dropped_total"] == 5 && q["failed_total"] == 8
    });
    assert_eq!(counts["enqueued_total"], 8, "{counts:#}");
    let line = eventually("the runner tells of it", SOON, || {
        runner.log().lines().find(|line| line.contains("dead letters were dropped")).map(str::to_owned)
    });
    assert!(line.contains("queue=permanent") && line.contains("WARN"), "{line}");
    assert!(here.ok(&["queue", "show", "permanent"]).contains("5 dead letters dropped by a limit"));
}
