//! The conformance suite: what every store does, written against the `Store` trait alone.

#[path = "../../../tests/harness/redis_server.rs"]
mod redis_server;

use hourhand::job::*;
use hourhand::names::Name;
use hourhand::outcome::*;
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::*;
use redis_server::RedisServer;

#[tokio::test]
async fn smoke() {
    let server = RedisServer::start();
    let ns = Name::new("t").unwrap();
    let store = RedisStore::connect(&server.url(), &ns, RedisOptions::default()).unwrap();
    let kind = Name::new("k").unwrap();
    let mut job = NewJob::new(kind.clone());
    job.payload = b"a\0\xff[]".to_vec().into();
    let got = store.enqueue(&[job.clone(), job.clone()]).await.unwrap();
    println!("{got:?}");
    let mut j2 = job.clone();
    j2.id = Some("x y".parse().unwrap());
    j2.due = Due::In(50);
    println!("{:?}", store.enqueue(&[j2.clone(), j2.clone()]).await);
    j2.on_conflict = OnConflict::Replace;
    println!("{:?}", store.enqueue(&[j2.clone()]).await);
    j2.on_conflict = OnConflict::Reschedule;
    j2.due = Due::In(70);
    println!("{:?}", store.enqueue(&[j2.clone()]).await);
    println!("{:#?}", store.find(None, &"x y".parse().unwrap()).await);
    println!("{:?}", store.find(None, &got[0].id).await);
    println!("{:?}", store.lanes().await);
    let session = SessionId("s1".into());
    let lane = Lane { queue: kind.clone(), kind };
    let req = ClaimRequest {
        session: session.clone(),
        lanes: vec![LaneClaim { lane: lane.clone(), max_attempts: 3 }],
        due_max: 10,
        ahead_max: 10,
        look_ahead_ms: 100,
        suspect: true,
        first_token: 1,
    };
    let c = store.claim(&req).await.unwrap();
    println!("{c:?}");
    let info = RunnerInfo {
        name: "n".into(),
        host: "h".into(),
        pid: 1,
        version: "1".into(),
        started_ms: 0,
        concurrency: 1,
        running: 0,
        held: 0,
        kinds: vec![],
        stopping: false,
    };
    println!("{:?}", store.heartbeat(&session, &info).await);
    println!("{:?}", store.leases(None).await);
    println!("{:?}", store.find(None, &got[0].id).await);
    let s: Vec<_> = c
        .jobs
        .iter()
        .map(|j| Settlement {
            lease: j.lease.clone(),
            lane: lane.clone(),
            outcome: Outcome::Completed { result: Some("res".into()) },
            run: Some(RunFacts {
                started_us: 5,
                duration_us: 6,
                lateness_us: 7,
                runner: "r".into(),
                handler: "abc".into(),
            }),
            retention: Retention::FINISHED,
            id_memory: IdMemory::default(),
        })
        .collect();
    println!("{:?}", store.settle(&s[..1]).await);
    println!("{:?}", store.settle(&s[..2]).await);
    println!("{:#?}", store.find(None, &got[0].id).await);
    let l = store.leases(None).await.unwrap();
    println!("{:?}", store.reclaim(&l.items, Retention::DEAD).await);
    println!("{:?}", store.find(None, &"x y".parse().unwrap()).await);
    println!("{:?}", store.heartbeat(&session, &info).await);
    println!("{:?}", store.enqueue(&[job]).await);
}
