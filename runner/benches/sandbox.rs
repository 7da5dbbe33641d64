//! The sandbox alone: context, instance, call, drop, for a handler that does next to nothing.
//!
//! `cargo bench -p hourhand --bench sandbox`. The module is target/guests/noop.wasm, or the file that
//! `HOURHAND_BENCH_HANDLER` names. A figure with two threads is the time of one job on its thread while another thread does the same.

use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use hourhand::clock::monotonic;
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{GuestJob, JobLog, Limits, Module, Sandbox, SandboxConfig, StopSignal};

/// A payload of 150 bytes: the size that queues are usually compared with.
fn payload() -> Vec<u8> {
    let (before, after) = (r#"{"n":1,"text":""#, r#""}"#);
    format!("{before}{}{after}", "x".repeat(150 - before.len() - after.len())).into_bytes()
}

fn module(sandbox: &Sandbox) -> Module {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/guests/noop.wasm");
    let file = std::env::var("HOURHAND_BENCH_HANDLER").unwrap_or_else(|_| built.to_owned());
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}: run make guests first"));
    sandbox.load("noop", &bytes).expect("loads")
}

async fn run_many(sandbox: Arc<Sandbox>, module: Module, jobs: u64) {
    let job = GuestJob {
        id: "1234-abcdefghijkl".to_owned(),
        kind: "noop".to_owned(),
        queue: "noop".to_owned(),
        attempt: 1,
        max_attempts: 5,
        enqueued_ms: 1,
        due_ms: 1,
        payload: payload().into(),
        ..GuestJob::default()
    };
    let limits = Limits::default();
    for _ in 0..jobs {
        let log = Arc::new(JobLog::new(limits.log_bytes));
        let report = sandbox.run(&module, job.clone(), &limits, StopSignal::new(), log).await;
        assert!(matches!(report.end, RunEnd::Completed(_)), "{report:?}");
    }
}

fn jobs(criterion: &mut Criterion) {
    let sandbox = Sandbox::new(SandboxConfig::default()).expect("a sandbox");
    let module = module(&sandbox);
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a runtime");
        criterion.bench_function(&format!("sandbox/{threads} threads"), |bench| {
            bench.iter_custom(|jobs| timed(&runtime, &sandbox, &module, threads, jobs));
        });
    }
}

/// How long each thread takes for so many jobs.
fn timed(
    runtime: &tokio::runtime::Runtime,
    sandbox: &Arc<Sandbox>,
    module: &Module,
    threads: usize,
    jobs: u64,
) -> Duration {
    let start = monotonic();
    let spawn = |_| runtime.spawn(run_many(Arc::clone(sandbox), module.clone(), jobs));
    let running: Vec<_> = (0..threads).map(spawn).collect();
    for one in running {
        runtime.block_on(one).expect("it ends");
    }
    start.elapsed()
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(5));
    targets = jobs
}
criterion_main!(benches);
