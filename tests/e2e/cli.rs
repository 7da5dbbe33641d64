//! The command line without a runner: answers, exit codes, and what never shows.

use std::io::Read;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::waiting::eventually;

on_both_stores! {
    an_id_that_exists_is_kept_replaced_rescheduled_or_refused
    an_id_in_two_queues_is_ambiguous_until_the_queue_is_named
    several_ids_get_an_answer_each_and_the_worst_exit_code
    a_list_goes_on_where_its_cursor_says_and_misses_nothing
    a_reader_that_goes_away_is_no_error_and_a_full_disk_is
    following_a_silent_log_ends_when_nobody_reads
    settings_come_from_the_file_in_the_working_directory_and_it_is_strict
    queues_are_paused_resumed_and_purged
    every_answer_in_json_is_one_value_of_json
    state_is_listed_read_set_and_deleted
}

/// Bytes of an answer as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails unless the command ended with this code and said this on stderr.
#[track_caller]
pub fn check(output: &Output, code: i32, stderr_part: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}{stderr}", text(&output.stdout));
    assert!(stderr.contains(stderr_part), "{stderr_part:?} is missing in: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn an_id_that_exists_is_kept_replaced_rescheduled_or_refused(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let first = here.json(&["enqueue", "k", "1", "--id", "x", "--at", "2090-01-02T03:04:05.678Z"]);
    assert_eq!(
        first,
        json!({"id": "x", "created": true, "state": "scheduled", "due_at": "2090-01-02T03:04:05.678Z"})
    );
    let kept = here.json(&["enqueue", "k", "2", "--id", "x"]);
    assert_eq!(
        kept,
        json!({"id": "x", "created": false, "state": "scheduled", "due_at": "2090-01-02T03:04:05.678Z"})
    );
    check(
        &here.run(&["enqueue", "k", "3", "--id", "x", "--on-conflict", "reject"]),
        4,
        "x exists in queue k",
    );
    let other = here.run(&["enqueue", "other", "3", "--id", "x", "--queue", "k", "--on-conflict", "replace"]);
    check(&other, 4, "x exists in queue k and is scheduled, of kind k and not other");
    std::fs::write(
        here.dir.path().join("other"),
        r#"{"kind":"other","queue":"k","id":"x","on_conflict":"replace"}"#,
    )
    .unwrap();
    check(&here.run(&["enqueue", "--ndjson", "other"]), 4, "of kind k and not other");
    assert_eq!(here.job("x")["payload"], "1");
    here.ok(&[
        "enqueue",
        "k",
        "4",
        "--id",
        "x",
        "--on-conflict",
        "reschedule",
        "--at",
        "2091-01-01T00:00:00Z",
    ]);
    let job = here.job("x");
    assert_eq!((&job["payload"], &job["due_at"]), (&json!("1"), &json!("2091-01-01T00:00:00.000Z")));
    here.ok(&["enqueue", "k", "5", "--id", "x", "--on-conflict", "replace", "--delay", "1h"]);
    assert_eq!(here.job("x")["payload"], "5");
    let moved = here.json(&["job", "reschedule", "x", "--at", "2092-01-01T00:00:00Z"]);
    assert_eq!(moved["due_at"], "2092-01-01T00:00:00.000Z");
}

fn an_id_in_two_queues_is_ambiguous_until_the_queue_is_named(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    for queue in ["q1", "q2"] {
        here.ok(&["enqueue", "k", "--queue", queue, "--id", "x", "--delay", "1h"]);
    }
    for args in [["job", "show", "x"], ["job", "cancel", "x"], ["job", "logs", "x"]] {
        let output = here.run(&args);
        check(&output, 4, "several queues");
        assert!(text(&output.stderr).contains("q1, q2"), "{}", text(&output.stderr));
    }
    assert_eq!(here.json(&["job", "show", "x", "--queue", "q2"])["queue"], "q2");
    let answer = here.json(&["job", "cancel", "x", "--queue", "q1"]);
    assert_eq!(answer["items"][0]["result"], "cancelled");
    assert_eq!(here.json(&["job", "show", "x", "--queue", "q2"])["state"], "scheduled");
}

fn several_ids_get_an_answer_each_and_the_worst_exit_code(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    for id in ["a", "b", "c"] {
        here.ok(&["enqueue", "k", "--id", id, "--delay", "1h"]);
    }
    let output = here.run(&["job", "delete", "a", "nope", "b", "--json"]);
    check(&output, 3, "no job nope");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let item = |id, queue: Value, result| json!({"id": id, "queue": queue, "result": result, "state": null});
    assert_eq!(
        answer["items"],
        json!([
            item("a", json!("k"), "deleted"),
            item("nope", Value::Null, "not_found"),
            item("b", json!("k"), "deleted")
        ]),
        "in the order of the ids"
    );
    assert_eq!(here.ok(&["job", "cancel", "c"]), "c cancelled\n");
    assert_eq!(here.ok(&["job", "cancel", "c"]), "c cancelled\n", "done already");
    check(&here.run(&["job", "reschedule", "c", "--delay", "1s"]), 4, "c is cancelled");
    check(&here.run(&["dead", "retry", "c"]), 4, "expected a dead letter");
    assert_eq!(here.json(&["job", "cancel", "c"])["items"][0]["state"], "cancelled");
    assert_eq!(here.json(&["job", "retry", "c"])["items"][0]["state"], "ready");
    assert_eq!(here.job("c")["state"], "ready");
}

fn a_list_goes_on_where_its_cursor_says_and_misses_nothing(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let lines: String =
        (0..250).map(|n| format!("{{\"kind\":\"k\",\"id\":\"{n}\",\"delay\":\"{n}m\"}}\n")).collect();
    std::fs::write(here.dir.path().join("jobs"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs"]);
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["job", "list", "--queue", "k", "--limit", "40"];
        args.extend(cursor.iter().flat_map(|c| ["--cursor", c]));
        let page = here.json(&args);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 40);
        ids.extend(items.iter().map(|i| i["id"].as_str().unwrap().parse::<u32>().unwrap()));
        match page["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(0..250), "{} ids", ids.len());
    let all = here.json(&["job", "list", "--limit", "100000"]);
    assert_eq!(all["items"].as_array().unwrap().len(), 250);
    assert_eq!(all["cursor"], Value::Null);
}

fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let lines = "{\"kind\":\"k\",\"payload\":\"some payload that makes lines long enough\"}\n".repeat(3_000);
    std::fs::write(here.dir.path().join("jobs"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs"]);
    for args in [
        &["job", "list", "--json", "--limit", "3000"][..],
        &["job", "list", "--limit", "3000"],
        &["completions", "bash"],
    ] {
        for bytes in [0, 1] {
            let mut child =
                here.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
            let mut stdout = child.stdout.take().expect("a pipe");
            stdout.read_exact(&mut vec![0; bytes]).expect("a first byte");
            drop(stdout);
            let output = child.wait_with_output().expect("its end");
            assert_eq!(output.status.code(), Some(0), "{args:?}");
            let stderr = text(&output.stderr);
            let remarks = stderr.lines().filter(|line| !line.starts_with("there may be more: --cursor "));
            assert_eq!(remarks.count(), 0, "{args:?}: {stderr}");
        }
    }
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = here.command(&["stats"]).stdout(full()).output().unwrap();
    check(&output, 1, "cannot write the answer");
    let output = here.command(&["job", "show", "nope"]).stdout(full()).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "a real error keeps its code");
}

fn following_a_silent_log_ends_when_nobody_reads(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    let mut child = here
        .command(&["job", "logs", "x", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the binary");
    drop(child.stdout.take());
    let ended = eventually("the follower ends", Duration::from_secs(20), || child.try_wait().expect("wait"));
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_server_that_is_no_redis_is_one_line() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 4_096]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n<html>\n</html>\n");
        }
    });
    let here = Hourhand::new(&format!("redis://127.0.0.1:{port}"), &[]);
    let output = here.run(&["stats"]);
    check(&output, 5, &format!("redis://127.0.0.1:{port}/0"));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
}

#[test]
fn a_password_never_shows() {
    let redis = RedisServer::start_with_password("S3cr3tW0rd");
    let here = Hourhand::new(&redis.url(), &["echo"]);
    let wrong = format!("redis://user:Wr0ngW0rd@127.0.0.1:{}/0", redis.port());
    for args in [&["stats"][..], &["enqueue", "echo"], &["run"]] {
        let output = here.command(args).env("HOURHAND_STORE", &wrong).output().unwrap();
        check(&output, 5, &format!("127.0.0.1:{}", redis.port()));
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!all.contains("Wr0ngW0rd"), "{all}");
    }
    let runner = here.runner(&["--store", &redis.url(), "--log", "trace"]);
    let shown = std::fs::read(format!("/proc/{}/cmdline", runner.child.id())).unwrap();
    assert!(text(&shown).contains("run") && !text(&shown).contains("S3cr3tW0rd"), "{}", text(&shown));
    let name = std::fs::read_to_string(format!("/proc/{}/comm", runner.child.id())).unwrap();
    assert_eq!(name, "hourhand\n");
    let output = here.run(&["enqueue", "echo", "1", "--wait", "--json", "--log", "trace"]);
    check(&output, 0, "");
    for shown in [runner.log(), text(&output.stdout), text(&output.stderr)] {
        assert!(!shown.contains("S3cr3tW0rd"), "{shown}");
    }
}

#[test]
fn a_store_out_of_reach_is_said_soon_with_its_address() {
    let here = Hourhand::new("", &[]);
    let refused = free_port();
    // A listener that never answers: the connection stands, and nothing comes.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    for port in [refused, silent.local_addr().unwrap().port()] {
        for args in [&["stats"][..], &["enqueue", "k"], &["job", "list", "--json"]] {
            #[allow(clippy::disallowed_methods, reason = "the test's own bound")]
            let began = Instant::now();
            let url = format!("redis://:S3cr3tW0rd@127.0.0.1:{port}");
            let output = here.command(args).env("HOURHAND_STORE", url).output().unwrap();
            check(&output, 5, &format!("127.0.0.1:{port}"));
            assert!(began.elapsed() < Duration::from_secs(10), "a command must not hang");
            assert!(output.stdout.is_empty() && !text(&output.stderr).contains("S3cr3tW0rd"));
        }
    }
}

fn settings_come_from_the_file_in_the_working_directory_and_it_is_strict(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new("", &[]);
    let file = here.dir.path().join("hourhand.toml");
    std::fs::write(&file, format!("store = \"{}\"\nnamespace = \"mine\"\n", store.url())).unwrap();
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    check(&here.run(&["job", "show", "x", "--namespace", "other"]), 3, "no job x");
    let output = here.command(&["job", "show", "x"]).env("HOURHAND_NAMESPACE", "other").output().unwrap();
    check(&output, 3, "no job x");
    std::fs::write(&file, "leese = \"5s\"\n").unwrap();
    check(&here.run(&["stats"]), 2, "hourhand.toml:1: unknown key \"leese\": expected one of");
    check(&here.run(&["stats", "--config", "/nowhere.toml"]), 2, "/nowhere.toml");
}

fn queues_are_paused_resumed_and_purged(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let output = here.run(&["queue", "pause", "early"]);
    check(&output, 0, "has no job yet");
    assert_eq!(text(&output.stdout), "early paused\n");
    for _ in 0..3 {
        here.ok(&["enqueue", "k", "--queue", "early"]);
    }
    let queue = here.json(&["queue", "show", "early"]);
    assert_eq!(
        (&queue["paused"], &queue["ready"], &queue["served"]),
        (&json!(true), &json!(3), &json!(false))
    );
    assert_eq!(queue["kinds"], json!(["k"]));
    assert_eq!(here.json(&["queue", "resume", "early"]), json!({"queue": "early", "paused": false}));
    assert_eq!(here.json(&["queue", "purge", "early", "--yes"]), json!({"queue": "early", "deleted": 3}));
    assert_eq!(here.json(&["queue", "list"])["items"][0]["ready"], 0);
}

fn state_is_listed_read_set_and_deleted(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    // Also the first thing that there is.
    assert_eq!(here.ok(&["state", "set", "seen", "order/7", "one line"]), "\"order/7\" of bucket seen set\n");
    let first = here.json(&["state", "get", "seen", "order/7"]);
    assert_eq!((&first["value"], &first["bucket"]), (&json!("one line"), &json!("seen")));
    let raw = b" \xff\x00\n\n";
    std::fs::write(here.handlers().with_file_name("raw"), raw).unwrap();
    here.ok(&["state", "set", "seen", "raw", "@raw"]);
    assert_eq!(here.run(&["state", "get", "seen", "raw"]).stdout, raw, "byte for byte");
    assert_eq!(here.json(&["state", "get", "seen", "raw"])["value_base64"], "IP8ACgo=");
    let set = here.json(&["state", "set", "seen", "n", "-1"]);
    assert_eq!(set["value"], "-1", "a number below 0 is no flag");
    assert!(set["version"].as_u64() > first["version"].as_u64(), "{set}");
    assert_eq!(
        here.json(&["state", "list"])["items"],
        json!([{"bucket": "seen", "entries": 3, "bytes": 7 + 8 + 3 + 5 + 1 + 2}])
    );
    let listed = here.json(&["state", "list", "seen"]);
    let keys: Vec<&Value> = listed["items"].as_array().unwrap().iter().map(|item| &item["key"]).collect();
    assert_eq!(keys, ["n", "order/7", "raw"]);
    assert!(here.ok(&["state", "list", "seen"]).contains("one line"));
    check(&here.run(&["state", "get", "seen", "none"]), 3, "there is no \"none\" of bucket seen");
    check(&here.run(&["state", "list", "none"]), 3, "bucket none holds nothing");
    check(&here.run(&["state", "delete", "none", "--yes"]), 3, "bucket none holds nothing");
    check(&here.run(&["state", "delete", "seen", "none"]), 3, "there is no");
    check(&here.run(&["state", "delete", "seen"]), 2, "--yes");
    check(&here.run(&["state", "get", "a b", "k"]), 2, "invalid name");
    check(&here.run(&["state", "set", "seen", "", "x"]), 2, "state key of 0 bytes");
    check(&here.run(&["state", "set", "seen", "k", &"x".repeat(65_537)]), 2, "expected at most 65536");
    assert_eq!(here.json(&["state", "delete", "seen", "n"]), json!({"bucket": "seen", "deleted": 1}));
    assert_eq!(here.json(&["state", "delete", "seen", "--yes"]), json!({"bucket": "seen", "deleted": 2}));
    assert_eq!(here.json(&["state", "list"])["items"], json!([]));
    check(&here.run(&["state", "list"]), 0, "no state yet");
}

fn every_answer_in_json_is_one_value_of_json(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    for args in [
        &["enqueue", "k"][..],
        &["job", "list"],
        &["job", "list", "--state", "dead"],
        &["job", "show", "x"],
        &["job", "logs", "x"],
        &["job", "retry", "x"],
        &["job", "reschedule", "x", "--delay", "1h"],
        &["job", "cancel", "x"],
        &["job", "delete", "x"],
        &["queue", "list"],
        &["queue", "show", "k"],
        &["queue", "pause", "k"],
        &["queue", "resume", "k"],
        &["queue", "purge", "k", "--yes"],
        &["state", "list"],
        &["state", "set", "b", "k", "-1"],
        &["state", "list", "b"],
        &["state", "get", "b", "k"],
        &["state", "delete", "b", "k"],
        &["dead", "list"],
        &["dead", "list", "--by", "day"],
        &["dead", "list", "--by", "kind"],
        &["dead", "list", "--by", "error"],
        &["dead", "retry", "--all"],
        &["dead", "delete", "--all"],
        &["handler", "list"],
        &["handler", "check", "handlers/echo.wasm"],
        &["runner", "list"],
        &["stats"],
    ] {
        let value = here.json(args);
        assert!(value.is_object(), "{args:?}: {value}");
        let is_list = args[1..].first().is_some_and(|verb| *verb == "list");
        assert_eq!(value.get("items").is_some_and(Value::is_array), is_list || value.get("cursor").is_some());
    }
}

#[test]
fn a_module_is_checked_as_a_runner_would_load_it() {
    let here = Hourhand::new("", &["echo"]);
    let listed = here.json(&["handler", "list"]);
    let echo = &listed["items"][0];
    assert_eq!(
        (&echo["kind"], &echo["status"], &echo["error"]),
        (&json!("echo"), &json!("active"), &Value::Null)
    );
    let checked = here.json(&["handler", "check", "handlers/echo.wasm"]);
    assert_eq!((&checked["ok"], &checked["kinds"]), (&json!(true), &json!(["echo"])));
    assert_eq!(checked["sha256"], echo["sha256"]);
    std::fs::write(here.dir.path().join("text.wasm"), "(module)").unwrap();
    let output = here.run(&["handler", "check", "text.wasm", "--json"]);
    check(&output, 2, "text.wasm: ");
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["ok"], false);
}
