//! A Redis under the eyes of sentinels: fail-overs under load, what they may lose, and what waiting for replicas keeps.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::at_redis;
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::sentinel::{MASTER, Passwords, Watched, info};
use crate::harness::waiting::eventually;

/// What the issue allows for going on, beyond the time that the sentinel itself takes.
const RESUMES_WITHIN: Duration = Duration::from_secs(5);

/// Ids that an enqueue was acknowledged for.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeSet<String>>);

impl Acknowledged {
    /// Enqueues one job after the other until it is over, each as often as it takes, as a caller with ids would.
    fn enqueue_until(&self, here: &Hourhand, over: &AtomicBool) {
        for n in 0.. {
            let id = format!("n{n}");
            while !over.load(Ordering::Relaxed) {
                let output = here.run(&["enqueue", "nonce", "null", "--id", &id]);
                match output.status.code() {
                    Some(0) => {
                        self.0.lock().unwrap().insert(id);
                        break;
                    }
                    Some(5) => {}
                    code => panic!("{code:?}: {}", stderr(&output)),
                }
            }
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Jobs that are spread over this time, all of them in the store before it begins.
fn load(here: &Hourhand, count: usize, over_ms: usize) {
    let line = |n: usize| {
        let delay = n * over_ms / count;
        format!("{{\"kind\":\"nonce\",\"id\":\"load{n}\",\"delay\":\"{delay}ms\",\"payload\":null}}\n")
    };
    std::fs::write(here.dir.path().join("load.ndjson"), (0..count).map(line).collect::<String>()).unwrap();
    here.ok(&["enqueue", "--ndjson", "load.ndjson"]);
}

/// How many listen to wake-ups at a server.
fn listeners(server: &RedisServer) -> u64 {
    let answer = at_redis::command(server, &["PUBSUB", "NUMSUB", "hourhand:{0}:wake"]);
    let (_, count): (String, u64) = redis::from_redis_value(answer).expect("a count");
    count
}

/// After a fail-over: jobs run, wake-ups come from the new primary, and the log tells of it once and is short.
fn works_on(here: &Hourhand, runner: &Runner, primary: &RedisServer, changes: usize) {
    let id = format!("after{changes}");
    here.ok(&["enqueue", "nonce", "null", "--id", &id]);
    here.job_in(&id, "completed", RESUMES_WITHIN);
    eventually("the listener has moved", RESUMES_WITHIN, || (listeners(primary) == 1).then_some(()));
    for n in 0..3 {
        let id = format!("late{changes}-{n}");
        here.ok(&["enqueue", "nonce", "null", "--id", &id]);
        let job = here.job_in(&id, "completed", Duration::from_secs(10));
        assert!(job["lateness_ms"].as_f64().unwrap() < 1_000.0, "{job:#}");
    }
    let log = runner.log();
    assert_eq!(log.matches("the primary has changed").count(), changes, "{log}");
    assert!(log.lines().count() < 40 && !log.contains("panicked"), "{log}");
    assert!(!log.contains("S3cr3t"), "{log}");
}

#[test]
fn a_primary_that_dies_under_load_costs_seconds_and_no_restart() {
    let mut watched = Watched::start(2);
    // The first sentinel of the URL is not there.
    let here = Hourhand::new(&watched.url(Some(free_port())), &["nonce"]);
    let runner = here.runner(&[]);
    assert!(runner.log().contains(&format!("{MASTER}/0 (namespace hourhand)")), "{}", runner.log());
    let (acknowledged, over) = (Acknowledged::default(), AtomicBool::new(false));
    let before = watched.servers[0].port();
    load(&here, 2_000, 6_000);
    std::thread::scope(|scope| {
        scope.spawn(|| acknowledged.enqueue_until(&here, &over));
        eventually("there is load", Duration::from_secs(20), || (acknowledged.count() > 40).then_some(()));
        watched.servers[0].kill();
        watched.wait_for_another(before);
        let so_far = acknowledged.count();
        eventually("enqueues are taken again", RESUMES_WITHIN, || {
            (acknowledged.count() > so_far + 5).then_some(())
        });
        over.store(true, Ordering::Relaxed);
    });
    let primary = watched.primary().expect("a primary");
    works_on(&here, &runner, primary, 1);
    here.counts("nonce", "all end", Duration::from_secs(20), |q| {
        q["scheduled"] == 0 && q["ready"] == 0 && q["running"] == 0
    });
    // A replica has what the primary had written, but for the last moments of it.
    let there: BTreeSet<String> =
        here.all_jobs(&[]).iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(there.iter().filter(|id| id.starts_with("load")).count(), 2_000, "what is old is everywhere");
    assert_eq!(here.all_jobs(&["--state", "dead"]), Vec::<serde_json::Value>::new());
    let lost = acknowledged.0.lock().unwrap().difference(&there).count();
    println!("{} enqueues acknowledged, {lost} lost with the primary", acknowledged.count());
    assert!(lost <= 5, "{lost} lost although the replicas were in step");
}

#[test]
fn a_primary_that_is_replaced_under_load_is_left_at_once() {
    let passwords = Passwords { servers: "S3cr3t-a", sentinel: "S3cr3t-b" };
    let watched = Watched::start_with(1, Some(passwords));
    let here = Hourhand::new(&watched.url(None), &["nonce"]);
    let runner = here.runner(&[]);
    let (acknowledged, over) = (Acknowledged::default(), AtomicBool::new(false));
    let before = watched.servers[0].port();
    std::thread::scope(|scope| {
        scope.spawn(|| acknowledged.enqueue_until(&here, &over));
        eventually("there is load", Duration::from_secs(20), || (acknowledged.count() > 10).then_some(()));
        watched.fail_over();
        watched.wait_for_another(before);
        // For some ten seconds the old one does not know yet, and takes whatever it is given.
        here.ok(&["enqueue", "nonce", "null", "--id", "switched"]);
        here.job_in("switched", "completed", RESUMES_WITHIN);
        let role = info(&watched.servers[0], "replication").contains("role:master");
        println!("the old primary still takes itself for one: {role}");
        let so_far = acknowledged.count();
        eventually("enqueues are taken again", RESUMES_WITHIN, || {
            (acknowledged.count() > so_far + 5).then_some(())
        });
        over.store(true, Ordering::Relaxed);
    });
    works_on(&here, &runner, watched.primary().expect("a primary"), 1);
    assert_eq!(listeners(&watched.servers[0]), 0, "nobody listens to the old one");
    here.counts("nonce", "all end", Duration::from_secs(20), |q| {
        q["scheduled"] == 0 && q["ready"] == 0 && q["running"] == 0
    });
}

#[test]
fn a_primary_that_hangs_is_left_within_a_calls_deadline() {
    let watched = Watched::start_to_hang();
    let here = Hourhand::new(&watched.url(None), &["nonce"]);
    let runner = here.runner(&[]);
    let old = &watched.servers[0];
    let mut client = old.client();
    std::thread::scope(|scope| {
        // It keeps its connections and answers nobody, as a machine that is gone would.
        scope.spawn(move || {
            let _: redis::RedisResult<()> = redis::cmd("DEBUG").arg("SLEEP").arg(10).query(&mut client);
        });
        let primary = watched.wait_for_another(old.port());
        let cpu = runner.cpu();
        here.ok(&["enqueue", "nonce", "null", "--id", "meanwhile"]);
        here.job_in("meanwhile", "completed", Duration::from_secs(10));
        let used = runner.cpu() - cpu;
        assert!(used < Duration::from_secs(2), "{used:?} of CPU while the old primary hung");
        works_on(&here, &runner, primary, 1);
    });
}

#[test]
fn what_a_fail_over_loses_was_not_acknowledged_where_replicas_were_waited_for() {
    let mut watched = Watched::start(1);
    let here = Hourhand::new(&watched.url(None), &["nonce", "nap"]);
    let runner = here.runner(&[]);
    let waiting = |id: &str| here.run(&["enqueue", "nonce", "null", "--id", id, "--wait-replicas", "1"]);
    for n in 0..10 {
        let taken = waiting(&format!("safe{n}"));
        assert!(taken.status.success(), "{}", stderr(&taken));
    }
    here.ok(&["enqueue", "nap", r#"{"ms":3000}"#, "--id", "over-it"]);
    here.job_in("over-it", "running", Duration::from_secs(10));
    // From here on the replica gets nothing any more, and does not know.
    let nowhere = free_port().to_string();
    at_redis::command(&watched.servers[1], &["REPLICAOF", "127.0.0.1", &nowhere]);
    let unsafe_one = waiting("unsafe");
    let message = stderr(&unsafe_one);
    assert_eq!(unsafe_one.status.code(), Some(5), "{message}");
    for part in ["has taken it, but only 0 of 1 replicas have it", "can be repeated safely", MASTER] {
        assert!(message.contains(part), "{message}");
    }
    for n in 0..10 {
        here.ok(&["enqueue", "nonce", "null", "--id", &format!("lost{n}")]);
    }
    here.job_in("lost9", "completed", Duration::from_secs(10));
    let before = watched.servers[0].port();
    watched.servers[0].kill();
    watched.wait_for_another(before);
    // Its replica is gone, so that there is nobody to wait for.
    eventually("it answers that there is no replica", RESUMES_WITHIN, || {
        let again = waiting("unsafe");
        assert_eq!(again.status.code(), Some(5), "{}", stderr(&again));
        stderr(&again).contains("only 0 of 1").then_some(())
    });
    let primary = watched.primary().expect("a primary");
    works_on(&here, &runner, primary, 1);
    for n in 0..10 {
        here.job_in(&format!("safe{n}"), "completed", Duration::from_secs(20));
    }
    assert_eq!(here.run(&["job", "show", "lost0"]).status.code(), Some(3), "the store went back in time");
    here.job_in("over-it", "completed", Duration::from_secs(30));
    here.job_in("unsafe", "completed", Duration::from_secs(10));
}

#[test]
fn mistakes_in_the_url_of_sentinels_are_told_without_its_secrets() {
    let watched = Watched::start(0);
    let (sentinel, server) = (watched.sentinel_port(), watched.servers[0].port());
    let here = Hourhand::new(&watched.url(None), &[]);
    let nowhere = free_port();
    for (url, code, said) in [
        (format!("redis+sentinel://127.0.0.1:{sentinel}/other"), 1, "knows no master named other"),
        (format!("redis+sentinel://127.0.0.1:{server}/{MASTER}"), 1, "is no sentinel"),
        (format!("redis://127.0.0.1:{sentinel}"), 1, "is a sentinel"),
        (
            format!("redis+sentinel://:S3cr3t@127.0.0.1:{nowhere}/{MASTER}?sentinel_password=S3cr3t"),
            5,
            "no primary found: sentinel 127.0.0.1",
        ),
        (format!("redis+sentinel://:S3cr3t@127.0.0.1:{sentinel}/{MASTER}"), 5, "password"),
        (format!("redis+sentinel://127.0.0.1:{sentinel}"), 2, "behind the sentinels stands /master-name"),
        (format!("redis://:S3cr3t@127.0.0.1:{server},127.0.0.1:{sentinel}"), 2, "redis+sentinel://"),
    ] {
        let output = here.command(&["stats"]).env("HOURHAND_STORE", &url).output().expect("run the binary");
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{url}: {message}");
        assert!(message.contains(said) && !message.contains("S3cr3t"), "{url}: {message}");
    }
    let embedded = here
        .command(&["enqueue", "nonce", "--wait-replicas", "1"])
        .env("HOURHAND_STORE", "sqlite://x.db")
        .output()
        .expect("run the binary");
    assert_eq!(embedded.status.code(), Some(2));
    assert!(
        stderr(&embedded).contains("--wait-replicas: only a Redis store has replicas"),
        "{}",
        stderr(&embedded)
    );
}
