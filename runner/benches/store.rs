//! Measures the stores alone, both in one run: what an enqueue, a claim and a settle cost, with and without a
//! backlog.
//!
//! `make bench`, or `cargo bench -p hourhand --bench store -- [--jobs N] [--backlog N] [--only redis|sqlite]`.
//! Absolute figures are this machine's alone.
#![allow(clippy::print_stdout, reason = "a benchmark's answer")]
#![allow(unreachable_pub, reason = "the harness is shared between test binaries by path")]

#[path = "../../tests/harness/redis_server.rs"]
mod redis_server;

use std::time::Duration;

use hourhand::clock::monotonic;
use hourhand::job::{Due, NewJob};
use hourhand::names::Name;
use hourhand::outcome::Outcome;
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::sqlite::{Durability, SqliteOptions, SqliteStore};
use hourhand::queue::{
    BATCH_MAX, ClaimRequest, IdMemory, Lane, LaneClaim, Retention, RunFacts, SessionId, Settlement, Store,
};
use redis_server::RedisServer;

/// What a job carries: the size that queues are usually compared with.
const PAYLOAD_BYTES: usize = 150;
/// Callers that enqueue at the same time.
const CALLERS: usize = 16;

struct Plan {
    jobs: usize,
    backlog: usize,
    only: Option<String>,
}

impl Plan {
    fn read() -> Self {
        let mut plan = Self { jobs: 20_000, backlog: 1_000_000, only: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value after the option");
            match word.as_str() {
                "--jobs" => plan.jobs = value().parse().expect("a number"),
                "--backlog" => plan.backlog = value().parse().expect("a number"),
                "--only" => plan.only = Some(value()),
                _ => {}
            }
        }
        plan
    }

    fn has(&self, store: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == store)
    }
}

fn main() {
    let plan = Plan::read();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    println!("{PAYLOAD_BYTES}-byte payload, default retention, {} jobs a figure; us are per job", plan.jobs);
    println!(
        "{:<14} {:>9} {:>9} {:>11} {:>9} {:>12} {:>12} {:>12}",
        "store", "backlog", "single us", "16 callers", "bulk us", "claim+set 1", "10", "100"
    );
    if plan.has("redis") {
        let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
        let _inside = runtime.enter();
        let store =
            RedisStore::connect(&server.url(), &name("bench"), RedisOptions::default()).expect("a URL");
        runtime.block_on(measure("redis everysec", &store, &plan));
    }
    if plan.has("sqlite") {
        for durability in [Durability::Full, Durability::Normal] {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on the disk");
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let store =
                SqliteStore::open(&folder.path().join("jobs.db"), &name("bench"), options).expect("a path");
            runtime.block_on(measure(&format!("sqlite {}", durability.as_str()), &store, &plan));
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn job() -> NewJob {
    NewJob { payload: vec![b'x'; PAYLOAD_BYTES].into(), ..NewJob::new(name("echo")) }
}

/// A line of figures without a backlog, and one with.
async fn measure(label: &str, store: &(impl Store + Clone), plan: &Plan) {
    for backlog in [0, plan.backlog] {
        if backlog > 0 {
            fill(store, backlog, &NewJob { due: Due::In(864_000_000), ..job() }).await;
        }
        let single = each(plan.jobs.min(2_000), enqueue_one_by_one(store, plan.jobs.min(2_000))).await;
        let callers = each(plan.jobs, enqueue_together(store, plan.jobs)).await;
        let bulk = each(plan.jobs, fill(store, plan.jobs, &job())).await;
        drain(store).await;
        let mut work = Vec::new();
        for batch in [1, 10, 100] {
            let jobs = if batch == 1 { plan.jobs.min(2_000) } else { plan.jobs };
            fill(store, jobs, &job()).await;
            work.push(each(jobs, claim_and_settle(store, jobs, batch)).await);
        }
        println!(
            "{label:<14} {backlog:>9} {single:>9.1} {callers:>11.1} {bulk:>9.1} {:>12.1} {:>12.1} {:>12.1}",
            work[0], work[1], work[2]
        );
    }
}

/// Microseconds for each of so many.
async fn each(count: usize, work: impl Future<Output = ()>) -> f64 {
    let start = monotonic();
    work.await;
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

async fn enqueue_one_by_one(store: &impl Store, count: usize) {
    for _ in 0..count {
        store.enqueue(&[job()]).await.expect("taken");
    }
}

async fn enqueue_together(store: &(impl Store + Clone), count: usize) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { enqueue_one_by_one(&store, count / CALLERS).await })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller ends");
    }
}

async fn fill(store: &impl Store, count: usize, job: &NewJob) {
    for from in (0..count).step_by(BATCH_MAX) {
        let batch = vec![job.clone(); BATCH_MAX.min(count - from)];
        store.enqueue(&batch).await.expect("taken");
    }
}

async fn drain(store: &impl Store) {
    claim_and_settle(store, usize::MAX, BATCH_MAX).await;
}

/// Claims and completes so many jobs, or all that are due, a batch at a time; prunes as a runner does.
async fn claim_and_settle(store: &impl Store, count: usize, batch: usize) {
    let session = SessionId(format!("bench{batch}").into());
    let lane = Lane { queue: name("echo"), kind: name("echo") };
    let (mut done, mut token, mut pruned) = (0, 1, monotonic());
    while done < count {
        let request = ClaimRequest {
            session: session.clone(),
            lanes: vec![LaneClaim::new(lane.clone(), 5)],
            due_max: batch.min(count - done),
            ahead_max: 0,
            look_ahead_ms: 0,
            suspect: true,
            first_token: token,
            beat: 0,
        };
        let claimed = store.claim(&request).await.expect("claimed");
        if claimed.jobs.is_empty() {
            return;
        }
        token += batch as u64;
        done += claimed.jobs.len();
        let settlements: Vec<Settlement> = claimed
            .jobs
            .into_iter()
            .map(|job| Settlement {
                lease: job.lease,
                lane: lane.clone(),
                outcome: Outcome::Completed { result: None },
                run: Some(RunFacts {
                    started_us: claimed.now_us,
                    duration_us: 20,
                    lateness_us: 100,
                    runner: "bench".to_owned(),
                    handler: "0123456789ab".to_owned(),
                }),
                retention: Retention::FINISHED,
                id_memory: IdMemory::default(),
                effects: None,
                receipt: job.receipt,
            })
            .collect();
        store.settle(&settlements).await.expect("settled");
        if pruned.elapsed() > Duration::from_secs(1) {
            pruned = monotonic();
            store.prune().await.expect("pruned");
        }
    }
}
