//! What the command line takes, and what it refuses before anything is enqueued.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

on_both_stores! {
    bad_input_is_refused_with_a_clear_message_and_nothing_is_enqueued
    a_payload_is_the_same_bytes_by_every_way_in
    a_payload_may_have_a_mebibyte_and_not_a_byte_more
    a_file_with_a_malformed_line_is_refused_whole_and_a_pipe_says_how_far_it_came
}

/// Runs a command with `input` on its stdin.
fn run_with(here: &Hourhand, args: &[&str], input: &[u8]) -> Output {
    let mut child = here
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the binary");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its input may end before it has read it.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("its end")
}

fn bad_input_is_refused_with_a_clear_message_and_nothing_is_enqueued(on: StoreKind) {
    let store = on.start();
    store.make();
    let here = Hourhand::new(&store.url(), &[]);
    let long = "k".repeat(300);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["enqueue", "k", "--bogus"], 2, "--bogus"),
        (&["enqueue"], 2, "KIND"),
        (&["enqueue", "", "x"], 2, "invalid name \"\""),
        (&["enqueue", &long], 2, "(300 bytes)"),
        (&["enqueue", "a b"], 2, "invalid name \"a b\""),
        (&["enqueue", "a*"], 2, "invalid name"),
        (&["enqueue", "é"], 2, "invalid name"),
        (&["enqueue", "-a"], 2, "-a"),
        (&["enqueue", "k", "--queue", "a:b"], 2, "invalid name"),
        (&["enqueue", "k", "--id", " x"], 2, "invalid id"),
        (&["enqueue", "k", "--delay", "-1s"], 2, "negative"),
        (&["enqueue", "k", "--delay", "-1800000000s"], 2, "negative"),
        (&["enqueue", "k", "--delay", "-0.5s"], 2, "negative"),
        (&["enqueue", "k", "--delay", "5"], 2, "as in 5s"),
        (&["enqueue", "k", "--delay", "NaN"], 2, "expected a duration"),
        (&["enqueue", "k", "--delay", "Infinity"], 2, "expected a duration"),
        (&["enqueue", "k", "--delay", "1e18s"], 2, "beyond all calendars"),
        (&["enqueue", "k", "--at", "9999-12-31T23:59:59Z"], 2, "beyond all calendars"),
        (&["enqueue", "k", "--at", "2026-12-31T23:59:60Z"], 2, "leap second"),
        (&["job", "list", "--cursor", "r:18446744073709551615:x"], 2, "invalid cursor"),
        (&["enqueue", "k", "--delay", "36526d"], 2, "100 years"),
        (&["enqueue", "k", "--at", "1969-12-31T23:59:59Z"], 2, "before 1970"),
        (&["enqueue", "k", "--at", "0001-01-01T00:00:00Z"], 2, "before 1970"),
        (&["enqueue", "k", "--at", "1772323200000"], 2, "2026-03-01T00:00:00.000Z"),
        (&["enqueue", "k", "--at", "2300-01-01T00:00:00Z"], 2, "100 years"),
        (&["enqueue", "k", "--at", "tomorrow"], 2, "expected an instant"),
        (&["enqueue", "k", "--delay", "1s", "--at", "2026-12-01T09:00:00Z"], 2, "cannot be used with"),
        (&["enqueue", "k", "--max-attempts", "0"], 2, "expected 1 to 1000"),
        (&["enqueue", "k", "--timeout", "25h"], 2, "24 h"),
        (&["enqueue", "k", "--priority", "urgent"], 2, "high, normal or low"),
        (&["enqueue", "k", "--on-conflict", "reject"], 2, "--id"),
        (&["enqueue", "k", "--meta", "novalue"], 2, "KEY=VALUE"),
        (&["enqueue", "k", "--meta", "a=1", "--meta", "a=2"], 2, "twice"),
        (&["enqueue", "k", "@/nowhere"], 2, "/nowhere"),
        (&["enqueue", "k", "--payload-file", "/dev/zero"], 2, "1 MiB"),
        (&["enqueue", "k", "--ndjson", "x"], 2, "cannot be used with"),
        (&["enqueue", "--ndjson", "/nowhere"], 2, "/nowhere"),
        (&["job", "show", "nope"], 3, "no job nope"),
        (&["job", "logs", "nope"], 3, "no job nope"),
        (&["job", "cancel", "nope"], 3, "no job nope"),
        (&["job", "retry", "nope"], 3, "no job nope"),
        (&["job", "delete", "nope", "--queue", "q"], 3, "no job nope in queue q"),
        (&["job", "reschedule", "nope", "--delay", "1s"], 3, "no job nope"),
        (&["job", "reschedule", "nope"], 2, "--delay"),
        (&["job", "list", "--state", "archived"], 2, "expected scheduled"),
        (&["job", "list", "--limit", "0"], 2, "0"),
        (&["job", "list", "--since", "yesterday"], 2, "--since"),
        (&["queue", "show", "nope"], 3, "no queue nope"),
        (&["queue", "purge", "k"], 2, "--yes"),
        (&["dead", "retry"], 2, "nothing says which"),
        (&["dead", "delete", "--queue", "q"], 2, "nothing says which"),
        (&["dead", "retry", "x", "--all"], 2, "cannot be used with"),
        (&["dead", "delete", "nope"], 3, "no job nope"),
        (&["handler", "check", "/nowhere"], 2, "/nowhere"),
        (&["handler", "list", "--handlers", "/nowhere"], 2, "/nowhere"),
        (&["run", "--handlers", "/nowhere"], 2, "/nowhere"),
        (&["run", "--lease", "0.5s"], 2, "--lease"),
        (&["run", "--concurrency", "0", "--grace", "x"], 2, "--grace"),
        (&["stats", "--store", "sqlite://"], 2, "there is no path"),
        (&["stats", "--durability", "some"], 2, "--durability: expected full or normal"),
        (&["stats", "--store", "redis://h:x"], 2, "--store: expected redis://"),
        (&["stats", "--store", "redis:S3cr3t"], 2, "got \"redis:***\""),
        (&["stats", "--store", ""], 2, "expected sqlite://path, redis://"),
        (&["stats", "--namespace", "a b"], 2, "invalid name"),
        (&["stats", "--log", "loud"], 2, "--log"),
    ];
    for (args, code, part) in cases {
        for json in [&[][..], &["--json"]] {
            let output = here.run(&[args, json].concat());
            check(&output, *code, part);
            // Only a verb on several jobs has an answer for those that it could not do.
            let answers = args[0] == "job" && *code == 3 && ["cancel", "retry", "delete"].contains(&args[1]);
            if !answers && args[0] != "dead" {
                assert_eq!(text(&output.stdout), "", "{args:?}");
            } else if !json.is_empty() && !output.stdout.is_empty() {
                serde_json::from_slice::<Value>(&output.stdout).expect("JSON");
            }
        }
    }
    assert_eq!(here.json(&["stats"])["queues"], json!([]), "nothing was half-created");
}

fn a_payload_is_the_same_bytes_by_every_way_in(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let payloads: [&[u8]; 12] = [
        b"",
        b"[]",
        b"{}",
        br#"{"x":[],"y":{}}"#,
        br#"{"b":1,"a":2,"a":3}"#,
        b" [ 1 ] ",
        b"\"\"",
        b"null",
        b"0",
        b"18446744073709551616",
        b"line\r\nline\n",
        "Zoë \u{2028} € 界".as_bytes(),
    ];
    let file = here.dir.path().join("payload");
    for (n, payload) in payloads.iter().enumerate() {
        std::fs::write(&file, payload).unwrap();
        let ids: Vec<String> = (0..4).map(|way| format!("{n}-{way}")).collect();
        let text = std::str::from_utf8(payload).unwrap();
        here.ok(&["enqueue", "k", text, "--id", &ids[0]]);
        here.ok(&["enqueue", "k", "@payload", "--id", &ids[1], "--delay", "1h"]);
        here.ok(&["enqueue", "k", "--payload-file", "payload", "--id", &ids[2]]);
        let piped = run_with(&here, &["enqueue", "k", "-", "--id", &ids[3]], payload);
        assert!(piped.status.success(), "{}", self::text(&piped.stderr));
        for id in &ids {
            assert_eq!(here.job(id)["payload"], text, "{id}");
        }
    }
    std::fs::write(&file, b"\xff\x00\xfe").unwrap();
    here.ok(&["enqueue", "k", "@payload", "--id", "bytes"]);
    assert_eq!(here.job("bytes")["payload_base64"], "/wD+");
    assert_eq!(here.job("bytes").get("payload"), None);
}

fn a_payload_may_have_a_mebibyte_and_not_a_byte_more(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    let file = here.dir.path().join("payload");
    for (bytes, code) in [((1 << 20) - 1, 0), (1 << 20, 0), ((1 << 20) + 1, 2), (64 << 20, 2)] {
        let payload = vec![b'x'; bytes];
        std::fs::write(&file, &payload).unwrap();
        check(&here.run(&["enqueue", "k", "@payload"]), code, if code == 0 { "" } else { "1 MiB" });
        let piped = run_with(&here, &["enqueue", "k", "-"], &payload);
        check(&piped, code, if code == 0 { "" } else { "1 MiB" });
    }
    assert_eq!(here.json(&["stats"])["queues"][0]["enqueued_total"], 4);
}

fn a_file_with_a_malformed_line_is_refused_whole_and_a_pipe_says_how_far_it_came(on: StoreKind) {
    let store = on.start();
    store.make();
    let here = Hourhand::new(&store.url(), &[]);
    let line = |n: u32| format!("{{\"kind\":\"k\",\"id\":\"{n}\",\"payload\":{{\"n\":{n}}}}}\n");
    let good: String = (1..=1_200).map(line).collect();
    let bad: String =
        (1..=1_200).map(|n| if n == 517 { "{\"kind\":}\n".to_owned() } else { line(n) }).collect();
    std::fs::write(here.dir.path().join("bad.ndjson"), &bad).unwrap();
    std::fs::write(here.dir.path().join("good.ndjson"), &good).unwrap();

    check(&here.run(&["enqueue", "--ndjson", "bad.ndjson"]), 2, "bad.ndjson, line 517");
    assert_eq!(here.json(&["stats"])["queues"], json!([]), "nothing was taken");

    let piped = run_with(&here, &["enqueue", "--ndjson", "-", "--json"], bad.as_bytes());
    check(&piped, 2, "line 516 was the last one taken: go on with --from-line 517");
    let answer: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!((&answer["created"], &answer["last_line"]), (&json!(516), &json!(516)));

    let rest =
        run_with(&here, &["enqueue", "--ndjson", "-", "--from-line", "517", "--json"], good.as_bytes());
    check(&rest, 0, "no live runner serves kind k");
    let answer: Value = serde_json::from_slice(&rest.stdout).unwrap();
    assert_eq!(
        (&answer["created"], &answer["kept"], &answer["last_line"]),
        (&json!(684), &json!(0), &json!(1_200))
    );

    let again = here.json(&["enqueue", "--ndjson", "good.ndjson"]);
    assert_eq!((&again["created"], &again["kept"]), (&json!(0), &json!(1_200)));
    assert_eq!(here.job("1200")["payload"], r#"{"n":1200}"#);
}
