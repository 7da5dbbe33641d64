//! The store is away, and enqueues go on: they wait in the spool, and nothing of it is lost, doubled or out of order.

use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::proxy::Proxy;
use crate::harness::redis_server::RedisServer;
use crate::lost_replies::{losing, run_at};

on_both_stores! {
    what_was_spooled_comes_in_order_with_its_id_and_its_time
    a_drain_that_is_killed_again_and_again_brings_each_job_once
}

/// Milliseconds since 1970 of a time as the product prints it.
fn ms(time: &Value) -> i64 {
    let at: jiff::Timestamp = time.as_str().expect("a time").parse().expect("RFC 3339");
    at.as_millisecond()
}

/// Enqueues with the spool on. What came of it, and how long it took.
fn timed(here: &Hourhand, args: &[&str]) -> (Output, Duration) {
    let mut all = vec!["enqueue", "--spool"];
    all.extend(args);
    #[allow(clippy::disallowed_methods, reason = "a test's own clock")]
    let began = Instant::now();
    let output = here.run(&all);
    (output, began.elapsed())
}

/// The same, which must end in the spool; the id.
#[track_caller]
fn spooled(here: &Hourhand, args: &[&str]) -> String {
    let (output, _) = timed(here, args);
    check(&output, 0, "spooled: ");
    text(&output.stdout).trim().to_owned()
}

/// What `spool list` has, by one of its keys.
fn listed(here: &Hourhand, key: &str) -> Vec<Value> {
    let list = here.json(&["spool", "list", "--limit", "1000"]);
    list["items"].as_array().expect("items").iter().map(|item| item[key].clone()).collect()
}

fn what_was_spooled_comes_in_order_with_its_id_and_its_time(on: StoreKind) {
    let mut store = on.start_lasting();
    store.make();
    let here = Hourhand::new(&store.url(), &[]);
    store.take_away();
    let (output, waited) = timed(&here, &["a", "1", "--delay", "1h", "--id", "first", "--json"]);
    check(&output, 0, "spooled: the store is out of reach (");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&answer["id"], &answer["created"], &answer["state"]),
        (&json!("first"), &json!(true), &json!("spooled"))
    );
    assert!(waited >= Duration::from_millis(800), "the store has a second: {waited:?}");
    let second = spooled(&here, &["a", "2", "--delay", "1ms"]);
    let (output, _) = timed(&here, &["a", "3", "--wait", "--id", "third"]);
    check(&output, 5, "third is not lost");
    assert_eq!(text(&output.stdout), "third\n");
    assert_eq!(listed(&here, "id"), [json!("first"), json!(&second), json!("third")]);
    let accepted = listed(&here, "accepted_at");
    store.bring_back();

    // The next call brings them all, itself last.
    let (output, _) = timed(&here, &["a", "4", "--id", "fourth"]);
    check(&output, 0, "");
    assert!(!text(&output.stderr).contains("spooled"), "{}", text(&output.stderr));
    assert_eq!(listed(&here, "id"), [] as [Value; 0]);
    let jobs: Vec<Value> = ["first", &second, "third", "fourth"].map(|id| here.job(id)).to_vec();
    for (job, accepted) in jobs.iter().zip(&accepted) {
        let off = ms(&job["enqueued_at"]) - ms(accepted);
        assert!((-50..1_500).contains(&off), "accepted {accepted}, and {job:#}");
    }
    assert_eq!(ms(&jobs[0]["due_at"]) - ms(&jobs[0]["enqueued_at"]), 3_600_000);
    assert_eq!(jobs[0]["state"], "scheduled");
    assert_eq!(
        (ms(&jobs[1]["due_at"]) - ms(&jobs[1]["enqueued_at"]), &jobs[1]["state"]),
        (1, &json!("ready"))
    );
    let enqueued: Vec<i64> = jobs.iter().map(|job| ms(&job["enqueued_at"])).collect();
    assert!(enqueued.is_sorted(), "{enqueued:?}");

    // Five in vain, and it is not asked any more, by nobody who uses the folder.
    store.take_away();
    for n in 0..5 {
        let (output, waited) = timed(&here, &["a", "x", "--id", &format!("away{n}")]);
        check(&output, 0, "spooled: the store is out of reach (");
        assert!(waited >= Duration::from_millis(800), "call {n}: {waited:?}");
    }
    let mut quickest = Duration::MAX;
    for n in 5..8 {
        let (output, took) = timed(&here, &["a", "x", "--id", &format!("away{n}")]);
        check(&output, 0, "five times in a row");
        quickest = quickest.min(took);
    }
    assert!(quickest < Duration::from_millis(500), "a process and a file, and no waiting: {quickest:?}");
    check(&here.run(&["spool", "drain"]), 5, "8 still wait in the spool, and nothing is lost");
    store.bring_back();
    let drained = here.json(&["spool", "drain"]);
    assert_eq!(drained, json!({"drained": 8, "set_aside": 0, "left": 0, "for_other_stores": 0}));
    let (output, _) = timed(&here, &["a", "x"]);
    assert!(!text(&output.stderr).contains("spooled"), "it is asked again: {}", text(&output.stderr));
    here.counts("a", "each job once", Duration::ZERO, |q| q["enqueued_total"] == 13);
}

#[test]
fn a_full_spool_takes_nothing_and_nothing_acknowledged_is_lost() {
    let mut redis = RedisServer::start_with_aof();
    let here = Hourhand::new(&redis.url(), &[]);
    redis.kill();
    let lines: String = (1..=350).map(|n| format!("{{\"kind\":\"a\",\"id\":\"n{n}\"}}\n")).collect();
    fs::write(here.dir.path().join("many.ndjson"), lines).unwrap();
    let bounded = ["--ndjson", "many.ndjson", "--spool-jobs", "250", "--json"];
    let (output, _) = timed(&here, &bounded);
    check(&output, 5, "the spool is full: ");
    check(&output, 5, "line 250 was the last one taken: go on with --from-line 251");
    check(&output, 5, "from line 1 on, jobs wait on this machine");
    let tally: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&tally["spooled"], &tally["created"], &tally["last_line"]),
        (&json!(250), &json!(0), &json!(250))
    );
    let (output, _) = timed(&here, &["a", "--id", "one", "--spool-jobs", "250"]);
    check(&output, 5, "it holds 250 jobs of at most 250");
    assert!(output.stdout.is_empty());
    let (output, _) =
        timed(&here, &["a", &"x".repeat(2_000), "--spool-bytes", "1KiB", "--spool-dir", "other"]);
    check(&output, 5, "the spool is full: ");
    redis.restart();
    let mut rest = bounded.to_vec();
    rest.extend(["--from-line", "251"]);
    let (output, _) = timed(&here, &rest);
    check(&output, 0, "");
    here.counts("a", "each line once", Duration::ZERO, |q| q["enqueued_total"] == 350);
    let mut ids: Vec<String> =
        here.all_jobs(&[]).iter().map(|job| job["id"].as_str().unwrap()[1..].to_owned()).collect();
    ids.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert!(ids.into_iter().eq((1..=350).map(|n| n.to_string())));
}

fn a_drain_that_is_killed_again_and_again_brings_each_job_once(on: StoreKind) {
    const JOBS: usize = 3_000;
    let mut seed = std::env::var("HOURHAND_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| getrandom::u64().unwrap());
    println!("HOURHAND_TEST_SEED={seed}");
    let mut store = on.start_lasting();
    store.make();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    store.take_away();
    // Those that would refuse or replace themselves are among them.
    let hows = ["keep", "reject", "replace", "reschedule"];
    let lines: String = (0..JOBS)
        .map(|n| match n % 3 {
            0 => "{\"kind\":\"nonce\"}\n".to_owned(),
            _ => format!("{{\"kind\":\"nonce\",\"id\":\"n{n}\",\"on_conflict\":\"{}\"}}\n", hows[n % 4]),
        })
        .collect();
    fs::write(here.dir.path().join("many.ndjson"), lines).unwrap();
    let (output, _) = timed(&here, &["--ndjson", "many.ndjson"]);
    check(&output, 0, "spooled: ");
    store.bring_back();
    let mut killed = 0;
    while !listed(&here, "id").is_empty() && killed < 25 {
        let mut drain = here.command(&["spool", "drain"]).spawn().expect("a drain");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(15_000 + (seed >> 33) % 60_000));
        drain.kill().expect("killed");
        drain.wait().expect("its end");
        killed += 1;
    }
    println!("{killed} drains were killed");
    assert!(killed > 1, "they were too quick to be killed");
    here.ok(&["spool", "drain"]);
    assert_eq!(listed(&here, "id"), [] as [Value; 0], "and nothing is set aside");
    let _runner = here.runner(&[]);
    here.counts("nonce", "all complete", Duration::from_secs(120), |q| q["completed"] == JOBS);
    let jobs = here.all_jobs(&["--queue", "nonce"]);
    let ids: std::collections::BTreeSet<&str> = jobs.iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!((jobs.len(), ids.len()), (JOBS, JOBS));
    assert!(jobs.iter().all(|job| job["attempt"] == 1), "each ran once");
    here.counts("nonce", "none was enqueued twice", Duration::ZERO, |q| q["enqueued_total"] == JOBS);
}

#[test]
fn a_store_that_says_nothing_holds_nobody_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let redis = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let here = Hourhand::new(&proxy.url(), &[]);
    here.ok(&["enqueue", "a", "0", "--spool"]);
    assert!(!here.dir.path().join("state/spool").exists(), "a store that answers needs no spool");
    proxy.freeze();
    let (output, waited) = timed(&here, &["a", "1", "--id", "x", "--on-conflict", "reject"]);
    check(&output, 0, "spooled: ");
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    proxy.thaw_for_new_connections();
    let (output, _) = timed(&here, &["a", "2", "--id", "x", "--on-conflict", "reject"]);
    check(&output, 4, "x exists in queue a and is ready");
    assert_eq!(here.job("x")["payload"], "1");
    // What is in conflict when it is drained is set aside, and said.
    proxy.freeze();
    spooled(&here, &["a", "3", "--id", "x", "--on-conflict", "reject"]);
    proxy.thaw_for_new_connections();
    let output = here.run(&["spool", "drain"]);
    check(&output, 1, "x exists in queue a and is ready: reject cannot be done");
    assert_eq!(listed(&here, "state"), ["set_aside"]);
    check(&here.run(&["spool", "delete", "y"]), 3, "there is no job y in the spool");
    here.ok(&["spool", "delete", "x"]);
    check(&here.run(&["spool", "list"]), 0, "the spool is empty");
}

#[test]
fn a_reply_that_is_lost_makes_no_second_job() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    here.ok(&["enqueue", "a", "0"]);
    let port = losing(redis.port(), "unsure");
    // The store has taken each, and says so in vain. None is a second job, and none is in conflict with itself.
    for more in [&[][..], &["--id", "y"], &["--id", "x", "--on-conflict", "reject"]] {
        let args: Vec<&str> = ["enqueue", "a", "unsure", "--spool"].iter().chain(more).copied().collect();
        check(&run_at(&here, port, &args), 0, "spooled: ");
    }
    check(&here.run(&["spool", "drain"]), 0, "3 wait for redis://127.0.0.1:");
    let drained = here.json(&["spool", "drain", "--all"]);
    assert_eq!((&drained["drained"], &drained["set_aside"]), (&json!(3), &json!(0)));
    here.counts("a", "each job once", Duration::ZERO, |q| q["enqueued_total"] == 4);
}

#[test]
fn wrong_settings_and_wrong_files_are_said_and_nothing_is_done() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    for (args, part) in [
        (&["enqueue", "a", "--spool=maybe"][..], "--spool: expected on or off, got \"maybe\""),
        (&["enqueue", "a", "--spool", "--spool-jobs", "0"], "--spool-jobs: expected a number of jobs"),
        (&["enqueue", "a", "--spool", "--spool-bytes", "12"], "--spool-bytes: expected a size"),
        (&["enqueue", "a", "--spool-dir", ""], "--spool-dir: expected a folder"),
        (&["run", "--spool=perhaps"], "--spool: expected on or off"),
        (&["spool", "list", "--cursor", "x"], "--cursor: expected one of an earlier list"),
        (&["spool", "delete"], "required"),
    ] {
        check(&here.run(args), 2, part);
    }
    fs::create_dir_all(here.dir.path().join("bad")).unwrap();
    let file = here.dir.path().join("bad/spool.db");
    fs::write(&file, "no database ".repeat(100)).unwrap();
    for args in [
        &["enqueue", "a", "--spool", "--spool-dir", "bad"][..],
        &["spool", "drain", "--spool-dir", "bad"],
        &["spool", "list", "--spool-dir", "bad"],
    ] {
        check(&here.run(args), 1, "spool.db is no SQLite database");
    }
    assert_eq!(fs::read(&file).unwrap(), "no database ".repeat(100).into_bytes());
    assert_eq!(here.all_jobs(&[]).len(), 0, "the order cannot be kept: nothing was sent");
    here.ok(&["enqueue", "a", "--spool-dir", "bad"]);
}
