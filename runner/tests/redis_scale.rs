//! A million jobs in Redis: no script over 5 ms, and no more than 400 bytes a job.
//!
//! Ignored by default: it takes half a minute and half a gigabyte. Run it with
//! `cargo test -p hourhand --test redis_scale -- --ignored --nocapture`.

#![allow(clippy::print_stdout, reason = "what was measured is for people to read")]

#[path = "../../tests/harness/redis_server.rs"]
mod redis_server;

use hourhand::job::{Due, JobView, NewJob, State};
use hourhand::names::Name;
use hourhand::outcome::{Outcome, Reason};
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::{
    BATCH_MAX, ClaimRequest, IdMemory, JobRef, Lane, LaneClaim, ListQuery, Retention, RunFacts, SessionId,
    Settlement, Store,
};
use redis_server::RedisServer;

const JOBS: usize = 1_000_000;
const SCRIPT_US_MAX: u64 = 5_000;
const BYTES_A_JOB_MAX: u64 = 400;

fn info(server: &RedisServer, section: &str, field: &str) -> u64 {
    let text: String = redis::cmd("INFO").arg(section).query(&mut server.client()).expect("info");
    let value = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    value.trim().parse().expect("a number")
}

/// Processor time of the server's main thread so far, in microseconds.
fn cpu_us(server: &RedisServer) -> f64 {
    let text: String = redis::cmd("INFO").arg("cpu").query(&mut server.client()).expect("info");
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("the field");
        value.trim().parse::<f64>().expect("a number")
    };
    (field("used_cpu_user_main_thread:") + field("used_cpu_sys_main_thread:")) * 1e6
}

/// The slowest commands since the last look: microseconds and the beginning of the command.
fn slowest(server: &RedisServer) -> Vec<(u64, String)> {
    let mut client = server.client();
    type Entry = (u64, u64, u64, Vec<Vec<u8>>, String, String);
    let entries: Vec<Entry> =
        redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut client).expect("the slow log");
    let _: () = redis::cmd("SLOWLOG").arg("RESET").query(&mut client).expect("reset");
    let name =
        |args: &[Vec<u8>]| String::from_utf8_lossy(&args[..args.len().min(3)].join(&b' ')).into_owned();
    let mut slow: Vec<(u64, String)> =
        entries.into_iter().map(|(_, _, us, args, _, _)| (us, name(&args))).collect();
    slow.sort_unstable_by(|a, b| b.cmp(a));
    slow
}

fn outcome(i: usize) -> Outcome {
    match i % 5 {
        0 => Outcome::Retry { reason: Reason::Error, message: "not yet".to_owned(), delay_ms: 60_000 },
        1 => Outcome::Dead { reason: Reason::Permanent, message: "no".to_owned() },
        _ => Outcome::Completed { result: None },
    }
}

async fn work(store: &RedisStore, kind: &Name, rounds: usize) {
    let lane = Lane { queue: kind.clone(), kind: kind.clone() };
    let session = SessionId("worker".into());
    for round in 0..rounds {
        let request = ClaimRequest {
            session: session.clone(),
            lanes: vec![LaneClaim::new(lane.clone(), 5)],
            due_max: BATCH_MAX,
            ahead_max: 0,
            look_ahead_ms: 0,
            suspect: true,
            first_token: (round * BATCH_MAX) as u64,
            beat: 0,
        };
        let claimed = store.claim(&request).await.expect("claimed");
        let run = RunFacts {
            started_us: claimed.now_us,
            duration_us: 900,
            lateness_us: 300,
            runner: "host-17:4242".to_owned(),
            handler: "0123456789ab".to_owned(),
        };
        let settlements: Vec<Settlement> = (0..)
            .zip(claimed.jobs)
            .map(|(i, job)| Settlement {
                effects: None,
                receipt: job.receipt,
                lease: job.lease,
                lane: lane.clone(),
                outcome: outcome(i),
                run: Some(run.clone()),
                retention: Retention::FINISHED,
                id_memory: IdMemory::default(),
            })
            .collect();
        store.settle(&settlements).await.expect("settled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute and half a gigabyte"]
async fn a_million_scheduled_jobs_slow_no_script() {
    let server =
        RedisServer::start_with(&["--slowlog-log-slower-than", "2000", "--slowlog-max-len", "10000"]);
    let namespace = Name::new("scale").expect("a name");
    let store = RedisStore::connect(&server.url(), &namespace, RedisOptions::default()).expect("a URL");
    let kind = Name::new("order_close").expect("a name");
    let empty = info(&server, "memory", "used_memory:");
    let job =
        NewJob { payload: vec![b'p'; 150].into(), due: Due::In(86_400_000), ..NewJob::new(kind.clone()) };
    for _ in 0..JOBS / BATCH_MAX {
        store.enqueue(&vec![job.clone(); BATCH_MAX]).await.expect("taken");
    }
    let bytes = (info(&server, "memory", "used_memory:") - empty) / JOBS as u64;
    let enqueues = slowest(&server);
    println!("{bytes} bytes a job; slowest enqueues: {:?}", &enqueues[..3.min(enqueues.len())]);

    let due = NewJob { due: Due::NOW, ..job.clone() };
    for _ in 0..40 {
        store.enqueue(&vec![due.clone(); BATCH_MAX]).await.expect("taken");
    }
    work(&store, &kind, 40).await;
    let queue = Some(kind.clone());
    let listed = store
        .list(&ListQuery {
            queue: queue.clone(),
            states: vec![State::Scheduled],
            limit: 1_000,
            ..ListQuery::default()
        })
        .await
        .expect("listed");
    let refs: Vec<JobRef> = listed
        .items
        .iter()
        .map(|view: &JobView| JobRef { queue: kind.clone(), id: view.job.id.clone() })
        .collect();
    store.cancel(&refs[..250], Retention::FINISHED).await.expect("cancelled");
    store.requeue(&refs[..250]).await.expect("requeued");
    store.delete(&refs[250..500]).await.expect("deleted");
    store.reschedule(&refs[700], Due::NOW).await.expect("rescheduled");
    store.counts().await.expect("counted");
    store.prune().await.expect("pruned");
    let start = hourhand::clock::monotonic();
    assert_eq!(store.doctor(false).await, Ok(vec![]), "nothing is wrong");
    println!("the doctor took {:?}", start.elapsed());
    for _ in 0..5 {
        store.purge(&kind).await.expect("purged");
    }
    let slow = slowest(&server);
    println!("slowest: {:?}", &slow[..10.min(slow.len())]);
    assert!(bytes <= BYTES_A_JOB_MAX, "{bytes} bytes a job");
    assert!(slow.iter().all(|(us, _)| *us <= SCRIPT_US_MAX), "{:?}", slow.first());
}

/// What Redis spends on a claimed and settled job, in batches of 100: for the table in docs/performance.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn what_a_job_costs_redis() {
    let server = RedisServer::start();
    let namespace = Name::new("scale").expect("a name");
    let store = RedisStore::connect(&server.url(), &namespace, RedisOptions::default()).expect("a URL");
    let kind = Name::new("order_close").expect("a name");
    let job = NewJob { payload: vec![b'p'; 150].into(), ..NewJob::new(kind.clone()) };
    let (jobs, batch) = (100_000u64, 100);
    // The processor time of the thread that runs commands: the wall's would count our own work too.
    let mut before = cpu_us(&server);
    let mut stats = |what: &str| {
        let now = cpu_us(&server);
        println!("{what}: {:.2} us a job", (now - before) / jobs as f64);
        before = now;
    };
    for _ in 0..jobs / 500 {
        store.enqueue(&vec![job.clone(); 500]).await.expect("taken");
    }
    stats("enqueue, batches of 500");
    let lane = Lane { queue: kind.clone(), kind: kind.clone() };
    let mut pending = Vec::new();
    for round in 0..jobs / batch {
        let request = ClaimRequest {
            session: SessionId("worker".into()),
            lanes: vec![LaneClaim::new(lane.clone(), 5)],
            due_max: batch as usize,
            ahead_max: 0,
            look_ahead_ms: 0,
            suspect: true,
            first_token: round * batch,
            beat: 0,
        };
        pending.push(store.claim(&request).await.expect("claimed"));
    }
    stats("claim");
    for claimed in pending {
        let settlements: Vec<Settlement> = claimed
            .jobs
            .into_iter()
            .map(|job| Settlement {
                effects: None,
                receipt: job.receipt,
                lease: job.lease,
                lane: lane.clone(),
                outcome: Outcome::Completed { result: None },
                run: Some(RunFacts {
                    started_us: claimed.now_us,
                    duration_us: 900,
                    lateness_us: 300,
                    runner: "host-17:4242".to_owned(),
                    handler: "0123456789ab".to_owned(),
                }),
                retention: Retention::FINISHED,
                id_memory: IdMemory::default(),
            })
            .collect();
        store.settle(&settlements).await.expect("settled");
    }
    stats("settle, with retention at its limit of 10,000");
}
