//! The sandbox against guests that behave and guests that do not.

mod guests;

use std::sync::Arc;

use bytes::Bytes;
use guests::{echo, guest, spin};
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{
    GuestJob, JobLog, Limits, LoadError, Module, RunReport, Sandbox, SandboxConfig, StopSignal,
};
use wasm_encoder::Instruction as I;

fn sandbox() -> Arc<Sandbox> {
    Sandbox::new(SandboxConfig { concurrency: 8, ..SandboxConfig::default() }).expect("a sandbox")
}

fn job(payload: impl Into<Bytes>) -> GuestJob {
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
    }
}

async fn run(sandbox: &Sandbox, module: &Module, limits: &Limits) -> RunReport {
    sandbox
        .run(module, job("hello"), limits, StopSignal::new(), Arc::new(JobLog::new(limits.log_bytes)))
        .await
}

#[tokio::test]
async fn echo_returns_its_payload() {
    let sandbox = sandbox();
    assert!(sandbox.pooled());
    let module = sandbox.load("echo", &echo().build()).unwrap();
    let report = run(&sandbox, &module, &Limits::default()).await;
    assert_eq!(report.end, RunEnd::Completed(Bytes::from("hello")));
    assert_eq!(sandbox.memory_in_use(), 0);
}
