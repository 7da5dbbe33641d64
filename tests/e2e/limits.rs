//! Guests that do not behave: each ends as one failed attempt with its reason, and harms nobody.

use std::time::Duration;

use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

const SOON: Duration = Duration::from_secs(30);

on_both_stores! {
    hostile_guests_end_with_the_right_reason_and_the_runner_lives
    memory_that_all_guests_share_is_waited_for_and_not_fought_over
    half_a_runner_of_spinning_guests_makes_nobody_late
}

fn fails(here: &Hourhand, kind: &str, payload: &str, timeout: &str) -> Value {
    let id = format!("bad-{kind}-{}", payload.len());
    here.ok(&["enqueue", kind, payload, "--id", &id, "--max-attempts", "1", "--timeout", timeout]);
    here.job_in(&id, "dead", SOON)
}

fn hostile_guests_end_with_the_right_reason_and_the_runner_lives(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["spin", "nap", "grow", "shout", "recurse", "echo"]);
    let mut runner = here.runner(&[]);
    // What meets its limit long before its time-out has a long one: a busy machine makes guests slow.
    for (kind, payload, reason, timeout) in [
        ("spin", "null", "timeout", "1s"),
        ("nap", r#"{"ms":3600000}"#, "timeout", "1s"),
        ("nap", r#"{"ms":18446744073709551615}"#, "timeout", "1s"),
        ("grow", r#"{"mib":4096}"#, "memory", "20s"),
        ("recurse", "null", "stack", "20s"),
    ] {
        let job = fails(&here, kind, payload, timeout);
        assert_eq!(job["error"]["reason"], reason, "{kind} {payload}: {job:#}");
        assert_eq!(job["attempt"], 1);
        let took: f64 = job["duration_ms"].as_f64().unwrap();
        assert!(reason != "timeout" || took < 2_000.0, "{kind} took {took} ms");
    }
    here.ok(&["enqueue", "shout", r#"{"bytes":1000000000}"#, "--id", "loud", "--timeout", "25s"]);
    let loud = here.job_in("loud", "completed", SOON);
    assert_eq!(loud["attempt"], 1, "{loud:#}");
    let log = here.ok(&["job", "logs", "loud"]);
    assert!(log.len() < 100_000, "{} bytes of log", log.len());
    here.ok(&["enqueue", "echo", "1", "--wait"]);
    assert_eq!(runner.stop().code(), Some(0));
}

fn memory_that_all_guests_share_is_waited_for_and_not_fought_over(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["grow"]);
    let runner = here.runner(&["--memory-total", "256MiB", "--concurrency", "32"]);
    let lines = "{\"kind\":\"grow\",\"payload\":{\"mib\":100}}\n".repeat(60);
    std::fs::write(here.dir.path().join("grow.ndjson"), lines).unwrap();
    let cpu = runner.cpu();
    here.ok(&["enqueue", "--ndjson", "grow.ndjson"]);
    here.counts("grow", "all have grown", Duration::from_secs(60), |q| q["completed"] == 60);
    println!("{:?} of CPU for 60 guests of 100 MiB", runner.cpu() - cpu);
    let jobs = here.all_jobs(&["--queue", "grow", "--state", "completed"]);
    let released =
        |job: &Value| job["history"].as_array().unwrap().iter().filter(|e| e["event"] == "released").count();
    let most = jobs.iter().map(released).max().unwrap();
    assert!(jobs.iter().all(|job| job["attempt"] == 1), "a memory limit uses no attempt");
    assert!(most <= 10, "a job was claimed in vain {most} times");
}

fn half_a_runner_of_spinning_guests_makes_nobody_late(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["spin", "echo"]);
    let _runner = here.runner(&["--concurrency", "32"]);
    let mut lines = String::new();
    for _ in 0..16 {
        lines.push_str("{\"kind\":\"spin\",\"timeout\":\"12s\",\"max_attempts\":1,\"payload\":null}\n");
    }
    for n in 0..400 {
        let delay = 1_000 + n * 20;
        lines.push_str(&format!("{{\"kind\":\"echo\",\"delay\":\"{delay}ms\",\"payload\":{n}}}\n"));
    }
    std::fs::write(here.dir.path().join("mixed.ndjson"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "mixed.ndjson"]);
    here.counts("echo", "all echoes end", Duration::from_secs(60), |q| q["completed"] == 400);
    let jobs = here.all_jobs(&["--queue", "echo", "--state", "completed"]);
    let mut lateness: Vec<f64> = jobs.iter().map(|j| j["lateness_ms"].as_f64().unwrap()).collect();
    lateness.sort_by(f64::total_cmp);
    let p99 = lateness[lateness.len() * 99 / 100];
    println!("lateness beside 16 spinning guests: p50 {} ms, p99 {p99} ms", lateness[lateness.len() / 2]);
    // The promise is 50 ms on a quiet machine; a test on a shared one only tells starvation from service.
    assert!(p99 < 500.0, "p99 {p99} ms");
    let spins = here.all_jobs(&["--queue", "spin", "--state", "running"]);
    assert!(!spins.is_empty(), "the spinning ones were there all the time");
}
