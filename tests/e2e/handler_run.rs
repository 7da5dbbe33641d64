//! `handler run` and `handler test` on modules: one job in the real sandbox, with no store.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::backing::SqliteFile;
use crate::harness::guests::guest;
use crate::harness::hourhand::Hourhand;

/// A folder in which commands run, on a store that nobody may touch.
struct Bench {
    here: Hourhand,
    _store: SqliteFile,
}

impl Bench {
    fn new() -> Self {
        let store = SqliteFile::new();
        let here = Hourhand::new(&store.url(), &[]);
        here.ok(&["queue", "pause", "none"]);
        Self { here, _store: store }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.here.dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn run(&self, module: &str, args: &[&str]) -> Output {
        let module = guest(module);
        let mut all = vec!["handler", "run", module.to_str().expect("UTF-8")];
        all.extend(args);
        let output = self.here.run(&all);
        assert_eq!(self.here.all_jobs(&[]), [] as [Value; 0], "no job has come into being");
        output
    }

    #[track_caller]
    fn tried(&self, module: &str, args: &[&str], code: i32) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let output = self.run(module, &args);
        check(&output, code, "");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stdout)))
    }

    /// A module in a folder of its own, to have fixtures beside it.
    fn place(&self, module: &str) {
        fs::copy(guest(module), self.here.dir.path().join(format!("{module}.wasm"))).expect("a module");
    }
}

#[test]
fn each_outcome_is_told_with_its_exit_code() {
    let bench = Bench::new();
    let echo = bench.tried("echo", &["--payload", " {\"b\": 1} "], 0);
    assert_eq!(
        (&echo["outcome"], &echo["result"]),
        (&json!("completed"), &json!(" {\"b\": 1} ")),
        "{echo:#}"
    );
    assert_eq!(echo["error"], Value::Null);
    assert!(echo["duration_ms"].as_f64().expect("a time") > 0.0, "{echo:#}");
    assert!(echo["memory_bytes_peak"].as_u64().expect("bytes") >= 64 << 10, "{echo:#}");
    let ends = |kind: &str, payload: &str, args: &[&str]| {
        let mut all = vec!["--kind", kind, "--payload", payload];
        all.extend(args);
        bench.tried("faults", &all, 1)
    };
    let reason = |tried: &Value| (tried["outcome"].clone(), tried["error"]["reason"].clone());
    let flaky = ends("flaky", "{\"fails\":3}", &["--attempt", "2"]);
    assert_eq!(reason(&flaky), (json!("retry"), json!("error")), "{flaky:#}");
    assert_eq!((&flaky["delay_ms"], &flaky["error"]["message"]), (&json!(1_000), &json!("attempt 2 fails")));
    let last = ends("flaky", "{\"fails\":30}", &["--attempt", "20"]);
    assert_eq!(reason(&last), (json!("dead"), json!("error")), "no attempt is left: {last:#}");
    let last = ends("flaky", "{\"fails\":3}", &["--attempt", "2", "--max-attempts", "2"]);
    assert_eq!(reason(&last), (json!("dead"), json!("error")), "{last:#}");
    for (kind, payload, outcome, why) in [
        ("permanent", "", "dead", "permanent"),
        ("flaky", "17", "dead", "decode"),
        ("exit7", "", "retry", "exit"),
        ("unreachable", "", "retry", "trap"),
        ("panic_text", "", "retry", "panic"),
        ("output", "{\"bytes\":1048577}", "retry", "output"),
    ] {
        let tried = ends(kind, payload, &[]);
        assert_eq!(reason(&tried), (json!(outcome), json!(why)), "{tried:#}");
    }
    let snooze = ends("snooze", "{\"ms\":60000,\"times\":5}", &[]);
    assert_eq!(reason(&snooze), (json!("snoozed"), Value::Null), "{snooze:#}");
    let spin = bench.tried("spin", &["--timeout", "50ms"], 1);
    assert_eq!(reason(&spin), (json!("retry"), json!("timeout")), "{spin:#}");
    let grow = bench.tried("grow", &["--payload", "{\"mib\":4096}"], 1);
    assert_eq!(reason(&grow), (json!("retry"), json!("memory")), "{grow:#}");
    assert!(grow["memory_bytes_peak"].as_u64().expect("bytes") > 64 << 20, "{grow:#}");
    let stack = bench.tried("recurse", &[], 1);
    assert_eq!(reason(&stack), (json!("retry"), json!("stack")), "{stack:#}");
}

#[test]
fn the_job_is_what_the_flags_say_and_its_log_is_shown() {
    let bench = Bench::new();
    bench.write("payload", "{\"ms\":1}");
    let nap = bench.tried("nap", &["--payload-file", "payload", "--id", "n-1", "--attempt", "3"], 0);
    let log = nap["log"].as_str().expect("a log");
    assert!(log.starts_with("INFO id n-1 attempt 3 naps 1 ms at "), "{log}");
    assert_eq!((&nap["attempt"], &nap["max_attempts"]), (&json!(3), &json!(5)));
    let shown = bench.run("nap", &["--payload", "@payload"]);
    check(&shown, 0, "");
    let shown = text(&shown.stdout);
    for part in ["outcome   completed\n", "attempt   1 of 5, time-out 1h\n", "log\n  INFO id try-1 attempt 1"]
    {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    let late = "{\"id\":1,\"state\":\"unpaid\"}";
    for (due, decision) in [("2020-01-01T00:00:00Z", "close"), ("2090-01-01T00:00:00Z", "keep")] {
        let tried = bench.tried("order_close", &["--payload", late, "--due", due], 0);
        let result = tried["result"].as_str().expect("a result");
        assert!(result.contains(&format!("\"decision\":\"{decision}\"")), "{result}");
    }
    let shout = bench.tried("shout", &["--payload", "{\"bytes\":1000000}"], 0);
    let log = shout["log"].as_str().expect("a log");
    assert!(log.len() <= 70 << 10 && log.contains("bytes cut"), "{} bytes", log.len());
}

#[test]
fn wrong_use_is_said_before_anything_runs() {
    let bench = Bench::new();
    bench.write("bad.wasm", "(module)");
    bench.write("list.json", "[1]");
    bench.write("answers.toml", "[[http]]\nrequest = { url = '/x' }\nresponse = {}\n");
    let faults = guest("faults");
    let echo = guest("echo");
    let (faults, echo) = (faults.to_str().expect("UTF-8"), echo.to_str().expect("UTF-8"));
    for (args, part) in [
        (&["handler", "run", "nowhere.wasm"][..], "cannot read nowhere.wasm"),
        (&["handler", "run", "list.json"], "a runner looks at *.wasm only"),
        (&["handler", "run", "bad.wasm"], "bad.wasm: WebAssembly text"),
        (&["handler", "run", "."], "it is not a file"),
        (&["handler", "run", faults], "there are several handlers, and a kind must be named"),
        (&["handler", "run", faults, "--kind", "none"], "there is no handler for none"),
        (&["handler", "run", echo, "--attempt", "0"], "0 is not in 1.."),
        (&["handler", "run", echo, "--timeout", "soon"], "--timeout: expected"),
        (&["handler", "run", echo, "--due", "soon"], "--due: expected"),
        (&["handler", "run", echo, "--meta", "a=1", "--meta", "a=2"], "got \"a\" twice"),
        (&["handler", "run", echo, "--state", "list.json"], "expected a JSON object"),
        (&["handler", "run", echo, "--state", "none.json"], "--state: none.json"),
        (&["handler", "run", echo, "--http", "answers.toml"], "url: expected one such as https://"),
        (&["handler", "run", echo, "--manifest", "none.toml"], "there is no file none.toml"),
        (&["handler", "run", echo, "--payload", "@none"], "cannot read the payload from none"),
        (&["handler", "test", "nowhere"], "cannot read the cases in"),
        (&["handler", "test", "--fixtures", "."], "there is no case"),
    ] {
        if part == "there is no case" {
            fs::remove_file(bench.here.dir.path().join("answers.toml")).expect("removed");
        }
        let output = bench.here.run(args);
        check(&output, 2, part);
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
}

#[test]
fn cases_say_what_must_come_of_a_module_and_tell_what_is_other() {
    let bench = Bench::new();
    bench.place("faults");
    bench.write(
        "fixtures/attempts.toml",
        "kind = 'flaky'\nattempt = 3\npayload = { fails = 2 }\n[expect]\noutcome = 'completed'\nresult = 3\n",
    );
    bench.write(
        "fixtures/waits.toml",
        "kind = 'flaky'\npayload = { fails = 2, after_ms = 90000 }\n[expect]\noutcome = 'retry'\nreason = 'error'\nmessage = 'attempt 1'\ndelay = '90s'\n",
    );
    bench.write("fixtures/wrong.toml", "kind = 'permanent'\npayload = { msg = 'never' }\n[expect]\noutcome = 'retry'\nreason = 'error'\nmessage = 'soon'\n");
    bench.write(
        "fixtures/unsaid.toml",
        "# to be filled in\nkind = 'permanent'\npayload = { msg = 'never' }\n",
    );
    let output = bench.here.run(&["handler", "test", "faults.wasm", "--json"]);
    check(&output, 1, "");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let passed: Vec<(&str, bool)> = answer["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(|case| (case["name"].as_str().expect("a name"), case["passed"] == true))
        .collect();
    assert_eq!(passed, [("attempts", true), ("unsaid", false), ("waits", true), ("wrong", false)]);
    let differences: Vec<&str> = answer["cases"][3]["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .filter_map(|difference| difference["what"].as_str())
        .collect();
    assert_eq!(differences, ["outcome", "reason", "message"]);

    check(
        &bench.here.run(&["handler", "test", "faults.wasm", "--bless"]),
        0,
        "2 passed, 0 failed, 2 blessed",
    );
    let said = fs::read_to_string(bench.here.dir.path().join("fixtures/unsaid.toml")).expect("a case");
    assert_eq!(
        said,
        "# to be filled in\nkind = 'permanent'\npayload = { msg = 'never' }\n\n[expect]\noutcome = \"dead\"\n\
         reason = \"permanent\"\nmessage = \"never\"\n"
    );
    check(&bench.here.run(&["handler", "test", "faults.wasm"]), 0, "4 passed, 0 failed");

    bench.write("fixtures/typo.toml", "kind = 'flaky'\npay = 1\n");
    bench.write("fixtures/typo2.toml", "kind = 'flaky'\n[expect]\noutcome = 'done'\n");
    let output = bench.here.run(&["handler", "test", "faults.wasm"]);
    check(&output, 2, "fixtures/typo.toml: TOML parse error at line 2");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("expected one of completed, retry, dead"), "all problems at once: {stderr}");
    assert!(Path::new(&bench.here.dir.path().join("fixtures/typo.toml")).is_file());
}
