//! Modules are compiled by a process of their own, with a bound on its time and on its memory.

mod guests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use guests::*;
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{JobLog, LoadError, Sandbox, SandboxConfig, StopSignal, compile_with};
use wasm_encoder::Instruction as I;

fn sandbox(config: SandboxConfig) -> Arc<Sandbox> {
    compile_with(PathBuf::from(env!("CARGO_BIN_EXE_hourhand")));
    Sandbox::new(SandboxConfig { concurrency: 2, ..config }).expect("a sandbox")
}

/// Processes that this test has started and that are not waited for yet.
fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a proc").flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn what_another_process_has_compiled_runs_here_and_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let cache_dir = Some(dir.path().join("code"));
        sandbox(SandboxConfig { cache_dir, ..SandboxConfig::default() })
    };
    let bytes = echo().build();
    let first = start();
    let module = first.load("k", &bytes).unwrap();
    assert!(module.build().compile_ms.is_some(), "compiled");
    in_a_guest_runtime(async {
        let log = Arc::new(JobLog::new(10));
        let report = first.run(&module, job("x"), &limits(5_000), StopSignal::new(), log).await;
        assert_eq!(report.end, RunEnd::Completed("x".into()));
    });
    assert!(start().load("k", &bytes).unwrap().build().compile_ms.is_none(), "from the cache");
    assert_eq!(children(), Vec::<String>::new());
}

#[test]
fn a_module_that_takes_too_long_is_stopped_and_the_next_one_loads() {
    let quick = sandbox(SandboxConfig { compile_time_max: Duration::from_millis(300), ..Default::default() });
    let error = quick.load("bomb", &bomb()).unwrap_err();
    assert!(
        matches!(&error, LoadError::Compile(text) if text.contains("more than 0.3 s and was stopped")),
        "{error}"
    );
    assert_eq!(children(), Vec::<String>::new(), "it was killed, and waited for");
    let patient = sandbox(SandboxConfig::default());
    patient.load("echo", &echo().build()).unwrap();
}

#[test]
fn a_module_that_takes_too_much_memory_is_refused_and_nothing_else_suffers() {
    let small = sandbox(SandboxConfig { compile_memory_bytes_max: 96 << 20, ..Default::default() });
    let error = small.load("bomb", &bomb()).unwrap_err();
    assert!(error.to_string().contains("takes more than 96 MiB of memory"), "{error}");
    small.load("echo", &echo().build()).unwrap();
}

#[test]
fn a_refusal_from_there_reads_as_one_from_here() {
    let sandbox = sandbox(SandboxConfig::default());
    let error = sandbox.load("k", &echo().build_bare()).unwrap_err();
    assert!(matches!(&error, LoadError::Refused(text) if text.contains("no WIT world")), "{error}");
    let invalid = guest([I::I32Const(1), I::I32Const(2)]).build();
    let error = sandbox.load("k", &invalid).unwrap_err().to_string();
    assert!(error.contains("cannot be wrapped") || error.contains("does not compile"), "{error}");
}

#[test]
fn nobody_but_a_runner_starts_it() {
    let run = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_hourhand")).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(&["__compile"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("for hourhand's own use"), "{said}");
    // Of another version, or by somebody who is gone: no code.
    let (code, _) = run(&["__compile", "pool", "134217728", "1", "1073741824", "1000", "1"]);
    assert_eq!(code, Some(10));
}
