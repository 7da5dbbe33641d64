//! Connections to the store that stand and bring nothing any more.

use std::time::Duration;

use crate::harness::hourhand::Hourhand;
use crate::harness::proxy::Proxy;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

/// A half-open connection is noticed within this.
const NOTICED: Duration = Duration::from_secs(15);

/// A runner's connections freeze while the store is there for everybody else: its jobs go on, and so do its wake-ups.
fn noticed(freeze: impl Fn(&Proxy)) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = RedisServer::start();
    let proxy = runtime.block_on(Proxy::start(redis.port()));
    let here = Hourhand::new(&redis.url(), &["echo"]);
    let runner = here.runner(&["--store", &proxy.url()]);
    here.ok(&["enqueue", "echo", "1", "--wait"]);
    let before = proxy.connections();
    assert!(before >= 2, "one for calls, one for wake-ups");
    freeze(&proxy);
    here.ok(&["enqueue", "echo", "1", "--id", "e"]);
    eventually("the job completes and both connections are replaced", NOTICED, || {
        (proxy.connections() >= before + 2 && here.job("e")["state"] == "completed").then_some(())
    });
    // What its lost claims have taken is given back before anybody takes it for lost.
    let job = here.job("e");
    assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    let lines = runner.log().lines().filter(|line| line.contains("does not do its part")).count();
    assert!(lines <= 5, "{lines} lines in 15 s:\n{}", runner.log());
}

#[test]
fn connections_that_carry_nothing_are_noticed() {
    noticed(Proxy::freeze_open);
}

#[test]
fn connections_that_carry_no_replies_are_noticed() {
    noticed(Proxy::freeze_replies);
}
