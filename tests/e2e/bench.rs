//! `hourhand bench` at a tiny size: that it measures, and that nothing of it is left, whatever its end is.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::at_redis;
use crate::harness::backing::{Backing, StoreKind, on_both_stores};
use crate::harness::guests::guest;
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::waiting::eventually;

on_both_stores! {
    every_part_is_measured_and_nothing_is_left
    one_that_is_interrupted_leaves_nothing
}

/// A job of a deployment that works on the same store.
const OTHERS: &str = "other-7";

fn start(on: StoreKind) -> (Backing, Hourhand) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &[]);
    here.ok(&["enqueue", "bench", "--id", OTHERS, "--delay", "1h"]);
    (store, here)
}

/// What is in the store beside the other deployment, and in the folder beside its files.
#[track_caller]
fn assert_nothing_is_left(store: &Backing, here: &Hourhand, said: &Output) {
    let jobs = here.all_jobs(&[]);
    assert_eq!(jobs.len(), 1, "{said:?}");
    assert_eq!((&jobs[0]["id"], &jobs[0]["state"]), (&json!(OTHERS), &json!("scheduled")));
    match store {
        Backing::Redis(server) => {
            let keys = keys(server);
            let strays: Vec<&String> = keys.iter().filter(|key| !key.starts_with("hourhand:{0}:")).collect();
            assert!(!keys.is_empty() && strays.is_empty(), "{strays:?}: {said:?}");
        }
        Backing::Sqlite(file) => {
            let path = file.path();
            let beside = fs::read_dir(path.parent().expect("a folder")).expect("readable");
            let names =
                beside.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
            let strays: Vec<String> = names.filter(|name| !name.starts_with("hourhand.db")).collect();
            assert_eq!(strays, [] as [String; 0], "{said:?}");
        }
    }
    assert_eq!(here.json(&["runner", "list"])["items"], json!([]));
    let left = fs::read_dir(here.dir.path().join("tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "in the folder for temporary files: {said:?}");
}

fn keys(server: &RedisServer) -> Vec<String> {
    redis::from_redis_value(at_redis::command(server, &["KEYS", "*"])).expect("a list of names")
}

/// In a folder for temporary files of its own, and with a short lease.
fn bench(here: &Hourhand, args: &[&str]) -> std::process::Command {
    let tmp = here.dir.path().join("tmp");
    fs::create_dir_all(&tmp).expect("a folder");
    let mut command = here.command(&[&["bench"], args].concat());
    command.env("TMPDIR", tmp).env("HOURHAND_LEASE", "1s");
    command
}

fn every_part_is_measured_and_nothing_is_left(on: StoreKind) {
    let (store, here) = start(on);
    let noop = guest("noop");
    let size = ["--jobs", "100", "--backlog", "300", "--rounds", "1", "--seed", "7", "--budget", "--json"];
    let handler = ["--handler", noop.to_str().expect("a path")];
    // What hardly depends on the store is measured on one of them.
    let parts: &[&str] = match on {
        StoreKind::Redis => &["throughput", "lateness", "backlog", "memory", "duplicates", "reload"],
        StoreKind::Sqlite => &["duplicates", "recovery", "memory", "backlog", "throughput"],
    };
    let output = bench(&here, &[parts, &size[..], &handler[..]].concat()).output().expect("run it");
    check(&output, 0, "");
    assert_nothing_is_left(&store, &here, &output);
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");

    let figure = |part: &str, name: &str| {
        said[part][name].as_f64().unwrap_or_else(|| panic!("{part} {name}: {said:#}"))
    };
    let mut above = vec![
        ("throughput", vec!["enqueue_single_per_second", "enqueue_pipelined_per_second"]),
        ("throughput", vec!["enqueue_bulk_per_second", "jobs_per_second", "ran_seconds"]),
        ("backlog", vec!["without_per_second", "with_per_second", "ratio", "schedule_per_second"]),
        (
            "memory",
            vec!["scheduled_job_bytes", "runner_idle_bytes", "runner_after_bytes", "runner_crowded_bytes"],
        ),
    ];
    above.extend(match on {
        StoreKind::Redis => vec![
            ("lateness", vec!["idle_p50_ms", "idle_p99_ms", "idle_max_ms", "load_per_second"]),
            ("lateness", vec!["loaded_p50_ms", "loaded_p99_ms", "loaded_max_ms"]),
            ("reload", vec!["drop_to_first_job_ms"]),
        ],
        StoreKind::Sqlite => {
            vec![("recovery", vec!["first_again_ms", "all_again_ms", "all_done_ms", "ran_twice_jobs"])]
        }
    });
    for (part, names) in above {
        for name in names {
            assert!(figure(part, name) > 0.0, "{part} {name}: {said:#}");
        }
    }
    assert_eq!(figure("throughput", "ran_jobs"), 100.0);
    let (of_payload, of_job) = (150.0, figure("memory", "scheduled_job_bytes"));
    assert!(of_job > of_payload && of_job < 2_000.0, "{of_job} bytes");
    assert_eq!(figure("memory", "crowd_jobs"), 1_000.0);
    assert!(figure("memory", "runner_crowded_bytes") > figure("memory", "runner_idle_bytes"));
    if on == StoreKind::Redis {
        assert!(figure("lateness", "idle_p50_ms") <= figure("lateness", "idle_p99_ms"));
        assert!(figure("lateness", "idle_p99_ms") <= figure("lateness", "idle_max_ms"));
        assert_eq!(said["reload"]["samples"], 3);
    } else {
        // The lease is a second, and each job takes three.
        assert!(figure("recovery", "first_again_ms") >= 900.0, "{said:#}");
        assert!(figure("recovery", "all_done_ms") >= 3_900.0, "{said:#}");
    }
    let duplicates = &said["duplicates"];
    for (name, count) in
        [("jobs", 100), ("runs", 100), ("duplicate_jobs", 0), ("duplicate_nonces", 0), ("missing_jobs", 0)]
    {
        assert_eq!(duplicates[name], count, "{duplicates:#}");
    }
    let settings = &said["settings"];
    assert_eq!((&settings["seed"], &settings["handler_file"]), (&json!(7), &json!("noop.wasm")));
    assert_eq!((&settings["kind"], &settings["payload_bytes"]), (&json!("noop"), &json!(150)));
    assert!(said["machine"]["cores"].as_u64() > Some(0) && said["machine"]["kernel"].is_string());
    match on {
        StoreKind::Redis => assert!(said["store"]["persistence"].is_string(), "{said:#}"),
        StoreKind::Sqlite => assert_eq!(said["store"]["durability"], "full"),
    }
    let lines = said["budget"].as_array().expect("the budget");
    assert!(lines.iter().all(|line| ["ok", "below"].contains(&line["verdict"].as_str().unwrap_or_default())));
    let of = |figure: &str| lines.iter().find(|line| line["figure"] == figure).cloned().unwrap_or_default();
    let jobs_a_second = if on == StoreKind::Redis { 45_000 } else { 15_000 };
    assert_eq!(of("jobs_per_second")["must"], jobs_a_second);
    assert_eq!(of("duplicate_jobs")["verdict"], "ok");
}

fn one_that_is_interrupted_leaves_nothing(on: StoreKind) {
    let (store, here) = start(on);
    // While it enqueues, and while jobs run, also on a runner in another process.
    for (part, wanted) in [("backlog", "scheduled"), ("recovery", "running")] {
        let mut child = bench(&here, &[part, "--jobs", "20000", "--backlog", "200000"]);
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        eventually("jobs are there", Duration::from_secs(60), || {
            (in_worlds(&store, wanted) > 0).then_some(())
        });
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        assert_eq!(sent, 0);
        let output = child.wait_with_output().expect("it ends");
        check(&output, 1, "interrupted");
        assert_nothing_is_left(&store, &here, &output);
    }
}

/// Jobs of the measurement, which has namespaces and files of its own.
fn in_worlds(store: &Backing, state: &str) -> u64 {
    match store {
        Backing::Redis(server) => {
            let ending = if state == "running" { ":running" } else { ":jobs" };
            let keys = keys(server);
            keys.iter().filter(|key| key.contains("-bench-") && key.ends_with(ending)).count() as u64
        }
        Backing::Sqlite(file) => {
            let path = file.path();
            let folders = fs::read_dir(path.parent().expect("a folder")).expect("readable").flatten();
            let folders =
                folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(".hourhand-bench-"));
            let files = folders
                .flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten())
                .map(|world| world.path().join("bench.db-wal"));
            let table = if state == "running" { "leases" } else { "jobs" };
            files
                .filter(|file| fs::metadata(file).is_ok_and(|facts| facts.len() > 0))
                .map(|file| {
                    let file = file.with_file_name("bench.db");
                    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
                    rusqlite::Connection::open_with_flags(file, flags)
                        .and_then(|client| {
                            client.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                                row.get::<_, u64>(0)
                            })
                        })
                        .unwrap_or(0)
                })
                .sum()
        }
    }
}

#[test]
fn what_cannot_be_measured_is_said_and_leaves_nothing() {
    let here = Hourhand::new("sqlite://hourhand.db", &[]);
    let faults = guest("faults");
    let faults = faults.to_str().expect("a path");
    let away = format!("redis://127.0.0.1:{}", free_port());
    let few = ["throughput", "--jobs", "100", "--rounds", "1"];
    let cases: [(&[&str], i32, &str); 9] = [
        (&["nothing"], 2, "possible values: throughput"),
        (&["--jobs", "99"], 2, "100"),
        (&["--payload", "31"], 2, "32"),
        (&["lateness", "--seconds", "5"], 2, "--seconds"),
        (&["--handler", "none.wasm"], 2, "cannot read none.wasm"),
        (&["--handler", faults], 2, "--kind"),
        (&["--concurrency", "0"], 2, "--concurrency"),
        (&["backlog", "--backlog", "100000000", "--payload", "1048576"], 2, "more than half"),
        (&["--store", &away], 5, "store out of reach"),
    ];
    for (args, code, words) in cases {
        check(&bench(&here, args).output().expect("run it"), code, words);
    }
    let output = bench(&here, &[&few[..], &["--handler", faults, "--kind", "permanent"]].concat());
    let output = { output }.output().expect("run it");
    check(
        &output,
        1,
        "throughput: a job of kind permanent failed, and only handlers that complete are measured: ",
    );
    assert_eq!(text(&output.stdout), "");
    let left: Vec<_> = fs::read_dir(here.dir.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| name.contains("bench") || name.contains("hourhand"))
        .collect();
    assert_eq!(left, [] as [String; 0]);
    // There never was a store: the harness's doctor wants one.
    here.ok(&["enqueue", "k", "--delay", "1h"]);
}
