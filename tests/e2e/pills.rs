//! A job that takes its runner down, and its neighbours (rule 11).

use std::fs;
use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::dice::{Dice, seed};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

on_both_stores! {
    a_poison_pill_convicts_itself_and_not_its_neighbours
}

/// Neighbours nap for up to so long, in milliseconds.
const NAP_MS_MAX: u64 = 600;

/// The pill is anywhere among its neighbours, and its runner dies a moment after it began. `HOURHAND_TEST_NEIGHBOURS=127` fills all
/// slots; those that were beside it twice run one after the other in the end, so that it takes a minute.
fn a_poison_pill_convicts_itself_and_not_its_neighbours(on: StoreKind) {
    let neighbours: u64 =
        std::env::var("HOURHAND_TEST_NEIGHBOURS").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    let mut draw = Dice::new(seed());
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["nap"]);
    let place = draw.below(neighbours + 1);
    let mut lines = String::new();
    for n in 0..=neighbours {
        if n == place {
            lines.push_str(
                "{\"kind\":\"nap\",\"id\":\"pill\",\"timeout\":\"10m\",\"payload\":{\"ms\":600000}}\n",
            );
        } else {
            let ms = draw.below(NAP_MS_MAX);
            lines.push_str(&format!("{{\"kind\":\"nap\",\"id\":\"n{n}\",\"payload\":{{\"ms\":{ms}}}}}\n"));
        }
    }
    fs::write(here.dir.path().join("jobs.ndjson"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
    for _ in 0..3 {
        let mut runner = here.runner(&["--concurrency", "128"]);
        here.job_in("pill", "running", Duration::from_secs(120));
        std::thread::sleep(Duration::from_millis(draw.below(100)));
        runner.kill();
    }
    let runner = here.runner(&["--concurrency", "128"]);
    let pill = here.job_in("pill", "dead", Duration::from_secs(20));
    assert_eq!((&pill["error"]["reason"], &pill["crashes"]), (&"lost".into(), &3.into()), "{pill:#}");
    here.counts("nap", "the neighbours complete", Duration::from_secs(240), |q| q["completed"] == neighbours);
    for job in here.all_jobs(&["--queue", "nap", "--state", "completed"]) {
        assert!(job["crashes"].as_u64().expect("a count") <= 2, "{job:#}");
    }
    assert_eq!(here.all_jobs(&["--queue", "nap", "--state", "dead"]).len(), 1, "the pill alone");
    eventually("the runner is none the worse", Duration::from_secs(10), || {
        (here.json(&["runner", "list"])["items"][0]["running"] == 0).then_some(())
    });
    drop(runner);
}
