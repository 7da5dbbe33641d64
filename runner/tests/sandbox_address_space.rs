//! A machine (or a `ulimit -v`) with too little address space for the pool: jobs run all the same.

mod guests;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{JobLog, Limits, Sandbox, SandboxConfig, StopSignal, compile_with};

/// Says to the process that it is the one with the limit.
const INSIDE: &str = "HOURHAND_TEST_INSIDE";

/// Runs one test of this file in a process that may have `bytes` of address space.
fn in_a_process_with(bytes: u64, test: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "yes");
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: setrlimit may be called between fork and exec, and reads `limit` only.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn run_echo(concurrency: u32, pooled: bool) {
    // The process that compiles has no pool, and makes the same code.
    compile_with(env!("CARGO_BIN_EXE_hourhand").into());
    let sandbox = Sandbox::new(SandboxConfig { concurrency, ..SandboxConfig::default() }).unwrap();
    assert_eq!(sandbox.pooled(), pooled);
    let module = sandbox.load("echo", &guests::echo().build()).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let mut jobs = Vec::new();
        for _ in 0..64 {
            let (sandbox, module) = (Arc::clone(&sandbox), module.clone());
            jobs.push(tokio::spawn(async move {
                let log = Arc::new(JobLog::new(10));
                sandbox.run(&module, guests::job("x"), &Limits::default(), StopSignal::new(), log).await
            }));
        }
        for job in jobs {
            assert_eq!(job.await.unwrap().end, RunEnd::Completed(Bytes::from_static(b"x")));
        }
    });
}

#[test]
fn with_8_gib_of_address_space_jobs_run_without_a_pool() {
    if std::env::var_os(INSIDE).is_some() {
        run_echo(1_000, false);
    } else {
        in_a_process_with(8 << 30, "with_8_gib_of_address_space_jobs_run_without_a_pool");
    }
}

#[test]
fn with_less_than_4_gib_a_slot_the_pool_is_a_tighter_one() {
    if std::env::var_os(INSIDE).is_some() {
        run_echo(8, true);
    } else {
        in_a_process_with(64 << 30, "with_less_than_4_gib_a_slot_the_pool_is_a_tighter_one");
    }
}

#[test]
fn a_thousand_jobs_at_once_have_a_pool() {
    run_echo(1_000, true);
}
