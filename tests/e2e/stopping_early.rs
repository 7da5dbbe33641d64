//! SIGTERM while a runner starts, compiles, or waits for a claim that brings nothing.

use std::fs;
use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::proxy::Proxy;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

on_both_stores! {
    a_stop_during_the_start_ends_it_where_it_is
}

/// Ends at once on a machine that is not busy.
const AT_ONCE: Duration = Duration::from_secs(4);

fn starts(runner: &Runner) {
    eventually("it starts", Duration::from_secs(20), || {
        runner.log().contains("the runner starts").then_some(())
    });
}

/// The predecessor's jobs are to be taken back, and the store does not answer: the next start will do it.
fn a_stop_during_the_start_ends_it_where_it_is(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let mut first = here.runner(&[]);
    here.ok(&["enqueue", "nap", r#"{"ms":1000}"#, "--id", "n"]);
    here.job_in("n", "running", Duration::from_secs(10));
    first.kill();
    store.take_away();
    let mut second = here.runner_unready(&[]);
    starts(&second);
    std::thread::sleep(Duration::from_millis(500));
    second.signal(libc::SIGTERM);
    assert_eq!(second.wait(AT_ONCE).code(), Some(0), "{}", second.log());
    store.bring_back();
    let _third = here.runner(&[]);
    let job = here.job_in("n", "completed", Duration::from_secs(5));
    assert_eq!((&job["attempt"], &job["crashes"]), (&2.into(), &1.into()), "{job:#}");
}

#[test]
fn a_stop_while_the_store_accepts_and_never_answers_ends_it() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let here = Hourhand::new(&redis.url(), &["echo"]);
    proxy.freeze();
    let mut runner = here.runner_unready(&["--store", &proxy.url()]);
    starts(&runner);
    eventually("it tries", Duration::from_secs(10), || (proxy.connections() > 0).then_some(()));
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(AT_ONCE).code(), Some(0), "{}", runner.log());
}

/// The ids of a process's children.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_stop_during_a_compile_ends_both() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &["thumbnail"]);
    let mut runner = here.runner_made(&[], |command| {
        command.env("HOURHAND_CACHE_DIR", here.dir.path().join("a-cache-of-its-own"));
    });
    let pid = runner.child.id();
    let compilers = eventually("it compiles", Duration::from_secs(20), || {
        let children = children(pid);
        (!children.is_empty()).then_some(children)
    });
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(AT_ONCE).code(), Some(0), "{}", runner.log());
    for compiler in compilers {
        eventually("the compiler ends too", AT_ONCE, || (!is_alive(compiler)).then_some(()));
    }
}

/// The id of a job that a claim has taken of which the reply is lost. A claim that was on its way already takes nothing and holds
/// up the next one: then the job runs once the runner has connected anew, and another one is tried.
fn taken_by_a_lost_claim(here: &Hourhand, proxy: &Proxy) -> String {
    for id in (0..5).map(|n| format!("n{n}")) {
        proxy.freeze_replies();
        here.ok(&["enqueue", "nap", r#"{"ms":100}"#, "--id", &id]);
        for _ in 0..100 {
            if here.job(&id)["state"] == "running" {
                return id;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        here.job_in(&id, "completed", Duration::from_secs(30));
    }
    panic!("no claim was lost");
}

/// A claim was done, and its reply is lost: the stop gives back what it has taken, unspent.
#[test]
fn a_stop_gives_back_what_a_lost_claim_has_taken() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let here = Hourhand::new(&redis.url(), &["nap"]);
    let mut runner = here.runner(&["--store", &proxy.url()]);
    let id = taken_by_a_lost_claim(&here, &proxy);
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(Duration::from_secs(20)).code(), Some(0), "{}", runner.log());
    let job = here.job(&id);
    assert_eq!((&job["state"], &job["attempt"], &job["crashes"]), (&"ready".into(), &0.into(), &0.into()));
    assert_eq!(here.json(&["runner", "list"])["items"].as_array().unwrap().len(), 0);
}

/// The same while the store stays away: nobody can tell, so the runner says that something may be left, and within the grace.
#[test]
fn a_stop_that_cannot_ask_after_a_lost_claim_says_so() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let here = Hourhand::new(&redis.url(), &["nap"]);
    let mut runner = here.runner(&["--store", &proxy.url(), "--grace", "1s"]);
    let id = taken_by_a_lost_claim(&here, &proxy);
    proxy.freeze();
    runner.signal(libc::SIGTERM);
    assert_eq!(runner.wait(Duration::from_secs(10)).code(), Some(5), "{}", runner.log());
    // The next start on this host takes it back at once.
    let _again = here.runner(&[]);
    here.job_in(&id, "completed", Duration::from_secs(3));
}
