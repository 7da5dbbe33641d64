//! The store goes away, blocks, forgets its scripts, and comes back: the runner goes on by itself.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::at_redis;
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

on_both_stores! {
    a_blocked_store_takes_nobodys_jobs_away
    a_runner_that_starts_before_its_store_waits_for_it
}

fn load(here: &Hourhand, count: usize, over_ms: usize) {
    let mut lines = String::new();
    for n in 0..count {
        let delay = n * over_ms / count;
        lines.push_str(&format!(
            "{{\"kind\":\"nonce\",\"id\":\"n{n}\",\"delay\":\"{delay}ms\",\"payload\":null}}\n"
        ));
    }
    fs::write(here.dir.path().join("load.ndjson"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "load.ndjson"]);
}

/// All completed, each in one attempt and with no crash.
fn all_once(here: &Hourhand, count: usize, within: Duration) {
    here.counts("nonce", "all end", within, |q| {
        q["completed"].as_u64().unwrap() + q["dead"].as_u64().unwrap() == count as u64
    });
    let jobs = here.all_jobs(&["--queue", "nonce", "--state", "completed"]);
    assert_eq!(jobs.len(), count);
    for job in jobs {
        assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    }
}

#[test]
fn scripts_that_are_flushed_all_the_time_are_loaded_again() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &["nonce"]);
    let _runner = here.runner(&[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                at_redis::command(&redis, &["SCRIPT", "FLUSH"]);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        load(&here, 3_000, 5_000);
        for n in 0..50 {
            here.ok(&["enqueue", "nonce", "null", "--id", &format!("single{n}")]);
        }
        all_once(&here, 3_050, Duration::from_secs(60));
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_restart_of_the_store_under_load_loses_nothing() {
    let mut redis = RedisServer::start_with_aof();
    let here = Hourhand::new(&redis.url(), &["nonce"]);
    let runner = here.runner(&[]);
    load(&here, 2_000, 6_000);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1_500));
        redis.restart();
    }
    all_once(&here, 2_000, Duration::from_secs(60));
    assert!(runner.log().lines().count() < 60, "{}", runner.log());
}

fn a_blocked_store_takes_nobodys_jobs_away(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nonce", "nap"]);
    let runner = here.runner(&[]);
    let other = here.runner(&[]);
    here.ok(&["enqueue", "nap", r#"{"ms":12000}"#, "--id", "long"]);
    here.job_in("long", "running", Duration::from_secs(10));
    load(&here, 50, 6_000);
    let cpu = runner.cpu();
    store.block(Duration::from_secs(8));
    let used = runner.cpu() - cpu;
    assert!(used < Duration::from_secs(2), "{used:?} of CPU while the store was blocked");
    all_once(&here, 50, Duration::from_secs(15));
    let long = here.job_in("long", "completed", Duration::from_secs(20));
    assert_eq!((&long["attempt"], &long["crashes"]), (&1.into(), &0.into()), "{long:#}");
    for log in [runner.log(), other.log()] {
        let lines = log.lines().filter(|l| l.contains("does not do its part")).count();
        assert!(lines <= 5, "{lines} lines in 8 s:\n{log}");
    }
}

fn a_runner_that_starts_before_its_store_waits_for_it(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    here.ok(&["enqueue", "nonce", "null", "--id", "n0"]);
    store.take_away();
    let runner = here.runner_unready(&[]);
    eventually("it says that the store is away", Duration::from_secs(20), || {
        runner.log().contains("does not do its part").then_some(())
    });
    let cpu = runner.cpu();
    std::thread::sleep(Duration::from_secs(4));
    assert!(runner.cpu() - cpu < Duration::from_millis(400), "a loop without a pause");
    store.bring_back();
    here.job_in("n0", "completed", Duration::from_secs(15));
}
