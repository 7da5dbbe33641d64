//! The example handlers, as the SDK builds them, in the sandbox.

#[allow(unreachable_pub, reason = "shared with the end-to-end tests")]
#[path = "../../tests/harness/guests.rs"]
mod built;
mod guests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use guests::*;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{GuestJob, JobLog, Limits, Module, RunReport, StopSignal};

fn example(file: &str) -> Module {
    static LOADED: Mutex<BTreeMap<String, Module>> = Mutex::new(BTreeMap::new());
    let mut loaded = LOADED.lock().unwrap();
    let load = || sandbox().load(file, &std::fs::read(built::guest(file)).unwrap()).expect("loads");
    loaded.entry(file.to_owned()).or_insert_with(load).clone()
}

/// Runs a job of `kind` on the module of that name, or on `faults`, which serves many kinds.
async fn run_example(
    file: &str,
    kind: &str,
    payload: &'static str,
    limits: &Limits,
) -> (RunReport, Arc<JobLog>) {
    let module = example(file);
    assert!(module.declared().iter().any(|declared| declared.kind.as_str() == kind), "{kind} is declared");
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let job = GuestJob { kind: kind.to_owned(), ..job(payload) };
    (sandbox().run(&module, job, limits, StopSignal::new(), Arc::clone(&log)).await, log)
}

async fn fault(kind: &str, payload: &'static str) -> RunReport {
    run_example("faults", kind, payload, &limits(1_000)).await.0
}

#[test]
fn what_rust_handlers_do_wrong_reads_as_what_it_is() {
    in_a_guest_runtime(async {
        for (kind, reason, words) in [
            ("exit7", Reason::Exit, "exit code 7"),
            ("abort_now", Reason::Trap, "unreachable"),
            ("unreachable", Reason::Trap, "unreachable"),
            ("out_of_bounds", Reason::Trap, "out of bounds memory"),
            ("panic_text", Reason::Panic, "panics.rs:12: bad id 7"),
            ("panic_in_drop", Reason::Panic, "panics.rs:32: bad id 7"),
            ("panic_in_panic", Reason::Panic, "panics.rs:39"),
            ("panic_long", Reason::Panic, "(cut)"),
            ("spawn_thread", Reason::Panic, "failed to spawn thread"),
            ("unwrap_none", Reason::Panic, "on a `None` value"),
            ("sleep_forever", Reason::Timeout, "1000 ms"),
            ("sleep_zero", Reason::Timeout, "1000 ms"),
            ("read_stdin", Reason::Timeout, "1000 ms"),
            ("log_forever", Reason::Timeout, "1000 ms"),
        ] {
            assert_failed(&fault(kind, "null").await, reason, words);
        }
        assert_eq!(fault("exit0", "null").await.end, RunEnd::Completed(Bytes::new()));
        let permanent = fault("permanent", "null").await.end;
        assert!(matches!(&permanent, RunEnd::Permanent { reason: Reason::Permanent, .. }), "{permanent:?}");
        let decode = fault("flaky", "[").await.end;
        assert!(matches!(&decode, RunEnd::Permanent { reason: Reason::Decode, .. }), "{decode:?}");
    });
}

#[test]
fn limits_meet_rust_handlers() {
    in_a_guest_runtime(async {
        let limits = Limits { memory_bytes: 64 << 20, log_bytes: 1_000, ..limits(60_000) };
        let grown = run_example("grow", "grow", r#"{"mib":60}"#, &limits).await.0;
        assert!(matches!(grown.end, RunEnd::Completed(_)), "{grown:?}");
        for payload in [r#"{"mib":65}"#, r#"{"mib":4096}"#] {
            let report = run_example("grow", "grow", payload, &limits).await.0;
            assert_failed(&report, Reason::Memory, "memory limit 64 MiB");
        }
        let report = run_example("recurse", "recurse", "null", &limits).await.0;
        assert_failed(&report, Reason::Stack, "stack overflow");
        let (report, log) = run_example("shout", "shout", r#"{"bytes":100000000}"#, &limits).await;
        assert!(matches!(report.end, RunEnd::Completed(_)), "{report:?}");
        assert!(log.text().contains("bytes cut"));
    });
}

#[test]
fn a_handler_sees_nothing_of_the_machine_and_nothing_of_the_job_before() {
    in_a_guest_runtime(async {
        for _ in 0..3 {
            assert_eq!(fault("seen", "null").await.end, RunEnd::Completed(Bytes::from("1")));
        }
        let RunEnd::Completed(report) = fault("probe", "null").await.end else { panic!("no report") };
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["arguments"], serde_json::json!([]));
        assert_eq!(report["environment"], serde_json::json!([]));
        let opened = report["opened"].as_array().unwrap();
        assert!(!opened.is_empty());
        for attempt in opened {
            assert!(attempt[1].as_str().unwrap().starts_with("refused"), "{attempt}");
        }
    });
}

#[test]
fn two_jobs_get_different_random_numbers() {
    in_a_guest_runtime(async {
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let report = run_example("nonce", "nonce", "null", &limits(5_000)).await.0;
            let RunEnd::Completed(result) = report.end else { panic!("{report:?}") };
            let result: serde_json::Value = serde_json::from_slice(&result).unwrap();
            assert!(seen.insert(result["nonce"].as_str().unwrap().to_owned()));
        }
    });
}
