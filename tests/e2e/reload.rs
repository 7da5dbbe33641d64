//! Handlers that change while jobs run.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::guests::guest;
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

on_both_stores! {
    a_handler_is_replaced_under_load_and_a_broken_file_leaves_the_old_one
    a_removed_handler_lets_its_jobs_wait_until_it_is_back
}

/// The example `echo`, made different without changing what it does: a custom section at its end.
fn marked(here: &Hourhand, mark: &str) -> std::path::PathBuf {
    let mut module = fs::read(guest("echo")).unwrap();
    let name = b"mark";
    let body_len = 1 + name.len() + mark.len();
    assert!(body_len < 128, "one LEB128 byte");
    module.push(0);
    module.push(body_len as u8);
    module.push(name.len() as u8);
    module.extend_from_slice(name);
    module.extend_from_slice(mark.as_bytes());
    let path = here.dir.path().join(format!("echo-{mark}.wasm"));
    fs::write(&path, module).unwrap();
    path
}

fn sha12(path: &std::path::Path) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().take(6).map(|b| format!("{b:02x}")).collect()
}

fn a_handler_is_replaced_under_load_and_a_broken_file_leaves_the_old_one(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let old = sha12(&here.handlers().join("echo.wasm"));
    let runner = here.runner(&[]);
    // 50 jobs a second for twelve seconds.
    let mut lines = String::new();
    for n in 0..600 {
        lines.push_str(&format!(
            "{{\"kind\":\"echo\",\"id\":\"e{n}\",\"delay\":\"{}ms\",\"payload\":{n}}}\n",
            n * 20
        ));
    }
    fs::write(here.dir.path().join("load.ndjson"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "load.ndjson"]);

    let new_file = marked(&here, "new");
    let new = sha12(&new_file);
    let staged = here.handlers().join(".staged");
    here.job_in("e50", "completed", Duration::from_secs(20));
    fs::copy(&new_file, &staged).unwrap();
    fs::rename(&staged, here.handlers().join("echo.wasm")).unwrap();
    let replaced = jiff::Timestamp::now();
    eventually("the new one is active", Duration::from_secs(10), || {
        here.all_jobs(&["--queue", "echo", "--state", "completed"])
            .iter()
            .any(|j| j["handler"] == *new)
            .then_some(())
    });
    fs::write(here.handlers().join("echo.wasm"), b"this is no module").unwrap();
    here.counts("echo", "all end", Duration::from_secs(60), |q| {
        q["completed"].as_u64().unwrap() + q["dead"].as_u64().unwrap() == 600
    });
    let jobs = here.all_jobs(&["--queue", "echo", "--state", "completed"]);
    assert_eq!(jobs.len(), 600, "no job failed");
    let hashes: BTreeSet<&str> = jobs.iter().map(|j| j["handler"].as_str().unwrap()).collect();
    assert_eq!(hashes, BTreeSet::from([old.as_str(), new.as_str()]));
    for job in &jobs {
        assert_eq!(job["attempt"], 1, "{job:#}");
        let started: jiff::Timestamp = job["started_at"].as_str().unwrap().parse().unwrap();
        if started.as_millisecond() - replaced.as_millisecond() > 3_000 {
            assert_eq!(job["handler"], *new, "old code 3 s after the replacement: {job:#}");
        }
    }
    eventually("the broken file is said", Duration::from_secs(10), || {
        runner.log().contains("echo.wasm").then_some(())
    });
}

fn a_removed_handler_lets_its_jobs_wait_until_it_is_back(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let runner = here.runner(&[]);
    here.ok(&["enqueue", "echo", "1", "--wait"]);
    eventually("the runner has said what it serves", Duration::from_secs(20), || {
        let runners = here.json(&["runner", "list"]);
        (runners["items"][0]["kinds"] == serde_json::json!(["echo"])).then_some(())
    });
    fs::remove_file(here.handlers().join("echo.wasm")).unwrap();
    eventually("the runner serves nothing", Duration::from_secs(20), || {
        let runners = here.json(&["runner", "list"]);
        runners["items"][0]["kinds"].as_array()?.is_empty().then_some(())
    });
    here.ok(&["enqueue", "echo", "2", "--id", "waits"]);
    assert_eq!(here.job("waits")["state"], "ready");
    here.install("echo", "echo");
    let job = here.job_in("waits", "completed", Duration::from_secs(20));
    assert_eq!(job["attempt"], 1);
    drop(runner);
}
