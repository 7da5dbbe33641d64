//! The doctor: a store in use has nothing wrong, also while jobs move, and what is damaged is found and mended.
//!
//! How a store can be damaged is its own affair: its own wounds are tried beside its bed.

use std::sync::atomic::{AtomicBool, Ordering};

use hourhand::effects::Progress;
use hourhand::job::{Due, NewJob, Priority, State};
use hourhand::queue::examination::Value;
use hourhand::queue::{Finding, IdMemory, LogWrite, Retention, Settlement, Store};

use crate::bed::*;
use crate::crowd;
use crate::random::Random;

/// Puts a job of every fate into queue `a`: all have ids, which say what became of them.
pub(crate) async fn populate(store: &dyn Store) -> Hand<'_> {
    let in_use = |text: &str, due| NewJob { due, payload: vec![b'x'; 300].into(), ..job_with_id("a", text) };
    let first: Vec<NewJob> = ["runs", "done", "dead", "retried", "crashed", "forgotten", "called-back"]
        .map(|text| in_use(text, Due::NOW))
        .to_vec();
    enqueue_all(store, &first).await;
    let mut hand = Hand::new(store, "s1");
    hand.beat().await;
    let claimed = hand.claim(&["a"], 10).await;
    let of = |text: &str| claimed.iter().find(|c| c.job.id == id(text)).expect("it was claimed");
    let log = |text: &str| LogWrite {
        lease: of(text).lease.clone(),
        attempt: 1,
        text: format!("{text} says"),
        progress: None,
    };
    let progress = Some(Progress { percent: 40, message: "2 of 5".to_owned() });
    store
        .write_logs(&[log("runs"), log("done"), LogWrite { progress, ..log("retried") }])
        .await
        .expect("logs are taken");
    hand.settle(of("done"), completed(b"a result")).await;
    hand.settle(of("dead"), dead()).await;
    hand.settle(of("retried"), retry(3_600_000)).await;
    let none = Retention { age_ms: Some(0), ..KEEP };
    hand.settle_kept(of("forgotten"), completed(b""), none).await;
    let crashed = leases(store).await.into_iter().find(|seen| seen.lease == of("crashed").lease);
    store.reclaim(&[crashed.expect("it is listed")], KEEP).await.expect("reclaimed");
    store.cancel(&[job_ref("a", "called-back")], KEEP).await.expect("asked for");
    enqueue_all(
        store,
        &[
            in_use("waits", Due::In(3_600_000)),
            NewJob { priority: Priority::High, ..in_use("urgent", Due::In(3_600_000)) },
            NewJob { queue: name("a"), ..in_use("7-abcde", Due::In(3_600_000)) },
            in_use("stopped", Due::In(3_600_000)),
            NewJob { due: Due::In(3_600_000), ..job("b") },
            NewJob { due: Due::In(5_000), ..job("held") },
        ],
    )
    .await;
    store.cancel(&[job_ref("a", "stopped")], KEEP).await.expect("cancelled");
    assert_eq!(hand.hold(&["held"], 1).await.len(), 1);
    store.pause(&name("b")).await.expect("paused");
    hand
}

/// Puts something into two buckets of state.
pub(crate) async fn remember(store: &dyn Store) {
    for (bucket, key, value) in [("seen", "k", "one"), ("seen", "é", ""), ("counts", "n", "7")] {
        store.set_state(&name(bucket), key, value.as_bytes()).await.expect("set");
    }
}

/// What the doctor finds without mending anything.
pub(crate) async fn findings(store: &dyn Store) -> Vec<Finding> {
    store.doctor(false).await.expect("the doctor looks")
}

pub(crate) async fn a_store_in_use_has_no_findings<B: Bed>(bed: B) {
    let store = bed.store();
    assert_eq!(findings(store).await, [], "an empty one");
    populate(store).await;
    remember(store).await;
    assert_eq!(bed.audit().await, [""; 0]);
    let before = bed.contents().await;
    assert_eq!(findings(store).await, []);
    assert_eq!(store.doctor(true).await, Ok(vec![]), "there is nothing to mend");
    assert_eq!(bed.contents().await, before, "and nothing is changed");
    let other = bed.open("bed2").await;
    enqueue_one(&other, &job_with_id("a", "waits")).await;
    assert_eq!(findings(store).await, [], "another namespace is another world");
}

pub(crate) async fn an_examination_measures_and_changes_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    populate(store).await;
    remember(store).await;
    let before = bed.contents().await;
    let found = store.examine().await.expect("it can be looked at");
    assert_eq!(bed.contents().await, before);
    let open: Vec<&Finding> = found.findings.iter().filter(|finding| finding.is_open_error()).collect();
    assert!(open.is_empty(), "{open:#?}");
    assert!(found.findings.iter().all(|finding| finding.fix.is_some()), "{:#?}", found.findings);
    let measured = |name: &str| match found.facts.get(name) {
        Some(Value::Decimal(ms)) => *ms,
        other => panic!("{name}: {other:?}"),
    };
    assert!(measured("claim_median_ms") > 0.0 && measured("claim_max_ms") >= measured("claim_median_ms"));
    assert!(measured("round_trip_max_ms") >= measured("round_trip_median_ms"));
    assert!(matches!(found.facts.get("version"), Some(Value::Text(_))), "{:?}", found.facts);
    if !bed.step_clock(5_000).await {
        let (apart_ms, doubt_ms) = (measured("clock_difference_ms"), measured("clock_uncertainty_ms"));
        assert!(apart_ms.abs() <= doubt_ms + 50.0, "one machine has one time: {apart_ms} +-{doubt_ms}");
        return;
    }
    let found = store.examine().await.expect("it can be looked at").findings;
    let clock: Vec<&Finding> = found.iter().filter(|finding| finding.check == "clock").collect();
    assert!(clock.len() == 1 && clock[0].message.contains(" 5.0 s behind "), "{found:#?}");
}

pub(crate) async fn what_moves_is_never_reported<B: Bed>(bed: B) {
    let store = bed.store();
    let over = AtomicBool::new(false);
    let work = async {
        let mut random = Random::seeded();
        let mut hand = Hand::new(store, "s1");
        let mut claimed = Vec::new();
        while !over.load(Ordering::Relaxed) {
            crowd::step(&mut random, store, &mut hand, &mut claimed).await;
        }
    };
    let look = async {
        for round in 0..25 {
            let found = store.doctor(round % 2 == 1).await.expect("the doctor looks");
            assert_eq!(found, [], "round {round}");
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, look);
    assert_eq!(bed.audit().await, [""; 0]);
}

pub(crate) async fn an_entry_without_a_record_is_found_and_mended<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 4]).await;
    bed.lose_record(&view(store, &ids[1]).await).await;
    let found = findings(store).await;
    assert!(!found.is_empty() && found.iter().all(|f| f.repaired.is_none()), "{found:#?}");
    let mended = store.doctor(true).await.expect("the doctor mends");
    assert_eq!(mended.len(), found.len());
    assert!(mended.iter().all(|f| f.repaired.is_some()), "{mended:#?}");
    assert_eq!(findings(store).await, []);
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a"], 10);
    let claimed = hand.send(request).await;
    assert_eq!((claimed.jobs.len(), claimed.damaged), (3, 0), "the others are as they were");
}

pub(crate) async fn a_record_lost_under_a_lease_is_found_and_mended<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 2]).await;
    let mut hand = Hand::new(store, "s");
    let lost = view(store, &ids[0]).await;
    let claimed = hand.claim(&["a"], 2).await;
    bed.lose_record(&lost).await;
    assert!(!findings(store).await.is_empty());
    let mended = store.doctor(true).await.expect("the doctor mends");
    assert!(mended.iter().all(|f| f.repaired.is_some()), "{mended:#?}");
    assert_eq!(findings(store).await, []);
    assert_eq!(leases(store).await.len(), 1);
    hand.complete(&claimed[1]).await;
    assert_eq!(state(store, &ids[1]).await, State::Completed);
    assert_eq!(findings(store).await, []);
}

pub(crate) async fn what_an_operator_did_by_hand_is_no_damage<B: Bed>(bed: B) {
    let store = bed.store();
    let hand = populate(store).await;
    bed.lose_session(&hand.session).await;
    store.requeue(&[job_ref("a", "dead"), job_ref("a", "done")]).await.expect("requeued");
    store.delete(&[job_ref("a", "stopped"), job_ref("a", "waits")]).await.expect("deleted");
    store.resume(&name("b")).await.expect("resumed");
    while store.purge(&name("b")).await.expect("purged").0 > 0 {}
    enqueue_all(store, &[job_with_id("a", "waits"), job_with_id("a", "forgotten")]).await;
    let memory = IdMemory { age_ms: 1, bytes: 0 };
    let mut other = Hand::new(store, "s2");
    for claimed in other.claim(&["a"], 10).await {
        let retention = Retention { count: Some(1), ..KEEP };
        let settled = Settlement { retention, id_memory: memory, ..settlement(&claimed, completed(b"")) };
        other.settle_all(&[settled]).await;
    }
    store.prune().await.expect("pruned");
    assert_eq!(findings(store).await, []);
    assert_eq!(bed.audit().await, [""; 0]);
}
