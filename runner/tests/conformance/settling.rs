//! Settling: tokens, attempts, what each outcome leaves behind.

use hourhand::job::{Due, NewJob, State};
use hourhand::outcome::{Outcome, Reason};
use hourhand::queue::{Lane, Settled, Settlement, Store, StoreError};

use crate::bed::*;

pub(crate) async fn a_stale_token_changes_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s1");
    let mut claimed = hand.claim_one("a").await;
    let before = view(store, &id("x")).await;
    let other = Hand::new(store, "s2");
    let lease = claimed.lease.clone();
    for forged_lease in
        [forged(&lease), hourhand::queue::Lease { session: other.session.clone(), ..lease.clone() }]
    {
        claimed.lease = forged_lease;
        for outcome in
            [completed(b"x"), retry(0), dead(), Outcome::Snoozed { delay_ms: 0 }, Outcome::Cancelled]
        {
            assert_eq!(hand.settle(&claimed, outcome).await, Settled::Stale);
        }
    }
    assert_eq!(view(store, &id("x")).await, before);
    assert_eq!(store.counts().await.expect("counts").stale_total, 10);
    claimed.lease = lease;
    hand.complete(&claimed).await;
}

pub(crate) async fn a_token_from_before_a_retry_is_stale<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s");
    let first = hand.claim_one("a").await;
    hand.settle(&first, retry(0)).await;
    let second = hand.claim_one("a").await;
    hand.settle(&second, retry(0)).await;
    let third = hand.claim_one("a").await;
    assert_eq!(hand.settle(&first, completed(b"")).await, Settled::Stale);
    assert_eq!(state(store, &id("x")).await, State::Running);
    assert_eq!(third.attempt, 3);
    hand.complete(&third).await;
}

pub(crate) async fn a_settle_whose_reply_was_lost_is_done_again<B: Bed>(bed: B) {
    let store = bed.store();
    let outcomes = [
        completed(b"r"),
        retry(60_000),
        dead(),
        Outcome::Snoozed { delay_ms: 60_000 },
        Outcome::Released { message: Some("stopping".to_owned()) },
        Outcome::Cancelled,
    ];
    let mut hand = Hand::new(store, "s");
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let id = enqueue_one(store, &job(&format!("k{i}"))).await;
        let claimed = hand.claim_one(&format!("k{i}")).await;
        assert_eq!(hand.settle(&claimed, outcome.clone()).await, Settled::Done);
        let once = view(store, &id).await;
        assert_eq!(hand.settle(&claimed, outcome.clone()).await, Settled::Done, "{outcome:?}");
        assert_eq!(view(store, &id).await, once, "the second changes nothing: {outcome:?}");
    }
    let counts = store.counts().await.expect("counts");
    assert_eq!(counts.stale_total, 0);
    let completed: u64 = counts.queues.iter().map(|q| q.completed_total).sum();
    let failed: u64 = counts.queues.iter().map(|q| q.failed_total).sum();
    assert_eq!((completed, failed), (1, 2), "nothing is counted twice");
}

pub(crate) async fn a_held_job_given_back_twice_is_done_twice<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { due: Due::In(5_000), ..job("a") }).await;
    let before = view(store, &id).await;
    let mut hand = Hand::new(store, "s");
    let held = hand.hold(&["a"], 1).await.remove(0);
    let back = Settlement { run: None, ..settlement(&held, Outcome::Released { message: None }) };
    assert_eq!(hand.settle_all(std::slice::from_ref(&back)).await, [Settled::Done]);
    assert_eq!(hand.settle_all(std::slice::from_ref(&back)).await, [Settled::Done]);
    let after = view(store, &id).await;
    assert_eq!((after.state, after.attempt, after.due_ms), (State::Scheduled, 0, before.due_ms));
    assert_eq!(after.history, before.history, "a held job that is given back leaves no event");
}

pub(crate) async fn a_batch_of_settlements_is_answered_one_by_one<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 4]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 4).await;
    let mut batch: Vec<Settlement> = [completed(b"1"), retry(60_000), dead(), completed(b"4")]
        .into_iter()
        .zip(&claimed)
        .map(|(o, c)| settlement(c, o))
        .collect();
    batch[1].lease = forged(&batch[1].lease);
    batch.push(batch[3].clone());
    use Settled::{Done, Stale};
    assert_eq!(hand.settle_all(&batch).await, [Done, Stale, Done, Done, Done]);
    let mut states = Vec::new();
    for id in &ids {
        states.push(state(store, id).await);
    }
    assert_eq!(states, [State::Completed, State::Running, State::Dead, State::Completed]);
    assert_eq!(store.settle(&[]).await, Ok(vec![]));
}

pub(crate) async fn a_completion_that_is_in_a_call_twice_counts_once<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("a"); 2]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 2).await;
    let twice = settlement(&claimed[0], completed(b"1"));
    let batch = [twice.clone(), settlement(&claimed[1], completed(b"2")), twice];
    assert_eq!(hand.settle_all(&batch).await, [Settled::Done; 3]);
    let counts = store.counts().await.expect("counts").queues.remove(0);
    assert_eq!((counts.completed_total, counts.running), (2, 0));
    assert_eq!(tally(store, "a").await.get(&State::Completed), Some(&2));
}

pub(crate) async fn a_settlement_of_another_lane_is_refused<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job("a"), job("a")]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 2).await;
    let wrong = Lane { queue: name("a"), kind: name("b") };
    let batch = [
        settlement(&claimed[0], completed(b"")),
        Settlement { lane: wrong, ..settlement(&claimed[1], retry(0)) },
    ];
    assert!(matches!(store.settle(&batch).await, Err(StoreError::Invalid(_))));
    assert_eq!(tally(store, "a").await.get(&State::Running), Some(&2), "nothing of the batch was done");
}

pub(crate) async fn retries_snoozes_and_releases_keep_their_place<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 6]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 3).await;
    hand.settle(&claimed[2], Outcome::Released { message: None }).await;
    hand.settle(&claimed[0], Outcome::Released { message: Some("stopping".to_owned()) }).await;
    hand.settle(&claimed[1], Outcome::Released { message: None }).await;
    let again: Vec<_> = hand.claim(&["a"], 6).await.into_iter().map(|c| c.job.id).collect();
    assert_eq!(again, ids, "released jobs are where they were");

    let at = store.enqueue(&[job("clock")]).await.expect("taken")[0].due_ms + 200;
    let ids = enqueue_all(store, &vec![NewJob { due: Due::At(at), ..job("b") }; 4]).await;
    let mut got = vec![hand.claim_when_due("b").await];
    got.extend(hand.claim(&["b"], 3).await);
    let settlements: Vec<Settlement> = [3, 1, 0, 2]
        .into_iter()
        .map(|i| settlement(&got[i], if i % 2 == 0 { retry(50) } else { Outcome::Snoozed { delay_ms: 50 } }))
        .collect();
    hand.settle_all(&settlements).await;
    let mut order = vec![hand.claim_when_due("b").await.job.id];
    order.extend(hand.claim(&["b"], 3).await.into_iter().map(|c| c.job.id));
    assert_eq!(
        order, ids,
        "settled in one call they are due in one millisecond, in the order of their enqueue"
    );
}

pub(crate) async fn a_snooze_and_a_release_use_no_attempt<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(3), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    // Snoozed five times, fails twice, then succeeds: the attempts used are the failures' and the last.
    for _ in 0..5 {
        let claimed = hand.claim_when_due("a").await;
        assert_eq!(claimed.attempt, 1);
        hand.settle(&claimed, Outcome::Snoozed { delay_ms: 1 }).await;
    }
    for attempt in 1..=2 {
        let claimed = hand.claim_when_due("a").await;
        assert_eq!(claimed.attempt, attempt);
        hand.settle(&claimed, retry(1)).await;
        let released = hand.claim_when_due("a").await;
        assert_eq!(released.attempt, attempt + 1);
        hand.settle(&released, Outcome::Released { message: Some("no memory".to_owned()) }).await;
        assert_eq!(view(store, &id).await.attempt, attempt);
    }
    let last = hand.claim_when_due("a").await;
    assert_eq!((last.attempt, last.max_attempts), (3, 3));
    hand.settle(&last, completed(b"done")).await;
    let view = view(store, &id).await;
    let told = |word: &str| view.history.iter().filter(|e| e.event == word).count();
    assert_eq!((view.state, view.attempt, view.error.is_none()), (State::Completed, 3, true));
    assert_eq!(
        (told("started"), told("snoozed"), told("retry"), told("released"), told("completed")),
        (10, 5, 2, 2, 1)
    );
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].failed_total, counts.queues[0].completed_total), (2, 1));
}

pub(crate) async fn a_release_keeps_the_due_time<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let due_ms = view(store, &id).await.due_ms;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    hand.settle(&claimed, Outcome::Released { message: None }).await;
    assert_eq!(view(store, &id).await.due_ms, due_ms);
}

pub(crate) async fn a_retry_waits_its_delay<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a"], 1);
    let claimed = hand.send(request).await;
    hand.settle(&claimed.jobs[0], retry(60_000)).await;
    let view = view(store, &id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 1));
    assert!(view.due_ms >= claimed.now_us / 1_000 + 60_000);
    let error = view.error.expect("why the last attempt failed");
    assert_eq!((error.reason, error.message.as_str(), error.attempt), (Reason::Error, "not yet", 1));
    assert_eq!(hand.claim(&["a"], 1).await.len(), 0);
}

pub(crate) async fn the_record_tells_the_last_run<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    let run = settlement(&claimed, completed(b"\x00\x1f:,\n\xff")).run.expect("a run");
    hand.settle(&claimed, completed(b"\x00\x1f:,\n\xff")).await;
    let view = view(store, &id).await;
    assert_eq!(view.result.as_deref(), Some(&b"\x00\x1f:,\n\xff"[..]), "a result is bytes too");
    assert_eq!(view.started_us, Some(run.started_us));
    assert_eq!(view.ended_us, Some(run.started_us + run.duration_us));
    assert_eq!(
        (view.lateness_us, view.runner, view.handler),
        (Some(250), Some(run.runner), Some(run.handler))
    );
    let events: Vec<&str> = view.history.iter().map(|e| e.event.as_str()).collect();
    assert_eq!(events, ["enqueued", "started", "completed"]);
}

pub(crate) async fn messages_of_any_kind_survive<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    let message = "line 1\nline 2\t\u{1f}\u{1e}12:é, \"q\" 😀".to_owned();
    hand.settle(&claimed, Outcome::Dead { reason: Reason::Panic, message: message.clone() }).await;
    let view = view(store, &id).await;
    let error = view.error.expect("an error");
    assert_eq!((error.reason, error.message), (Reason::Panic, message));
}

pub(crate) async fn history_keeps_the_first_ten_and_the_last_forty<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(1_000), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let mut all = vec!["enqueued 0".to_owned()];
    for attempt in 1..=80 {
        let claimed = hand.claim_one("a").await;
        assert_eq!(claimed.attempt, attempt);
        hand.settle(&claimed, retry(0)).await;
        all.extend([format!("started {attempt}"), format!("retry {attempt}")]);
        if attempt % 20 == 0 {
            let told: Vec<String> =
                view(store, &id).await.history.iter().map(|e| format!("{} {}", e.event, e.attempt)).collect();
            let expected =
                if all.len() <= 50 { all.clone() } else { [&all[..10], &all[all.len() - 40..]].concat() };
            assert_eq!(told, expected, "after {attempt} attempts");
        }
    }
}

pub(crate) async fn the_attempts_cap_is_told_to_whoever_asks<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(1), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    assert_eq!((claimed.attempt, claimed.max_attempts), (1, 1));
    hand.settle(&claimed, dead()).await;
    let view = view(store, &id).await;
    assert_eq!((view.state, view.max_attempts), (State::Dead, 1));
}

pub(crate) async fn logs_need_the_lease_and_belong_to_their_attempt<B: Bed>(bed: B) {
    use hourhand::queue::LogWrite;
    let store = bed.store();
    enqueue_one(store, &NewJob { max_attempts: Some(100), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    let write = |lease: &hourhand::queue::Lease, attempt, text: &str| LogWrite {
        lease: lease.clone(),
        attempt,
        text: text.to_owned(),
        progress: None,
    };
    let mut old = None;
    for attempt in 1..=25u32 {
        let claimed = hand.claim_one("a").await;
        let logs =
            [write(&claimed.lease, attempt, "half"), write(&forged(&claimed.lease), attempt, "forged")];
        assert_eq!(store.write_logs(&logs).await, Ok(vec![Settled::Done, Settled::Stale]));
        let whole = [write(&claimed.lease, attempt, &format!("all of {attempt}\n"))];
        assert_eq!(store.write_logs(&whole).await, Ok(vec![Settled::Done]));
        hand.settle(&claimed, retry(0)).await;
        old = Some(claimed.lease);
    }
    let late = write(&old.expect("a lease"), 25, "too late");
    assert_eq!(store.write_logs(&[late]).await, Ok(vec![Settled::Stale]), "after the attempt has ended");
    let counts = store.counts().await.expect("counts");
    assert_eq!(counts.stale_total, 0, "late settlements are counted, and each comes after a late log");
    let logs = store.logs(&job_ref("a", "x")).await.expect("logs");
    let attempts: Vec<u32> = logs.iter().map(|log| log.attempt).collect();
    assert_eq!(attempts, (6..=25).collect::<Vec<u32>>(), "the last 20 attempts");
    assert_eq!(logs[19].text, "all of 25\n");
    assert_eq!(store.delete(&[job_ref("a", "x")]).await.map(|v| v.len()), Ok(1));
    assert_eq!(store.logs(&job_ref("a", "x")).await, Ok(vec![]));
    enqueue_one(store, &job_with_id("a", "x")).await;
    assert_eq!(store.logs(&job_ref("a", "x")).await, Ok(vec![]), "a job of the same id starts clean");
    assert_eq!(store.logs(&job_ref("a", "nothing")).await, Ok(vec![]));
    assert_eq!(bed.audit().await, Vec::<String>::new(), "nothing is left of the deleted one");
}
