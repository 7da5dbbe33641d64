//! Plain WASI commands as handlers: what their exit codes, their output and their failures become.

#[allow(unreachable_pub, reason = "shared with the end-to-end tests")]
#[path = "../../tests/harness/guests.rs"]
mod built;
mod guests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use guests::*;
use hourhand::grants::Grants;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{
    Form, GuestJob, JobLog, Limits, Module, Offer, Role, RunReport, Stop, StopSignal, inspect,
};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wit_component::ComponentEncoder;

fn bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| std::fs::read(built::guest("command")).unwrap())
}

fn command() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| sandbox().load("my.command", bytes()).expect("loads"))
}

async fn run_job(job: GuestJob, limits: &Limits) -> (RunReport, String) {
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let report = sandbox().run(command(), job, limits, StopSignal::new(), Arc::clone(&log)).await;
    (report, log.text())
}

async fn perform(payload: &str, limits: &Limits) -> (RunReport, String) {
    run_job(job(payload.to_owned()), limits).await
}

#[track_caller]
fn result(report: &RunReport) -> &str {
    match &report.end {
        RunEnd::Completed(result) => std::str::from_utf8(result).unwrap(),
        other => panic!("not completed: {other:?}"),
    }
}

#[test]
fn a_payload_goes_through_stdin_and_stdout_byte_for_byte() {
    in_a_guest_runtime(async {
        for payload in [vec![], vec![0, 159, 146, 150, b'\n'], (0..1 << 20).map(|n| (n / 7) as u8).collect()]
        {
            let (report, log) = run_job(job(payload.clone()), &limits(5_000)).await;
            assert_eq!(report.end, RunEnd::Completed(Bytes::from(payload)));
            assert_eq!(log, "", "stdout is the result, not the log");
            assert!(report.memory_bytes_peak > 0);
        }
    });
}

#[test]
fn each_way_to_end_has_its_outcome_and_what_was_said_last() {
    let failed =
        |reason, message: &str| RunEnd::Failed { reason, message: message.to_owned(), after_ms: None };
    let permanent =
        |message: &str| RunEnd::Permanent { reason: Reason::Permanent, message: message.to_owned() };
    in_a_guest_runtime(async {
        for (asked, wanted) in [
            ("do return", RunEnd::Completed("returned\n".into())),
            ("do exit 0", RunEnd::Completed("half a result".into())),
            ("do exit 0 said on the way", RunEnd::Completed("half a result".into())),
            ("do exit 75 the bank is closed", failed(Reason::Error, "the bank is closed")),
            ("do exit 75", failed(Reason::Error, "exit code 75: try again later")),
            ("do exit 65 no such order", permanent("no such order")),
            ("do exit 65", permanent("exit code 65: trying again cannot help")),
            ("do exit 7 disk on fire", failed(Reason::Exit, "exit code 7: disk on fire")),
            ("do exit 7", failed(Reason::Exit, "exit code 7")),
            ("do exit 255", failed(Reason::Exit, "exit code 255")),
            // A code's low 8 bits count, as everywhere.
            ("do exit 256", RunEnd::Completed("half a result".into())),
            ("do error not today", failed(Reason::Exit, "exit code 1: Error: \"not today\"")),
        ] {
            assert_eq!(perform(asked, &limits(5_000)).await.0.end, wanted, "{asked}");
        }
        let (report, log) = perform("do panic bad id 7", &limits(5_000)).await;
        assert_failed(&report, Reason::Panic, "src/main.rs:");
        assert_failed(&report, Reason::Panic, "bad id 7");
        assert!(log.contains("panicked at"), "{log}");
        let (report, _) = perform("do abort and why", &limits(5_000)).await;
        assert_failed(&report, Reason::Trap, "unreachable");
        assert_failed(&report, Reason::Trap, "and why");
        let (report, _) = perform("do trap on the way", &limits(5_000)).await;
        assert_failed(&report, Reason::Trap, "out of bounds memory");
        // Its input is still there when it ends.
        let early =
            |code: &str| GuestJob { meta: vec![("early".into(), code.into())], ..job(vec![b'x'; 1 << 20]) };
        assert_eq!(run_job(early("0"), &limits(5_000)).await.0.end, RunEnd::Completed(Bytes::new()));
        assert_failed(&run_job(early("9"), &limits(5_000)).await.0, Reason::Exit, "exit code 9");
    });
}

#[test]
fn stdout_has_the_limit_of_results_and_stderr_that_of_logs() {
    in_a_guest_runtime(async {
        let limits = Limits { output_bytes: 10_000, log_bytes: 1_000, ..limits(60_000) };
        let (report, _) = perform("do print 10000", &limits).await;
        assert_eq!(result(&report).len(), 10_000);
        let (report, log) = perform("do print 10001", &limits).await;
        assert_failed(&report, Reason::Output, "stdout is over the output limit 10000 bytes");
        assert_eq!(log, "");
        // It ends there, and does not go on to write for ever.
        let (report, _) = perform("do print 4000000000", &limits).await;
        assert_failed(&report, Reason::Output, "10000 bytes");
        let (report, log) = perform("do scream 1000000", &limits).await;
        assert_eq!(result(&report), "", "a log never fails a guest");
        assert!(log.contains("bytes cut") && log.len() < 1_100, "{}", log.len());
    });
}

#[test]
fn the_job_s_facts_are_variables_and_so_is_what_the_manifest_grants() {
    in_a_guest_runtime(async {
        let job = GuestJob {
            meta: vec![("tenant".into(), "t 1".into())],
            facts: vec![("traceparent".into(), "00-a-b-01".into())],
            ..job("do variables")
        };
        let grants = Grants {
            env: [("LANG", "de"), ("HOURHAND_ID", "another")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            ..Grants::default()
        };
        let offer = Offer { grants: Arc::new(grants), ..Offer::default() };
        let log = Arc::new(JobLog::new(100));
        let report = sandbox().run_with(command(), job, &limits(5_000), offer, StopSignal::new(), log).await;
        let lines: Vec<&str> = result(&report).lines().collect();
        assert_eq!(lines[0], "my.command", "argv[0] is the file stem, and there is nothing else");
        for wanted in [
            "HOURHAND_ID=1",
            "HOURHAND_KIND=k",
            "HOURHAND_QUEUE=k",
            "HOURHAND_ATTEMPT=1",
            "HOURHAND_MAX_ATTEMPTS=5",
            "HOURHAND_ENQUEUED_AT=1970-01-01T00:00:00.001Z",
            "HOURHAND_DUE_AT=1970-01-01T00:00:00.002Z",
            "HOURHAND_TRACEPARENT=00-a-b-01",
            "HOURHAND_META={\"tenant\":\"t 1\"}",
            "HOURHAND_META_TENANT=t 1",
            "LANG=de",
        ] {
            assert!(lines.contains(&wanted), "{wanted}: {lines:#?}");
        }
        assert!(lines.iter().any(|line| line.starts_with("HOURHAND_DEADLINE=2")), "{lines:#?}");
        let first = lines.iter().find(|line| line.starts_with("HOURHAND_ID=")).unwrap();
        assert_eq!(*first, "HOURHAND_ID=1", "what the job is comes first");
        let foreign = |line: &&&str| !line.starts_with("HOURHAND_") && !line.starts_with("LANG=");
        assert_eq!(lines[1..].iter().find(foreign), None, "and nothing of the runner's own");
    });
}

#[test]
fn limits_and_stops_hold_as_for_handlers() {
    in_a_guest_runtime(async {
        for asked in ["do spin", "do sleep 3600000"] {
            assert_failed(&perform(asked, &limits(200)).await.0, Reason::Timeout, "200 ms");
            let stop = StopSignal::new();
            let (sandbox, minute, given) = (sandbox(), limits(60_000), stop.clone());
            let run = sandbox.run(command(), job(asked), &minute, stop, Arc::new(JobLog::new(10)));
            let (report, ()) = tokio::join!(run, async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                given.stop(Stop::Cancel);
            });
            assert_eq!(report.end, RunEnd::Cancelled, "{asked}");
        }
        let limits = Limits { memory_bytes: 32 << 20, ..limits(60_000) };
        assert_eq!(result(&perform("do grow 20", &limits).await.0), "20\n");
        assert_failed(&perform("do grow 40", &limits).await.0, Reason::Memory, "memory limit 32 MiB");
        assert_eq!(sandbox().memory_in_use(), 0);
    });
}

#[test]
fn random_numbers_and_clocks_differ_from_job_to_job() {
    in_a_guest_runtime(async {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let (report, _) = perform("do lots", &limits(5_000)).await;
            let (random, now) = result(&report).trim().split_once(' ').unwrap();
            assert!(seen.insert(format!("random {random}")) && seen.insert(format!("now {now}")), "{seen:?}");
        }
    });
}

#[test]
fn a_command_component_runs_as_it_is_and_one_of_another_wasi_is_named() {
    let component = ComponentEncoder::default()
        .module(bytes())
        .and_then(|encoder| {
            encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
        })
        .and_then(|mut encoder| encoder.encode())
        .unwrap();
    in_a_guest_runtime(async {
        let module = sandbox().load("c", &component).expect("loads");
        let run = async |payload: &'static str| {
            let log = Arc::new(JobLog::new(1_000));
            sandbox().run(&module, job(payload), &limits(5_000), StopSignal::new(), log).await
        };
        assert_eq!(result(&run("hello").await), "hello");
        assert_failed(&run("do error not today").await, Reason::Exit, "exit code 1: Error");
        // WASI 0.2's own exit knows success and failure, and no number.
        assert_failed(&run("do exit 7 why").await, Reason::Exit, "exit code 1: why");
    });
    for (bytes, form) in [(bytes(), Form::Core), (&component, Form::Component)] {
        let inspection = inspect("c", bytes);
        assert_eq!((inspection.form, inspection.role), (Some(form), Some(Role::Command)));
        let build = inspection.build.expect("it loads");
        assert!(build.memories >= 1 && build.compile_ms.is_some(), "{build:?}");
    }
    let version = b"wasi:cli/run@0.2";
    let mut newer = component.clone();
    let at: Vec<usize> =
        newer.windows(version.len()).enumerate().filter(|(_, w)| *w == version).map(|(at, _)| at).collect();
    at.iter().for_each(|at| newer[at + version.len() - 1] = b'3');
    let refusal = inspect("c", &newer).refusal.expect("is refused").to_string();
    assert!(refusal.contains("a command of WASI 0.3") && refusal.contains("wasm32-wasip2"), "{refusal}");
}
