//! apalis-redis: MODE COUNT [SPREAD_MS], where the modes are those of ../queues.py.
#![allow(clippy::disallowed_methods, reason = "a program of its own has its own clock")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apalis::prelude::*;
use apalis_redis::{Config, RedisStorage};
use redis::AsyncCommands;
use serde::{Deserialize, Serialize};

type Any = Box<dyn std::error::Error + Send + Sync>;

const FAR_SECONDS: u64 = 5 * 86_400;
const LEAD_MS: u64 = 3_000;
/// Jobs that may become due at once: above some 8,000 its script ends the worker ("too many results to unpack").
const STEP: usize = 5_000;
const BATCH: usize = 1_000;

#[derive(Clone, Serialize, Deserialize)]
struct Payload {
    due: u64,
    n: u64,
    text: String,
}

/// What all peers enqueue. Its due time stands for none.
static PAYLOAD: LazyLock<Payload> = LazyLock::new(|| {
    let text = std::env::var("BENCH_PAYLOAD").expect("BENCH_PAYLOAD");
    serde_json::from_str(&text).expect("the payload of all peers")
});

// What this worker has run; times are milliseconds since 1970, 0 for never.
static COUNT: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);
static LATE: Mutex<Vec<f64>> = Mutex::new(Vec::new());

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs_f64() * 1_000.0
}

/// The job: it is counted, and when it began is noted.
async fn job(payload: Payload) -> Result<(), Any> {
    let now = now_ms();
    if COUNT.fetch_add(1, Relaxed) == 0 {
        FIRST.store(now as u64, Relaxed);
    }
    LAST.store(now as u64, Relaxed);
    if payload.due != PAYLOAD.due {
        LATE.lock().unwrap_or_else(PoisonError::into_inner).push(now - payload.due as f64);
    }
    Ok(())
}

/// A worker tells what it has run when it is asked to end.
async fn tell_at_end() -> Result<(), Any> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?.recv().await;
    let seen = serde_json::json!({
        "count": COUNT.load(Relaxed), "first": FIRST.load(Relaxed), "last": LAST.load(Relaxed),
        "late": *LATE.lock().unwrap_or_else(PoisonError::into_inner),
    });
    let file = format!("{}/{}.json", std::env::var("BENCH_OUT")?, std::process::id());
    Ok(std::fs::write(file, seen.to_string())?)
}

#[tokio::main]
async fn main() -> Result<(), Any> {
    let words: Vec<String> = std::env::args().collect();
    let number = |n: usize| words[n].parse::<usize>();
    let (mode, count) = (words[1].as_str(), number(2)?);

    let url = format!("redis://127.0.0.1:{}/0", std::env::var("BENCH_PORT")?);
    // Its locks take a scan of the waiting jobs for each job. An idle worker looks for due jobs at its heartbeat
    // alone, by default every 30 s; a lost worker is still given ten of them.
    let config = Config::default()
        .queue("bench")
        .batch_size(100)
        .lock_tasks(false)
        .emit_events(false)
        .heartbeat_interval(Duration::from_secs(1));
    let mut storage: RedisStorage<Payload> =
        RedisStorage::new(apalis_redis::connect(url.as_str()).await?).with_config(config);

    if mode == "worker" {
        let worker = WorkerBuilder::new("peer")
            .backend(storage)
            .concurrency(count)
            .parallelize(tokio::spawn)
            .build(job);
        tokio::select! {
            ended = worker.run() => return Err(format!("the worker ended: {ended:?}").into()),
            told = tell_at_end() => return told,
        }
    }

    let took = match mode {
        "single" => single(&mut storage, count).await?,
        "bulk" => bulk(&mut storage, count).await?,
        "far" => far(&mut storage, count).await?,
        "delayed" => delayed(&mut storage, count, number(3)?).await?,
        _ => return Err(format!("{mode} is no mode").into()),
    };
    println!("{}", serde_json::json!({ "seconds": took.as_secs_f64() }));
    Ok(())
}

type Storage = RedisStorage<Payload>;

async fn single(storage: &mut Storage, count: usize) -> Result<Duration, Any> {
    let start = Instant::now();
    for _ in 0..count {
        storage.push(payload_of(None)).await?;
    }
    Ok(start.elapsed())
}

/// How long the calls took that enqueue: what lets the jobs wait is not part of it.
async fn bulk(storage: &mut Storage, count: usize) -> Result<Duration, Any> {
    let mut took = Duration::ZERO;
    for step in (0..count).step_by(STEP) {
        let jobs = STEP.min(count - step);
        let start = Instant::now();
        for batch in (0..jobs).step_by(BATCH) {
            storage.push_bulk(vec![payload_of(None); BATCH.min(jobs - batch)]).await?;
        }
        took += start.elapsed();
        promote(storage.get_connection()).await?;
    }
    Ok(took)
}

async fn far(storage: &mut Storage, count: usize) -> Result<Duration, Any> {
    let start = Instant::now();
    let due = now_ms() as u64 / 1_000 + FAR_SECONDS;
    for batch in (0..count).step_by(BATCH) {
        let task = |n| TaskBuilder::new(payload_of(None)).run_at_timestamp(due + n as u64 / 1_000).build();
        let tasks: Vec<_> = (batch..count.min(batch + BATCH)).map(task).collect();
        storage.push_all(futures::stream::iter(tasks)).await?;
    }
    Ok(start.elapsed())
}

async fn delayed(storage: &mut Storage, count: usize, spread_ms: usize) -> Result<Duration, Any> {
    let start = Instant::now();
    let begun = now_ms() as u64;
    for n in 0..count {
        let due = begun + LEAD_MS + (spread_ms * n / count) as u64;
        // Due times are whole seconds: the next one, so that no job is early.
        let task = TaskBuilder::new(payload_of(Some(due))).run_at_timestamp(due.div_ceil(1_000)).build();
        storage.push_task(task).await?;
    }
    Ok(start.elapsed())
}

fn payload_of(due: Option<u64>) -> Payload {
    Payload { due: due.unwrap_or(PAYLOAD.due), ..PAYLOAD.clone() }
}

/// Lets what is due wait for workers, as its own script does, which cannot do it for more than a few thousand jobs.
async fn promote(connection: &mut redis::aio::ConnectionManager) -> Result<(), Any> {
    let due: Vec<String> = connection.zrangebyscore("bench:scheduled", 0, now_ms() / 1_000.0 + 1.0).await?;
    if !due.is_empty() {
        let _: () = connection.rpush("bench:active", &due).await?;
        let _: () = connection.zrem("bench:scheduled", &due).await?;
    }
    Ok(())
}
