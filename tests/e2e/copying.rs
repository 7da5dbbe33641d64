//! `hourhand store copy`: moving house, from one file to a server and back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::at_redis;
use crate::harness::backing::{SqliteFile, StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::{RedisServer, free_port};

const SOON: Duration = Duration::from_secs(20);

on_both_stores! {
    a_store_is_the_same_in_another_and_back_again
    a_copy_is_refused_while_a_runner_works_on_the_source
    what_a_killed_runner_had_waits_in_the_copy
    a_copy_into_a_store_that_is_in_use_leaves_it_alone
}

/// A world in which jobs have met every fate: a runner has been here, and is gone.
fn lived_in(url: &str) -> Hourhand {
    let here = Hourhand::new(url, &["nonce", "boom", "nap"]);
    here.ok(&["enqueue", "nonce", "1", "--id", "forgotten"]);
    here.ok(&["run", "--handlers", "handlers", "--until-idle", "--completed-age", "0"]);
    let mut runner = here.runner(&["--name", "r1"]);
    let run = |id: &str, more: &[&str]| {
        let args = [&["enqueue", more[0], more[1], "--id", id][..], &more[2..]].concat();
        here.ok(&args);
    };
    run("done é/1", &["nonce", r#"{"a": 1}"#, "--queue", "orders", "--meta", "k=v", "--priority", "high"]);
    run("dead", &["boom", r#"{"msg":"no route"}"#, "--max-attempts", "1"]);
    run("retried", &["boom", r#"{"msg":"try again"}"#]);
    run("again", &["boom", r#"{"msg":"once more"}"#, "--max-attempts", "1"]);
    run("stopped", &["nap", r#"{"ms":60000}"#, "--timeout", "100s"]);
    here.job_in("done é/1", "completed", SOON);
    here.job_in("dead", "dead", SOON);
    here.job_in("again", "dead", SOON);
    here.job_in("stopped", "running", SOON);
    here.ok(&["job", "cancel", "stopped"]);
    here.counts("boom", "one is to be retried", SOON, |q| q["scheduled"] == 1);
    assert_eq!(runner.stop().code(), Some(0));
    here.ok(&["queue", "pause", "boom"]);
    here.ok(&["queue", "pause", "empty"]);
    here.ok(&["dead", "retry", "again"]);
    here.ok(&["enqueue", "later", "--delay", "1h", "--timeout", "3s", "--max-attempts", "7"]);
    // Of one millisecond, some with ids that the store makes.
    let due = "\"at\": \"2090-01-01T00:00:00Z\"";
    let lines: String = (0..300)
        .map(|n| match n % 3 {
            0 => format!("{{\"kind\": \"later\", {due}, \"payload\": {n}}}\n"),
            1 => format!("{{\"kind\": \"nonce\", {due}, \"id\": \"n{n}\", \"priority\": \"low\"}}\n"),
            _ => format!(
                "{{\"kind\": \"later\", {due}, \"queue\": \"orders\", \"payload_base64\": \"AAEf/w==\"}}\n"
            ),
        })
        .collect();
    std::fs::write(here.dir.path().join("jobs"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "jobs"]);
    for (bucket, key, value) in [("counts", "n", "7"), ("counts", "é/1", "two\nlines"), ("seen", "k", "")] {
        here.ok(&["state", "set", bucket, key, value, "--store", url]);
    }
    here
}

/// Everything that the command line shows of a store, but for who runs it.
fn shown(here: &Hourhand, store: &str) -> Value {
    let ask = |args: &[&str]| here.json(&[args, &["--store", store]].concat());
    let mut jobs = Vec::new();
    let mut cursor = None;
    loop {
        let mut args = vec!["job", "list", "--limit", "1000"];
        args.extend(cursor.iter().flat_map(|cursor: &String| ["--cursor", cursor]));
        let page = ask(&args);
        jobs.extend(page["items"].as_array().expect("items").iter().cloned());
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    let named = ["done é/1", "dead", "retried", "again", "stopped", "n1"];
    let of_each = |what: &str| named.map(|id| ask(&["job", what, id]));
    // Versions are a store's own.
    let values = |bucket: &str| -> Vec<[Value; 2]> {
        let listed = ask(&["state", "list", bucket]);
        let items = listed["items"].as_array().expect("items");
        items.iter().map(|item| [item["key"].clone(), item["value"].clone()]).collect()
    };
    json!({
        "jobs": jobs,
        "buckets": ask(&["state", "list"]),
        "state": [values("counts"), values("seen")],
        "shown": of_each("show"),
        "logs": of_each("logs"),
        "dead": ask(&["dead", "list"]),
        "queues": ask(&["stats"])["queues"],
        "details": ask(&["queue", "list"]),
    })
}

fn the_other(on: StoreKind) -> StoreKind {
    if on == StoreKind::Redis { StoreKind::Sqlite } else { StoreKind::Redis }
}

fn a_store_is_the_same_in_another_and_back_again(on: StoreKind) {
    let (store, other) = (on.start(), the_other(on).start());
    let back = on.start();
    let here = lived_in(&store.url());
    let before = shown(&here, &store.url());
    let jobs = before["jobs"].as_array().expect("jobs").len();
    let copy = |from: &str, to: &str| here.json(&["store", "copy", "--from", from, "--to", to]);
    let done = copy(&store.url(), &other.url());
    assert_eq!(
        done,
        json!({"copied": jobs, "already_there": 0, "copied_before": 0, "taken_back": 0, "remembered_ids": 1, "queues": 6, "state": 3})
    );
    assert_eq!(shown(&here, &other.url()), before);
    let again = copy(&store.url(), &other.url());
    assert_eq!((&again["copied"], &again["already_there"]), (&json!(0), &json!(jobs)), "{again:#}");
    copy(&other.url(), &back.url());
    for url in [other.url(), back.url(), store.url()] {
        assert_eq!(shown(&here, &url), before, "{url}");
        assert!(here.ok(&["doctor", "--store", &url]).contains("nothing is wrong"), "{url}");
        let kept = here.json(&["enqueue", "nonce", "2", "--id", "forgotten", "--store", &url]);
        assert_eq!((&kept["created"], &kept["state"]), (&json!(false), &json!("completed")), "{url}");
    }
    // What waited there runs here.
    let there = Hourhand::new(&back.url(), &["nonce", "boom"]);
    there.ok(&["queue", "resume", "boom"]);
    let _runner = there.runner(&[]);
    there.job_in("again", "dead", SOON);
    there.ok(&["job", "reschedule", "n1", "--delay", "0"]);
    there.job_in("n1", "completed", SOON);
}

fn a_copy_is_refused_while_a_runner_works_on_the_source(on: StoreKind) {
    let (store, other) = (on.start(), the_other(on).start());
    let here = Hourhand::new(&store.url(), &["nonce"]);
    here.ok(&["enqueue", "nonce", "--id", "n", "--delay", "1h"]);
    let mut runner = here.runner(&["--name", "busy"]);
    let args = ["store", "copy", "--from", &store.url(), "--to", &other.url()];
    let refused = here.run(&args);
    check(&refused, 4, "runner busy works on the source: stop it (SIGTERM)");
    assert_eq!(text(&refused.stdout), "");
    assert_eq!(here.json(&["stats", "--store", &other.url()])["queues"], json!([]), "nothing was copied");
    assert_eq!(runner.stop().code(), Some(0));
    assert_eq!(here.ok(&args), "1 jobs copied, 0 already there\n");
}

fn what_a_killed_runner_had_waits_in_the_copy(on: StoreKind) {
    let (store, other) = (on.start(), the_other(on).start());
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut runner = here.runner(&["--name", "lost"]);
    here.ok(&["enqueue", "nap", r#"{"ms":60000}"#, "--id", "n"]);
    here.job_in("n", "running", SOON);
    runner.kill();
    let args = ["store", "copy", "--from", &store.url(), "--to", &other.url(), "--json"];
    let output = here.run(&args);
    check(&output, 0, "1 jobs were in the hands of runners that are gone");
    let done: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&done["copied"], &done["taken_back"]), (&json!(1), &json!(1)));
    assert_eq!(here.job("n")["state"], "running", "the source is as it was");
    let job = here.json(&["job", "show", "n", "--store", &other.url()]);
    assert_eq!((&job["state"], &job["attempt"], &job["crashes"]), (&json!("ready"), &json!(1), &json!(1)));
    let last = job["history"].as_array().expect("a history").last().expect("an event");
    assert_eq!((&last["event"], &last["runner"]), (&json!("reclaimed"), &json!("lost")), "{job:#}");
}

fn a_copy_into_a_store_that_is_in_use_leaves_it_alone(on: StoreKind) {
    let (store, other) = (on.start(), the_other(on).start());
    let here = Hourhand::new(&store.url(), &["nonce"]);
    let there = Hourhand::new(&other.url(), &["nonce"]);
    let _runner = there.runner(&[]);
    there.ok(&["enqueue", "nonce", "theirs", "--id", "both", "--delay", "1h"]);
    here.ok(&["enqueue", "nonce", "ours", "--id", "both", "--delay", "1h"]);
    here.ok(&["enqueue", "nonce", "ours", "--id", "due"]);
    let copy = ["store", "copy", "--from", &store.url(), "--to", &other.url()];
    assert_eq!(here.ok(&copy), "1 jobs copied, 1 already there\n");
    assert_eq!(there.job("both")["payload"], "theirs");
    there.job_in("due", "completed", SOON);
    let lateness = there.job("due")["lateness_ms"].as_f64().expect("a number");
    assert!(lateness > 0.0, "it was due before it came");
    there.ok(&["job", "delete", "due"]);
    here.ok(&["enqueue", "nonce", "ours", "--id", "new", "--delay", "1h"]);
    assert_eq!(here.ok(&copy), "1 jobs copied, 2 already there\n", "its id is remembered");
}

#[test]
fn a_copy_that_was_cut_short_goes_on() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &[]);
    let payload = "x".repeat(1_000);
    let lines: String = (0..5_000)
        .map(|n| format!("{{\"kind\":\"k\",\"id\":\"n{n}\",\"delay\":\"1h\",\"payload\":\"{payload}\"}}\n"))
        .collect();
    std::fs::write(here.dir.path().join("jobs"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "jobs"]);
    let redis = RedisServer::start();
    at_redis::command(&redis, &["CONFIG", "SET", "maxmemory", "4mb"]);
    let args = ["store", "copy", "--from", &file.url(), "--to", &redis.url(), "--json"];
    let output = here.run(&args);
    check(&output, 5, "the same command goes on with the others");
    assert_eq!(text(&output.stdout), "");
    let there = here.json(&["stats", "--store", &redis.url()])["queues"][0]["scheduled"].as_u64().unwrap();
    assert!(there > 0 && there < 5_000, "{there} jobs before the memory was full");
    at_redis::command(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    let done = here.json(&args[..args.len() - 1]);
    assert_eq!((&done["copied"], &done["already_there"]), (&json!(5_000 - there), &json!(there)));
    let ids = |store: &str| {
        let page = here.json(&["job", "list", "--limit", "1000", "--store", store]);
        page["items"].as_array().expect("items").iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&redis.url()), ids(&file.url()), "in the same order");
    assert_eq!(here.json(&["stats", "--store", &redis.url()])["queues"][0]["enqueued_total"], 5_000);
}

#[test]
fn a_copy_that_makes_no_sense_is_refused() {
    let (file, redis) = (SqliteFile::new(), RedisServer::start());
    let here = Hourhand::new("", &[]);
    let (from, to) = (file.url(), redis.url());
    let copy = |more: &[&str]| here.run(&[&["store", "copy"], more].concat());
    check(&copy(&["--from", &from, "--to", &to]), 5, "there is no such file");
    assert!(!file.path().exists(), "and it is not made");
    here.ok(&["enqueue", "k", "--delay", "1h", "--store", &from]);
    check(&copy(&["--from", &from]), 2, "--to <URL>");
    check(&copy(&["--from", &from, "--to", &from]), 2, "name the same store");
    let again = format!("sqlite:///proc/self/root{}", file.path().display());
    check(&copy(&["--from", &from, "--to", &again]), 2, "name the same store");
    check(
        &copy(&["--from", &from, "--to", &to, "--store", &to]),
        2,
        "--store: store copy has --from and --to",
    );
    check(&copy(&["--from", &from, "--to", &to, "--durability", "normal"]), 2, "--durability: store copy");
    check(&copy(&["--from", "file.db", "--to", "redis://"]), 2, "--from: expected sqlite://path");
    let away = format!("redis://127.0.0.1:{}", free_port());
    check(&copy(&["--from", &from, "--to", &away]), 5, "out of reach");
    let stats = here.json(&["stats", "--store", &from]);
    assert_eq!(stats["queues"][0]["scheduled"], 1);
    // A namespace is copied, and the others are not.
    let done = copy(&["--from", &from, "--to", &to, "--namespace", "other"]);
    assert_eq!(text(&done.stdout), "0 jobs copied, 0 already there\n");
}
