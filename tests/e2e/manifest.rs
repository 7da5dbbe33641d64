//! Manifests: what each key of limits, turns, retries and retention does to jobs on a real runner.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

const SOON: Duration = Duration::from_secs(60);

on_both_stores! {
    limits_of_a_manifest_hold_and_a_ceiling_holds_them
    no_more_of_a_kind_run_at_once_than_its_concurrency_and_others_are_not_kept_waiting
    a_kind_has_turns_by_its_weight
    retries_and_retention_are_the_manifest_s
}

pub(super) fn write_manifest(here: &Hourhand, kind: &str, text: &str) {
    // As an editor or a deployment does it.
    let staged = here.handlers().join(".manifest.staged");
    fs::write(&staged, text).expect("a manifest");
    fs::rename(&staged, here.handlers().join(format!("{kind}.toml"))).expect("in its place");
}

fn enqueue_many(here: &Hourhand, lines: &str) {
    fs::write(here.dir.path().join("many.ndjson"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "many.ndjson"]);
}

fn completed(here: &Hourhand, kind: &str) -> Vec<Value> {
    here.all_jobs(&["--queue", kind, "--state", "completed"])
}

fn limits_of_a_manifest_hold_and_a_ceiling_holds_them(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap", "grow", "echo", "shout"]);
    fs::write(here.dir.path().join("hourhand.toml"), "[ceiling]\nmemory = '48MiB'\nattempts = 2\n").unwrap();
    let once = "[retry]\nattempts = 1\n";
    write_manifest(&here, "nap", &format!("timeout = '300ms'\n{once}"));
    write_manifest(&here, "grow", &format!("memory = '1GiB'\n{once}"));
    write_manifest(&here, "echo", &format!("output = '10B'\n{once}"));
    write_manifest(&here, "shout", "logs = '2KiB'\n");
    let runner = here.runner(&[]);
    for (kind, payload, reason) in [
        ("nap", r#"{"ms":3600000}"#, "timeout"),
        ("grow", r#"{"mib":64}"#, "memory"),
        ("echo", "\"eleven bytes\"", "output"),
    ] {
        here.ok(&["enqueue", kind, payload, "--id", kind]);
        let job = here.job_in(kind, "dead", SOON);
        assert_eq!((&job["error"]["reason"], &job["max_attempts"]), (&reason.into(), &1.into()), "{job:#}");
    }
    // What is within the limits goes on as before.
    for (kind, payload) in [("nap", r#"{"ms":1}"#), ("grow", r#"{"mib":8}"#), ("echo", "\"short\"")] {
        here.ok(&["enqueue", kind, payload, "--wait"]);
    }
    here.ok(&["enqueue", "shout", r#"{"bytes":1000000}"#, "--id", "loud"]);
    here.job_in("loud", "completed", SOON);
    let log = here.ok(&["job", "logs", "loud"]);
    assert!((1_000..4_000).contains(&log.len()), "{} bytes of log", log.len());
    // The job's own attempts go before the manifest's, and the ceiling before all.
    here.ok(&["enqueue", "grow", r#"{"mib":64}"#, "--id", "stubborn", "--max-attempts", "900"]);
    let capped = eventually("it has failed once", SOON, || {
        let job = here.job("stubborn");
        (job["attempt"] == 1 && job["state"] != "running").then_some(job)
    });
    assert_eq!(capped["history"].as_array().unwrap().last().unwrap()["event"], "retry", "{capped:#}");
    here.ok(&["job", "reschedule", "stubborn", "--delay", "0"]);
    assert_eq!(here.job_in("stubborn", "dead", SOON)["attempt"], 2);

    let note = "grow.toml: memory: 1GiB is more than the ceiling's 48MiB";
    assert_eq!(runner.log().matches(note).count(), 1, "{}", runner.log());
    let list = here.json(&["handler", "list"]);
    let of =
        |kind: &str| list["items"].as_array().unwrap().iter().find(|h| h["kind"] == kind).unwrap().clone();
    assert_eq!(of("grow")["limits"]["memory_bytes"], 48 << 20);
    assert!(of("grow")["notes"][0].as_str().unwrap().starts_with(note), "{list:#}");
    assert_eq!(of("nap")["limits"]["timeout_ms"], 300);
    assert_eq!(of("echo")["limits"]["output_bytes"], 10);
    assert_eq!(of("shout")["limits"]["log_bytes"], 2048);
}

/// When a nap began and ended, in microseconds since 1970.
fn naps(here: &Hourhand) -> Vec<(u64, u64)> {
    let mut naps: Vec<(u64, u64)> = completed(here, "nap")
        .iter()
        .map(|job| {
            let result: Value =
                serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON");
            (result["began_us"].as_u64().unwrap(), result["ended_us"].as_u64().unwrap())
        })
        .collect();
    naps.sort_unstable();
    naps
}

fn no_more_of_a_kind_run_at_once_than_its_concurrency_and_others_are_not_kept_waiting(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap", "echo"]);
    write_manifest(&here, "nap", "concurrency = 2\n");
    let mut lines = "{\"kind\":\"nap\",\"payload\":{\"ms\":100}}\n".repeat(20);
    // Some of them are held for their moment.
    lines.push_str(&"{\"kind\":\"nap\",\"delay\":\"900ms\",\"payload\":{\"ms\":100}}\n".repeat(6));
    enqueue_many(&here, &lines);
    let runner = here.runner(&[]);
    enqueue_many(&here, &"{\"kind\":\"echo\",\"payload\":1}\n".repeat(200));
    here.counts("echo", "the others go on", SOON, |q| q["completed"] == 200);
    let left = here.json(&["stats"]);
    println!(
        "beside {} naps",
        left["queues"].as_array().unwrap().iter().find(|q| q["queue"] == "nap").unwrap()["ready"]
    );
    let cpu = runner.cpu();
    here.counts("nap", "all have napped", SOON, |q| q["completed"] == 26);
    println!("{:?} of CPU for the naps", runner.cpu() - cpu);

    let naps = naps(&here);
    assert_eq!(naps.len(), 26);
    for (began, _) in &naps {
        let together = naps.iter().filter(|(other, ended)| other <= began && began < ended).count();
        assert!(together <= 2, "{together} at once: {naps:?}");
    }
    // Whoever waits for a slot is woken when one is free: without that the next look would be a second later, each time.
    let first_end = |from: u64| naps.iter().map(|nap| nap.1).filter(|end| *end <= from).max();
    let prompt =
        naps.iter().filter(|(began, _)| first_end(*began).is_some_and(|end| began - end < 400_000)).count();
    assert!(prompt >= 12, "only {prompt} began soon after another had ended: {naps:?}");

    // The bound is lifted by the manifest alone.
    write_manifest(&here, "nap", "concurrency = 20\n");
    eventually("more at once", SOON, || {
        enqueue_many(&here, &"{\"kind\":\"nap\",\"payload\":{\"ms\":500}}\n".repeat(6));
        here.counts("nap", "all have napped", SOON, |q| q["ready"] == 0 && q["running"] == 0);
        let naps = self::naps(&here);
        let most =
            naps.iter().map(|(began, _)| naps.iter().filter(|(b, e)| b <= began && began < e).count()).max();
        most.filter(|most| *most > 2)
    });
}

fn a_kind_has_turns_by_its_weight(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap", "echo"]);
    write_manifest(&here, "echo", "weight = 3\n");
    // One slot: each claim brings a single job, so that turns are taken over many claims. All jobs come at once, when both
    // kinds are served.
    let _runner = here.runner(&["--concurrency", "1"]);
    let mut lines = "{\"kind\":\"nap\",\"payload\":{\"ms\":2}}\n".repeat(60);
    lines.push_str(&"{\"kind\":\"echo\",\"payload\":1}\n".repeat(60));
    enqueue_many(&here, &lines);
    for kind in ["nap", "echo"] {
        here.counts(kind, "all are done", SOON, |q| q["completed"] == 60);
    }
    let mut started: Vec<(String, &str)> = Vec::new();
    for kind in ["nap", "echo"] {
        let jobs = completed(&here, kind);
        started.extend(jobs.iter().map(|job| (job["started_at"].as_str().unwrap().to_owned(), kind)));
    }
    started.sort_unstable();
    let echoes = started[..60].iter().filter(|(_, kind)| *kind == "echo").count();
    assert!((41..=49).contains(&echoes), "three of four should be: {echoes} of the first 60");
}

fn retries_and_retention_are_the_manifest_s(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["boom", "echo", "nap", "files"]);
    write_manifest(&here, "boom", "[retry]\nattempts = 3\nbase = '20ms'\nmax = '40ms'\njitter = 0.0\n");
    write_manifest(&here, "echo", "[retention]\ncompleted_count = 2\nresults = false\n");
    write_manifest(&here, "nap", "[retention]\ncompleted_age = '0'\n[retry]\nattempts = 1\n");
    write_manifest(
        &here,
        "files",
        "[retention]\nresults = true\n[allow.env]\nLARGE = '%'\n".replace('%', &"x".repeat(6_000)).as_str(),
    );
    let _runner = here.runner(&[]);
    here.ok(&["enqueue", "boom", r#"{"msg":"no"}"#, "--id", "b"]);
    let dead = here.job_in("b", "dead", SOON);
    assert_eq!((&dead["attempt"], &dead["max_attempts"]), (&3.into(), &3.into()), "{dead:#}");
    let waits: Vec<&Value> =
        dead["history"].as_array().unwrap().iter().filter(|event| event["event"] == "retry").collect();
    assert_eq!(waits.len(), 2, "{dead:#}");
    here.ok(&["enqueue", "boom", r#"{"msg":"no"}"#, "--id", "own", "--max-attempts", "1"]);
    assert_eq!(here.job_in("own", "dead", SOON)["attempt"], 1, "the job's own word comes first");

    let large = format!("\"{}\"", "x".repeat(5_000));
    here.ok(&["enqueue", "echo", &large, "--id", "large"]);
    assert_eq!(
        here.job_in("large", "completed", SOON)["result"],
        Value::Null,
        "the module keeps them, the manifest does not"
    );
    here.ok(&["enqueue", "files", r#"[{"env":"LARGE"}]"#, "--id", "kept"]);
    let kept = here.job_in("kept", "completed", SOON);
    assert!(kept["result"].as_str().is_some_and(|result| result.len() > 6_000), "{kept:#}");

    for n in 0..6 {
        here.ok(&["enqueue", "echo", "1", "--id", &format!("e{n}"), "--wait"]);
    }
    eventually("only the last two are kept", SOON, || (completed(&here, "echo").len() == 2).then_some(()));
    here.ok(&["enqueue", "nap", r#"{"ms":1}"#, "--id", "fleeting"]);
    eventually("nothing is kept of it", SOON, || {
        (here.run(&["job", "show", "fleeting"]).status.code() == Some(3)).then_some(())
    });
}
