//! Sessions: heartbeats, leases, and what happens to the jobs of a runner that went away.

use hourhand::job::{Due, NewJob, Priority, State};
use hourhand::outcome::{Outcome, Reason};
use hourhand::queue::{
    CLAIM_LANES_MAX, Lane, LeaseSeen, RecallAction, Reclaimed, Retention, SessionId, Settled, Settlement,
    Store, StoreError, Verdict,
};

use crate::bed::*;

async fn reclaim_all(store: &dyn Store) -> Reclaimed {
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaim answers")
}

pub(crate) async fn a_heartbeat_shows_every_session<B: Bed>(bed: B) {
    let store = bed.store();
    let (one, two) = (Hand::new(store, "s1"), Hand::new(store, "s2"));
    let first = one.beat().await;
    assert_eq!(first.sessions.len(), 1);
    two.beat().await;
    let second = one.beat().await;
    assert_eq!(second.sessions.len(), 2);
    let beat_of = |pulse: &hourhand::queue::Pulse, name: &str| {
        pulse.sessions.iter().find(|s| &*s.session.0 == name).map(|s| s.beat)
    };
    assert_ne!(beat_of(&first, "s1"), beat_of(&second, "s1"), "each heartbeat changes the beat");
    assert!(second.now_us >= first.now_us && first.now_us > 1_600_000_000_000_000);
    let third = two.beat().await;
    assert_eq!(beat_of(&second, "s1"), beat_of(&third, "s1"), "and nothing else does");
    let seen = store.sessions().await.expect("sessions");
    assert_eq!(
        seen.iter().find(|s| s.session == one.session).and_then(|s| s.info.clone()),
        Some(info(&one.session))
    );
    store.end_session(&one.session).await.expect("ended");
    assert_eq!(store.sessions().await.expect("sessions").len(), 1);
}

pub(crate) async fn a_heartbeat_tells_when_its_lanes_have_something_to_do<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let told = |pulse: hourhand::queue::Pulse| (pulse.next_due_ms, pulse.leased, pulse.lanes);
    assert_eq!(told(hand.beat().await), (None, false, 0), "there is nothing");
    let due = |ms| NewJob { due: Due::In(ms), ..job("a") };
    let due_of = |job: NewJob| async move { store.enqueue(&[job]).await.expect("taken")[0].due_ms };
    due_of(job("elsewhere")).await;
    assert_eq!(told(hand.beat().await), (None, false, 1), "not in its lanes");
    let later = due_of(due(60_000)).await;
    assert_eq!(told(hand.beat().await), (Some(later), false, 2));
    let sooner = due_of(NewJob { priority: Priority::Low, ..due(30_000) }).await;
    assert_eq!(told(hand.beat().await), (Some(sooner), false, 2), "of any priority");
    let ready = due_of(job("a")).await;
    assert_eq!(told(hand.beat().await), (Some(ready), false, 2));
    store.pause(&name("a")).await.expect("paused");
    assert_eq!(told(hand.beat().await), (None, false, 2), "nobody may claim it");
    store.resume(&name("a")).await.expect("resumed");
    for _ in 0..2 {
        assert_eq!(hand.claim(&["a"], 1).await.len(), 1);
        assert_eq!(told(hand.beat().await), (Some(sooner), true, 2), "somebody has it");
        reclaim_all(store).await;
    }
    assert_eq!(told(hand.beat().await), (Some(ready), false, 2), "suspects are claimed too");

    let beat = |lanes: Vec<Lane>| async move {
        let session = SessionId("s".into());
        store.heartbeat(&session, &info(&session), 0, &lanes).await
    };
    let many: Vec<Lane> = (0..CLAIM_LANES_MAX).map(|n| lane(&format!("l{n}"))).collect();
    assert_eq!(beat(many.clone()).await.map(|pulse| pulse.next_due_ms), Ok(None), "lanes that do not exist");
    let over = beat(many.into_iter().chain([lane("a")]).collect()).await;
    assert!(matches!(&over, Err(StoreError::Invalid(text)) if text.contains("65 lanes")), "{over:?}");
}

pub(crate) async fn a_session_is_known_by_its_leases_alone<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("a"); 2]).await;
    let mut lost = Hand::new(store, "lost");
    let claimed = lost.claim(&["a"], 2).await;
    let observer = Hand::new(store, "observer");
    let knows = |pulse: hourhand::queue::Pulse| pulse.sessions.iter().any(|s| &*s.session.0 == "lost");
    assert!(knows(observer.beat().await), "it holds leases but never beat");
    lost.beat().await;
    bed.lose_session(&lost.session).await;
    assert!(knows(observer.beat().await), "its registration was deleted");
    lost.complete(&claimed[0]).await;
    assert!(knows(observer.beat().await));
    lost.complete(&claimed[1]).await;
    assert!(!knows(observer.beat().await), "nothing is left of it");
}

pub(crate) async fn every_lease_is_listed<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("a"); 1_200]).await;
    let mut hand = Hand::new(store, "s");
    let mut expected = Vec::new();
    for _ in 0..6 {
        expected.extend(hand.claim(&["a"], 200).await.into_iter().map(|c| c.lease));
    }
    let seen: Vec<_> = leases(store).await.into_iter().map(|seen| seen.lease).collect();
    expected.sort_unstable_by_key(|lease| lease.record);
    assert_eq!(seen, expected);
    assert_eq!(leases(store).await[0].lane, lane("a"));
}

pub(crate) async fn a_crash_uses_an_attempt_and_keeps_the_place<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 4]).await;
    let mut lost = Hand::new(store, "lost");
    lost.beat().await;
    let claimed = lost.claim(&["a"], 2).await;
    assert_eq!(reclaim_all(store).await, Reclaimed { ready: 2, ..Reclaimed::default() });
    assert_eq!(lost.settle(&claimed[0], completed(b"")).await, Settled::Stale, "too late");
    let view = view(store, &ids[0]).await;
    assert_eq!((view.state, view.attempt, view.crashes), (State::Ready, 1, 1));
    assert_eq!(view.error.map(|e| e.reason), Some(Reason::Lost));
    assert_eq!(view.history.last().map(|e| e.event.as_str()), Some("reclaimed"));
    assert_eq!(view.runner.as_deref(), Some("host:lost"));
    let mut hand = Hand::new(store, "s");
    let again = hand.claim(&["a"], 4).await;
    let order: Vec<_> = again.iter().map(|c| c.job.id.clone()).collect();
    assert_eq!(order, ids, "back in their places");
    assert_eq!(
        again.iter().map(|c| (c.attempt, c.crashes)).collect::<Vec<_>>(),
        [(2, 1), (2, 1), (1, 0), (1, 0)]
    );
    assert_eq!(store.counts().await.expect("counts").queues[0].failed_total, 2);
}

pub(crate) async fn a_late_settle_counts_when_nobody_took_the_job_back<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    hand.beat().await;
    let claimed = hand.claim_one("a").await;
    store.end_session(&hand.session).await.expect("ended");
    hand.complete(&claimed).await;
    assert_eq!(state(store, &id).await, State::Completed);
    assert_eq!(reclaim_all(store).await, Reclaimed::default());
}

pub(crate) async fn a_reclaim_of_an_old_lease_changes_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s1");
    let first = hand.claim_one("a").await;
    let old: Vec<LeaseSeen> = leases(store).await;
    hand.settle(&first, retry(0)).await;
    assert_eq!(store.reclaim(&old, KEEP).await, Ok(Reclaimed { stale: 1, ..Reclaimed::default() }));
    let second = hand.claim_one("a").await;
    assert_eq!(store.reclaim(&old, KEEP).await, Ok(Reclaimed { stale: 1, ..Reclaimed::default() }));
    assert_eq!((second.attempt, second.crashes), (2, 0));
    assert_eq!(state(store, &id).await, State::Running);
}

pub(crate) async fn the_third_crash_is_a_poison_pills_last<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(100), ..job("a") }).await;
    for crash in 1..=3u32 {
        let claimed = Hand::new(store, &format!("s{crash}")).claim_one("a").await;
        assert_eq!(claimed.crashes, crash - 1);
        let reclaimed = reclaim_all(store).await;
        assert_eq!((reclaimed.ready, reclaimed.dead), if crash < 3 { (1, 0) } else { (0, 1) });
    }
    let view = view(store, &id).await;
    assert_eq!((view.state, view.crashes, view.attempt), (State::Dead, 3, 3));
    assert_eq!(view.error.map(|e| e.reason), Some(Reason::Lost));
    assert_eq!(Hand::new(store, "s").claim(&["a"], 1).await.len(), 0);
}

pub(crate) async fn a_crash_in_the_last_attempt_is_the_end<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(1), ..job("a") }).await;
    let claimed = Hand::new(store, "s").claim_one("a").await;
    assert_eq!(claimed.max_attempts, 1);
    assert_eq!(reclaim_all(store).await, Reclaimed { dead: 1, ..Reclaimed::default() });
    assert_eq!(state(store, &id).await, State::Dead);
}

pub(crate) async fn a_job_that_was_only_held_is_given_back_unharmed<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { due: Due::In(5_000), ..job("a") }).await;
    let before = view(store, &id).await;
    let mut hand = Hand::new(store, "s");
    assert_eq!(hand.hold(&["a"], 1).await.len(), 1);
    assert_eq!(reclaim_all(store).await, Reclaimed { ready: 1, ..Reclaimed::default() });
    let after = view(store, &id).await;
    assert_eq!((after.attempt, after.crashes, after.due_ms), (0, 0, before.due_ms));
    assert_eq!(after.history, before.history);
    assert_eq!(hand.hold(&["a"], 1).await[0].attempt, 1);
}

pub(crate) async fn one_suspect_at_a_time<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![NewJob { max_attempts: Some(100), ..job("a") }; 3]).await;
    for crash in 0..2 {
        let request = Hand::new(store, "s").request(&["a"], 10);
        let mut hand = Hand::new(store, &format!("lost{crash}"));
        assert_eq!(hand.send(request).await.jobs.len(), 3, "jobs with one crash run freely");
        assert_eq!(reclaim_all(store).await.ready, 3);
    }
    let healthy = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    let mut request = hand.request(&["a"], 10);
    request.suspect = false;
    let claimed = hand.send(request).await;
    assert_eq!(claimed.jobs.iter().map(|c| &c.job.id).collect::<Vec<_>>(), [&healthy]);
    assert_eq!(claimed.next_due_ms, None, "what may not be claimed wakes nobody");
    let request = hand.request(&["a"], 10);
    let claimed = hand.send(request).await;
    assert_eq!((claimed.jobs.len(), claimed.jobs[0].crashes), (1, 2), "one suspect, although three wait");
    hand.settle(&claimed.jobs[0], retry(0)).await;
    let request = hand.request(&["a"], 10);
    let claimed = hand.send(request).await;
    assert_eq!(claimed.jobs.len(), 1, "a suspect stays one after a failed attempt");
    assert_eq!(claimed.jobs[0].crashes, 2);
    let counts = store.counts().await.expect("counts");
    assert_eq!(counts.queues[0].ready, 2, "suspects that wait are counted");
}

pub(crate) async fn a_cancelled_job_does_not_come_back<B: Bed>(bed: B) {
    let store = bed.store();
    let ids =
        enqueue_all(store, &[job_with_id("a", "1"), job_with_id("a", "2"), job_with_id("a", "3")]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 3).await;
    let refs: Vec<_> = ["1", "2", "3"].map(|text| job_ref("a", text)).to_vec();
    assert_eq!(store.cancel(&refs, KEEP).await, Ok(vec![Verdict::Asked; 3]));
    let pulse = hand.beat().await;
    assert_eq!(pulse.recalls.len(), 3);
    assert!(pulse.recalls.iter().all(|r| r.action == RecallAction::Cancel));
    assert_eq!(Hand::new(store, "other").beat().await.recalls, vec![], "only its own");
    hand.settle(&claimed[0], retry(0)).await;
    hand.settle(&claimed[1], completed(b"")).await;
    assert_eq!(reclaim_all(store).await, Reclaimed { cancelled: 1, ..Reclaimed::default() });
    assert_eq!(state(store, &ids[0]).await, State::Cancelled, "it had failed when it heard");
    assert_eq!(state(store, &ids[1]).await, State::Completed, "it was done before it heard");
    assert_eq!(state(store, &ids[2]).await, State::Cancelled, "its runner never heard");
    assert_eq!(hand.beat().await.recalls, vec![]);
    assert_eq!(hand.claim(&["a"], 3).await.len(), 0);
}

pub(crate) async fn an_old_recall_does_not_touch_a_new_lease<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { due: Due::In(5_000), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    let held = hand.hold(&["a"], 1).await.remove(0);
    assert_eq!(store.reschedule(&job_ref("a", "x"), Due::NOW).await, Ok(Verdict::Asked));
    let recalls = hand.beat().await.recalls;
    assert_eq!(
        (recalls.len(), recalls[0].action, recalls[0].token),
        (1, RecallAction::Release, held.lease.token)
    );
    let back = Settlement { run: None, ..settlement(&held, Outcome::Released { message: None }) };
    hand.settle_all(&[back]).await;
    assert_eq!(hand.beat().await.recalls, vec![]);
    assert_eq!(store.reschedule(&job_ref("a", "x"), Due::NOW).await, Ok(Verdict::Done));
    hand.claim_one("a").await;
    assert_eq!(hand.beat().await.recalls, vec![]);
}

pub(crate) async fn a_dead_letter_of_a_lost_runner_follows_retention<B: Bed>(bed: B) {
    let store = bed.store();
    let id = enqueue_one(store, &NewJob { max_attempts: Some(1), ..job("a") }).await;
    Hand::new(store, "s").claim_one("a").await;
    let nothing = Retention { age_ms: Some(0), count: None, bytes: None };
    assert_eq!(store.reclaim(&leases(store).await, nothing).await.map(|r| r.dead), Ok(1));
    assert_eq!(store.find(None, &id).await, Ok(vec![]));
}
