//! Handlers in other languages: each example in `examples`, on a runner with the pool that a user has.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::languages::language;
use crate::harness::waiting::eventually;
use crate::harness::web::{Reply, Web};

const SOON: Duration = Duration::from_secs(30);
/// Compiling one of the large ones, beside whatever else this machine does.
const COMPILED: Duration = Duration::from_secs(600);

/// The examples with the kind that each is installed as.
const LANGUAGES: [(&str, &str); 4] = [
    ("javascript", "receipt_js"),
    ("python", "receipt_py"),
    ("c", "receipt_c"),
    ("plain-rust", "receipt_rs"),
];
const ORDER: &str = r#"{"order": 7, "items": [{"name": "tea", "cents": 450, "count": 2}, {"name": "cup", "cents": 99, "count": 1}]}"#;
const EMPTY_ORDER: &str = r#"{"order": 7, "items": []}"#;
const C_ORDER: &str = "tea 450 2\ncup 99 1\n";

on_both_stores! {
    a_javascript_handler_sends_requests_enqueues_and_remembers
    an_example_in_each_language_completes_and_fails_as_it_should
    a_large_module_compiles_beside_running_jobs_and_a_restart_takes_it_from_the_cache
}

fn install(here: &Hourhand, name: &str, kind: &str) {
    let staged = here.handlers().join(format!(".{kind}.staged"));
    fs::copy(language(name), &staged).expect("copy the module");
    fs::rename(&staged, here.handlers().join(format!("{kind}.wasm"))).expect("rename the module");
}

/// A runner once it serves all these kinds.
fn runner_with(here: &Hourhand, kinds: &[&str]) -> Runner {
    let runner = here.runner_unready(&[]);
    eventually("the runner serves", COMPILED, || runner.log().contains("the runner serves").then_some(()));
    for kind in kinds {
        assert!(runner.log().contains(&format!("{kind}.wasm hash=")), "{kind} is loaded: {}", runner.log());
    }
    runner
}

fn order(kind: &str) -> &'static str {
    if kind == "receipt_c" { C_ORDER } else { ORDER }
}

fn an_example_in_each_language_completes_and_fails_as_it_should(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    LANGUAGES.iter().for_each(|(name, kind)| install(&here, name, kind));
    let _runner = runner_with(&here, &LANGUAGES.map(|(_, kind)| kind));
    for (_, kind) in LANGUAGES {
        // Two jobs, each in a sandbox of its own from the same snapshot: chance and time are not in it.
        let mut receipts = BTreeSet::new();
        let mut issued = 0;
        for n in 0..2 {
            let id = format!("{kind}-{n}");
            here.ok(&["enqueue", kind, order(kind), "--id", &id]);
            let job = here.job_in(&id, "completed", SOON);
            let result: Value =
                serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON");
            assert_eq!(result["cents"], 999, "{job:#}");
            assert!(
                receipts.insert(result["receipt"].as_str().expect("a receipt").to_owned()),
                "{receipts:?}"
            );
            let now = result["issued_ms"].as_u64().expect("a time");
            assert!(now > issued && now > 1_700_000_000_000, "{kind}: {now} after {issued}");
            issued = now;
            let log = here.ok(&["job", "logs", &id]);
            assert!(log.contains(&format!("attempt 1 of job {id}")), "{kind}: {log}");
        }
        let (empty, wrong) = match kind {
            "receipt_c" => ("", "permanent"),
            "receipt_rs" => (EMPTY_ORDER, "permanent"),
            _ => (EMPTY_ORDER, "decode"),
        };
        for (payload, reason, words) in [(empty, "permanent", "no items"), ("tea", wrong, "expect")] {
            let id = format!("{kind}-{words}");
            here.ok(&["enqueue", kind, payload, "--id", &id]);
            let job = here.job_in(&id, "dead", SOON);
            assert_eq!((&job["attempt"], &job["error"]["reason"]), (&json!(1), &json!(reason)), "{job:#}");
            let message = job["error"]["message"].as_str().expect("a message").to_lowercase();
            assert!(message.contains(words), "{job:#}");
        }
    }
    // What nobody has thought of is tried again, and says what it was.
    for (kind, words) in [("receipt_js", "TypeError"), ("receipt_py", "KeyError: 'items'")] {
        let id = format!("{kind}-bug");
        here.ok(&["enqueue", kind, "{}", "--id", &id, "--max-attempts", "1"]);
        let job = here.job_in(&id, "dead", SOON);
        assert_eq!(job["error"]["reason"], "error", "{job:#}");
        assert!(job["error"]["message"].as_str().expect("a message").contains(words), "{job:#}");
        let log = here.ok(&["job", "logs", &id]);
        assert!(log.contains("ERROR"), "with where it happened: {log}");
    }
}

fn a_javascript_handler_sends_requests_enqueues_and_remembers(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    install(&here, "deliver", "deliver");
    let web = Web::start(|asked| Reply::status(if asked.target == "/full" { 503 } else { 201 }));
    let (allowed, other) = (web.url("").trim_end_matches('/').to_owned(), Web::start(|_| Reply::status(200)));
    here.manifest(
        "deliver",
        &format!("[retry]\nattempts = 1\n[allow]\nhttp = ['{allowed}']\nstate = true\nenqueue = ['echo']\n"),
    );
    fs::write(here.dir.path().join("hourhand.toml"), "[ceiling]\nprivate = ['127.0.0.0/8']\n")
        .expect("a file");
    let _runner = runner_with(&here, &["deliver"]);
    let deliver = |id: &str, url: &str| {
        let payload = json!({"url": url, "event": {"paid": true}, "then": "echo"}).to_string();
        here.ok(&["enqueue", "deliver", &payload, "--id", id]);
    };
    for (id, count) in [("first", 1), ("second", 2)] {
        deliver(id, &web.url("/hooks"));
        let job = here.job_in(id, "completed", SOON);
        let result: Value = serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON");
        assert_eq!(result, json!({"status": 201, "deliveries": count}), "{job:#}");
        assert_eq!(job["progress"]["percent"], 10, "{job:#}");
    }
    // What fails leaves no trace: neither a count nor a job.
    deliver("unwell", &web.url("/full"));
    assert_eq!(here.job_in("unwell", "dead", SOON)["error"]["reason"], "error");
    deliver("astray", &other.url("/hooks"));
    let astray = here.job_in("astray", "dead", SOON);
    assert_eq!(astray["error"]["reason"], "denied", "{astray:#}");
    assert!(astray["error"]["message"].as_str().expect("a message").contains("[allow] http"), "{astray:#}");
    here.counts("echo", "those of the two that completed are done", SOON, |q| q["completed"] == 2);
    assert_eq!(here.ok(&["state", "get", "deliver", "deliveries"]), "2");
    let seen = web.seen();
    assert_eq!(
        seen.iter().filter_map(|asked| asked.header("idempotency-key")).collect::<Vec<_>>(),
        ["first", "second", "unwell"]
    );
    assert_eq!(seen[0].body, br#"{"paid":true}"#);
    assert!(other.seen().is_empty());
}

fn a_large_module_compiles_beside_running_jobs_and_a_restart_takes_it_from_the_cache(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    // A cache of its own, so that it really compiles.
    fs::write(here.dir.path().join("cached.toml"), "cache_dir = \"code\"\n").expect("a file");
    let start = || {
        let log = here.dir.path().join("cached.log");
        let file = fs::File::create(&log).expect("a log");
        let mut command = here.command(&["run", "--handlers", "handlers", "--config", "cached.toml"]);
        command.env_remove("HOURHAND_CACHE_DIR").stderr(file).stdout(std::process::Stdio::null());
        (command.spawn().expect("start a runner"), log)
    };
    let end = |mut runner: std::process::Child| {
        let _ = runner.kill();
        let _ = runner.wait();
    };
    let (runner, log) = start();
    let said = |words: &str| fs::read_to_string(&log).unwrap_or_default().contains(words);
    eventually("the runner serves", COMPILED, || said("the runner serves").then_some(()));
    install(&here, "python", "receipt_py");
    let (mut beside, mut late_ms) = (0, 0.0_f64);
    while !said("receipt_py.wasm hash=") {
        assert!(!said("does not load"), "{}", fs::read_to_string(&log).unwrap_or_default());
        let id = format!("e{beside}");
        here.ok(&["enqueue", "echo", "{}", "--id", &id]);
        let job = here.job_in(&id, "completed", SOON);
        late_ms = late_ms.max(job["lateness_ms"].as_f64().expect("a lateness"));
        beside += 1;
    }
    println!("{beside} jobs while it compiled, {late_ms:.1} ms late at most");
    assert!(beside >= 5, "jobs ran while it compiled: {beside}");
    assert!(said("cached=false"));
    here.ok(&["enqueue", "receipt_py", ORDER, "--id", "first"]);
    let first = here.job_in("first", "completed", SOON);
    end(runner);

    let (runner, _) = start();
    eventually("the runner serves", COMPILED, || said("the runner serves").then_some(()));
    let text = fs::read_to_string(&log).expect("a log");
    let loaded: Vec<&str> = text.lines().filter(|line| line.contains("handler loaded")).collect();
    assert_eq!(loaded.len(), 2, "{text}");
    assert!(loaded.iter().all(|line| line.contains("cached=true")), "{text}");
    here.ok(&["enqueue", "receipt_py", ORDER, "--id", "second"]);
    let second = here.job_in("second", "completed", SOON);
    assert_eq!(second["handler"], first["handler"]);
    assert_ne!(second["result"], first["result"], "another receipt");
    assert_eq!(second["error"], json!(null));
    end(runner);
}
