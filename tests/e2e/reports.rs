//! `daily_report`: a thousand children and a closing job, by runners that are killed twenty times at random.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::chaos::Crew;
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

const PARTS: u64 = 1_000;
const KILLS: usize = 20;
/// A new report before each kill of so many.
const KILLS_A_REPORT: usize = 5;
const REPORTS: u64 = (KILLS / KILLS_A_REPORT) as u64;
const LONG: Duration = Duration::from_secs(300);

on_both_stores! {
    the_children_of_a_report_run_once_each_whatever_is_killed
}

/// Jobs of these queues that have completed; none may be dead.
fn completed(here: &Hourhand, queues: &[&str]) -> u64 {
    let stats = here.json(&["stats"]);
    let all = stats["queues"].as_array().unwrap();
    let ours = all.iter().filter(|q| queues.iter().any(|name| q["queue"] == *name));
    ours.map(|queue| {
        assert_eq!(queue["dead"], 0, "{:#}", Value::Array(here.all_jobs(&["--state", "dead"])));
        queue["completed"].as_u64().unwrap()
    })
    .sum()
}

fn result(job: &Value) -> Value {
    serde_json::from_str(job["result"].as_str().unwrap_or_else(|| panic!("no result: {job:#}")))
        .expect("JSON")
}

fn the_children_of_a_report_run_once_each_whatever_is_killed(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["daily_report"]);
    let manifest = "[allow]\nenqueue = { kinds = ['report_part', 'report_close'], jobs = 1001 }\nstate = 'daily_report'\n";
    here.manifest("daily_report", manifest);
    let keep = ["--concurrency", "8", "--completed-count", "none", "--completed-bytes", "none"];
    let mut crew = Crew::start(&here, 2, &keep);
    let all = ["daily_report", "report_part", "report_close"];
    let mut before = 0;
    for kill in 0..KILLS {
        if kill % KILLS_A_REPORT == 0 {
            let day = format!("day-{}", kill / KILLS_A_REPORT);
            let payload = json!({"day": day, "parts": PARTS}).to_string();
            here.ok(&["enqueue", "daily_report", &payload, "--id", &day]);
        }
        crew.kill_one(Duration::from_millis(150));
        // A job that one kill has met gets its chance before the next: three would make a poison pill of it.
        let end = REPORTS * (PARTS + 2);
        before = eventually("work goes on", LONG, || {
            let now = completed(&here, &all);
            let idle = here.all_jobs(&["--state", "ready"]).is_empty()
                && here.all_jobs(&["--state", "running"]).is_empty();
            (now >= (before + 40).min(end) || idle).then_some(now)
        });
    }
    here.counts("report_close", "all reports are closed", LONG, |q| q["completed"] == REPORTS);
    assert_eq!(completed(&here, &all), REPORTS * (PARTS + 2));

    let mut parts: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut crashes = 0;
    for job in here.all_jobs(&["--queue", "report_part"]) {
        let parent = job["meta"]["hourhand.parent"].as_str().unwrap_or_default().to_owned();
        let number = result(&job)["number"].as_u64().unwrap();
        assert!(parts.entry(parent).or_default().insert(number), "a part twice: {job:#}");
        crashes += job["crashes"].as_u64().unwrap();
    }
    println!("{crashes} crashes on the records of parts");
    assert!(crashes > 0, "not one of {KILLS} kills has met a job at work");
    let wanted: BTreeSet<u64> = (0..PARTS).collect();
    for report in 0..REPORTS {
        assert_eq!(parts.get(&format!("daily_report/day-{report}")), Some(&wanted), "report {report}");
    }
    assert_eq!(parts.len() as u64, REPORTS);
    // Each part counted once in what the closing jobs found, however often it was tried.
    let sales: u64 = (0..PARTS).map(|number| number * 3 + 7).sum();
    for job in here.all_jobs(&["--queue", "report_close"]) {
        let found = result(&job);
        assert_eq!((&found["parts"], &found["sales"]), (&json!(PARTS), &json!(sales)), "{job:#}");
    }
}
