//! The steps of a job in each store, alone: one caller, batches as a busy runner makes them, finished jobs at the limit of what is kept.
//!
//! `cargo bench -p hourhand --bench scripts`. A figure is the time of a whole call, its way there and back included; the throughput
//! beside it is that of jobs. On Redis every step is one Lua script.
#![allow(unreachable_pub, reason = "the harness is shared between test binaries by path")]

#[path = "../../tests/harness/redis_server.rs"]
mod redis_server;

use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use hourhand::clock::monotonic;
use hourhand::job::NewJob;
use hourhand::names::Name;
use hourhand::outcome::Outcome;
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::sqlite::{Durability, SqliteOptions, SqliteStore};
use hourhand::queue::{
    BATCH_MAX, ClaimRequest, ClaimedJob, IdMemory, Lane, LaneClaim, Retention, RunFacts, SessionId,
    Settlement, Store,
};
use redis_server::RedisServer;
use tokio::runtime::Runtime;

/// What a job carries: the size that queues are usually compared with.
const PAYLOAD_BYTES: usize = 150;
/// Jobs that a busy runner claims and settles at once.
const BATCH: usize = 100;

/// A store, and who works on it.
struct Bed<S> {
    store: S,
    runtime: Runtime,
    lane: Lane,
    session: SessionId,
    token: u64,
}

impl<S: Store> Bed<S> {
    fn new(runtime: Runtime, open: impl FnOnce(&Name) -> S) -> Self {
        let name = Name::new("bench").expect("a name");
        let store = {
            let _inside = runtime.enter();
            open(&name)
        };
        let lane = Lane { queue: name.clone(), kind: name };
        let mut bed = Self { store, runtime, lane, session: SessionId("bench".into()), token: 1 };
        for _ in 0..120 {
            bed.enqueue(BATCH);
            let jobs = bed.claim();
            bed.settle(jobs);
        }
        bed
    }

    fn enqueue(&self, jobs: usize) {
        let job = NewJob { payload: vec![b'x'; PAYLOAD_BYTES].into(), ..NewJob::new(self.lane.kind.clone()) };
        self.runtime.block_on(self.store.enqueue(&vec![job; jobs])).expect("taken");
    }

    fn claim(&mut self) -> Vec<ClaimedJob> {
        let request = ClaimRequest {
            session: self.session.clone(),
            lanes: vec![LaneClaim::new(self.lane.clone(), 5)],
            due_max: BATCH,
            ahead_max: 0,
            look_ahead_ms: 0,
            suspect: true,
            first_token: self.token,
            beat: 0,
        };
        self.token += BATCH as u64;
        self.runtime.block_on(self.store.claim(&request)).expect("claimed").jobs
    }

    fn settle(&self, jobs: Vec<ClaimedJob>) {
        assert_eq!(jobs.len(), BATCH, "as many as wait");
        let run = RunFacts {
            started_us: 1_796_000_000_000_000,
            duration_us: 20,
            lateness_us: 100,
            runner: "bench:1".to_owned(),
            handler: "0123456789ab".to_owned(),
        };
        let completed = |job: ClaimedJob| Settlement {
            lease: job.lease,
            lane: self.lane.clone(),
            outcome: Outcome::Completed { result: None },
            run: Some(run.clone()),
            retention: Retention::FINISHED,
            id_memory: IdMemory::default(),
            effects: None,
            receipt: job.receipt,
        };
        let settlements: Vec<Settlement> = jobs.into_iter().map(completed).collect();
        self.runtime.block_on(self.store.settle(&settlements)).expect("settled");
    }

    /// Measures each step; what the others need for it is done between.
    fn measure(&mut self, group: &mut BenchmarkGroup<'_, WallTime>) {
        group.throughput(Throughput::Elements(BATCH_MAX as u64));
        group.bench_function("enqueue 250", |bench| {
            bench.iter_custom(|calls| {
                let took = timed(calls, || self.enqueue(BATCH_MAX));
                for _ in 0..calls * BATCH_MAX as u64 / BATCH as u64 {
                    let jobs = self.claim();
                    self.settle(jobs);
                }
                took
            });
        });
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function("claim 100", |bench| {
            bench.iter_custom(|calls| {
                let mut took = Duration::ZERO;
                for _ in 0..calls {
                    self.enqueue(BATCH);
                    let start = monotonic();
                    let jobs = self.claim();
                    took += start.elapsed();
                    self.settle(jobs);
                }
                took
            });
        });
        group.bench_function("settle 100", |bench| {
            bench.iter_custom(|calls| {
                let mut took = Duration::ZERO;
                for _ in 0..calls {
                    self.enqueue(BATCH);
                    let jobs = self.claim();
                    let start = monotonic();
                    self.settle(jobs);
                    took += start.elapsed();
                }
                took
            });
        });
    }
}

fn timed(calls: u64, mut call: impl FnMut()) -> Duration {
    let start = monotonic();
    (0..calls).for_each(|_| call());
    start.elapsed()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn steps(criterion: &mut Criterion) {
    let server = RedisServer::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "everysec",
        "--auto-aof-rewrite-percentage",
        "0",
    ]);
    let mut group = criterion.benchmark_group("redis everysec");
    let connect =
        |name: &Name| RedisStore::connect(&server.url(), name, RedisOptions::default()).expect("a URL");
    Bed::new(runtime(), connect).measure(&mut group);
    group.finish();
    for durability in [Durability::Normal, Durability::Full] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on the disk");
        let options = SqliteOptions { durability, ..SqliteOptions::default() };
        let open =
            |name: &Name| SqliteStore::open(&folder.path().join("jobs.db"), name, options).expect("a path");
        let mut group = criterion.benchmark_group(format!("sqlite {}", durability.as_str()));
        Bed::new(runtime(), open).measure(&mut group);
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(5));
    targets = steps
}
criterion_main!(benches);
