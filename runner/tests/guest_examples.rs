//! The modules of `guest-examples` in the sandbox: what the SDK makes is what the sandbox runs, and each way
//! to end a job arrives with its reason.

#[allow(unreachable_pub, reason = "the end-to-end tests share it")]
#[path = "../../tests/harness/guests.rs"]
mod guests;

use std::fs;
use std::sync::{Arc, OnceLock};

use hourhand::names::Name;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{
    Asks, Declared, GuestJob, JobLog, Limits, Module, Sandbox, SandboxConfig, StopSignal,
};
use serde_json::{Value, json};

/// One pool for all tests of this file.
fn sandbox() -> Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let config = SandboxConfig { concurrency: 8, ..SandboxConfig::default() };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

fn load(example: &str) -> Module {
    let bytes = fs::read(guests::guest(example)).expect("read the module");
    sandbox().load(example, &bytes).expect("loads")
}

/// Runs a job of `kind` for a second at most; what it ended in, and its log.
fn run(module: &Module, kind: &str, payload: &str) -> (RunEnd, String) {
    let job = GuestJob {
        id: "j1".to_owned(),
        kind: kind.to_owned(),
        queue: "q1".to_owned(),
        attempt: 1,
        max_attempts: 5,
        enqueued_ms: 1_000,
        due_ms: 2_000,
        meta: vec![("tenant".to_owned(), "t1".to_owned())],
        facts: vec![("traceparent".to_owned(), "00-1".to_owned())],
        payload: payload.to_owned().into(),
        ..GuestJob::default()
    };
    let limits = Limits { timeout_ms: 1_000, ..Limits::default() };
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let report = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a guest runtime")
        .block_on(sandbox().run(module, job, &limits, StopSignal::new(), Arc::clone(&log)));
    (report.end, log.text())
}

/// Runs a job that completes with JSON.
fn completed(module: &Module, kind: &str, payload: &str) -> Value {
    match run(module, kind, payload).0 {
        RunEnd::Completed(result) => serde_json::from_slice(&result).expect("JSON"),
        other => panic!("{kind} {payload}: {other:?}"),
    }
}

fn declared(module: &Module, kind: &str) -> Declared {
    let declared = module.declared().iter().find(|declared| declared.kind.as_str() == kind);
    declared.unwrap_or_else(|| panic!("no {kind} in {:?}", module.declared())).clone()
}

#[test]
fn what_the_attribute_says_is_what_the_module_declares() {
    let order = load("order_close");
    let expected = Declared {
        kind: Name::new("order_close").unwrap(),
        timeout_ms: Some(10_000),
        max_attempts: Some(5),
        backoff: None,
        keep_results: false,
        asks: Asks::default(),
    };
    assert_eq!(order.declared(), [expected]);
    assert!(declared(&load("thumbnail"), "thumbnail").keep_results);

    let faults = load("faults");
    assert!(faults.declared().len() > 20, "one module serves many kinds: {:?}", faults.declared());
    let backoff = declared(&faults, "flaky").backoff.expect("a backoff");
    assert_eq!((backoff.base_ms, backoff.max_ms, backoff.jitter), (1_000, 1_000, 0.2));
    assert_eq!(declared(&faults, "permanent").max_attempts, Some(10));
}

#[test]
fn a_handler_sees_its_job_and_nothing_else() {
    let faults = load("faults");
    let told = completed(&faults, "told", "");
    assert!(told["remaining_ms"].as_u64().is_some_and(|ms| (500..=1_000).contains(&ms)), "{told}");
    let expected = json!({
        "id": "j1", "kind": "told", "queue": "q1", "attempt": 1, "max_attempts": 5,
        "enqueued_at_ms": 1_000, "due_at_ms": 2_000, "remaining_ms": told["remaining_ms"],
        "meta": [["tenant", "t1"]], "traceparent": "00-1",
    });
    assert_eq!(told, expected);

    let probe = completed(&faults, "probe", "");
    assert_eq!((&probe["arguments"], &probe["environment"]), (&json!([]), &json!([])), "{probe}");
    assert!(probe["connected"].as_str().is_some_and(|text| text.starts_with("refused")), "{probe}");
    for opened in probe["opened"].as_array().expect("a list") {
        assert!(opened[1].as_str().is_some_and(|text| text.starts_with("refused")), "{opened}");
    }
    assert_eq!(completed(&faults, "seen", ""), 1);
    assert_eq!(completed(&faults, "seen", ""), 1, "nothing of the first run is left");
}

#[test]
fn log_lines_carry_their_level() {
    let (end, log) = run(&load("faults"), "logs", "");
    assert_eq!(end, RunEnd::Completed(Vec::new().into()));
    for words in ["an error", "a warning", "and a second one", "Zoë", "a detail", "a step"] {
        assert!(log.contains(words), "{log}");
    }
    for level in ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"] {
        assert!(log.contains(level), "{log}");
    }
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn exits_end_by_their_code() {
    let faults = load("faults");
    assert_eq!(run(&faults, "exit0", "").0, RunEnd::Completed(Vec::new().into()));
    assert_failed(&faults, "exit7", Reason::Exit, "exit code 7");
    assert_failed(&faults, "abort_now", Reason::Trap, "unreachable");
    assert_failed(&faults, "unreachable", Reason::Trap, "unreachable");
    assert_failed(&faults, "out_of_bounds", Reason::Trap, "out of bounds");
}

#[test]
fn panics_say_what_and_where() {
    let faults = load("faults");
    for (kind, words) in [
        ("panic_text", "bad id 7"),
        ("panic_in_drop", "bad id 7"),
        ("panic_long", "éééé"),
        ("spawn_thread", "failed to spawn thread"),
        ("unwrap_none", "called `Option::unwrap()` on a `None` value"),
    ] {
        let message = assert_failed(&faults, kind, Reason::Panic, words);
        assert!(message.len() <= 4 << 10, "{} bytes", message.len());
        if kind != "spawn_thread" {
            assert!(message.contains("faults/src/panics.rs:"), "{kind}: {message}");
        }
    }
    // The message itself panicked: nobody could write it down, but it is one failed attempt all the same.
    let (end, log) = run(&faults, "panic_in_panic", "");
    assert!(matches!(end, RunEnd::Failed { reason: Reason::Trap | Reason::Panic, .. }), "{end:?}");
    assert!(log.contains("panicked while"), "{log}");
}

#[test]
fn failures_are_what_the_handler_says() {
    let faults = load("faults");
    let permanent = |reason, message: &str| RunEnd::Permanent { reason, message: message.to_owned() };
    let (end, _) = run(&faults, "permanent", r#"{"msg":"never"}"#);
    assert_eq!(end, permanent(Reason::Permanent, "never"));
    let (end, _) = run(&faults, "flaky", r#"{"fails":1,"after_ms":1500}"#);
    let message = "attempt 1 fails".to_owned();
    assert_eq!(end, RunEnd::Failed { reason: Reason::Error, message, after_ms: Some(1_500) });
    assert_eq!(completed(&faults, "flaky", r#"{"fails":0}"#), 1);
    assert_eq!(run(&faults, "snooze", r#"{"ms":90000}"#).0, RunEnd::Snoozed(90_000));
    let RunEnd::Permanent { reason: Reason::Decode, message } = run(&faults, "flaky", "[]").0 else {
        panic!()
    };
    assert!(message.contains("line 1 column"), "{message}");
}

#[test]
fn what_goes_on_for_ever_is_stopped() {
    let faults = load("faults");
    for kind in ["sleep_forever", "sleep_zero", "read_stdin", "log_forever"] {
        assert_failed(&faults, kind, Reason::Timeout, "");
    }
    assert_failed(&load("spin"), "spin", Reason::Timeout, "");
    assert_failed(&load("recurse"), "recurse", Reason::Stack, "");
}

#[test]
fn memory_ends_where_the_limit_is() {
    let grow = load("grow");
    assert_eq!(completed(&grow, "grow", r#"{"mib":63}"#), json!({"mib": 63}));
    for mib in ["200", "5000"] {
        let (end, _) = run(&grow, "grow", &format!(r#"{{"mib":{mib}}}"#));
        assert!(matches!(end, RunEnd::Failed { reason: Reason::Memory, .. }), "{mib} MiB: {end:?}");
    }
    let output = load("faults");
    assert!(matches!(run(&output, "output", r#"{"bytes":1048576}"#).0, RunEnd::Completed(_)));
    let (end, _) = run(&output, "output", r#"{"bytes":1048577}"#);
    assert!(matches!(end, RunEnd::Failed { reason: Reason::Output, .. }), "{end:?}");
}

#[track_caller]
fn assert_failed(module: &Module, kind: &str, wanted: Reason, words: &str) -> String {
    match run(module, kind, "").0 {
        RunEnd::Failed { reason, message, .. } if reason == wanted && message.contains(words) => message,
        other => panic!("{kind}: wanted {wanted} with {words:?}, got {other:?}"),
    }
}
