//! Effects that commit with the outcome (rule 12): the jobs that a run enqueues.

use std::time::Duration;

use hourhand::effects::{CHILDREN_MAX, Effects};
use hourhand::job::{DELAY_MS_MAX, Due, NewJob, OnConflict, Priority, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimedJob, ListQuery, Settled, Settlement, Store, StoreError, Verdict, Wake};

use crate::bed::*;

/// What a run has enqueued.
pub(crate) fn children(children: &[NewJob]) -> Effects {
    Effects { children: children.to_vec(), state: None }
}

/// A completion with effects.
pub(crate) fn committing(job: &ClaimedJob, effects: Effects) -> Settlement {
    Settlement { effects: Some(Box::new(effects)), ..settlement(job, completed(b"done")) }
}

/// A claimed parent of the kind `parent`.
pub(crate) async fn parent<'a>(store: &'a dyn Store, text: &str) -> (Hand<'a>, ClaimedJob) {
    enqueue_one(store, &job_with_id("parent", text)).await;
    let mut hand = Hand::new(store, text);
    let claimed = hand.claim_one("parent").await;
    (hand, claimed)
}

async fn exists(store: &dyn Store, text: &str) -> bool {
    !store.find(None, &id(text)).await.expect("find answers").is_empty()
}

pub(crate) async fn children_come_with_the_completion<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let full = NewJob {
        queue: name("other"),
        priority: Priority::High,
        due: Due::In(60_000),
        payload: vec![0, 0x1f, 0x1e, 0xff, b'\n'].into(),
        max_attempts: Some(7),
        timeout_ms: Some(1_234),
        meta: vec![("hourhand.depth".to_owned(), "1".to_owned()), ("k".to_owned(), "é\u{1e}\"".to_owned())],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        source: "job:parent/p".to_owned(),
        ..job_with_id("child", "full é/1")
    };
    let low = NewJob { priority: Priority::Low, ..job_with_id("child", "low") };
    let at = NewJob { due: Due::At(4_000_000_000_000), ..job_with_id("child", "at") };
    let past = NewJob { due: Due::At(1), ..job_with_id("child", "past") };
    let before = store.counts().await.expect("counts").now_ms;
    let effects = children(&[full.clone(), low, at, past]);
    assert_eq!(hand.settle_all(&[committing(&claimed, effects)]).await, [Settled::Done]);
    let after = store.counts().await.expect("counts").now_ms;

    let parent = view(store, &id("p")).await;
    assert_eq!((parent.state, parent.attempt), (State::Completed, 1));
    assert_eq!(parent.result.as_deref(), Some(&b"done"[..]));
    let events: Vec<&str> = parent.history.iter().map(|e| e.event.as_str()).collect();
    assert_eq!(events, ["enqueued", "started", "completed"]);

    let child = view(store, &id("full é/1")).await;
    let made = &child.job;
    assert_eq!((&made.kind, &made.queue, made.priority), (&full.kind, &full.queue, full.priority));
    assert_eq!((&made.payload, &made.meta), (&full.payload, &full.meta));
    assert_eq!((made.max_attempts, made.timeout_ms), (full.max_attempts, full.timeout_ms));
    assert_eq!((&made.traceparent, &made.source), (&full.traceparent, &full.source));
    assert!((before..=after).contains(&made.enqueued_ms), "on the store's clock");
    assert_eq!(child.due_ms, made.enqueued_ms + 60_000, "a delay counts from the completion");
    assert_eq!((child.state, child.attempt, child.history.len()), (State::Scheduled, 0, 1));
    assert_eq!(view(store, &id("at")).await.due_ms, 4_000_000_000_000);
    let past = view(store, &id("past")).await;
    assert_eq!((past.due_ms, past.state), (past.job.enqueued_ms, State::Ready));

    let mut other = Hand::new(store, "other");
    let got: Vec<_> = other.claim(&["child"], 5).await.into_iter().map(|c| c.job.id).collect();
    assert_eq!(got, [id("past"), id("low")], "by priority");
    let counts = store.counts().await.expect("counts");
    let totals: Vec<(&str, u64)> =
        counts.queues.iter().map(|q| (q.queue.as_str(), q.enqueued_total)).collect();
    assert_eq!(totals, [("child", 3), ("other", 1), ("parent", 1)]);
    assert!(store.lanes().await.expect("lanes").contains(&lane("child")), "lanes are known");
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(store.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn children_of_any_other_outcome_are_dropped<B: Bed>(bed: B) {
    let store = bed.store();
    let outcomes = [
        retry(60_000),
        dead(),
        Outcome::Snoozed { delay_ms: 60_000 },
        Outcome::Released { message: Some("stopping".to_owned()) },
        Outcome::Released { message: None },
        Outcome::Cancelled,
    ];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let (hand, claimed) = parent(store, &format!("p{i}")).await;
        // What is dropped need not even be allowed.
        let bad = NewJob { max_attempts: Some(0), ..job_with_id("child", "bad") };
        let effects = children(&[job_with_id("child", "x"), bad]);
        let settlement = Settlement { outcome: outcome.clone(), ..committing(&claimed, effects) };
        assert_eq!(hand.settle_all(&[settlement]).await, [Settled::Done], "{outcome:?}");
        assert!(!exists(store, "x").await, "{outcome:?}");
        if matches!(outcome, Outcome::Released { .. }) {
            store.delete(&[job_ref("parent", &format!("p{i}"))]).await.expect("deleted");
        }
    }
    assert!(!store.lanes().await.expect("lanes").contains(&lane("child")));
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn a_stale_lease_commits_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    let (mut hand, claimed) = parent(store, "p").await;
    let effects = children(&[job_with_id("child", "x")]);
    let mut late = committing(&claimed, effects.clone());
    late.lease = forged(&late.lease);
    let before = view(store, &id("p")).await;
    assert_eq!(hand.settle_all(&[late]).await, [Settled::Stale]);
    assert_eq!(view(store, &id("p")).await, before);
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    assert_eq!(hand.settle_all(&[committing(&claimed, effects.clone())]).await, [Settled::Stale]);
    assert!(!exists(store, "x").await);
    assert_eq!(store.counts().await.expect("counts").stale_total, 2);
    let again = hand.claim_one("parent").await;
    assert_eq!(hand.settle_all(&[committing(&again, effects)]).await, [Settled::Done]);
    assert!(exists(store, "x").await, "of the attempt whose lease holds");
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn a_commit_whose_reply_was_lost_is_done_again<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let effects = children(&[job_with_id("child", "x"), job_with_id("child", "y")]);
    let settlement = committing(&claimed, effects);
    assert_eq!(hand.settle_all(std::slice::from_ref(&settlement)).await, [Settled::Done]);
    let mut runner = Hand::new(store, "r");
    let x = runner.claim_one("child").await;
    runner.complete(&x).await;
    store.delete(&[job_ref("child", "y")]).await.expect("deleted");
    let once = bed.contents().await;
    assert_eq!(hand.settle_all(std::slice::from_ref(&settlement)).await, [Settled::Done]);
    assert_eq!(bed.contents().await, once, "the second writes nothing, whatever has become of the children");
    let twice = [settlement.clone(), settlement];
    assert_eq!(hand.settle_all(&twice).await, [Settled::Done, Settled::Done]);
    assert_eq!(bed.contents().await, once);
}

pub(crate) async fn one_completion_twice_in_a_batch_commits_once<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let settlement = committing(&claimed, children(&[job_with_id("child", "x")]));
    // Nothing of the job is kept that could tell the second of the first.
    let settlement = Settlement {
        retention: hourhand::queue::Retention { age_ms: Some(0), ..KEEP },
        id_memory: hourhand::queue::IdMemory { age_ms: 0, bytes: 0 },
        ..settlement
    };
    assert_eq!(hand.settle_all(&[settlement.clone(), settlement]).await, [Settled::Done; 2]);
    assert!(exists(store, "x").await && !exists(store, "p").await);
    let counts = store.counts().await.expect("counts");
    let totals: Vec<(u64, u64)> =
        counts.queues.iter().map(|q| (q.enqueued_total, q.completed_total)).collect();
    assert_eq!(totals, [(1, 0), (1, 1)]);
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn a_child_whose_id_exists_is_left_as_it_is<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { payload: "old".into(), ..job_with_id("child", "waits") }).await;
    let mut runner = Hand::new(store, "r");
    for (text, retention) in
        [("runs", KEEP), ("done", KEEP), ("gone", hourhand::queue::Retention { age_ms: Some(0), ..KEEP })]
    {
        enqueue_one(store, &NewJob { priority: Priority::High, ..job_with_id("child", text) }).await;
        let claimed = runner.claim_one("child").await;
        assert_eq!(claimed.job.id, id(text));
        if text != "runs" {
            runner.settle_kept(&claimed, completed(b""), retention).await;
        }
    }
    let made = enqueue_one(store, &NewJob { due: Due::In(60_000), ..job("child") }).await;
    let (hand, claimed) = parent(store, "p").await;
    let new = |text: &str| NewJob { payload: "new".into(), ..job_with_id("child", text) };
    let mut all: Vec<NewJob> = ["waits", "runs", "done", "gone", "new"].map(new).to_vec();
    all.push(NewJob { payload: "second".into(), ..new("new") });
    all.push(NewJob { id: Some(made.clone()), ..new("x") });
    // The parent's own, and the same id in another queue.
    all.push(NewJob { queue: name("parent"), ..new("p") });
    all.push(NewJob { queue: name("elsewhere"), ..new("runs") });
    assert_eq!(hand.settle_all(&[committing(&claimed, children(&all))]).await, [Settled::Done]);
    assert_eq!(view(store, &id("waits")).await.job.payload, "old");
    assert_eq!(view(store, &id("done")).await.state, State::Completed);
    assert!(!exists(store, "gone").await, "its id is remembered");
    assert_eq!(view(store, &id("new")).await.job.payload, "new", "the first of one id");
    assert_eq!(view(store, &made).await.state, State::Scheduled);
    assert_eq!(view(store, &id("p")).await.state, State::Completed);
    assert_eq!(store.find(None, &id("runs")).await.expect("found").len(), 2);
    let counts = store.counts().await.expect("counts");
    let enqueued: Vec<u64> = counts.queues.iter().map(|q| q.enqueued_total).collect();
    assert_eq!(enqueued, [6, 1, 1], "what is kept is not counted");
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn a_child_with_an_id_like_a_made_one_never_collides<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let ids: Vec<NewJob> = (1..40).map(|n| job_with_id("child", &format!("{n}-aaaaa"))).collect();
    assert_eq!(hand.settle_all(&[committing(&claimed, children(&ids))]).await, [Settled::Done]);
    for _ in 0..20 {
        let made = enqueue_one(store, &job("child")).await;
        assert_eq!(store.find(None, &made).await.expect("found").len(), 1);
    }
    assert_eq!(store.doctor(false).await, Ok(vec![]), "the store knows that there are such ids");
}

pub(crate) async fn children_are_claimed_in_their_order<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("parent", "p"), job_with_id("parent", "q")]).await;
    let mut hand = Hand::new(store, "s");
    let parents = hand.claim(&["parent"], 2).await;
    enqueue_one(store, &job_with_id("child", "before")).await;
    let made = |parent: &str| -> Vec<NewJob> {
        (0..5).map(|n| job_with_id("child", &format!("{parent}{n}"))).rev().collect()
    };
    let batch =
        [committing(&parents[0], children(&made("p"))), committing(&parents[1], children(&made("q")))];
    assert_eq!(hand.settle_all(&batch).await, [Settled::Done; 2]);
    enqueue_one(store, &job_with_id("child", "after")).await;
    let got: Vec<String> =
        hand.claim(&["child"], 20).await.into_iter().map(|c| c.job.id.to_string()).collect();
    let expected =
        ["before", "p4", "p3", "p2", "p1", "p0", "q4", "q3", "q2", "q1", "q0", "after"].map(str::to_owned);
    assert_eq!(got, expected);
}

pub(crate) async fn a_child_wakes_a_runner_that_waits<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let mut wakes = store.wakes();
    let mut next = async || {
        tokio::time::timeout(Duration::from_secs(10), wakes.recv())
            .await
            .expect("in time")
            .expect("it listens")
    };
    assert_eq!(next().await, Wake::Missed);
    let all = [
        NewJob { due: Due::In(70_000), ..job_with_id("child", "late") },
        NewJob { due: Due::In(50_000), ..job_with_id("child", "early") },
        NewJob { due: Due::In(60_000), ..job_with_id("child", "between") },
    ];
    assert_eq!(hand.settle_all(&[committing(&claimed, children(&all))]).await, [Settled::Done]);
    let due_ms = view(store, &id("early")).await.due_ms;
    assert_eq!(next().await, Wake::Due { lane: lane("child"), due_ms }, "of the earliest, once");
}

pub(crate) async fn a_child_in_a_paused_queue_waits<B: Bed>(bed: B) {
    let store = bed.store();
    store.pause(&name("child")).await.expect("paused");
    let (hand, claimed) = parent(store, "p").await;
    let effects = children(&[job_with_id("child", "x")]);
    assert_eq!(hand.settle_all(&[committing(&claimed, effects)]).await, [Settled::Done]);
    let mut runner = Hand::new(store, "r");
    assert_eq!(runner.claim(&["child"], 1).await.len(), 0);
    store.resume(&name("child")).await.expect("resumed");
    assert_eq!(runner.claim_one("child").await.job.id, id("x"));
}

pub(crate) async fn two_thousand_children_are_one_step<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    let all: Vec<NewJob> = (0..CHILDREN_MAX)
        .map(|n| NewJob {
            payload: vec![b'x'; 150].into(),
            queue: name(["child", "other"][n % 2]),
            ..job_with_id("child", &format!("1.1.{n:04}"))
        })
        .collect();
    assert_eq!(hand.settle_all(&[committing(&claimed, children(&all))]).await, [Settled::Done]);
    let mut runner = Hand::new(store, "r");
    let mut got = Vec::new();
    for _ in 0..CHILDREN_MAX / 500 {
        got.extend(runner.claim(&["child"], 250).await.into_iter().map(|c| c.job.id));
    }
    let expected: Vec<_> =
        all.iter().filter(|c| c.queue == name("child")).filter_map(|c| c.id.clone()).collect();
    assert_eq!(got, expected);
    let counts = store.counts().await.expect("counts");
    let totals: Vec<u64> = counts.queues.iter().map(|q| q.enqueued_total).collect();
    assert_eq!(totals, [1_000, 1_000, 1]);
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn effects_against_the_rules_are_refused_and_nothing_is_settled<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("parent", "p"), job_with_id("parent", "q")]).await;
    let mut hand = Hand::new(store, "s");
    let parents = hand.claim(&["parent"], 2).await;
    let child = job_with_id("child", "x");
    let far = store.counts().await.expect("counts").now_ms + DELAY_MS_MAX + 3_600_000;
    for bad in [
        vec![child.clone(); CHILDREN_MAX + 1],
        vec![NewJob { id: None, ..child.clone() }],
        vec![NewJob { on_conflict: OnConflict::Replace, ..child.clone() }],
        vec![child.clone(), NewJob { max_attempts: Some(0), ..child.clone() }],
        vec![child.clone(), NewJob { due: Due::At(far), ..job_with_id("child", "y") }],
        vec![NewJob { payload: vec![0; 1 << 20].into(), ..child.clone() }; 5],
    ] {
        let batch = [
            committing(&parents[0], children(&[job_with_id("child", "z")])),
            committing(&parents[1], children(&bad)),
        ];
        let refused = store.settle(&batch).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
        assert!(!exists(store, "x").await && !exists(store, "y").await && !exists(store, "z").await);
    }
    assert_eq!(tally(store, "parent").await.get(&State::Running), Some(&2));
    let batch = parents.map_settlements(|parent| committing(parent, children(std::slice::from_ref(&child))));
    assert_eq!(hand.settle_all(&batch).await, [Settled::Done; 2]);
}

/// Settlements of several jobs.
trait MapSettlements {
    fn map_settlements(&self, of: impl Fn(&ClaimedJob) -> Settlement) -> Vec<Settlement>;
}

impl MapSettlements for Vec<ClaimedJob> {
    fn map_settlements(&self, of: impl Fn(&ClaimedJob) -> Settlement) -> Vec<Settlement> {
        self.iter().map(of).collect()
    }
}

pub(crate) async fn a_batch_mixes_settlements_with_and_without_effects<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("parent"); 8]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["parent"], 8).await;
    let with = |i: usize, text: &str| committing(&claimed[i], children(&[job_with_id("child", text)]));
    let without = |i: usize, outcome| settlement(&claimed[i], outcome);
    let mut stale = with(6, "never");
    stale.lease = forged(&stale.lease);
    let batch = [
        without(0, completed(b"0")),
        with(1, "c1"),
        without(2, retry(60_000)),
        without(3, dead()),
        with(4, "c4"),
        with(5, "c5"),
        stale,
        without(7, completed(b"7")),
        with(1, "c1"),
        without(0, completed(b"0")),
    ];
    use Settled::{Done, Stale};
    assert_eq!(hand.settle_all(&batch).await, [Done, Done, Done, Done, Done, Done, Stale, Done, Done, Done]);
    use State::{Completed, Dead, Running, Scheduled};
    let expected = [Completed, Completed, Scheduled, Dead, Completed, Completed, Running, Completed];
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(state(store, id).await, expected);
    }
    let query = ListQuery { queue: Some(name("child")), limit: 10, ..ListQuery::default() };
    let made: Vec<String> = list_all(store, &query).await.into_iter().map(|v| v.job.id.to_string()).collect();
    assert_eq!(made, ["c1", "c4", "c5"], "in the order of the batch");
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn a_commit_of_another_lane_is_refused<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("parent", "p"), job_with_id("parent", "q")]).await;
    let mut hand = Hand::new(store, "s");
    let parents = hand.claim(&["parent"], 2).await;
    let mut batch =
        parents.map_settlements(|parent| committing(parent, children(&[job_with_id("child", "x")])));
    batch[1].lane = hourhand::queue::Lane { queue: name("parent"), kind: name("b") };
    assert!(matches!(store.settle(&batch).await, Err(StoreError::Invalid(_))));
    assert_eq!(tally(store, "parent").await.get(&State::Running), Some(&2), "nothing of the batch was done");
    assert!(!exists(store, "x").await);
}

pub(crate) async fn a_job_that_completes_before_its_cancel_commits<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    assert_eq!(store.cancel(&[job_ref("parent", "p")], KEEP).await, Ok(vec![Verdict::Asked]));
    let effects = children(&[job_with_id("child", "x")]);
    assert_eq!(hand.settle_all(&[committing(&claimed, effects)]).await, [Settled::Done]);
    assert_eq!(state(store, &id("p")).await, State::Completed);
    assert!(exists(store, "x").await);
    assert_eq!(hand.beat().await.recalls, vec![]);
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

/// What a runner does with a batch that is refused as invalid: each alone, and the one at fault without its effects.
pub(crate) async fn one_run_that_is_at_fault_keeps_no_other_from_completing<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("parent", "p"), job_with_id("parent", "q")]).await;
    let mut hand = Hand::new(store, "s");
    let parents = hand.claim(&["parent"], 2).await;
    let far = store.counts().await.expect("counts").now_ms + DELAY_MS_MAX + 3_600_000;
    let bad = NewJob { due: Due::At(far), ..job_with_id("child", "bad") };
    let batch = [
        committing(&parents[0], children(&[bad])),
        committing(&parents[1], children(&[job_with_id("child", "good")])),
    ];
    assert!(matches!(store.settle(&batch).await, Err(StoreError::Invalid(_))));
    assert!(matches!(store.settle(&batch[..1]).await, Err(StoreError::Invalid(_))));
    assert_eq!(hand.settle_all(&batch[1..]).await, [Settled::Done]);
    assert_eq!(hand.settle(&parents[0], dead()).await, Settled::Done);
    assert!(exists(store, "good").await && !exists(store, "bad").await);
    assert_eq!((state(store, &id("p")).await, state(store, &id("q")).await), (State::Dead, State::Completed));
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn foreign_data_stops_a_commit_before_it_writes<B: Bed>(bed: B) {
    let store = bed.store();
    let (_hand, claimed) = parent(store, "p").await;
    let settlement = committing(&claimed, children(&[job_with_id("child", "x")]));
    let before = bed.foreign_data().await;
    match store.settle(&[settlement]).await {
        Err(StoreError::Refused(text)) => assert!(!text.is_empty()),
        other => panic!("expected to be refused, got {other:?}"),
    }
    assert_eq!(bed.contents().await, before, "nothing was written");
}
