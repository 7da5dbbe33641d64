//! The Redis store when Redis or the network fails: what no other store has to go through.
//!
//! Each test has a server of its own, and a proxy in front of it where the network is at fault.

#![allow(clippy::print_stdout, reason = "figures of a test")]

#[path = "../../tests/harness/proxy.rs"]
mod proxy;
#[path = "../../tests/harness/redis_server.rs"]
mod redis_server;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hourhand::clock::monotonic;
use hourhand::job::{Due, NewJob};
use hourhand::names::{JobId, Name};
use hourhand::outcome::Outcome;
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::{
    ClaimRequest, ClaimedJob, Disposition, IdMemory, JobRef, Lane, LaneClaim, Retention, SessionId, Settled,
    Settlement, Store, StoreError, Verdict, Wake,
};
use proxy::Proxy;
use redis_server::RedisServer;

const PATIENCE: Duration = Duration::from_secs(20);

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn connect(url: &str) -> RedisStore {
    connect_with(url, RedisOptions::default())
}

fn connect_with(url: &str, options: RedisOptions) -> RedisStore {
    RedisStore::connect(url, &name("faults"), options).expect("a URL")
}

fn job(kind: &str) -> NewJob {
    NewJob::new(name(kind))
}

fn job_with_id(kind: &str, id: &str) -> NewJob {
    NewJob { id: Some(id.parse().expect("an id")), ..job(kind) }
}

fn claim_of(kind: &str, session: &str, first_token: u64, due_max: usize) -> ClaimRequest {
    ClaimRequest {
        session: SessionId(session.into()),
        lanes: vec![LaneClaim::new(Lane { queue: name(kind), kind: name(kind) }, 5)],
        due_max,
        ahead_max: 0,
        look_ahead_ms: 0,
        suspect: true,
        first_token,
        beat: 0,
    }
}

fn completed(job: &ClaimedJob) -> Settlement {
    Settlement {
        lease: job.lease.clone(),
        lane: Lane { queue: job.job.queue.clone(), kind: job.job.kind.clone() },
        outcome: Outcome::Completed { result: None },
        run: None,
        retention: Retention { age_ms: None, count: None, bytes: None },
        id_memory: IdMemory::default(),
        effects: None,
        receipt: job.receipt.clone(),
    }
}

/// Calls until the answer is no passing error; any other error fails the test.
async fn until_ok<T, F: AsyncFnMut() -> Result<T, StoreError>>(mut call: F) -> T {
    let until = monotonic() + PATIENCE;
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) if error.is_passing() && monotonic() < until => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("no success in time: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_cache_that_is_flushed_all_the_time_fails_no_call() {
    let server = RedisServer::start();
    let store = connect(&server.url());
    let stop = Arc::new(AtomicBool::new(false));
    let flusher = {
        let (stop, mut client) = (stop.clone(), server.client());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut client).expect("flushed");
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let (mut expected, mut got) = (HashSet::new(), HashSet::new());
    for round in 0..300 {
        let enqueued = store.enqueue(&vec![job("a"); 3]).await.expect("every enqueue is taken");
        expected.extend(enqueued.into_iter().map(|e| e.id));
        let claimed =
            store.claim(&claim_of("a", "s", round * 10, 10)).await.expect("every claim is answered");
        let settlements: Vec<Settlement> = claimed.jobs.iter().map(completed).collect();
        let settled = store.settle(&settlements).await.expect("every settle is answered");
        assert!(settled.iter().all(|s| *s == Settled::Done));
        got.extend(claimed.jobs.into_iter().map(|c| c.job.id));
    }
    stop.store(true, Ordering::Relaxed);
    flusher.join().expect("the flusher ended");
    assert_eq!(got, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_killed_lose_nothing_and_double_nothing() {
    let server = RedisServer::start();
    let store = connect(&server.url());
    let mut client = server.client();
    let mut acknowledged: Vec<JobId> = Vec::new();
    for i in 0..200 {
        if i % 10 == 0 {
            let _: u32 = redis::cmd("CLIENT")
                .arg("KILL")
                .arg("TYPE")
                .arg("normal")
                .arg("SKIPME")
                .arg("yes")
                .query(&mut client)
                .expect("killed");
        }
        let enqueued = store.enqueue(&[job("a")]).await.expect("an enqueue is sent again by itself");
        acknowledged.push(enqueued[0].id.clone());
    }
    let mut claimed = Vec::new();
    while claimed.len() < acknowledged.len() {
        let token = claimed.len() as u64;
        claimed.extend(until_ok(async || store.claim(&claim_of("a", "s", token, 50)).await).await.jobs);
    }
    let ids: Vec<JobId> = claimed.iter().map(|c| c.job.id.clone()).collect();
    assert_eq!(ids, acknowledged, "what was acknowledged is there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_whose_reply_was_lost_is_one_job() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url());
    store.enqueue(&[job("warm")]).await.expect("the script is known now");
    proxy.lose_next_reply();
    let enqueued = store.enqueue(&[job("a"), job("a")]).await.expect("sent again by itself");
    assert!(proxy.lost() > 0, "a reply was lost");
    assert!(enqueued.iter().all(|e| e.disposition == Disposition::Created), "{enqueued:?}");
    let claimed = store.claim(&claim_of("a", "s", 1, 10)).await.expect("claimed").jobs;
    let ids: Vec<&JobId> = claimed.iter().map(|c| &c.job.id).collect();
    assert_eq!(ids, enqueued.iter().map(|e| &e.id).collect::<Vec<_>>(), "the answer is the first one's");

    proxy.lose_next_reply();
    let with_id = NewJob { id: Some(JobId::new("x").expect("an id")), ..job("b") };
    let enqueued = store.enqueue(&[with_id]).await.expect("sent again by itself");
    assert_eq!(enqueued[0].disposition, Disposition::Created);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_after_a_lost_reply_does_not_say_that_nothing_was_done() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url());
    store.enqueue(&[job("warm")]).await.expect("the script is known now");
    let tell = |words: &'static [&'static str]| {
        let mut client = server.client();
        move || redis::cmd(words[0]).arg(&words[1..]).exec(&mut client).expect("done")
    };
    let limits: [(_, &[_], &[_]); 2] = [
        ("full", &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        ("read-only", &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ];
    for (kind, refuse, allow) in limits {
        let mut allow = tell(allow);
        proxy.lose_next_reply_and(tell(refuse));
        let error = store.enqueue(&[job(kind)]).await.expect_err("its repeat is refused");
        assert!(matches!(error, StoreError::Unreachable(_)), "it was taken, as it turns out: {error:?}");
        allow();
        let claimed = until_ok(async || store.claim(&claim_of(kind, "s", 1, 10)).await).await.jobs;
        assert_eq!(claimed.len(), 1, "the first was done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_somebody_has_overwritten_is_named_and_nothing_is_done() {
    let server = RedisServer::start();
    let store = connect(&server.url());
    store.enqueue(&[job("a")]).await.expect("taken");
    let seq = "faults:{0}:seq";
    let kept: String =
        redis::cmd("GETSET").arg(seq).arg("foreign").query(&mut server.client()).expect("a number");
    for error in [
        store.enqueue(&[job("a")]).await.expect_err("no number"),
        store.set_state(&name("b"), "k", b"v").await.map(drop).expect_err("no number"),
    ] {
        let StoreError::Refused(text) = &error else { panic!("{error:?}") };
        assert!(text.contains("faults:{0}:seq is not ours"), "{text}");
    }
    let _: () = redis::cmd("SET").arg(seq).arg(kept).query(&mut server.client()).expect("back");
    store.enqueue(&[job("a")]).await.expect("taken");
    assert_eq!(store.counts().await.expect("counts").queues[0].ready, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_whose_reply_was_lost_is_done_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let store = connect(&proxy.url());
    for retention in [
        Retention { age_ms: None, count: None, bytes: None },
        Retention { age_ms: Some(0), count: None, bytes: None },
    ] {
        store.enqueue(&[job("a")]).await.expect("taken");
        let claimed = store.claim(&claim_of("a", "s", 1, 10)).await.expect("claimed").jobs;
        // A stale one, so that the script is known and what gets lost is the answer to the settle itself.
        let stale = Settlement {
            lease: hourhand::queue::Lease { token: 99, ..claimed[0].lease.clone() },
            ..completed(&claimed[0])
        };
        assert_eq!(store.settle(&[stale]).await, Ok(vec![Settled::Stale]));
        proxy.lose_next_reply();
        let late = Settlement {
            lease: hourhand::queue::Lease { token: 98, ..claimed[0].lease.clone() },
            ..completed(&claimed[0])
        };
        assert_eq!(store.settle(&[late]).await, Ok(vec![Settled::Stale]), "counted once, as the total shows");
        let settlement = Settlement { retention, ..completed(&claimed[0]) };
        proxy.lose_next_reply();
        let settled = store.settle(std::slice::from_ref(&settlement)).await.expect("sent again by itself");
        assert_eq!(settled, [Settled::Done], "{retention:?}");
    }
    assert!(proxy.lost() >= 4);
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].completed_total, counts.queues[0].running, counts.stale_total), (2, 0, 4));
}

fn runner() -> hourhand::queue::RunnerInfo {
    hourhand::queue::RunnerInfo {
        name: "r".to_owned(),
        host: "h".to_owned(),
        pid: 1,
        version: "0".to_owned(),
        started_ms: 0,
        concurrency: 1,
        running: 0,
        held: 0,
        kinds: vec![],
        stopping: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_was_acknowledged() {
    let mut server = RedisServer::start_with_aof();
    let store = connect(&server.url());
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    let mut acknowledged = HashSet::new();
    for _ in 0..20 {
        acknowledged
            .extend(store.enqueue(&vec![job("a"); 50]).await.expect("taken").into_iter().map(|e| e.id));
    }
    let claimed = store.claim(&claim_of("a", "s", 1, 10)).await.expect("claimed").jobs;
    server.restart();
    let settlements: Vec<Settlement> = claimed.iter().map(completed).collect();
    let settled = until_ok(async || store.settle(&settlements).await).await;
    assert!(settled.iter().all(|s| *s == Settled::Done), "leases survive");
    let again = tokio::time::timeout(PATIENCE, async {
        loop {
            if wakes.recv().await == Some(Wake::Missed) {
                break;
            }
        }
    });
    again.await.expect("the listener came back and says that it missed something");
    let counts = until_ok(async || store.counts().await).await;
    assert_eq!((counts.queues[0].ready, counts.queues[0].completed), (990, 10));
    assert_eq!(counts.queues[0].enqueued_total as usize, acknowledged.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_may_be_there_before_its_server() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill();
    let store = connect(&url);
    let mut wakes = store.wakes();
    match store.enqueue(&[job("a")]).await {
        Err(StoreError::Unreachable(text)) => assert!(text.contains("127.0.0.1"), "{text}"),
        other => panic!("expected out of reach, got {other:?}"),
    }
    server.restart();
    until_ok(async || store.enqueue(&[job("a")]).await).await;
    assert_eq!(tokio::time::timeout(PATIENCE, wakes.recv()).await, Ok(Some(Wake::Missed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_its_memory_limit_takes_no_jobs_but_outcomes() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let store = connect(&server.url());
    store.enqueue(&vec![job("a"); 100]).await.expect("taken");
    let claimed = store.claim(&claim_of("a", "s", 1, 50)).await.expect("claimed").jobs;
    let mut client = server.client();
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1mb").query(&mut client).expect("set");
    for _ in 0..3 {
        match store.enqueue(&[job("a")]).await {
            Err(StoreError::Full(text)) => assert!(text.contains("memory"), "{text}"),
            other => panic!("expected a full store, got {other:?}"),
        }
    }
    let settlements: Vec<Settlement> = claimed.iter().map(completed).collect();
    assert!(
        store.settle(&settlements).await.expect("outcomes are taken").iter().all(|s| *s == Settled::Done)
    );
    assert_eq!(store.claim(&claim_of("a", "s", 100, 50)).await.expect("claims work").jobs.len(), 50);
    store.heartbeat(&SessionId("s".into()), &runner(), 0, &[]).await.expect("heartbeats work");
    store.pause(&name("a")).await.expect("pausing works");
    store.pause(&name("b")).await.expect("pausing works before the first job");
    store.resume(&name("b")).await.expect("resuming works");
    assert!(store.counts().await.expect("counting works").queues[0].paused);
    let other = RedisStore::connect(&server.url(), &name("other"), RedisOptions::default()).expect("a URL");
    assert_eq!(other.identity().await.expect("a first contact works").len(), 20);
    store.prune().await.expect("cleaning up works");
    store.purge(&name("a")).await.expect("cleaning up works");
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query(&mut client).expect("set");
    store.enqueue(&[job("a")]).await.expect("there is room again");
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].enqueued_total, counts.queues[0].completed), (101, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_not_ready_and_then_is() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "100"]);
    let store = connect(&server.url());
    store.enqueue(&[job("a")]).await.expect("taken");
    let port = server.port();
    let blocker = std::thread::spawn(move || {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("a URL");
        let mut connection = client.get_connection().expect("connected");
        let busy: redis::RedisResult<()> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
        assert!(busy.is_err(), "it was ended");
    });
    let busy = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Err(error) = store.counts().await {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let error = busy.await.expect("an error in time");
    assert!(matches!(&error, StoreError::NotReady(text) if text.contains("BUSY")), "{error:?}");
    let killed: redis::RedisResult<()> = redis::cmd("SCRIPT").arg("KILL").query(&mut server.client());
    killed.expect("the script is ended");
    blocker.join().expect("the blocker ended");
    let claimed = until_ok(async || store.claim(&claim_of("a", "s", 1, 5)).await).await.jobs;
    assert_eq!(claimed.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loading_server_is_not_ready_and_then_is() {
    // A thousand keys of somebody else's, each of which takes a millisecond to load.
    let mut server = RedisServer::start_with(&[
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let store = connect(&server.url());
    store.enqueue(&vec![job("a"); 200]).await.expect("taken");
    let mut client = server.client();
    let filler = "for i = 1, 1000 do redis.call('SET', 'filler' .. i, string.rep('x', 1000)) end";
    let _: () = redis::cmd("EVAL").arg(filler).arg(0).query(&mut client).expect("filled");
    let _: () = redis::cmd("SAVE").query(&mut client).expect("saved");
    drop(client);
    server.respawn();
    let (mut loading, until) = (0, monotonic() + PATIENCE);
    let claimed = loop {
        match store.claim(&claim_of("a", "s", 1, 5)).await {
            Ok(claimed) => break claimed.jobs,
            Err(StoreError::NotReady(text)) => loading += usize::from(text.contains("LOADING")),
            Err(StoreError::Unreachable(_)) => {}
            Err(error) => panic!("loading passes, but: {error}"),
        }
        assert!(monotonic() < until, "it is loaded in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(loading > 0, "it was seen loading");
    assert_eq!(claimed.len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_and_never_shown() {
    let server = RedisServer::start_with_password("s3cret-right");
    let right = connect(&server.url());
    right.enqueue(&[job("a")]).await.expect("the right one works");
    assert!(!right.describe().contains("s3cret"), "{}", right.describe());
    let port = server.port();
    for url in [
        format!("redis://:s3cret-wrong@127.0.0.1:{port}/0"),
        format!("redis://someone:s3cret-wrong@127.0.0.1:{port}/0"),
        format!("redis://127.0.0.1:{port}/0"),
    ] {
        let store = connect(&url);
        match store.counts().await {
            Err(StoreError::Refused(text)) => {
                assert!(
                    text.contains("password") && text.contains("127.0.0.1") && !text.contains("s3cret"),
                    "{text}"
                );
            }
            other => panic!("expected to be refused, got {other:?}"),
        }
        assert!(!store.describe().contains("s3cret"));
    }
    for bad in [
        "redis://:s3cret@",
        "http://:s3cret@host",
        "redis://:s3cret@host:99999",
        "redis://:s3cret@h/x",
        "nonsense s3cret",
    ] {
        match RedisStore::connect(bad, &name("faults"), RedisOptions::default()) {
            Err(StoreError::Invalid(text)) => assert!(!text.contains("s3cret"), "{text}"),
            other => panic!("{bad}: expected to be invalid, got {:?}", other.map(|s| s.describe())),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_number_is_a_world_of_its_own() {
    let server = RedisServer::start();
    let base = format!("redis://127.0.0.1:{}", server.port());
    connect(&format!("{base}/3")).enqueue(&[job("a")]).await.expect("taken");
    assert_eq!(connect(&base).counts().await.expect("counts").queues, vec![]);
    assert_eq!(connect(&format!("{base}/3")).counts().await.expect("counts").queues.len(), 1);
    let beyond = connect(&format!("{base}/99")).counts().await;
    assert!(matches!(beyond, Err(StoreError::Refused(_))), "{beyond:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_less_patience_leaves_no_dead_connection_to_the_next() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    // So long that nobody but the caller gives up.
    let options = RedisOptions { call_timeout: 4 * PATIENCE, ..RedisOptions::default() };
    let store = connect_with(&proxy.url(), options);
    store.enqueue(&[job("a")]).await.expect("taken");
    proxy.freeze();
    let given_up = tokio::time::timeout(Duration::from_millis(100), store.counts()).await;
    assert!(given_up.is_err(), "nothing passes");
    proxy.thaw_for_new_connections();
    let counts = tokio::time::timeout(PATIENCE, store.counts()).await.expect("by a new connection");
    assert_eq!(counts.expect("an answer").queues[0].ready, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_noticed() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port()).await;
    let timeouts = Duration::from_millis(400);
    let options =
        RedisOptions { call_timeout: timeouts, connect_timeout: timeouts, ..RedisOptions::default() };
    let store = connect_with(&proxy.url(), options);
    store.enqueue(&[job("a")]).await.expect("taken");
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    proxy.freeze();
    let before = monotonic();
    let silent = store.counts().await;
    assert!(matches!(silent, Err(StoreError::Unreachable(_))), "{silent:?}");
    assert!(before.elapsed() < PATIENCE, "the deadline ends the call");
    // What was open stays dead for ever; only new connections get through.
    proxy.thaw_for_new_connections();
    let counts = until_ok(async || store.counts().await).await;
    assert_eq!(counts.queues[0].ready, 1);
    assert_eq!(
        tokio::time::timeout(PATIENCE, wakes.recv()).await,
        Ok(Some(Wake::Missed)),
        "the listener asked and left"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_not_ready() {
    let primary = RedisServer::start();
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let store = connect(&replica.url());
    let refused = store.enqueue(&[job("a")]).await;
    assert!(
        matches!(&refused, Err(StoreError::NotReady(text)) if text.contains("is a replica") && text.contains("primary")),
        "{refused:?}"
    );
    assert!(store.counts().await.is_ok(), "a replica may be looked at");
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query(&mut replica.client()).expect("promoted");
    until_ok(async || store.enqueue(&[job("a")]).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_follows_when_the_server_was_demoted_without_a_word() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let store = connect(&server.url());
    store.enqueue(&[job("a")]).await.expect("taken");
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    let mut client = server.client();
    let mut replicate = |host: &str, port: &str| {
        let _: () = redis::cmd("REPLICAOF").arg(host).arg(port).query(&mut client).expect("obeyed");
    };
    // Nothing is closed by this, and nothing is published there any more.
    replicate("127.0.0.1", &other.port().to_string());
    let refused = store.enqueue(&[job("a")]).await;
    assert!(matches!(refused, Err(StoreError::NotReady(_))), "{refused:?}");
    replicate("NO", "ONE");
    until_ok(async || store.enqueue(&[job("b")]).await).await;
    let heard = tokio::time::timeout(PATIENCE, wakes.recv()).await;
    assert!(matches!(heard, Ok(Some(Wake::Missed | Wake::Due { .. }))), "{heard:?}");
    let missed = async { while wakes.recv().await.expect("a wake") != Wake::Missed {} };
    if heard != Ok(Some(Wake::Missed)) {
        tokio::time::timeout(PATIENCE, missed).await.expect("it listens anew");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_that_waits_for_replicas_keeps_no_other_call_waiting() {
    let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
    let store = connect_with(&primary.url(), options);
    // Nobody is there to wait for.
    let alone = async {
        let started = monotonic();
        let refused = store.enqueue(&[job_with_id("a", "x")]).await;
        assert!(
            matches!(&refused, Err(StoreError::Unreplicated(text)) if text.contains("0 of 1")),
            "{refused:?}"
        );
        started.elapsed()
    };
    let others = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let started = monotonic();
        for _ in 0..20 {
            store.counts().await.expect("counts");
        }
        started.elapsed()
    };
    let (waited, meanwhile) = tokio::join!(alone, others);
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    assert!(meanwhile < Duration::from_millis(800), "20 calls took {meanwhile:?}");
    assert_eq!(store.counts().await.expect("counts").queues[0].ready, 1, "the primary has taken it");

    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    // A repeat changes nothing, and is acknowledged once the replica has what the first one wrote.
    let repeated = until_ok(async || store.enqueue(&[job_with_id("a", "x")]).await).await;
    assert_eq!(repeated[0].disposition, Disposition::Kept);
    let there: u64 = redis::cmd("HLEN").arg("faults:{0}:jobs").query(&mut replica.client()).expect("a count");
    assert_eq!(there, 1);
    let plain = connect(&primary.url());
    for (store, what) in [(&plain, "an enqueue"), (&store, "one that a replica has too")] {
        let mut spans: Vec<Duration> = Vec::new();
        for _ in 0..100 {
            let started = monotonic();
            store.enqueue(&[job("a")]).await.expect("taken");
            spans.push(started.elapsed());
        }
        spans.sort();
        println!("{what}: p50 {:?}, p99 {:?}", spans[50], spans[98]);
    }
    let there: u64 = redis::cmd("HLEN").arg("faults:{0}:jobs").query(&mut replica.client()).expect("a count");
    assert_eq!(there, 201, "whatever was acknowledged is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_permission_is_refused() {
    let server = RedisServer::start();
    let _: () = redis::cmd("ACL")
        .arg(&["SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+info"])
        .query(&mut server.client())
        .expect("a user");
    let store = connect(&format!("redis://reader:pw@127.0.0.1:{}", server.port()));
    let refused = store.enqueue(&[job("a")]).await;
    assert!(matches!(&refused, Err(StoreError::Refused(text)) if text.contains("NOPERM")), "{refused:?}");
    // One who may do all but ask for replicas is refused too: trying again does not help.
    for rule in ["-wait", "-expire"] {
        let _: () = redis::cmd("ACL")
            .arg(&["SETUSER", "alone", "reset", "on", ">pw", "~*", "&*", "+@all", rule])
            .query(&mut server.client())
            .expect("a user");
        let options = RedisOptions { wait_replicas: 1, ..RedisOptions::default() };
        let store = connect_with(&format!("redis://alone:pw@127.0.0.1:{}", server.port()), options);
        let refused = store.enqueue(&[job("a")]).await;
        assert!(
            matches!(&refused, Err(StoreError::Refused(text)) if text.contains("NOPERM") && text.contains("has taken it")),
            "{rule}: {refused:?}"
        );
        let found = store.examine().await.expect("an examination").findings;
        let fix = format!("redis-cli ACL SETUSER <user> +{}", &rule[1..]);
        assert!(found.iter().any(|f| f.fix.as_ref() == Some(&fix)), "{rule}: {found:?}");
        let found = connect(&format!("redis://alone:pw@127.0.0.1:{}", server.port())).examine().await;
        let found = found.expect("an examination").findings;
        assert!(found.iter().all(|f| f.check != "access"), "{rule} is only needed for replicas: {found:?}");
    }
}

/// What was logged on this thread, as text.
#[derive(Clone, Default)]
struct Logged(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// One thread, so that the listener logs where this test listens.
#[tokio::test(flavor = "current_thread")]
async fn a_user_without_the_channel_can_do_all_but_hear_signals() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = RedisServer::start();
    let acl = |rules: &[&str]| {
        let _: () = redis::cmd("ACL")
            .arg("SETUSER")
            .arg("hh")
            .arg(rules)
            .query(&mut server.client())
            .expect("a user");
    };
    acl(&["on", ">pw", "~*", "+@all"]);
    let store = connect(&format!("redis://hh:pw@127.0.0.1:{}", server.port()));
    let mut wakes = store.wakes();

    let with_id = |id: &str| NewJob { id: Some(JobId::new(id).expect("an id")), ..job("a") };
    let job_ref = |id: &str| JobRef { queue: name("a"), id: JobId::new(id).expect("an id") };
    let keep = Retention { age_ms: None, count: None, bytes: None };
    let enqueued = store.enqueue(&[with_id("x"), with_id("y")]).await.expect("what is taken is said to be");
    assert_eq!(enqueued[0].disposition, Disposition::Created);
    let claimed = store.claim(&claim_of("a", "s", 1, 2)).await.expect("claimed").jobs;
    let again =
        Outcome::Retry { reason: hourhand::outcome::Reason::Error, message: String::new(), delay_ms: 0 };
    let retried = Settlement { outcome: again, ..completed(&claimed[0]) };
    assert_eq!(store.settle(&[retried]).await, Ok(vec![Settled::Done]), "a job that waits again");
    assert_eq!(store.cancel(&[job_ref("y")], keep).await, Ok(vec![Verdict::Asked]), "a recall");
    assert_eq!(store.reschedule(&job_ref("x"), Due::NOW).await, Ok(Verdict::Done));
    store.pause(&name("a")).await.expect("paused");
    store.resume(&name("a")).await.expect("resumed with a signal");
    let counts = store.counts().await.expect("counts");
    let a = &counts.queues[0];
    assert_eq!((a.enqueued_total, a.ready, a.running, a.paused), (2, 1, 1, false));

    let text = || String::from_utf8_lossy(&logged.0.lock().expect("no writer panicked")).into_owned();
    let until = monotonic() + PATIENCE;
    // Refused again and again, said once.
    let refusals = || {
        let stats: String =
            redis::cmd("INFO").arg("errorstats").query(&mut server.client()).expect("statistics");
        let counted = stats.lines().find_map(|line| line.strip_prefix("errorstat_NOPERM:count="));
        counted.and_then(|count| count.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    let before = refusals();
    while refusals() < before + 2 || !text().contains("WARN") {
        assert!(monotonic() < until, "the listener goes on trying: {}", text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(text().matches("WARN").count(), 1, "{}", text());
    assert!(text().contains("&faults:*"), "it says what to grant: {}", text());
    assert!(wakes.try_recv().is_err(), "nothing was heard");
    acl(&["&faults:*"]);
    assert_eq!(tokio::time::timeout(PATIENCE, wakes.recv()).await, Ok(Some(Wake::Missed)), "it is heard now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicting_server_is_warned_about() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let warnings = connect(&server.url()).warnings().await.expect("warnings");
    assert!(warnings.iter().any(|w| w.contains("allkeys-lru") && w.contains("noeviction")), "{warnings:?}");
    let quiet = RedisServer::start_with_aof();
    assert_eq!(connect(&quiet.url()).warnings().await, Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_share_one_connection() {
    let server = RedisServer::start();
    let store = connect(&server.url());
    let calls = (0..50).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.enqueue(&[job("a")]).await.map(drop) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("it ended").expect("taken");
    }
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.client()).expect("clients");
    let ours = clients.lines().filter(|line| !line.contains("cmd=client")).count();
    assert_eq!(ours, 1, "{clients}");
}

/// A certificate authority and a server's certificate, in the server's folder.
fn certificates(dir: &std::path::Path) {
    let openssl = |args: &[&str]| {
        let output = std::process::Command::new("openssl")
            .args(args)
            .current_dir(dir)
            .output()
            .expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost\n").expect("written");
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=tests",
    ]);
    openssl(&[
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "request",
        "-subj",
        "/CN=localhost",
    ]);
    openssl(&[
        "x509",
        "-req",
        "-in",
        "request",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-extfile",
        "names",
    ]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_checked() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let file = |name: &str| dir.path().join(name).display().to_string();
    let tls_port = redis_server::free_port();
    let _server = RedisServer::start_with(&[
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &file("cert.pem"),
        "--tls-key-file",
        &file("key.pem"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let url = format!("rediss://localhost:{tls_port}/0");
    match connect(&url).counts().await {
        Err(StoreError::Refused(text)) => assert!(text.contains("certificate"), "{text}"),
        other => panic!("nobody vouches for it: expected to be refused, got {other:?}"),
    }
    // Whom to trust is the process's environment, so another process tries with our authority.
    let program = std::env::current_exe().expect("this program");
    let child = std::process::Command::new(program)
        .args(["--exact", "child_with_a_trusted_authority", "--ignored"])
        .env("SSL_CERT_FILE", file("ca.pem"))
        .env("HOURHAND_TEST_TLS_URL", &url)
        .output()
        .expect("it ran");
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
#[ignore = "a part of a_certificate_is_checked, which runs it with the authority in its environment"]
async fn child_with_a_trusted_authority() {
    let Ok(url) = std::env::var("HOURHAND_TEST_TLS_URL") else { return };
    let store = connect(&url);
    store.enqueue(&[job("a")]).await.expect("taken over TLS");
    assert_eq!(store.counts().await.expect("counts").queues[0].ready, 1);
    assert!(store.describe().starts_with("rediss://localhost:"));
}
