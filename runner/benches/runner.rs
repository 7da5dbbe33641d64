//! Measures a runner of this build on a Redis of its own: throughput, what a backlog costs, lateness, memory.
//!
//! `make bench`, or `cargo bench -p hourhand --bench runner -- [throughput|backlog|lateness] [--jobs N]
//! [--backlog N] [--rounds N]`. Ratios come from runs in turns; absolute figures are this machine's alone.
#![allow(clippy::print_stdout, reason = "a benchmark's answer")]
#![allow(unreachable_pub, reason = "the harness is shared between test binaries by path")]

#[path = "../../tests/harness/mod.rs"]
mod harness;

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use hourhand::clock::monotonic;
use hourhand::job::State;
use hourhand::names::Name;
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::{ListQuery, Store};

use harness::hourhand::Hourhand;
use harness::redis_server::RedisServer;

/// What a job carries: the size that queues are usually compared with.
const PAYLOAD_BYTES: usize = 150;

struct Plan {
    parts: Vec<String>,
    jobs: usize,
    backlog: usize,
    rounds: usize,
}

impl Plan {
    fn read() -> Self {
        let mut plan = Self { parts: Vec::new(), jobs: 100_000, backlog: 1_000_000, rounds: 3 };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next().and_then(|n| n.parse().ok()).expect("a number after the option");
            match word.as_str() {
                "--bench" => {}
                "--jobs" => plan.jobs = number(),
                "--backlog" => plan.backlog = number(),
                "--rounds" => plan.rounds = number(),
                _ => plan.parts.push(word),
            }
        }
        plan
    }

    fn has(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|p| p == part)
    }
}

fn main() {
    let plan = Plan::read();
    println!(
        "{} cores, appendfsync everysec, {PAYLOAD_BYTES}-byte payload, handler echo, concurrency 128, default retention",
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    if plan.has("lateness") {
        lateness();
    }
    if plan.has("throughput") && !plan.has("backlog") {
        for _ in 0..plan.rounds {
            let bed = Bed::new();
            println!("throughput: {:.0} jobs/s of {}", bed.throughput(plan.jobs), plan.jobs);
        }
    }
    if plan.has("backlog") {
        backlog(&plan);
    }
}

/// A server, a deployment on it, and a look at it.
struct Bed {
    redis: RedisServer,
    here: Hourhand,
    store: RedisStore,
    runtime: tokio::runtime::Runtime,
}

impl Bed {
    fn new() -> Self {
        let redis = RedisServer::start_with(&[
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--auto-aof-rewrite-percentage",
            "0",
            "--slowlog-log-slower-than",
            "1000",
            "--slowlog-max-len",
            "10000",
        ]);
        let here = Hourhand::new(&redis.url(), &["echo"]);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let name = Name::new("hourhand").expect("a name");
        let store = {
            let _inside = runtime.enter();
            RedisStore::connect(&redis.url(), &name, RedisOptions::default()).expect("a URL")
        };
        Self { redis, here, store, runtime }
    }

    /// Enqueues jobs from a file; jobs a second.
    fn enqueue(&self, count: usize, delay: &str) -> f64 {
        let payload = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES - 2));
        let mut lines = String::new();
        for _ in 0..count {
            writeln!(lines, r#"{{"kind":"echo","delay":"{delay}","payload":{payload}}}"#).expect("memory");
        }
        fs::write(self.here.dir.path().join("jobs.ndjson"), lines).expect("a file");
        let start = monotonic();
        self.here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
        count as f64 / start.elapsed().as_secs_f64()
    }

    fn completed(&self) -> u64 {
        let counts = self.runtime.block_on(self.store.counts()).expect("counts");
        counts.queues.iter().map(|q| q.completed_total).sum()
    }

    /// Jobs a second from the moment at which the runner may claim to the last outcome.
    fn throughput(&self, jobs: usize) -> f64 {
        self.here.ok(&["queue", "pause", "echo"]);
        self.enqueue(jobs, "0s");
        let runner = self.here.runner(&[]);
        let before = self.completed();
        let start = monotonic();
        self.here.ok(&["queue", "resume", "echo"]);
        while self.completed() - before < jobs as u64 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let took = start.elapsed();
        drop(runner);
        jobs as f64 / took.as_secs_f64()
    }

    fn memory_bytes(&self) -> u64 {
        let info: String = redis::cmd("INFO").arg("memory").query(&mut self.redis.client()).expect("INFO");
        let line = info.lines().find_map(|l| l.strip_prefix("used_memory:")).expect("used_memory");
        line.trim().parse().expect("a number")
    }

    /// Waits until what was written is on the disk: the load of a backlog is not part of its cost.
    fn let_disk_rest(&self) {
        loop {
            let info: String =
                redis::cmd("INFO").arg("persistence").query(&mut self.redis.client()).expect("INFO");
            let pending = info.lines().find_map(|l| l.strip_prefix("aof_pending_bio_fsync:"));
            if pending.is_none_or(|n| n.trim() == "0") {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let written = std::process::Command::new("sync").status().expect("sync");
        assert!(written.success(), "sync: {written}");
    }

    /// The longest script so far, in microseconds; 0 when none took a millisecond.
    fn slowest_us(&self) -> u64 {
        let entries: Vec<(u64, u64, u64, Vec<String>, String, String)> =
            redis::cmd("SLOWLOG").arg("GET").arg(10_000).query(&mut self.redis.client()).expect("SLOWLOG");
        let scripts =
            entries.iter().filter(|e| e.3.first().is_some_and(|c| c.to_lowercase().starts_with("eval")));
        scripts.map(|e| e.2).max().unwrap_or(0)
    }
}

/// The rate of due jobs without and with jobs scheduled in the far future, in turns.
fn backlog(plan: &Plan) {
    let mut ratios = Vec::new();
    for _ in 0..plan.rounds {
        let bed = Bed::new();
        bed.let_disk_rest();
        let without = bed.throughput(plan.jobs);
        drop(bed);
        let bed = Bed::new();
        let empty = bed.memory_bytes();
        let bulk = bed.enqueue(plan.backlog, "240h");
        let each = (bed.memory_bytes() - empty) as f64 / plan.backlog as f64;
        bed.let_disk_rest();
        redis::cmd("SLOWLOG").arg("RESET").exec(&mut bed.redis.client()).expect("SLOWLOG");
        let with = bed.throughput(plan.jobs);
        println!(
            "throughput: {without:.0} jobs/s of {}; with {} scheduled {with:.0} jobs/s, ratio {:.3}; \
             bulk enqueue {bulk:.0} jobs/s; {each:.0} bytes a scheduled job; slowest script {} us",
            plan.jobs,
            plan.backlog,
            with / without,
            bed.slowest_us()
        );
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!("backlog: median ratio {:.3} of {} rounds", ratios[ratios.len() / 2], ratios.len());
}

/// A thousand jobs spread over ten seconds on an idle runner.
fn lateness() {
    let bed = Bed::new();
    let _runner = bed.here.runner(&[]);
    let mut lines = String::new();
    for n in 0..1_000 {
        writeln!(lines, r#"{{"kind":"echo","delay":"{}ms","payload":{n}}}"#, 2_000 + n * 10).expect("memory");
    }
    fs::write(bed.here.dir.path().join("late.ndjson"), lines).expect("a file");
    bed.here.ok(&["enqueue", "--ndjson", "late.ndjson"]);
    while bed.completed() < 1_000 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut lateness_ms = Vec::new();
    let mut query = ListQuery { states: vec![State::Completed], limit: 1_000, ..ListQuery::default() };
    loop {
        let page = bed.runtime.block_on(bed.store.list(&query)).expect("a page");
        lateness_ms.extend(page.items.iter().filter_map(|j| j.lateness_us).map(|us| us as f64 / 1_000.0));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    lateness_ms.sort_by(f64::total_cmp);
    let at = |part: usize| lateness_ms[(lateness_ms.len() - 1) * part / 1_000];
    println!(
        "lateness of {} jobs over 10 s: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        lateness_ms.len(),
        at(500),
        at(990),
        at(1_000)
    );
}
