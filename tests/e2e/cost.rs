//! What a runner costs: idle, cut off from its store, and flooded. Prints figures, which docs/performance.md explains; `make cost` does it
//! with a release build. Bounds are checked where a machine that is busy with other things does not spoil them: memory.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::at_redis;
use crate::harness::backing::{Backing, StoreKind};
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::proxy::Proxy;

/// How long each state is looked at, in seconds.
const SECONDS: &str = "HOURHAND_COST_SECONDS";
/// How many jobs flood the runner.
const JOBS: &str = "HOURHAND_COST_JOBS";
/// Slots of the runner.
const SLOTS: u64 = 128;
/// Payloads of the flood, in bytes: one in ten is large.
const PAYLOADS: (usize, usize) = (150, 20_000);
/// What an idle runner may hold, and what a flood may add to it, in MiB.
const IDLE_MIB: f64 = 60.0;
const FLOOD_MIB: f64 = 64.0;

/// Makes two tests of each measurement, which only run when they are asked for.
macro_rules! measurements {
    ($($scenario:ident)+) => {
        mod on_redis {
            $(#[test]
            #[ignore = "a measurement: make cost"]
            fn $scenario() {
                super::$scenario(crate::harness::backing::StoreKind::Redis);
            })+
        }
        mod on_sqlite {
            $(#[test]
            #[ignore = "a measurement: make cost"]
            fn $scenario() {
                super::$scenario(crate::harness::backing::StoreKind::Sqlite);
            })+
        }
    };
}

measurements! { idle refused flooded }

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn seconds() -> Duration {
    Duration::from_secs(setting(SECONDS, 60))
}

/// Resident memory in MiB: now, and what of it is no file's.
fn resident(runner: &Runner) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{}/status", runner.child.id())).expect("a live runner");
    let mib = |key: &str| -> f64 {
        let line = status.lines().find(|line| line.starts_with(key)).expect("a line of the status");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number") / 1_024.0
    };
    (mib("VmRSS:"), mib("RssAnon:"))
}

/// Looks for a while: part of a core in percent, most resident memory in MiB.
fn looked_at(what: &str, on: StoreKind, runner: &Runner, span: Duration) -> (f64, f64) {
    #[allow(clippy::disallowed_methods, reason = "a measurement's own clock")]
    let (began, before) = (Instant::now(), runner.cpu());
    let (mut most, mut anonymous) = resident(runner);
    while began.elapsed() < span {
        std::thread::sleep(Duration::from_millis(250));
        let (rss, anon) = resident(runner);
        (most, anonymous) = (most.max(rss), anonymous.max(anon));
    }
    let percent = (runner.cpu() - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    println!("{on:?}, {what}: {percent:.2} % of a core, {most:.1} MiB ({anonymous:.1} of them no file's)");
    (percent, most)
}

/// A runner that has settled down.
fn runner(here: &Hourhand, args: &[&str]) -> Runner {
    let runner = here.runner(args);
    std::thread::sleep(Duration::from_secs(3));
    runner
}

fn idle(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "nap", "webhook"]);
    let runner = runner(&here, &[]);
    let (_, mib) = looked_at("idle", on, &runner, seconds());
    if let Backing::Redis(server) = &store {
        let calls = at_redis::commands_during(server, seconds()) as f64 / seconds().as_secs_f64();
        println!("{on:?}, idle: {calls:.2} calls a second");
    }
    assert!(mib <= IDLE_MIB, "{mib:.1} MiB");
}

/// The server is gone, or the file is locked by somebody else.
fn refused(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["echo", "nap", "webhook"]);
    let runner = runner(&here, &[]);
    store.take_away();
    looked_at("the store is away", on, &runner, seconds());
    say_lines(on, &runner);
    store.bring_back();
}

/// The server's machine is gone: connections stand, and nothing comes.
#[test]
#[ignore = "a measurement: make cost"]
fn frozen() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = StoreKind::Redis.start();
    let Backing::Redis(server) = &store else { unreachable!("it was asked for") };
    let proxy = runtime.block_on(Proxy::start(server.port()));
    let here = Hourhand::new(&store.url(), &["echo", "nap", "webhook"]);
    let runner = runner(&here, &["--store", &proxy.url()]);
    proxy.freeze();
    looked_at("the store does not answer", StoreKind::Redis, &runner, seconds());
    say_lines(StoreKind::Redis, &runner);
}

fn say_lines(on: StoreKind, runner: &Runner) {
    let lines = runner.log().lines().filter(|line| line.contains("does not do its part")).count();
    println!("{on:?}, cut off: {lines} lines in {:?}", seconds());
    assert!(lines as u64 <= seconds().as_secs() / 3 + 3, "at most one in three seconds");
}

/// All slots are busy, once without and once with a flood that waits behind them; then it is worked off.
fn flooded(on: StoreKind) {
    let jobs = setting(JOBS, 200_000);
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "nap"]);
    let concurrency = SLOTS.to_string();
    let runner = runner(&here, &["--concurrency", &concurrency]);
    let (_, idle) = looked_at("idle", on, &runner, Duration::from_secs(2));
    let nap = "{\"kind\":\"nap\",\"timeout\":\"1h\",\"payload\":{\"ms\":3600000}}\n".repeat(SLOTS as usize);
    fs::write(here.dir.path().join("naps.ndjson"), nap).expect("a file");
    here.ok(&["enqueue", "--ndjson", "naps.ndjson"]);
    here.counts("nap", "all slots are busy", Duration::from_secs(60), |q| q["running"] == SLOTS);
    let (_, busy) = looked_at("128 guests", on, &runner, Duration::from_secs(5));
    let mut lines = String::new();
    for n in 0..jobs {
        let bytes = if n % 10 == 0 { PAYLOADS.1 } else { PAYLOADS.0 };
        lines.push_str(&format!("{{\"kind\":\"echo\",\"payload\":\"{}\"}}\n", "x".repeat(bytes)));
    }
    fs::write(here.dir.path().join("flood.ndjson"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "flood.ndjson"]);
    let (_, waiting) = looked_at("128 guests, and a flood that waits", on, &runner, Duration::from_secs(10));
    for job in here.all_jobs(&["--queue", "nap", "--state", "running"]) {
        here.ok(&["job", "cancel", job["id"].as_str().expect("an id")]);
    }
    let most = std::cell::Cell::new(0.0_f64);
    here.counts("echo", "the flood is worked off", Duration::from_secs(1_800), |q| {
        most.set(most.get().max(resident(&runner).0));
        q["completed_total"] == jobs
    });
    let most = most.get();
    println!("{on:?}, while the flood is worked off: {most:.1} MiB at most");
    println!(
        "{on:?}: idle {idle:.1}, guests +{:.1}, a flood that waits +{:.1}, and is worked off +{:.1}",
        busy - idle,
        waiting - busy,
        most - busy
    );
    assert!(waiting - busy <= FLOOD_MIB && most - busy <= FLOOD_MIB, "more than {FLOOD_MIB} MiB for a flood");
}
