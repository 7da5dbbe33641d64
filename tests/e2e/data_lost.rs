//! The store comes back without some of what it was told, and a runner finds its jobs with another.

use std::time::Duration;

use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::waiting::eventually;

on_both_stores! {
    an_emptied_store_gets_back_what_runners_have_in_their_hands
    a_store_that_went_back_starts_nothing_twice
    jobs_that_another_took_meanwhile_are_stopped
}

const PATIENCE: Duration = Duration::from_secs(30);

fn nap(here: &Hourhand, ms: u64, more: &[&str]) -> String {
    let payload = format!(r#"{{"ms":{ms}}}"#);
    here.ok(&[&["enqueue", "nap", &payload], more].concat()).trim().to_owned()
}

fn running(here: &Hourhand, count: u64) {
    here.counts("nap", "all run", PATIENCE, |q| q["running"] == count);
}

/// When the run began whose result the job has, in microseconds since 1970: of the only one, in its first attempt.
fn began_us(here: &Hourhand, id: &str) -> i64 {
    let job = here.job_in(id, "completed", PATIENCE);
    assert_eq!((&job["attempt"], &job["crashes"]), (&1.into(), &0.into()), "{job:#}");
    let started = job["history"].as_array().expect("events").iter().filter(|e| e["event"] == "started");
    assert_eq!(started.count(), 1, "{job:#}");
    let result: Value = serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON");
    result["began_us"].as_i64().expect("a time")
}

fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// The one line that says what was offered to the store, and what became of it.
fn offered(runner: &Runner) -> String {
    let log = eventually("it says what it offered", PATIENCE, || {
        Some(runner.log()).filter(|log| log.contains("the store has lost data"))
    });
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("the store has lost data")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    lines[0].to_owned()
}

fn an_emptied_store_gets_back_what_runners_have_in_their_hands(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap", "nonce"]);
    let arguments = ["--concurrency", "2"];
    let mut one = here.runner(&[&arguments[..], &["--state-dir", "one"]].concat());
    let two = here.runner(&[&arguments[..], &["--state-dir", "two"]].concat());
    let ids = [
        nap(&here, 4_000, &[]),
        nap(&here, 4_000, &["--id", "chosen"]),
        nap(&here, 4_000, &["--queue", "nap", "--priority", "high"]),
        nap(&here, 4_000, &[]),
    ];
    running(&here, 4);
    let cpu = one.cpu();
    let lost = now_us();
    store.empty();
    // These get the first numbers again.
    let fresh: Vec<String> =
        (0..3).map(|_| here.ok(&["enqueue", "nonce", "null"]).trim().to_owned()).collect();
    for runner in [&one, &two] {
        let line = offered(runner);
        assert!(line.contains("restored=2") && line.contains("taken=0"), "{line}");
    }
    for id in &ids {
        assert!(began_us(&here, id) < lost, "{id} ran to its end where it was");
    }
    for id in &fresh {
        here.job_in(id, "completed", Duration::from_secs(6));
    }
    assert!(one.cpu() - cpu < Duration::from_secs(3), "a loop without a pause");
    for runner in [&one, &two] {
        assert!(!runner.log().contains("late outcomes"), "{}", runner.log());
    }
    // The store has another name now, under which a restart finds what this one leaves.
    drop(two);
    nap(&here, 60_000, &["--id", "long"]);
    here.job_in("long", "running", PATIENCE);
    one.kill();
    let _again = here.runner(&[&arguments[..], &["--state-dir", "one"]].concat());
    eventually("it has it back at once", Duration::from_secs(3), || {
        let job = here.job("long");
        (job["state"] == "running" && job["attempt"] == 2).then_some(())
    });
}

fn a_store_that_went_back_starts_nothing_twice(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["nap", "nonce"]);
    let runner = here.runner(&[]);
    // Some end while the store is away, some run on when it is back.
    let waits = [3_000, 9_000, 3_000].map(|ms| nap(&here, ms, &["--delay", "1500ms"]));
    let backup = store.backup();
    let lost = [nap(&here, 5_000, &["--id", "chosen"]), nap(&here, 9_000, &[])];
    running(&here, 5);
    let gone = now_us();
    if on == StoreKind::Redis {
        store.take_away();
        std::thread::sleep(Duration::from_secs(5));
    }
    store.go_back(&backup);
    let fresh = here.ok(&["enqueue", "nonce", "null"]).trim().to_owned();
    here.job_in(&fresh, "completed", Duration::from_secs(6));
    let line = offered(&runner);
    assert!(line.contains("restored=5") && line.contains("taken=0"), "{line}");
    for id in waits.iter().chain(&lost) {
        assert!(began_us(&here, id) < gone, "{id} ran to its end where it was");
    }
    for id in waits.iter().chain(&lost) {
        assert!(here.ok(&["job", "logs", id]).contains("naps"), "the last word of its log is there");
    }
    let counts = here.counts("nap", "all are settled", PATIENCE, |q| q["running"] == 0);
    assert_eq!((&counts["completed_total"], &counts["failed_total"]), (&5.into(), &0.into()), "{counts:#}");
    assert!(!runner.log().contains("late outcomes"), "{}", runner.log());
}

fn jobs_that_another_took_meanwhile_are_stopped(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let stalled = here.runner(&["--state-dir", "s1", "--lease", "2s"]);
    for _ in 0..3 {
        nap(&here, 60_000, &[]);
    }
    running(&here, 3);
    stalled.signal(libc::SIGSTOP);
    let other = here.runner(&["--state-dir", "s2", "--lease", "2s"]);
    here.counts("nap", "the other has them", PATIENCE, |q| {
        q["running"] == 3
            && here.all_jobs(&["--queue", "nap", "--state", "running"]).iter().all(|j| j["attempt"] == 2)
    });
    stalled.signal(libc::SIGCONT);
    eventually("its own are stopped, and their outcomes refused", Duration::from_secs(10), || {
        let log = stalled.log();
        let refused = log.lines().filter(|line| line.contains("late outcomes refused"));
        let jobs = refused.filter_map(|line| line.split("jobs=").nth(1)?.trim().parse::<u32>().ok());
        (jobs.sum::<u32>() == 3).then_some(())
    });
    assert!(!stalled.log().contains("the store has lost data"), "{}", stalled.log());
    let jobs = here.all_jobs(&["--queue", "nap", "--state", "running"]);
    assert_eq!(jobs.len(), 3);
    assert!(jobs.iter().all(|job| job["attempt"] == 2), "{jobs:#?}");
    drop(other);
}
