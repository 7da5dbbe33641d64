//! Claiming: order, turns, exactness, and never early.

use std::collections::HashSet;

use hourhand::job::{Due, NewJob, Priority, State};
use hourhand::names::JobId;
use hourhand::queue::{
    BATCH_MAX, CLAIM_LANES_MAX, ClaimRequest, Lane, LaneClaim, SessionId, Store, StoreError,
};

use crate::bed::*;

pub(crate) async fn jobs_of_one_millisecond_are_claimed_in_the_order_of_their_enqueue<B: Bed>(bed: B) {
    let store = bed.store();
    let at = enqueue_and_due(store).await + 300;
    let jobs = vec![NewJob { due: Due::At(at), ..job("a") }; 3_000];
    let expected = enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let mut got = vec![hand.claim_when_due("a").await.job.id];
    loop {
        let some = hand.claim(&["a"], 157).await;
        if some.is_empty() {
            break;
        }
        got.extend(some.into_iter().map(|c| c.job.id));
    }
    assert_eq!(got, expected);
}

/// A job of another kind, for its due time: the store's clock.
async fn enqueue_and_due(store: &dyn Store) -> u64 {
    store.enqueue(&[job("clock")]).await.expect("taken")[0].due_ms
}

pub(crate) async fn a_claim_removes_exactly_what_it_returns<B: Bed>(bed: B) {
    let store = bed.store();
    let expected = enqueue_all(store, &vec![job("a"); 20]).await;
    let mut hand = Hand::new(store, "s");
    let mut got: Vec<JobId> = Vec::new();
    for ask in [1, 7, 0, 3, BATCH_MAX] {
        let before = got.len();
        let request = hand.request(&["a"], ask);
        let claimed = hand.send(request).await;
        assert!(claimed.jobs.len() <= ask);
        got.extend(claimed.jobs.into_iter().map(|c| c.job.id));
        let counts = store.counts().await.expect("counts");
        assert_eq!(counts.queues[0].ready as usize, 20 - got.len());
        assert_eq!(counts.queues[0].running as usize, got.len());
        assert_eq!(claimed.next_due_ms.is_some(), got.len() < 20, "after {before} and {ask} more");
    }
    assert_eq!(got, expected);
}

pub(crate) async fn nothing_is_claimed_before_its_due_time<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> = (0..20).map(|i| NewJob { due: Due::In(i * 10), ..job("a") }).collect();
    enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    for _ in 0..20 {
        let request = hand.request(&["a"], BATCH_MAX);
        let claimed = hand.send(request).await;
        for job in &claimed.jobs {
            assert!(job.due_ms * 1_000 <= claimed.now_us, "{} at {}", job.due_ms, claimed.now_us);
        }
        if let Some(due_ms) = claimed.next_due_ms {
            assert!(due_ms * 1_000 > claimed.now_us, "nothing that is due was left");
            let wait_us = (due_ms * 1_000).saturating_sub(claimed.now_us);
            tokio::time::sleep(std::time::Duration::from_micros(wait_us / 2)).await;
        }
    }
}

pub(crate) async fn looking_ahead_holds_only_what_falls_due_within_reach<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> =
        [0, 5_000, 6_000, 60_000].map(|ms| NewJob { due: Due::In(ms), ..job("a") }).to_vec();
    let ids = enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let request = ClaimRequest { ahead_max: 1, look_ahead_ms: 10_000, ..hand.request(&["a"], 5) };
    let claimed = hand.send(request).await;
    let got: Vec<&JobId> = claimed.jobs.iter().map(|c| &c.job.id).collect();
    assert_eq!(got, [&ids[0], &ids[1]], "those that are due first, then one ahead");
    assert_eq!(hand.hold(&["a"], 10).await.len(), 1, "the last is out of reach");
    assert_eq!(state(store, &ids[1]).await, State::Scheduled, "a held job has not started");
    assert_eq!(state(store, &ids[0]).await, State::Running);
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].running, counts.queues[0].scheduled), (1, 3));
}

pub(crate) async fn priorities_are_strict_over_all_lanes<B: Bed>(bed: B) {
    let store = bed.store();
    use Priority::*;
    let mut jobs = Vec::new();
    for (kind, priority) in [("a", Low), ("b", Normal), ("a", High), ("b", Low), ("a", Normal), ("b", High)] {
        jobs.push(NewJob { priority, ..job(kind) });
    }
    enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let mut got = hand.claim(&["a", "b"], 4).await;
    got.extend(hand.claim(&["a", "b"], 4).await);
    let priorities: Vec<Priority> = got.iter().map(|c| c.job.priority).collect();
    assert_eq!(priorities, [High, High, Normal, Normal, Low, Low]);
}

pub(crate) async fn a_retry_keeps_its_priority<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { priority: Priority::High, ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let high = hand.claim_one("a").await;
    enqueue_all(store, &vec![job("a"); 3]).await;
    hand.settle(&high, retry(0)).await;
    assert_eq!(hand.claim_one("a").await.job.id, high.job.id);
}

pub(crate) async fn lanes_take_turns<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("backlog"); 400]).await;
    enqueue_all(store, &vec![job("few"); 10]).await;
    enqueue_all(store, &vec![job("one"); 1]).await;
    let mut hand = Hand::new(store, "s");
    let got = hand.claim(&["backlog", "few", "one"], 60).await;
    let of = |kind: &str| got.iter().filter(|c| c.job.kind.as_str() == kind).count();
    assert_eq!(
        (of("backlog"), of("few"), of("one")),
        (49, 10, 1),
        "what a lane does not use goes to the others"
    );
    let first: HashSet<&str> = got[..3].iter().map(|c| c.job.kind.as_str()).collect();
    assert_eq!(first.len(), 3, "the first of each lane are the first of all");
    let got = hand.claim(&["backlog", "nothing"], 9).await;
    assert_eq!(got.len(), 9);
}

pub(crate) async fn kinds_take_turns_whatever_their_queues<B: Bed>(bed: B) {
    let store = bed.store();
    let queues: Vec<String> = (0..10).map(|i| format!("q{i}")).collect();
    let of = |queue: &String| NewJob { queue: name(queue), ..job("wide") };
    let wide: Vec<NewJob> = queues.iter().flat_map(|queue| vec![of(queue); 20]).collect();
    enqueue_all(store, &wide).await;
    enqueue_all(store, &vec![job("narrow"); 50]).await;
    let mut hand = Hand::new(store, "s");
    let lane_of = |queue: &String, kind| LaneClaim::new(Lane { queue: name(queue), kind: name(kind) }, 5);
    let mut lanes: Vec<LaneClaim> = queues.iter().map(|queue| lane_of(queue, "wide")).collect();
    lanes.push(lane_of(&"narrow".to_owned(), "narrow"));
    for (ask, narrow, each) in [(40, 20, 2), (2, 1, 0), (40, 20, 2), (100, 9, 9)] {
        let request = ClaimRequest { lanes: lanes.clone(), ..hand.request(&[], ask) };
        let got = hand.send(request).await.jobs;
        assert_eq!(got.len(), ask);
        let first: HashSet<&str> = got[..2].iter().map(|c| c.job.kind.as_str()).collect();
        assert_eq!(first.len(), 2, "each kind has its turn before any has two");
        let of_queue = |queue: &str| got.iter().filter(|c| c.job.queue.as_str() == queue).count();
        assert_eq!(of_queue("narrow"), narrow, "of {ask}: what a kind does not use goes to the others");
        for queue in &queues {
            let got = of_queue(queue);
            assert!((each..=each + 1).contains(&got), "{got} of {queue} among {ask}");
        }
    }
}

pub(crate) async fn a_kind_has_as_many_turns_as_its_weight<B: Bed>(bed: B) {
    let store = bed.store();
    for kind in ["heavy", "light", "few"] {
        enqueue_all(store, &vec![job(kind); if kind == "few" { 2 } else { 100 }]).await;
    }
    let mut hand = Hand::new(store, "s");
    let mut request = hand.request(&["light", "heavy", "few"], 42);
    request.lanes[1].weight = 4;
    let got = hand.send(request.clone()).await.jobs;
    let of = |kind: &str| got.iter().filter(|c| c.job.kind.as_str() == kind).count();
    assert_eq!(
        (of("heavy"), of("light"), of("few")),
        (32, 8, 2),
        "what one does not use goes by weight as well"
    );
    let first: Vec<&str> = got[..6].iter().map(|c| c.job.kind.as_str()).collect();
    assert_eq!(first, ["light", "heavy", "heavy", "heavy", "heavy", "few"]);
    for (ask, heavy) in [(1, 0), (3, 2), (5, 4), (11, 8)] {
        let request = ClaimRequest { due_max: ask, ..next_of(&mut hand, &request) };
        let got = hand.send(request).await.jobs;
        let got_heavy = got.iter().filter(|c| c.job.kind.as_str() == "heavy").count();
        assert_eq!((got.len(), got_heavy), (ask, heavy));
    }
}

/// The same request with fresh tokens.
fn next_of(hand: &mut Hand<'_>, request: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { lanes: request.lanes.clone(), ..hand.request(&[], request.due_max) }
}

pub(crate) async fn of_a_bounded_kind_no_more_are_claimed_and_no_more_are_waited_for<B: Bed>(bed: B) {
    let store = bed.store();
    let urgent = NewJob { priority: Priority::High, ..job("bounded") };
    let side = NewJob { queue: name("side"), ..job("bounded") };
    let later = NewJob { due: Due::In(5_000), ..job("bounded") };
    enqueue_all(store, &[vec![urgent; 2], vec![side; 5], vec![later; 3], vec![job("free"); 20]].concat())
        .await;
    let mut hand = Hand::new(store, "s");
    let mut request = hand.request(&["bounded", "free"], 10);
    request.lanes.insert(0, LaneClaim::new(Lane { queue: name("side"), kind: name("bounded") }, 5));
    let bounded = |request: &ClaimRequest, max| {
        let mut request = request.clone();
        let of_kind = request.lanes.iter_mut().filter(|of| of.lane.kind.as_str() == "bounded");
        of_kind.for_each(|of| of.kind_max = Some(max));
        request
    };
    let count = |jobs: &[hourhand::queue::ClaimedJob]| {
        jobs.iter().filter(|c| c.job.kind.as_str() == "bounded").count()
    };

    // Over all its lanes and priorities, and what it may not take goes to the others.
    let claimed = hand.send(bounded(&request, 3)).await;
    assert_eq!((claimed.jobs.len(), count(&claimed.jobs)), (10, 3));
    assert!(claimed.next_due_ms.is_some_and(|due_ms| due_ms * 1_000 <= claimed.now_us), "of the other kind");
    // A kind without room is left alone.
    let closed = ClaimRequest { due_max: 20, ..bounded(&next_of(&mut hand, &request), 0) };
    let claimed = hand.send(closed).await;
    assert_eq!((claimed.jobs.len(), count(&claimed.jobs), claimed.next_due_ms), (13, 0, None));
    // Jobs that are held count too.
    let ahead =
        ClaimRequest { ahead_max: 5, look_ahead_ms: 10_000, ..bounded(&next_of(&mut hand, &request), 5) };
    let claimed = hand.send(ahead).await;
    assert_eq!((claimed.jobs.len(), claimed.next_due_ms), (5, None), "four that are due, one ahead");
    // With room to spare, what is left is waited for.
    let again = bounded(&next_of(&mut hand, &request), 5);
    let claimed = hand.send(again).await;
    assert_eq!(claimed.jobs.len(), 0);
    assert!(claimed.next_due_ms.is_some_and(|due_ms| due_ms * 1_000 > claimed.now_us));
}

pub(crate) async fn no_job_has_more_attempts_than_the_cap<B: Bed>(bed: B) {
    let store = bed.store();
    for max_attempts in [Some(2), Some(900), None] {
        enqueue_one(store, &NewJob { max_attempts, ..job("a") }).await;
    }
    let mut hand = Hand::new(store, "s");
    let mut request = hand.request(&["a"], 10);
    (request.lanes[0].max_attempts, request.lanes[0].attempts_cap) = (9, Some(3));
    let claimed = hand.send(request).await.jobs;
    assert_eq!(claimed.iter().map(|c| c.max_attempts).collect::<Vec<_>>(), [2, 3, 3]);
    assert_eq!(view(store, &claimed[1].job.id).await.max_attempts, 3, "the lease holds the effective value");
}

pub(crate) async fn a_lane_that_nobody_asks_for_is_left_alone<B: Bed>(bed: B) {
    let store = bed.store();
    let other = enqueue_one(store, &job("other")).await;
    enqueue_one(store, &NewJob { queue: name("side"), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a"], 10);
    let claimed = hand.send(request).await;
    assert_eq!((claimed.jobs.len(), claimed.next_due_ms), (0, None));
    assert_eq!(state(store, &other).await, State::Ready, "a job without a handler is nobody's failure");
}

pub(crate) async fn two_sessions_never_get_the_same_job<B: Bed>(bed: B) {
    let store = bed.store();
    let expected: HashSet<JobId> = enqueue_all(store, &vec![job("a"); 300]).await.into_iter().collect();
    let drain = |session: String| async move {
        let mut hand = Hand::new(store, &session);
        let mut got = Vec::new();
        loop {
            let some = hand.claim(&["a"], 11).await;
            if some.is_empty() {
                return got;
            }
            got.extend(some.into_iter().map(|c| c.job.id));
        }
    };
    let (a, b, c) = tokio::join!(drain("s1".to_owned()), drain("s2".to_owned()), drain("s3".to_owned()));
    let all: Vec<JobId> = [a, b, c].concat();
    assert_eq!(all.len(), 300);
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), expected);
}

pub(crate) async fn the_jobs_own_attempts_count_before_the_handlers<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { max_attempts: Some(2), ..job("a") }).await;
    let without = enqueue_one(store, &job("a")).await;
    let mut hand = Hand::new(store, "s");
    let mut request = hand.request(&["a"], 10);
    request.lanes[0].max_attempts = 9;
    let claimed = hand.send(request).await.jobs;
    assert_eq!(claimed.iter().map(|c| c.max_attempts).collect::<Vec<_>>(), [2, 9]);
    assert_eq!(view(store, &without).await.max_attempts, 9, "the lease holds the effective value");
}

pub(crate) async fn tokens_count_up_from_the_first<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("a"); 3]).await;
    let mut hand = Hand::new(store, "s");
    let request = ClaimRequest { first_token: 1_000_000_007, ..hand.request(&["a"], 5) };
    let tokens: Vec<u64> = hand.send(request).await.jobs.iter().map(|c| c.lease.token).collect();
    assert_eq!(tokens, [1_000_000_007, 1_000_000_008, 1_000_000_009]);
}

pub(crate) async fn a_claim_against_the_rules_is_refused<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let many = LaneClaim::new(lane("a"), 1);
    let bad = [
        ClaimRequest { due_max: BATCH_MAX + 1, ..hand.request(&["a"], 1) },
        ClaimRequest { ahead_max: BATCH_MAX + 1, ..hand.request(&["a"], 1) },
        ClaimRequest { lanes: vec![many; CLAIM_LANES_MAX + 1], ..hand.request(&[], 1) },
        ClaimRequest { session: SessionId("two words".into()), ..hand.request(&["a"], 1) },
    ];
    for request in bad {
        assert!(matches!(store.claim(&request).await, Err(StoreError::Invalid(_))), "{request:?}");
    }
    let nothing = ClaimRequest { lanes: vec![], ..hand.request(&[], 1) };
    assert_eq!(store.claim(&nothing).await.expect("an empty claim").jobs, vec![]);
}

pub(crate) async fn sixty_four_lanes_fit_one_claim<B: Bed>(bed: B) {
    let store = bed.store();
    let kinds: Vec<String> = (0..CLAIM_LANES_MAX).map(|i| format!("k{i}")).collect();
    let jobs: Vec<NewJob> = kinds.iter().flat_map(|kind| vec![job(kind); 3]).collect();
    enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let lanes =
        kinds.iter().map(|kind| LaneClaim::new(Lane { queue: name(kind), kind: name(kind) }, 5)).collect();
    let request = ClaimRequest { lanes, ..hand.request(&[], 100) };
    let claimed = hand.send(request).await.jobs;
    assert_eq!(claimed.len(), 100);
    let first: HashSet<&str> = claimed[..64].iter().map(|c| c.job.kind.as_str()).collect();
    assert_eq!(first.len(), 64, "each lane has its turn before any has two");
}
