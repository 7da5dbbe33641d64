//! What shows only inside Redis: how many calls an answer costs, and foreign data under the name of an index.

use hourhand::job::NewJob;
use hourhand::queue::{ListQuery, Settlement, Store};
use redis::Commands;

use crate::bed::*;
use crate::redis_bed::{RedisBed, key};

/// Calls of scripts and reads of whole sets until now.
fn calls(bed: &RedisBed) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut bed.client()).expect("statistics");
    let of = |command: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    of("evalsha") + of("smembers") + of("hscan")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_over_hundreds_of_lanes_costs_few_calls() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let kinds: Vec<String> = (0..320).map(|i| format!("kind{i}")).collect();
    let jobs: Vec<NewJob> = kinds.iter().flat_map(|kind| vec![job(kind); 3]).collect();
    enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    for some in kinds.chunks(64) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let claimed = hand.claim(&some, 64).await;
        let settlements: Vec<Settlement> = claimed.iter().map(|c| settlement(c, completed(b""))).collect();
        hand.settle_all(&settlements).await;
    }

    let mut query = ListQuery { limit: 10, ..ListQuery::default() };
    store.list(&query).await.expect("the scripts are known now");
    let before = calls(&bed);
    let page = store.list(&query).await.expect("a page");
    assert_eq!(page.items.len(), 10, "as many as were asked for");
    assert!(calls(&bed) - before <= 7, "one for the lanes, 5 for 1280 indexes, one for the jobs");

    query.kind = Some(name("kind1"));
    let before = calls(&bed);
    let of_kind = list_all(store, &query).await;
    assert_eq!(of_kind.len(), 3);
    assert!(of_kind.iter().all(|view| view.job.kind == name("kind1")));
    assert!(calls(&bed) - before <= 7, "nobody else's jobs are read: {}", calls(&bed) - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_read_in_vain_do_not_shorten_a_page() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let of = |kind: &str| NewJob { queue: name("mixed"), ..job(kind) };
    let jobs: Vec<NewJob> = (0..240).map(|i| of(if i % 40 == 0 { "rare" } else { "common" })).collect();
    enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let lanes = ["rare", "common"].map(|kind| {
        hourhand::queue::LaneClaim::new(hourhand::queue::Lane { queue: name("mixed"), kind: name(kind) }, 1)
    });
    let request = hourhand::queue::ClaimRequest { lanes: lanes.to_vec(), ..hand.request(&[], 240) };
    let claimed = hand.send(request).await.jobs;
    let settlements: Vec<Settlement> = claimed.iter().map(|c| settlement(c, dead())).collect();
    hand.settle_all(&settlements).await;
    let query = ListQuery {
        kind: Some(name("rare")),
        states: vec![hourhand::job::State::Dead],
        limit: 4,
        ..ListQuery::default()
    };
    let page = store.list(&query).await.expect("a page");
    assert_eq!(page.items.len(), 4, "the others of the queue were passed over");
    let rest = store.list(&ListQuery { cursor: page.cursor, ..query }).await.expect("a page");
    assert_eq!((rest.items.len(), rest.cursor), (2, None));
    assert!(rest.items.iter().all(|view| !page.items.contains(view)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_data_in_place_of_an_index_stops_no_other_lane() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let ids = enqueue_all(store, &[job("a"), job("c")]).await;
    let _: () = bed.client().set(key("due:b:b:n"), "foreign").expect("set");
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a", "b", "c"], 10);
    let claimed = hand.send(request).await;
    assert_eq!(claimed.jobs.iter().map(|c| &c.job.id).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert_eq!((claimed.damaged, claimed.next_due_ms), (1, None), "and it is told");
    let kept: String = bed.client().get(key("due:b:b:n")).expect("a string");
    assert_eq!(kept, "foreign", "what is not ours is left alone");
}
