//! Running a guest, in a sandbox that the tests of a file share.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{GuestJob, JobLog, Limits, Module, RunReport, Sandbox, SandboxConfig, StopSignal};

use super::Guest;

pub const CONCURRENCY: u32 = 8;

/// One for all tests of this file: building a pool for each would only cost time.
pub fn sandbox() -> Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let config = SandboxConfig { concurrency: CONCURRENCY, ..SandboxConfig::default() };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

pub fn load(guest: &Guest) -> Module {
    sandbox().load("test", &guest.build()).expect("loads")
}

pub fn job(payload: impl Into<Bytes>) -> GuestJob {
    GuestJob {
        id: "1".to_owned(),
        kind: "k".to_owned(),
        queue: "k".to_owned(),
        attempt: 1,
        max_attempts: 5,
        enqueued_ms: 1,
        due_ms: 2,
        meta: vec![("a".to_owned(), "b".to_owned())],
        facts: Vec::new(),
        payload: payload.into(),
        incarnation: hourhand::sandbox::Incarnation::default(),
    }
}

pub fn limits(timeout_ms: u64) -> Limits {
    Limits { timeout_ms, ..Limits::default() }
}

pub async fn run_logged(guest: &Guest, limits: &Limits) -> (RunReport, Arc<JobLog>) {
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let module = load(guest);
    let report = sandbox().run(&module, job("hello"), limits, StopSignal::new(), Arc::clone(&log)).await;
    (report, log)
}

pub async fn run(guest: &Guest, limits: &Limits) -> RunReport {
    run_logged(guest, limits).await.0
}

#[track_caller]
pub fn assert_failed(report: &RunReport, wanted: Reason, words: &str) {
    match &report.end {
        RunEnd::Failed { reason, message, after_ms: None } if *reason == wanted => {
            assert!(message.contains(words), "{message}");
        }
        other => panic!("wanted {wanted} with {words:?}, got {other:?}"),
    }
}

pub fn in_a_guest_runtime<F: Future>(body: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(body)
}
