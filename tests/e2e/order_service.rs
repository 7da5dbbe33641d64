//! `order_close` on a real order service that loses replies, by runners that are killed: each unpaid order is closed once.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::chaos::Crew;
use crate::harness::hourhand::Hourhand;
use crate::harness::orders::Orders;
use crate::harness::waiting::eventually;

const UNPAID: u64 = 60;
const PAID: u64 = 10;
const KILLS: u64 = 8;
const LONG: Duration = Duration::from_secs(240);

on_both_stores! {
    unpaid_orders_are_closed_once_whatever_is_killed
}

fn unpaid_orders_are_closed_once_whatever_is_killed(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["order_close"]);
    let orders = Orders::start(UNPAID, PAID, getrandom::u64().expect("random numbers"));
    std::fs::write(here.dir.path().join("hourhand.toml"), "[ceiling]\nprivate = ['127.0.0.0/8']\n").unwrap();
    let manifest = format!(
        "[retry]\nattempts = 100\nbase = '200ms'\nmax = '1s'\n\n[allow]\nhttp = ['{}']\nenqueue = ['order_notify']\n",
        orders.origin()
    );
    here.manifest("order_close", &manifest);
    let mut crew = Crew::start(&here, 2, &["--concurrency", "4"]);
    for id in 0..UNPAID + PAID {
        let payload = json!({"order": orders.url(id)}).to_string();
        here.ok(&[
            "enqueue",
            "order_close",
            &payload,
            "--id",
            &format!("close-{id}"),
            "--max-attempts",
            "100",
        ]);
        // The crew is at work all the while.
        if id % ((UNPAID + PAID) / KILLS) == 1 {
            crew.kill_one(Duration::from_millis(300));
        }
    }
    eventually("all jobs end", LONG, || {
        let stats = here.json(&["stats"]);
        let queue = stats["queues"].as_array()?.iter().find(|q| q["queue"] == "order_close")?.clone();
        if queue["dead"] != 0 {
            // Whoever was there at three kills is set aside, for it may be their cause. Somebody knows better, and says so.
            for job in here.all_jobs(&["--state", "dead"]) {
                assert_eq!(
                    (&job["error"]["reason"], &job["crashes"]),
                    (&json!("lost"), &json!(3)),
                    "{job:#}"
                );
            }
            here.ok(&["dead", "retry", "--all"]);
        }
        (queue["completed"] == UNPAID + PAID).then_some(())
    });

    let mut closed = BTreeSet::new();
    for order in orders.all() {
        let races = order.id % 5 == 4;
        let job = here.job(&format!("close-{}", order.id));
        let result: Value = serde_json::from_str(job["result"].as_str().unwrap()).unwrap();
        if order.id < UNPAID && !races {
            assert_eq!((order.state.as_str(), order.closings), ("closed", 1), "{order:?}");
            assert_eq!(order.closed_by, Some(format!("close-{}", order.id)));
            assert_eq!(result["decision"], "close", "{job:#}");
            closed.insert(order.id);
        } else {
            assert_eq!((order.state.as_str(), order.closings), ("paid", 0), "{order:?}");
            assert_eq!(result["decision"], "keep", "{job:#}");
        }
    }
    // Whose order was closed is told once, and nobody else. (Those jobs have no handler here: they wait.)
    let told: Vec<Value> = here.all_jobs(&["--queue", "order_notify"]);
    let whose: BTreeSet<u64> = told
        .iter()
        .map(|job| {
            serde_json::from_str::<Value>(job["payload"].as_str().unwrap()).unwrap()["order_id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!((told.len(), whose), (closed.len(), closed));
}
