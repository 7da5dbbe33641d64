//! The operators' verbs.

use hourhand::job::{DELAY_MS_MAX, Due, NewJob, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{Disposition, JobRef, Settlement, Store, StoreError, Verdict};

use crate::bed::*;

async fn cancel(store: &dyn Store, id: &str) -> Verdict {
    store.cancel(&[job_ref("a", id)], KEEP).await.expect("cancel answers").remove(0)
}

async fn requeue(store: &dyn Store, id: &str) -> Verdict {
    store.requeue(&[job_ref("a", id)]).await.expect("requeue answers").remove(0)
}

/// Jobs with the ids of the states that they are in.
async fn one_in_each_state(store: &dyn Store) -> Hand<'_> {
    let mut hand = Hand::new(store, "s");
    for (text, outcome) in [
        ("completed", Some(completed(b"r"))),
        ("dead", Some(dead())),
        ("cancelled", Some(Outcome::Cancelled)),
        ("running", None),
    ] {
        enqueue_one(store, &job_with_id("a", text)).await;
        let claimed = hand.claim_one("a").await;
        if let Some(outcome) = outcome {
            hand.settle(&claimed, outcome).await;
        }
    }
    enqueue_one(store, &job_with_id("a", "ready")).await;
    enqueue_one(store, &NewJob { due: Due::In(60_000), ..job_with_id("a", "scheduled") }).await;
    hand
}

pub(crate) async fn cancel_ends_what_has_not_ended<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = one_in_each_state(store).await;
    for (text, verdict, after) in [
        ("scheduled", Verdict::Done, State::Cancelled),
        ("ready", Verdict::Done, State::Cancelled),
        ("running", Verdict::Asked, State::Running),
        ("completed", Verdict::Conflict(State::Completed), State::Completed),
        ("dead", Verdict::Conflict(State::Dead), State::Dead),
        ("cancelled", Verdict::Done, State::Cancelled),
    ] {
        assert_eq!(cancel(store, text).await, verdict, "{text}");
        assert_eq!(cancel(store, text).await, verdict, "{text}, twice");
        assert_eq!(state(store, &id(text)).await, after, "{text}");
    }
    assert_eq!(cancel(store, "nothing").await, Verdict::NotFound);
    assert_eq!(hand.claim(&["a"], 10).await.len(), 0);
    let view = view(store, &id("ready")).await;
    assert_eq!(view.history.last().map(|e| e.event.as_str()), Some("cancelled"));
    assert!(view.ended_us.is_some());
}

pub(crate) async fn requeue_brings_back_what_has_ended<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = one_in_each_state(store).await;
    for (text, verdict) in [
        ("running", Verdict::Conflict(State::Running)),
        ("ready", Verdict::Conflict(State::Ready)),
        ("dead", Verdict::Done),
        ("scheduled", Verdict::Done),
        ("completed", Verdict::Done),
        ("cancelled", Verdict::Done),
        ("nothing", Verdict::NotFound),
    ] {
        assert_eq!(requeue(store, text).await, verdict, "{text}");
    }
    let view = view(store, &id("dead")).await;
    assert_eq!((view.state, view.attempt, view.crashes), (State::Ready, 0, 0));
    assert_eq!((view.error, view.result, view.started_us, view.ended_us), (None, None, None, None));
    let events: Vec<&str> = view.history.iter().map(|e| e.event.as_str()).collect();
    assert_eq!(events, ["enqueued", "started", "dead", "requeued"], "its history stays");
    let order: Vec<String> = hand.claim(&["a"], 10).await.iter().map(|c| c.job.id.to_string()).collect();
    assert_eq!(order, ["ready", "dead", "scheduled", "completed", "cancelled"], "a new place in the order");
    let counts = store.counts().await.expect("counts");
    let queue = &counts.queues[0];
    assert_eq!((queue.dead, queue.completed, queue.cancelled, queue.running), (0, 0, 0, 6));
}

pub(crate) async fn a_requeued_poison_pill_starts_clean<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { max_attempts: Some(4), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    for _ in 0..3 {
        hand.claim_one("a").await;
        store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    }
    assert_eq!(state(store, &id("x")).await, State::Dead);
    assert_eq!(requeue(store, "x").await, Verdict::Done);
    assert_eq!(view(store, &id("x")).await.crashes, 0);
    let mut request = hand.request(&["a"], 1);
    request.suspect = false;
    let claimed = hand.send(request).await.jobs.remove(0);
    assert_eq!((claimed.attempt, claimed.crashes, claimed.max_attempts), (1, 0, 4));
    hand.settle(&claimed, retry(0)).await;
    assert_eq!(hand.claim_one("a").await.attempt, 2);
}

pub(crate) async fn requeued_jobs_are_due_in_the_order_of_the_request<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    enqueue_all(store, &["1", "2", "3"].map(|text| job_with_id("a", text))).await;
    for claimed in hand.claim(&["a"], 3).await {
        hand.settle(&claimed, dead()).await;
    }
    let refs = ["3", "1", "2"].map(|text| job_ref("a", text));
    assert_eq!(store.requeue(&refs).await, Ok(vec![Verdict::Done; 3]));
    let order: Vec<String> = hand.claim(&["a"], 3).await.iter().map(|c| c.job.id.to_string()).collect();
    assert_eq!(order, ["3", "1", "2"], "due in one millisecond, in a new order");
}

pub(crate) async fn requeue_of_many_leaves_none_in_limbo<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let jobs: Vec<NewJob> = (0..1_500).map(|i| job_with_id("a", &format!("{i}"))).collect();
    enqueue_all(store, &jobs).await;
    for _ in 0..6 {
        let claimed = hand.claim(&["a"], 250).await;
        let all: Vec<Settlement> = claimed.iter().map(|c| settlement(c, dead())).collect();
        hand.settle_all(&all).await;
    }
    store.pause(&name("a")).await.expect("paused");
    let refs: Vec<JobRef> = (0..1_000).map(|i| job_ref("a", &format!("{i}"))).collect();
    assert_eq!(store.requeue(&refs).await, Ok(vec![Verdict::Done; 1_000]));
    let again = store.requeue(&refs).await.expect("answered");
    assert_eq!(again, vec![Verdict::Conflict(State::Ready); 1_000], "once");
    assert_eq!(hand.claim(&["a"], 250).await.len(), 0, "paused ones wait");
    let tally = tally(store, "a").await;
    assert_eq!((tally[&State::Ready], tally[&State::Dead]), (1_000, 500));
    store.resume(&name("a")).await.expect("resumed");
    assert_eq!(hand.claim(&["a"], 250).await.len(), 250);
}

pub(crate) async fn reschedule_moves_what_waits<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = one_in_each_state(store).await;
    let at = |text: &str, due| (job_ref("a", text), due);
    for ((job, due), verdict) in [
        (at("ready", Due::In(60_000)), Verdict::Done),
        (at("scheduled", Due::At(1)), Verdict::Done),
        (at("running", Due::NOW), Verdict::Conflict(State::Running)),
        (at("completed", Due::NOW), Verdict::Conflict(State::Completed)),
        (at("dead", Due::NOW), Verdict::Conflict(State::Dead)),
        (at("nothing", Due::NOW), Verdict::NotFound),
    ] {
        assert_eq!(store.reschedule(&job, due).await, Ok(verdict), "{}", job.id);
    }
    for due in [Due::In(DELAY_MS_MAX + 1), Due::At(u64::MAX)] {
        let refused = store.reschedule(&job_ref("a", "ready"), due).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{due:?}: {refused:?}");
    }
    assert_eq!(state(store, &id("ready")).await, State::Scheduled);
    let claimed: Vec<String> = hand.claim(&["a"], 10).await.iter().map(|c| c.job.id.to_string()).collect();
    assert_eq!(claimed, ["scheduled"]);
    let events = view(store, &id("ready")).await.history;
    assert_eq!(events.last().map(|e| e.event.as_str()), Some("rescheduled"));
}

pub(crate) async fn a_rescheduled_retry_keeps_its_attempts<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    hand.settle(&claimed, retry(60_000)).await;
    assert_eq!(store.reschedule(&job_ref("a", "x"), Due::NOW).await, Ok(Verdict::Done));
    assert_eq!(hand.claim_one("a").await.attempt, 2);
}

pub(crate) async fn delete_spares_what_runs<B: Bed>(bed: B) {
    let store = bed.store();
    one_in_each_state(store).await;
    for (text, verdict) in [
        ("running", Verdict::Conflict(State::Running)),
        ("ready", Verdict::Done),
        ("scheduled", Verdict::Done),
        ("completed", Verdict::Done),
        ("dead", Verdict::Done),
        ("cancelled", Verdict::Done),
        ("nothing", Verdict::NotFound),
    ] {
        assert_eq!(store.delete(&[job_ref("a", text)]).await, Ok(vec![verdict]), "{text}");
        let found = store.find(None, &id(text)).await.expect("find").len();
        assert_eq!(found, usize::from(text == "running"), "{text}");
    }
    let counts = store.counts().await.expect("counts");
    let queue = &counts.queues[0];
    assert_eq!((queue.ready, queue.scheduled, queue.completed, queue.dead, queue.cancelled), (0, 0, 0, 0, 0));
}

pub(crate) async fn a_paused_queue_is_left_alone<B: Bed>(bed: B) {
    let store = bed.store();
    store.pause(&name("a")).await.expect("also before its first job");
    let paused = store.counts().await.expect("counts");
    assert_eq!((paused.queues[0].queue.as_str(), paused.queues[0].paused), ("a", true));
    enqueue_all(store, &[job("a"), job("b"), NewJob { queue: name("a"), ..job("b") }]).await;
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a", "b"], 10);
    let claimed = hand.send(request).await;
    assert_eq!(claimed.jobs.iter().map(|c| c.job.queue.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(claimed.next_due_ms, None, "what is paused wakes nobody");
    assert_eq!(hand.claim(&["a"], 10).await.len(), 0);
    store.resume(&name("a")).await.expect("resumed");
    assert_eq!(hand.claim(&["a"], 10).await.len(), 1);
    assert!(!store.counts().await.expect("counts").queues[0].paused);
}

pub(crate) async fn pause_recalls_what_is_held<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(
        store,
        &[NewJob { due: Due::In(5_000), ..job("a") }, job("a"), NewJob { due: Due::In(5_000), ..job("b") }],
    )
    .await;
    let mut hand = Hand::new(store, "s");
    let running = hand.claim_one("a").await;
    let held = hand.hold(&["a", "b"], 5).await;
    assert_eq!(held.len(), 2);
    store.pause(&name("a")).await.expect("paused");
    let recalls = hand.beat().await.recalls;
    assert_eq!(recalls.len(), 1, "not what runs, and not another queue's");
    assert_ne!(recalls[0].record, running.lease.record);
    let of_a = held.iter().find(|c| c.job.queue.as_str() == "a").expect("one of them");
    assert_eq!(recalls[0].record, of_a.lease.record);
    hand.complete(&running).await;
}

pub(crate) async fn purge_deletes_what_waits_and_nothing_else<B: Bed>(bed: B) {
    let store = bed.store();
    let hand = one_in_each_state(store).await;
    enqueue_all(store, &vec![job("a"); 1_300]).await;
    enqueue_one(store, &NewJob { queue: name("a"), ..job_with_id("other_kind", "kind") }).await;
    enqueue_one(store, &job_with_id("b", "elsewhere")).await;
    let mut purged = 0;
    for _ in 0..100 {
        let (some, more) = store.purge(&name("a")).await.expect("purge answers");
        purged += some;
        if !more {
            break;
        }
    }
    assert_eq!(purged, 1_303);
    for (text, found) in [
        ("ready", 0),
        ("scheduled", 0),
        ("kind", 0),
        ("running", 1),
        ("completed", 1),
        ("dead", 1),
        ("elsewhere", 1),
    ] {
        assert_eq!(store.find(None, &id(text)).await.expect("find").len(), found, "{text}");
    }
    let queue = &store.counts().await.expect("counts").queues[0];
    assert_eq!((queue.ready, queue.scheduled, queue.running, queue.dead), (0, 0, 1, 1));
    assert_eq!(store.purge(&name("nowhere")).await, Ok((0, false)));
    let again = store.enqueue(&[job_with_id("a", "ready")]).await.expect("taken").remove(0);
    assert_eq!(again.disposition, Disposition::Created, "the id of a job that never finished is free");
    drop(hand);
}

pub(crate) async fn purge_recalls_what_is_held<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { due: Due::In(5_000), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let held = hand.hold(&["a"], 1).await.remove(0);
    assert_eq!(store.purge(&name("a")).await, Ok((0, true)), "there is more: it is in a runner's hands");
    assert_eq!(hand.beat().await.recalls.len(), 1);
    let back = Settlement { run: None, ..settlement(&held, Outcome::Released { message: None }) };
    hand.settle_all(&[back]).await;
    assert_eq!(store.purge(&name("a")).await, Ok((1, true)));
    assert_eq!(store.purge(&name("a")).await, Ok((0, false)));
}

pub(crate) async fn held_jobs_answer_to_operators<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { due: Due::In(5_000), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    hand.hold(&["a"], 1).await;
    let job = job_ref("a", "x");
    assert_eq!(store.reschedule(&job, Due::In(60_000)).await, Ok(Verdict::Asked));
    assert_eq!(store.requeue(std::slice::from_ref(&job)).await, Ok(vec![Verdict::Asked]));
    assert_eq!(store.delete(std::slice::from_ref(&job)).await, Ok(vec![Verdict::Asked]));
    assert_eq!(store.cancel(std::slice::from_ref(&job), KEEP).await, Ok(vec![Verdict::Asked]));
    assert_eq!(store.reschedule(&job, Due::NOW).await, Ok(Verdict::Asked));
    let recalls = hand.beat().await.recalls;
    assert_eq!(recalls.len(), 1);
    assert_eq!(
        recalls[0].action,
        hourhand::queue::RecallAction::Cancel,
        "the wish to cancel is the strongest"
    );
}
