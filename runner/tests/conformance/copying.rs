//! Moving everything to another store: what comes out goes in elsewhere, and is what it was.

use std::collections::HashMap;

use hourhand::job::{Due, JobView, NewJob, Priority, State};
use hourhand::outcome::Reason;
use hourhand::queue::copy::{IMPORT_BYTES_MAX, RememberedId};
use hourhand::queue::{
    AttemptLog, Disposition, Exported, Imported, JobRef, ListQuery, Source, Store, StoreError,
};

use crate::bed::*;
use crate::doctor::populate;

/// Everything that a store exports.
pub(crate) async fn export_all(store: &dyn Store) -> Vec<Exported> {
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.export(cursor).await.expect("a page");
        items.extend(page.items);
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return items,
        }
    }
}

/// Imports items in batches that a call takes, and counts the answers.
pub(crate) async fn import_all(
    store: &dyn Store,
    source: &Source,
    items: &[Exported],
) -> HashMap<Imported, usize> {
    let mut counts = HashMap::new();
    let mut batches: Vec<Vec<Exported>> = vec![Vec::new()];
    for item in items {
        let last = batches.last_mut().expect("there is one");
        let bytes: usize = last.iter().map(Exported::bytes).sum();
        if last.len() < hourhand::queue::BATCH_MAX && bytes + item.bytes() <= IMPORT_BYTES_MAX {
            last.push(item.clone());
        } else {
            batches.push(vec![item.clone()]);
        }
    }
    for batch in batches {
        for answer in store.import(source, &batch).await.expect("items are taken") {
            *counts.entry(answer).or_default() += 1;
        }
    }
    counts
}

/// Copies one store into another, to the end.
pub(crate) async fn copy(from: &dyn Store, to: &dyn Store) -> HashMap<Imported, usize> {
    let source = from.export_source().await.expect("a source");
    let items = export_all(from).await;
    let counts = import_all(to, &source, &items).await;
    to.import_done(&source).await.expect("it ends");
    counts
}

async fn all(store: &dyn Store) -> Vec<JobView> {
    list_all(store, &ListQuery { limit: 1_000, ..ListQuery::default() }).await
}

/// What everybody sees of the store, the same whatever the store.
async fn seen(store: &dyn Store) -> (Vec<JobView>, Vec<Vec<AttemptLog>>, Vec<hourhand::queue::QueueCounts>) {
    let jobs = all(store).await;
    let mut logs = Vec::new();
    for view in &jobs {
        let job = JobRef { queue: view.job.queue.clone(), id: view.job.id.clone() };
        logs.push(store.logs(&job).await.expect("logs"));
    }
    (jobs, logs, store.counts().await.expect("counts").queues)
}

/// As [`populate`], with jobs of one millisecond and ids that the store made, and no runner any more.
async fn populate_and_stop(store: &dyn Store) {
    let hand = populate(store).await;
    let due = Due::At(4_000_000_000_000);
    let made = |priority| NewJob { due, priority, ..job("made") };
    for priority in [Priority::Normal, Priority::Low, Priority::Normal, Priority::High, Priority::Normal] {
        enqueue_one(store, &made(priority)).await;
    }
    let full = NewJob {
        timeout_ms: Some(1_234),
        max_attempts: Some(7),
        meta: vec![("k".to_owned(), "v".to_owned()), ("k".to_owned(), "é\u{1e}".to_owned())],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        source: "somebody".to_owned(),
        payload: vec![0, 0x1f, 0xff, b'\n'].into(),
        queue: name("other"),
        ..job_with_id("made", "full é/1")
    };
    enqueue_all(store, &[NewJob { due, ..full.clone() }, NewJob { id: None, ..full }]).await;
    let mut other = Hand::new(store, "s2");
    let mut request = other.request(&[], 1);
    request.lanes = vec![hourhand::queue::LaneClaim::new(
        hourhand::queue::Lane { queue: name("other"), kind: name("made") },
        5,
    )];
    let claimed = other.send(request).await.jobs;
    other.settle(&claimed[0], completed(b"\x00 raw")).await;
    store.reschedule(&job_ref("a", "urgent"), due).await.expect("rescheduled");
    store.requeue(&[job_ref("a", "stopped")]).await.expect("requeued");
    drop(hand);
}

pub(crate) async fn a_copy_is_what_it_was<B: Bed>(bed: B) {
    let from = bed.store();
    populate_and_stop(from).await;
    // Leases of a lost runner are taken back first: how a copy does that is another claim.
    let held = leases(from).await;
    from.reclaim(&held, KEEP).await.expect("reclaimed");
    let before = bed.contents().await;
    let to = bed.open("target").await;
    let source = from.export_source().await.expect("a source");
    let items = export_all(from).await;
    assert!(bed.contents().await == before, "an export changes nothing");
    let counts = import_all(&to, &source, &items).await;
    assert_eq!(counts, HashMap::from([(Imported::Copied, items.len())]));
    to.import_done(&source).await.expect("it ends");
    assert_eq!(seen(&to).await, seen(from).await);
    assert_eq!(to.doctor(false).await, Ok(vec![]));
    assert_eq!(from.doctor(false).await, Ok(vec![]));
    let enqueued = to.enqueue(&[job_with_id("a", "forgotten")]).await.expect("taken");
    assert_eq!(enqueued[0].disposition, Disposition::Kept, "a finished id is remembered");
}

pub(crate) async fn a_copy_there_and_back_is_what_it_was<B: Bed>(bed: B) {
    let from = bed.store();
    populate_and_stop(from).await;
    let held = leases(from).await;
    from.reclaim(&held, KEEP).await.expect("reclaimed");
    let (there, back) = (bed.open("there").await, bed.open("back").await);
    enqueue_one(&there, &job("noise")).await;
    copy(from, &there).await;
    copy(&there, &back).await;
    let mut expected = seen(from).await;
    let mut got = seen(&back).await;
    got.0.retain(|view| view.job.kind != name("noise"));
    got.1.retain(|logs| !logs.is_empty());
    expected.1.retain(|logs| !logs.is_empty());
    got.2.retain(|queue| queue.queue != name("noise"));
    assert_eq!(got, expected);
    assert_eq!(back.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn a_repeated_copy_brings_only_what_is_missing<B: Bed>(bed: B) {
    let from = bed.store();
    populate_and_stop(from).await;
    let to = bed.open("target").await;
    let source = from.export_source().await.expect("a source");
    let items = export_all(from).await;
    let (some, _) = items.split_at(items.len() / 2);
    import_all(&to, &source, some).await;
    let counts = import_all(&to, &source, &items).await;
    assert_eq!(counts[&Imported::There], some.len());
    assert_eq!(counts[&Imported::Copied], items.len() - some.len());
    let once = seen(&to).await;
    let counts = import_all(&to, &source, &items).await;
    assert_eq!(counts, HashMap::from([(Imported::There, items.len())]));
    assert_eq!(seen(&to).await, once, "totals are added once");
    to.resume(&name("b")).await.expect("resumed");
    import_all(&to, &source, &items).await;
    let counts = to.counts().await.expect("counts");
    let paused = counts.queues.iter().filter(|queue| queue.paused).count();
    assert_eq!(paused, 0, "an operator's later word stays");
    assert_eq!(to.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn what_a_complete_copy_brought_does_not_come_back<B: Bed>(bed: B) {
    let from = bed.store();
    let due = Due::In(3_600_000);
    let ids = enqueue_all(from, &vec![NewJob { due, ..job("a") }; 3]).await;
    let to = bed.open("target").await;
    copy(from, &to).await;
    let gone = JobRef { queue: name("a"), id: ids[1].clone() };
    to.delete(std::slice::from_ref(&gone)).await.expect("deleted");
    enqueue_one(from, &NewJob { due, ..job_with_id("a", "new") }).await;
    let counts = copy(from, &to).await;
    assert_eq!((counts[&Imported::Before], counts[&Imported::Copied]), (1, 1), "{counts:?}");
    assert_eq!(to.find(None, &gone.id).await, Ok(vec![]), "a job that ran is not run again");
    assert_eq!(state(&to, &id("new")).await, State::Scheduled);
    let queues = to.counts().await.expect("counts").queues;
    assert_eq!(queues[0].enqueued_total, 4, "of totals, only what came since is added");
    // Another source is another matter.
    let other = Source { name: "another".to_owned(), last: 100 };
    let items = export_all(from).await;
    let counts = import_all(&to, &other, &items).await;
    assert_eq!(counts[&Imported::Copied], 2, "the job, and its queue's totals: {counts:?}");
    assert_eq!(to.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn a_copy_keeps_the_order_behind_what_is_there<B: Bed>(bed: B) {
    let from = bed.store();
    let to = bed.open("target").await;
    let due = Due::At(4_000_000_000_000);
    let at = |text: &str| NewJob { due, ..job_with_id("a", text) };
    enqueue_all(from, &[at("a1"), at("a2"), at("a3"), at("a4")]).await;
    from.requeue(&[job_ref("a", "a2")]).await.expect("requeued");
    from.reschedule(&job_ref("a", "a2"), due).await.expect("rescheduled");
    enqueue_all(&to, &[at("old1"), at("old2")]).await;
    let source = from.export_source().await.expect("a source");
    let mut items = export_all(from).await;
    items.reverse();
    import_all(&to, &source, &items).await;
    enqueue_all(from, &[at("a5")]).await;
    enqueue_all(&to, &[at("new1")]).await;
    copy(from, &to).await;
    let listed: Vec<String> = all(&to).await.iter().map(|view| view.job.id.to_string()).collect();
    assert_eq!(listed, ["old1", "old2", "a1", "a3", "a4", "a2", "new1", "a5"]);
}

pub(crate) async fn an_id_that_exists_is_left_alone<B: Bed>(bed: B) {
    let from = bed.store();
    let to = bed.open("target").await;
    let due = Due::In(3_600_000);
    let made = enqueue_one(from, &NewJob { due, ..job("a") }).await;
    enqueue_one(from, &NewJob { due, payload: vec![1].into(), ..job_with_id("a", "x") }).await;
    enqueue_one(&to, &NewJob { due, payload: vec![2].into(), ..job_with_id("a", "x") }).await;
    enqueue_one(&to, &NewJob { due, payload: vec![3].into(), id: Some(made.clone()), ..job("a") }).await;
    let counts = copy(from, &to).await;
    assert_eq!(counts[&Imported::There], 2, "{counts:?}");
    assert_eq!(view(&to, &id("x")).await.job.payload, vec![2]);
    assert_eq!(view(&to, &made).await.job.payload, vec![3]);
    // An id that the source made is the job's own from now on: the target makes no other like it.
    let other = bed.open("third").await;
    copy(from, &other).await;
    for _ in 0..3 {
        let new = enqueue_one(&other, &NewJob { due, ..job("a") }).await;
        assert_ne!(new, made);
    }
    assert_eq!(other.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn what_a_lost_runner_had_is_taken_back<B: Bed>(bed: B) {
    let from = bed.store();
    let held = NewJob { due: Due::In(5_000), ..job_with_id("held", "held") };
    let only = NewJob { max_attempts: Some(1), ..job_with_id("a", "only") };
    enqueue_all(from, &[job_with_id("a", "ran"), job_with_id("a", "stopped"), only, held]).await;
    enqueue_one(from, &job_with_id("pill", "pill")).await;
    let mut hand = Hand::new(from, "lost");
    hand.beat().await;
    for _ in 0..2 {
        hand.claim_one("pill").await;
        from.reclaim(&leases(from).await, KEEP).await.expect("reclaimed");
    }
    hand.claim_one("pill").await;
    assert_eq!(hand.claim(&["a"], 10).await.len(), 3);
    assert_eq!(hand.hold(&["held"], 1).await.len(), 1);
    from.cancel(&[job_ref("a", "stopped")], KEEP).await.expect("asked for");
    let before = bed.contents().await;
    let items = export_all(from).await;
    assert!(bed.contents().await == before, "the source is as it was");
    let taken_back = |item: &&Exported| matches!(item, Exported::Job(job) if job.taken_back);
    assert_eq!(items.iter().filter(taken_back).count(), 5);
    let to = bed.open("target").await;
    copy(from, &to).await;
    assert_eq!(leases(&to).await, []);
    for (text, state, attempt, crashes) in [
        ("ran", State::Ready, 1, 1),
        ("only", State::Dead, 1, 1),
        ("pill", State::Dead, 3, 3),
        ("held", State::Scheduled, 0, 0),
        ("stopped", State::Cancelled, 1, 1),
    ] {
        let view = view(&to, &id(text)).await;
        assert_eq!((view.state, view.attempt, view.crashes), (state, attempt, crashes), "{text}");
        let reclaimed = view.history.iter().filter(|event| event.event == "reclaimed");
        let runners: Vec<_> = reclaimed.filter_map(|event| event.runner.as_deref()).collect();
        assert_eq!(runners, vec!["host:lost"; crashes as usize], "{text}");
    }
    let lost = view(&to, &id("only")).await.error.map(|error| error.reason);
    assert_eq!(lost, Some(Reason::Lost));
    // A reclaim would have done the same.
    from.reclaim(&leases(from).await, KEEP).await.expect("reclaimed");
    for text in ["ran", "only", "pill", "held", "stopped"] {
        let (copied, reclaimed) = (view(&to, &id(text)).await, view(from, &id(text)).await);
        assert_eq!(
            copied.error.map(|e| (e.reason, e.message)),
            reclaimed.error.map(|e| (e.reason, e.message))
        );
        assert_eq!((copied.state, copied.due_ms), (reclaimed.state, reclaimed.due_ms), "{text}");
    }
    assert_eq!(to.doctor(false).await, Ok(vec![]));
}

/// Copies a populated store into one of another kind, and back into a third, and compares.
pub(crate) async fn across(from: &dyn Store, to: &dyn Store, back: &dyn Store) {
    populate_and_stop(from).await;
    from.reclaim(&leases(from).await, KEEP).await.expect("reclaimed");
    enqueue_one(to, &job("noise")).await;
    copy(from, to).await;
    copy(to, back).await;
    let (expected, got) = (seen(from).await, seen(back).await);
    let quiet = |views: Vec<JobView>| -> Vec<JobView> {
        views.into_iter().filter(|view| view.job.kind != name("noise")).collect()
    };
    assert_eq!(quiet(all(to).await), expected.0);
    assert_eq!(quiet(got.0), expected.0);
    for store in [to, back] {
        assert_eq!(store.doctor(false).await, Ok(vec![]));
    }
}

pub(crate) async fn an_import_against_the_rules_is_refused<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job("a")).await;
    let source = Source { name: "s".to_owned(), last: 5 };
    let remembered = RememberedId {
        queue: name("a"),
        id: id("x"),
        state: State::Completed,
        due_ms: 1,
        forget_ms: 4_000_000_000_000,
    };
    let many = vec![Exported::Id(remembered.clone()); hourhand::queue::BATCH_MAX + 1];
    let before = bed.contents().await;
    assert!(matches!(store.import(&source, &many).await, Err(StoreError::Invalid(_))));
    let large = NewJob { payload: vec![b'x'; 700_000].into(), ..job("large") };
    let other = bed.open("other").await;
    enqueue_one(&other, &large).await;
    enqueue_one(&other, &large).await;
    let items = export_all(&other).await;
    assert!(matches!(store.import(&source, &items).await, Err(StoreError::Invalid(_))));
    let _ = before;
    assert!(matches!(store.export(Some("nonsense".to_owned())).await, Err(StoreError::Invalid(_))));
    assert_eq!(store.import(&source, &[]).await, Ok(vec![]));
    let twice = [Exported::Id(remembered.clone()), Exported::Id(remembered)];
    assert_eq!(store.import(&source, &twice).await, Ok(vec![Imported::Copied, Imported::There]));
}
