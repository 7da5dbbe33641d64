//! What shows only inside Redis: how many calls an answer costs, and foreign data under the name of an index.

use std::time::Duration;

use hourhand::effects::{Effects, StateChange, StateEffects};
use hourhand::job::{Due, NewJob};
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::{ListQuery, Retention, SessionId, Settled, Settlement, Severity, Store, StoreError};
use redis::Commands;

use crate::bed::*;
use crate::committing::{committing, parent};
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

/// A child, and a change of a bucket.
fn effects() -> Effects {
    let changes = vec![("k".to_owned(), StateChange::Set("v".into()))];
    let state = Some(StateEffects { bucket: name("b"), reads: Vec::new(), changes });
    Effects { children: vec![job_with_id("child", "x")], state }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_data_anywhere_stops_a_commit_before_it_writes() {
    for (foreign, is_of_one_run) in [
        ("due:child:child:h", true),
        ("due:child:child:n", true),
        ("due:child:child:l", true),
        ("state:b", true),
        ("due:parent:parent:n", false),
        ("done:parent:c", false),
        ("holdings", false),
        ("buckets", false),
        ("lanes", false),
        ("ids", false),
        ("totals", false),
        ("memory", false),
    ] {
        let bed = RedisBed::start().await;
        let store = bed.store();
        enqueue_all(store, &[job_with_id("parent", "p"), job_with_id("parent", "q")]).await;
        let mut hand = Hand::new(store, "s");
        let claimed = hand.claim(&["parent"], 2).await;
        let _: () = bed.client().del(key(foreign)).expect("removed");
        let _: () = bed.client().set(key(foreign), "foreign").expect("set");
        let before = bed.contents().await;
        // The first of them alone would find nothing in its way.
        let plain =
            committing(&claimed[0], Effects { children: vec![job_with_id("other", "y")], state: None });
        let batch = [plain, committing(&claimed[1], effects())];
        let refused = store.settle(&batch).await;
        let told = match &refused {
            Err(StoreError::Invalid(text)) if is_of_one_run => text,
            Err(StoreError::Refused(text)) if !is_of_one_run => text,
            _ => panic!("{foreign}: {refused:?}"),
        };
        assert!(told.contains(&key(foreign)) || !is_of_one_run, "it is named: {told}");
        assert!(bed.contents().await == before, "{foreign}: something was written");
        if is_of_one_run {
            let [good, bad] = batch;
            assert_eq!(
                hand.settle_all(&[good]).await,
                [Settled::Done],
                "{foreign}: the other is not at fault"
            );
            let without = Settlement { effects: None, outcome: dead(), ..bad };
            assert_eq!(hand.settle_all(&[without]).await, [Settled::Done], "{foreign}");
        }
        let _: () = bed.client().del(key(foreign)).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_state_that_cannot_be_read_counts_as_none() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    store.set_state(&name("b"), "n", b"1").await.expect("set");
    let _: () = bed.client().hset(key("state:b"), "n", "foreign").expect("set");
    let changes = vec![("n".to_owned(), StateChange::Add(5))];
    let state = Some(StateEffects { bucket: name("b"), reads: Vec::new(), changes });
    let effects = Effects { children: Vec::new(), state };
    assert_eq!(hand.settle_all(&[committing(&claimed, effects)]).await, [Settled::Done]);
    let found = store.read_state(&name("b"), &["n".to_owned()]).await.expect("read").values.remove(0);
    assert_eq!(found.map(|found| found.value), Some("5".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_of_no_name_is_an_error_and_not_the_end_of_a_copy() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    for bucket in ["a", "z"] {
        store.set_state(&name(bucket), "k", b"v").await.expect("set");
    }
    let _: () = bed.client().zadd(key("buckets"), "no name", 0).expect("set");
    let mut cursor = None;
    let told = loop {
        match store.export(cursor).await {
            Ok(page) => cursor = Some(page.cursor.expect("the bucket z was left out")),
            Err(error) => break error,
        }
    };
    assert!(matches!(&told, StoreError::Refused(text) if text.contains("no name")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_written_although_there_is_no_memory_left() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let mut client = bed.client();
    for (setting, value) in [("maxmemory-policy", "noeviction"), ("maxmemory", "1mb")] {
        let _: () = redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).query(&mut client).expect("set");
    }
    assert!(matches!(store.enqueue(&[job("a")]).await, Err(StoreError::Full(_))));
    assert!(matches!(store.set_state(&name("b"), "k", b"v").await, Err(StoreError::Full(_))));
    assert_eq!(hand.settle_all(&[committing(&claimed, effects())]).await, [Settled::Done]);
    assert_eq!(view(store, &id("x")).await.state, hourhand::job::State::Ready);
    assert_eq!(store.delete_state(&name("b"), "k").await, Ok(true), "what frees memory is never refused");
    let _: () = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").query(&mut client).expect("set");
}

/// What each verb that needs no job in hand says to the store as it is.
async fn every_verb(store: &RedisStore) -> Vec<(&'static str, Option<StoreError>)> {
    let (session, a, k) = (SessionId("s".into()), name("a"), job_ref("a", "waits"));
    let mut hand = Hand::new(store, "s");
    let list = ListQuery { limit: 10, ..ListQuery::default() };
    let jobs = std::slice::from_ref(&k);
    vec![
        ("identity", store.identity().await.err()),
        ("lanes", store.lanes().await.err()),
        ("enqueue", store.enqueue(&[job_with_id("a", "new")]).await.err()),
        ("claim", store.claim(&hand.request(&["a"], 1)).await.err()),
        ("heartbeat", store.heartbeat(&session, &info(&session), 0, &[lane("a")]).await.err()),
        ("sessions", store.sessions().await.err()),
        ("leases", store.leases(None).await.err()),
        ("prune", store.prune().await.err()),
        ("counts", store.counts().await.err()),
        ("list", store.list(&list).await.err()),
        ("find", store.find(Some(&a), &id("waits")).await.err()),
        ("logs", store.logs(&k).await.err()),
        ("read_state", store.read_state(&a, &["k".to_owned()]).await.err()),
        ("set_state", store.set_state(&a, "k", b"v").await.err()),
        ("state_page", store.state_page(&a, None).await.err()),
        ("buckets", store.buckets(None).await.err()),
        ("delete_state", store.delete_state(&a, "k").await.err()),
        ("pause", store.pause(&a).await.err()),
        ("resume", store.resume(&a).await.err()),
        ("reschedule", store.reschedule(&k, Due::NOW).await.err()),
        ("requeue", store.requeue(jobs).await.err()),
        ("cancel", store.cancel(jobs, Retention::FINISHED).await.err()),
        ("delete", store.delete(jobs).await.err()),
        ("purge", store.purge(&a).await.err()),
        ("end_session", store.end_session(&session).await.err()),
        ("export_source", store.export_source().await.err()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_for_foreign_data_names_the_key_and_what_to_do() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let mut client = bed.client();
    // All that a verb may meet, but where claims set aside what they cannot use.
    let globals = "seq jobs past running recalls ids memory lanes paused totals sizes sessions holders logs meta buckets \
                   holdings state:a due:a:a:n done:a:x";
    for rest in globals.split_whitespace() {
        let _: () = redis::cmd("FLUSHALL").query(&mut client).expect("flushed");
        enqueue_all(store, &[job_with_id("a", "waits"), job_with_id("a", "other")]).await;
        let _: () = client.del(key(rest)).expect("removed");
        // Of a type that no key of ours has.
        let _: () =
            redis::cmd("XADD").arg(key(rest)).arg("*").arg("f").arg("v").query(&mut client).expect("set");
        let refused: Vec<_> =
            every_verb(store).await.into_iter().filter_map(|(verb, e)| Some((verb, e?))).collect();
        assert!(!refused.is_empty(), "{rest} stops nothing");
        for (verb, error) in refused {
            let text = error.to_string();
            let named = text.contains(&format!("key {} is not ours", key(rest)));
            assert!(named && text.contains("doctor --repair"), "{rest}, {verb}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_look_for_names_among_the_keys_of_others_ends_and_says_so() {
    let bed = RedisBed::start().await;
    enqueue_all(bed.store(), &[job("a"), job("b")]).await;
    let mut client = bed.client();
    let fill = "for i = 1, 20000 do redis.call('SET', 'other:' .. i, i) end";
    let _: () = redis::cmd("EVAL").arg(fill).arg(0).query(&mut client).expect("filled");
    let _: () = client.set(key("odd"), "x").expect("set");
    let hasty = bed.connect_with(RedisOptions { names_within: Duration::ZERO, ..RedisOptions::default() });
    let found = hasty.doctor(false).await.expect("the doctor looks");
    let words: Vec<_> = found.iter().map(|f| (f.check, f.severity)).collect();
    assert_eq!(words, [("not-looked-at", Severity::Warning)], "{found:#?}");
    // What is listed is looked at in any case, and so is all that hangs on it.
    let _: () = client.set(key("due:b:b:h"), "foreign").expect("set");
    let _: u32 = client.zadd(key("due:a:a:l"), "00000000004444", 1).expect("added");
    let found = hasty.doctor(false).await.expect("the doctor looks");
    assert!(found.iter().any(|f| f.check == "wrong-type" && f.place.ends_with("due:b:b:h")), "{found:#?}");
    let _: u32 = client.del(key("due:b:b:h")).expect("removed");
    let found = hasty.doctor(false).await.expect("the doctor looks");
    assert!(found.iter().any(|f| f.check == "orphan-entry"), "{found:#?}");
    let patient = bed.store().doctor(false).await.expect("the doctor looks");
    assert!(patient.iter().any(|f| f.check == "unknown-name"), "{patient:#?}");
    assert!(patient.iter().all(|f| f.check != "not-looked-at"), "{patient:#?}");
}
