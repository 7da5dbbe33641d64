//! Many runners on one store: every job once, none early, none lost.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;

on_both_stores! {
    ten_thousand_orders_from_one_file_close_once_each_and_never_early
    many_runners_run_each_job_exactly_once
}

/// Milliseconds since 1970 of an RFC 3339 time as the product prints it.
fn ms(time: &Value) -> f64 {
    let text = time.as_str().expect("a time");
    let at: jiff::Timestamp = text.parse().expect("RFC 3339");
    at.as_microsecond() as f64 / 1_000.0
}

/// A number below `below` from a seed: splitmix64.
fn draw(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % below
}

fn ten_thousand_orders_from_one_file_close_once_each_and_never_early(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["order_close"]);
    let mut seed = 20_261_130;
    println!("seed {seed}");
    let mut lines = String::new();
    for id in 0..10_000 {
        let delay = draw(&mut seed, 10_000);
        writeln!(
            lines,
            r#"{{"kind":"order_close","id":"o{id}","delay":"{delay}ms","payload":{{"id":{id},"state":"unpaid","pay_by_ms":0}}}}"#
        )
        .unwrap();
    }
    fs::write(here.dir.path().join("orders.ndjson"), lines).unwrap();
    let _runner = here.runner(&[]);
    here.ok(&["enqueue", "--ndjson", "orders.ndjson"]);
    here.counts("order_close", "all orders end", Duration::from_secs(120), |q| {
        q["completed"].as_u64().unwrap() + q["dead"].as_u64().unwrap() == 10_000
    });
    let jobs = here.all_jobs(&["--queue", "order_close", "--state", "completed"]);
    let ids: BTreeSet<&str> = jobs.iter().map(|j| j["id"].as_str().unwrap()).collect();
    assert_eq!((jobs.len(), ids.len()), (10_000, 10_000));
    let mut apart = Vec::new();
    for job in &jobs {
        assert_eq!(job["attempt"], 1, "{job:#}");
        let lateness = job["lateness_ms"].as_f64().unwrap();
        let result: Value = serde_json::from_str(job["result"].as_str().unwrap()).unwrap();
        assert_eq!(result["decision"], "close", "{job:#}");
        // The guest read its clock during its run.
        let looked = result["looked_at_us"].as_f64().unwrap() / 1_000.0;
        let by_guest = looked - ms(&job["due_at"]);
        let duration = job["duration_ms"].as_f64().unwrap();
        assert!(by_guest >= 0.0, "early by the guest's clock: {job:#}");
        assert!(
            by_guest > lateness - 5.0 && by_guest < lateness + duration + 5.0,
            "guest {by_guest} ms, record {lateness} ms and {duration} ms: {job:#}"
        );
        apart.push(by_guest - lateness);
    }
    apart.sort_by(f64::total_cmp);
    println!("guest's clock after the record's, ms: p50 {} p99 {}", apart[5_000], apart[9_900]);
    assert!(apart[5_000] < 5.0, "half of the guests looked {} ms after the recorded start", apart[5_000]);
}

/// 100,000 jobs on eight runners take half a minute of both cores; `make test` runs a fifth.
fn many_runners_run_each_job_exactly_once(on: StoreKind) {
    let count: usize =
        std::env::var("HOURHAND_TEST_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nonce"]);
    let keep = ["--concurrency", "16", "--completed-count", "none", "--completed-bytes", "none"];
    let mut runners: Vec<_> = (0..8).map(|_| here.runner_unready(&keep)).collect();
    let mut seed = 7;
    println!("seed {seed}, {count} jobs");
    let mut lines = String::new();
    for _ in 0..count {
        let delay = draw(&mut seed, 5_000);
        writeln!(lines, r#"{{"kind":"nonce","delay":"{delay}ms","payload":null}}"#).unwrap();
    }
    fs::write(here.dir.path().join("jobs.ndjson"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    here.counts("nonce", "all jobs end", Duration::from_secs(300), |q| {
        q["completed"].as_u64().unwrap() + q["dead"].as_u64().unwrap() == count as u64
    });
    let jobs = here.all_jobs(&["--queue", "nonce", "--state", "completed"]);
    assert_eq!(jobs.len(), count);
    let mut nonces = BTreeSet::new();
    let mut by_runner: HashMap<String, usize> = HashMap::new();
    for job in &jobs {
        let result: Value = serde_json::from_str(job["result"].as_str().unwrap()).unwrap();
        assert_eq!(result["id"], job["id"]);
        assert_eq!(result["attempt"], 1);
        assert!(nonces.insert(result["nonce"].as_str().unwrap().to_owned()), "a nonce twice");
        *by_runner.entry(job["runner"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(by_runner.len(), 8, "every runner had its share: {by_runner:?}");
    for runner in &mut runners {
        assert_eq!(runner.stop().code(), Some(0));
    }
}
