//! Enqueueing: what is taken, what is refused, and what an id that exists does.

use bytes::Bytes;
use hourhand::job::{AGE_MS_MAX, DELAY_MS_MAX, Due, NewJob, OnConflict, Priority, State};
use hourhand::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, Disposition, Enqueued, Lane, Store, StoreError};

use crate::bed::*;

async fn enqueue(store: &dyn Store, job: NewJob) -> Enqueued {
    store.enqueue(&[job]).await.expect("the store takes a job").remove(0)
}

pub(crate) async fn a_job_comes_back_as_it_went_in<B: Bed>(bed: B) {
    let store = bed.store();
    let job = NewJob {
        id: Some(id("Ünïcode / {x}:7")),
        queue: name("bills"),
        priority: Priority::High,
        payload: Bytes::from_static(b"{\"n\":1}"),
        max_attempts: Some(7),
        timeout_ms: Some(1_234),
        meta: vec![
            ("b".to_owned(), "2\u{1}\"é".to_owned()),
            ("a".to_owned(), String::new()),
            ("b".to_owned(), "3".to_owned()),
        ],
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        source: "api 10.0.0.7".to_owned(),
        ..job("pay")
    };
    enqueue(store, job.clone()).await;
    let view = view(store, &id("Ünïcode / {x}:7")).await;
    assert_eq!((&view.job.queue, &view.job.kind), (&job.queue, &job.kind));
    assert_eq!(view.job.priority, Priority::High);
    assert_eq!((view.job.max_attempts, view.job.timeout_ms), (Some(7), Some(1_234)));
    assert_eq!(view.job.meta, job.meta, "in order, repeated keys included");
    assert_eq!(view.job.traceparent, job.traceparent);
    assert_eq!(view.job.source, job.source);
    assert_eq!((view.state, view.attempt, view.max_attempts, view.crashes), (State::Ready, 0, 7, 0));
    assert_eq!(view.history.len(), 1);
    assert_eq!(view.history[0].event, "enqueued");
}

pub(crate) async fn payloads_are_opaque_bytes<B: Bed>(bed: B) {
    let store = bed.store();
    let payloads: Vec<Bytes> = [
        &b""[..],
        b"[]",
        b"{}",
        b"{\"x\":[],\"y\":{}}",
        b"{\"b\":1,\"a\":2,\"a\":3}",
        b" [ 1 ] ",
        b"\"\"",
        b"null",
        b"0",
        b"\0",
        b"a\0b\x1f\x1e\n\r\n",
        b"\xff\xfe\x80",
        b"9223372036854775808",
        b"1e400",
        b"\x1fsource\x1f",
    ]
    .map(Bytes::from_static)
    .to_vec();
    let jobs: Vec<NewJob> =
        payloads.iter().map(|payload| NewJob { payload: payload.clone(), ..job("a") }).collect();
    let ids = enqueue_all(store, &jobs).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 100).await;
    let got: Vec<Bytes> = claimed.iter().map(|c| c.job.payload.clone()).collect();
    assert_eq!(got, payloads);
    for job in &claimed {
        hand.settle(job, retry(0)).await;
    }
    let again = hand.claim(&["a"], 100).await;
    assert_eq!(again.iter().map(|c| c.job.payload.clone()).collect::<Vec<_>>(), payloads, "after a retry");
    for job in &again {
        hand.settle(job, dead()).await;
    }
    for (id, payload) in ids.iter().zip(&payloads) {
        assert_eq!(view(store, id).await.job.payload, payload, "in the dead letters");
    }
}

pub(crate) async fn a_payload_of_a_mebibyte_travels_alone<B: Bed>(bed: B) {
    let store = bed.store();
    let large = NewJob { payload: vec![0xA5; 1 << 20].into(), ..job("a") };
    for _ in 0..2 {
        enqueue(store, large.clone()).await;
    }
    enqueue(store, job("a")).await;
    let mut hand = Hand::new(store, "s");
    let first = hand.claim(&["a"], 10).await;
    assert_eq!(first.len(), 1, "more would be over the bytes of a batch");
    assert_eq!(first[0].job.payload, large.payload);
    let too_large = NewJob { payload: vec![0; (1 << 20) + 1].into(), ..job("a") };
    assert!(matches!(store.enqueue(&[too_large]).await, Err(StoreError::Invalid(_))));
    let batch = vec![NewJob { payload: vec![1; BATCH_PAYLOAD_BYTES_MAX / 2 + 1].into(), ..job("a") }; 2];
    assert!(matches!(store.enqueue(&batch).await, Err(StoreError::Invalid(_))));
}

pub(crate) async fn a_batch_is_taken_whole_or_not_at_all<B: Bed>(bed: B) {
    let store = bed.store();
    let bad: Vec<(NewJob, &str)> = vec![
        (NewJob { due: Due::In(DELAY_MS_MAX + 1), ..job("a") }, "delay"),
        (NewJob { due: Due::At(u64::MAX), ..job("a") }, "due far ahead"),
        (NewJob { due: Due::At(9_000_000_000_000), ..job("a") }, "due 155 years ahead"),
        (NewJob { max_attempts: Some(0), ..job("a") }, "no attempts"),
        (NewJob { max_attempts: Some(1_001), ..job("a") }, "attempts"),
        (NewJob { timeout_ms: Some(0), ..job("a") }, "no time"),
        (NewJob { meta: vec![(String::new(), "x".to_owned())], ..job("a") }, "meta"),
        (NewJob { source: "a\nb".to_owned(), ..job("a") }, "source"),
    ];
    for (job_at_fault, what) in bad {
        let batch = vec![job("a"), job_with_id("b", "x"), job_at_fault, job("a")];
        match store.enqueue(&batch).await {
            Err(StoreError::Invalid(text)) => assert!(text.contains("job 2:"), "{what}: {text}"),
            other => panic!("{what}: expected an error that names job 2, got {other:?}"),
        }
    }
    assert!(matches!(store.enqueue(&vec![job("a"); BATCH_MAX + 1]).await, Err(StoreError::Invalid(_))));
    assert_eq!(store.lanes().await.expect("lanes"), vec![], "nothing was half created");
    assert_eq!(store.counts().await.expect("counts").queues, vec![]);
    assert_eq!(store.find(None, &id("x")).await.expect("find"), vec![]);
    assert_eq!(store.enqueue(&[]).await, Ok(vec![]), "an empty batch is nothing");
}

pub(crate) async fn instants_in_the_past_mean_now<B: Bed>(bed: B) {
    let store = bed.store();
    let now = enqueue(store, job("a")).await.due_ms;
    for due in [Due::At(0), Due::At(1), Due::At(now - 1_000), Due::In(0)] {
        let enqueued = enqueue(store, NewJob { due, ..job("a") }).await;
        assert_eq!(enqueued.state, State::Ready, "{due:?}");
        assert!(enqueued.due_ms >= now && enqueued.due_ms < now + 60_000, "{due:?}");
    }
}

pub(crate) async fn delays_of_a_millisecond_to_a_century_are_exact<B: Bed>(bed: B) {
    let store = bed.store();
    let delays =
        [60_000, 2_147_483_647, 2_147_483_648, 4_294_972_296, 2_160_000_000, 315_576_000_000, DELAY_MS_MAX];
    for delay in delays {
        let enqueued = enqueue(store, NewJob { due: Due::In(delay), ..job("a") }).await;
        assert_eq!(enqueued.state, State::Scheduled);
        let view = view(store, &enqueued.id).await;
        assert_eq!(view.due_ms, view.job.enqueued_ms + delay);
        assert_eq!(view.due_ms, enqueued.due_ms);
    }
    let at = enqueue(store, job("a")).await.due_ms + 86_400_123;
    assert_eq!(enqueue(store, NewJob { due: Due::At(at), ..job("a") }).await.due_ms, at);
    let mut hand = Hand::new(store, "s");
    assert_eq!(hand.claim(&["a"], 100).await.len(), 1, "only the one that is due");
}

pub(crate) async fn what_was_accepted_a_while_ago_is_due_by_its_acceptance<B: Bed>(bed: B) {
    let store = bed.store();
    let hour = 3_600_000;
    for (delay, age) in
        [(0, hour), (hour / 2, hour), (hour, hour / 2), (0, AGE_MS_MAX), (DELAY_MS_MAX, AGE_MS_MAX)]
    {
        let now = enqueue(store, job("now")).await.due_ms;
        let old = NewJob { due: Due::In(delay), age_ms: age, ..job("a") };
        let enqueued = enqueue(store, old).await;
        let then = enqueue(store, job("now")).await.due_ms;
        let view = view(store, &enqueued.id).await;
        assert!((now..=then).contains(&(view.job.enqueued_ms + age)), "accepted {age} ms ago");
        assert_eq!((view.due_ms, enqueued.due_ms), (view.job.enqueued_ms + delay, view.due_ms));
        assert_eq!(view.state, if delay > age { State::Scheduled } else { State::Ready });
        assert_eq!(view.history[0].at_us / 1_000, view.job.enqueued_ms);
    }
    let at = enqueue(store, job("now")).await.due_ms - 1_000;
    let past = NewJob { due: Due::At(at), age_ms: hour, ..job("a") };
    assert_eq!(
        enqueue(store, past.clone()).await.due_ms,
        at,
        "an instant that was ahead when it was accepted"
    );
    let too_old = NewJob { age_ms: AGE_MS_MAX + 1, ..job("a") };
    assert!(matches!(store.enqueue(&[too_old]).await, Err(StoreError::Invalid(_))));

    // The one that was accepted first is due first, whenever it arrives.
    let fresh = enqueue(store, job("b")).await;
    let older = enqueue(store, NewJob { age_ms: hour, ..job("b") }).await;
    let claimed = Hand::new(store, "s").claim(&["b"], 10).await;
    let ids: Vec<_> = claimed.iter().map(|c| c.job.id.clone()).collect();
    assert_eq!(ids, [older.id, fresh.id]);

    // A reschedule does not lead into the past, also when it meets a job of the same call.
    let waiting = |id: &str| NewJob { due: Due::In(hour), ..job_with_id("c", id) };
    enqueue(store, waiting("x")).await;
    let now = |id: &str| NewJob { age_ms: hour, on_conflict: OnConflict::Reschedule, ..job_with_id("c", id) };
    let moved = store.enqueue(&[now("x"), waiting("y"), now("y")]).await.expect("taken");
    for (id_text, at) in [("x", 0), ("y", 2)] {
        assert_eq!((moved[at].disposition, moved[at].state), (Disposition::Rescheduled, State::Ready));
        let view = view(store, &id(id_text)).await;
        assert_eq!(view.due_ms, moved[at].due_ms);
        assert!(view.due_ms >= view.job.enqueued_ms);
    }
    let replaced = NewJob { on_conflict: OnConflict::Replace, due: Due::In(2 * hour), ..now("y") };
    let replaced = enqueue(store, replaced).await;
    let view = view(store, &id("y")).await;
    assert_eq!((view.due_ms, view.job.enqueued_ms + 2 * hour), (replaced.due_ms, replaced.due_ms));
}

pub(crate) async fn an_id_that_exists_is_kept<B: Bed>(bed: B) {
    let store = bed.store();
    let first =
        enqueue(store, NewJob { due: Due::In(60_000), payload: "1".into(), ..job_with_id("a", "x") }).await;
    assert_eq!(first.disposition, Disposition::Created);
    let again = enqueue(store, NewJob { payload: "2".into(), ..job_with_id("a", "x") }).await;
    assert_eq!(
        (again.disposition, again.state, again.due_ms),
        (Disposition::Kept, State::Scheduled, first.due_ms)
    );
    assert_eq!(view(store, &id("x")).await.job.payload, "1");
    let elsewhere = enqueue(store, NewJob { queue: name("other"), ..job_with_id("a", "x") }).await;
    assert_eq!(elsewhere.disposition, Disposition::Created, "ids are unique within a queue");
    assert_eq!(store.find(None, &id("x")).await.expect("find").len(), 2);
    assert_eq!(store.find(Some(&name("other")), &id("x")).await.expect("find").len(), 1);
}

pub(crate) async fn replace_takes_the_place_of_a_job_that_waits<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, NewJob { due: Due::In(60_000), payload: "1".into(), ..job_with_id("a", "x") }).await;
    let replacement = NewJob {
        payload: "2".into(),
        priority: Priority::High,
        max_attempts: Some(2),
        on_conflict: OnConflict::Replace,
        ..job_with_id("a", "x")
    };
    let replaced = enqueue(store, replacement.clone()).await;
    assert_eq!((replaced.disposition, replaced.state), (Disposition::Replaced, State::Ready));
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 10).await;
    assert_eq!(claimed.len(), 1, "one job, not two");
    assert_eq!((&claimed[0].job.payload[..], claimed[0].max_attempts, claimed[0].attempt), (&b"2"[..], 2, 1));
    assert_eq!(claimed[0].job.priority, Priority::High);
    let running = enqueue(store, replacement.clone()).await;
    assert_eq!((running.disposition, running.state), (Disposition::Conflict, State::Running));
    hand.complete(&claimed[0]).await;
    let finished = enqueue(store, replacement).await;
    assert_eq!((finished.disposition, finished.state), (Disposition::Conflict, State::Completed));
    let totals = &store.counts().await.expect("counts").queues[0];
    assert_eq!(totals.enqueued_total, 1, "a replacement is no new job");
}

pub(crate) async fn a_replaced_retry_starts_clean<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    hand.settle(&claimed, retry(60_000)).await;
    let replaced = enqueue(store, NewJob { on_conflict: OnConflict::Replace, ..job_with_id("a", "x") }).await;
    assert_eq!(replaced.disposition, Disposition::Replaced);
    let view = view(store, &id("x")).await;
    assert_eq!((view.attempt, view.crashes, view.error, view.started_us), (0, 0, None, None));
    assert_eq!(view.history.len(), 1, "only that it was enqueued");
    let again = hand.claim_one("a").await;
    assert_eq!(again.attempt, 1);
}

pub(crate) async fn reschedule_on_conflict_changes_only_the_due_time<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, NewJob { payload: "1".into(), ..job_with_id("a", "x") }).await;
    let later = NewJob {
        payload: "2".into(),
        due: Due::In(60_000),
        on_conflict: OnConflict::Reschedule,
        ..job_with_id("a", "x")
    };
    let rescheduled = enqueue(store, later).await;
    assert_eq!((rescheduled.disposition, rescheduled.state), (Disposition::Rescheduled, State::Scheduled));
    let view = view(store, &id("x")).await;
    assert_eq!((&view.job.payload[..], view.due_ms), (&b"1"[..], rescheduled.due_ms));
    assert_eq!(view.history.last().map(|e| e.event.as_str()), Some("rescheduled"));
    assert_eq!(Hand::new(store, "s").claim(&["a"], 10).await.len(), 0);
}

pub(crate) async fn conflicts_of_kind_and_of_refusal_change_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, NewJob { queue: name("q"), ..job_with_id("a", "x") }).await;
    for on_conflict in [OnConflict::Replace, OnConflict::Reschedule, OnConflict::Reject] {
        let other_kind =
            NewJob { queue: name("q"), on_conflict, due: Due::In(60_000), ..job_with_id("b", "x") };
        let conflict = enqueue(store, other_kind).await;
        assert_eq!(
            (conflict.disposition, conflict.state),
            (Disposition::Conflict, State::Ready),
            "{on_conflict:?}"
        );
    }
    let same_kind = NewJob { queue: name("q"), on_conflict: OnConflict::Reject, ..job_with_id("a", "x") };
    assert_eq!(enqueue(store, same_kind).await.disposition, Disposition::Conflict);
    let kept = enqueue(store, NewJob { queue: name("q"), ..job_with_id("b", "x") }).await;
    assert_eq!((kept.disposition, kept.state), (Disposition::Kept, State::Ready));
    let view = view(store, &id("x")).await;
    assert_eq!((view.job.kind, view.state), (name("a"), State::Ready));
}

pub(crate) async fn an_enqueue_that_changes_nothing_makes_no_lane<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, NewJob { queue: name("q"), ..job_with_id("a", "x") }).await;
    let kept = enqueue(store, NewJob { queue: name("q"), ..job_with_id("b", "x") }).await;
    assert_eq!(kept.disposition, Disposition::Kept);
    let lanes = store.lanes().await.expect("lanes");
    assert_eq!(lanes, [Lane { queue: name("q"), kind: name("a") }]);
}

pub(crate) async fn what_a_call_does_to_a_job_twice_is_one_event<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("a", "moved"), job_with_id("a", "replaced")]).await;
    let with =
        |text: &str, on_conflict, ms| NewJob { on_conflict, due: Due::In(ms), ..job_with_id("a", text) };
    let batch = [
        with("moved", OnConflict::Reschedule, 50_000),
        with("moved", OnConflict::Reschedule, 60_000),
        with("replaced", OnConflict::Replace, 0),
        with("replaced", OnConflict::Reschedule, 60_000),
    ];
    let enqueued = store.enqueue(&batch).await.expect("taken");
    for (text, last, events) in
        [("moved", &enqueued[1], &["enqueued", "rescheduled"][..]), ("replaced", &enqueued[3], &["enqueued"])]
    {
        let view = view(store, &id(text)).await;
        let told: Vec<&str> = view.history.iter().map(|e| e.event.as_str()).collect();
        assert_eq!((view.due_ms, &told[..]), (last.due_ms, events), "{text}");
    }
}

pub(crate) async fn one_id_twice_in_a_batch_is_one_job<B: Bed>(bed: B) {
    let store = bed.store();
    let with = |payload: &'static str, on_conflict| NewJob {
        payload: payload.into(),
        on_conflict,
        ..job_with_id("a", "x")
    };
    let batch = [
        with("1", OnConflict::Keep),
        with("2", OnConflict::Keep),
        with("3", OnConflict::Replace),
        NewJob { due: Due::In(60_000), ..with("4", OnConflict::Reschedule) },
        with("5", OnConflict::Reject),
    ];
    let enqueued = store.enqueue(&batch).await.expect("taken");
    let dispositions: Vec<Disposition> = enqueued.iter().map(|e| e.disposition).collect();
    use Disposition::*;
    assert_eq!(dispositions, [Created, Kept, Replaced, Rescheduled, Conflict]);
    let view = view(store, &id("x")).await;
    assert_eq!((&view.job.payload[..], view.state), (&b"3"[..], State::Scheduled));
    assert_eq!(view.due_ms, enqueued[3].due_ms);
    assert_eq!(store.counts().await.expect("counts").queues[0].scheduled, 1);
}

pub(crate) async fn generated_ids_and_ids_that_look_like_them_never_collide<B: Bed>(bed: B) {
    let store = bed.store();
    let made = enqueue(store, NewJob { payload: "made".into(), ..job("a") }).await.id;
    let same = enqueue(store, NewJob { id: Some(made.clone()), payload: "given".into(), ..job("a") }).await;
    assert_eq!((same.disposition, &same.id), (Disposition::Kept, &made));
    assert_eq!(view(store, &made).await.job.payload, "made");
    let replaced = NewJob {
        id: Some(made.clone()),
        payload: "new".into(),
        on_conflict: OnConflict::Replace,
        ..job("a")
    };
    assert_eq!(enqueue(store, replaced).await.disposition, Disposition::Replaced);
    assert_eq!(view(store, &made).await.job.payload, "new");
    for lookalike in ["1-zzzzz", "2-aaaaa", "99999999999999-abcde", "00001-abcde", "1-abcdef"] {
        assert_eq!(enqueue(store, job_with_id("a", lookalike)).await.disposition, Disposition::Created);
        assert_eq!(
            enqueue(store, job_with_id("a", lookalike)).await.disposition,
            Disposition::Kept,
            "{lookalike}"
        );
        assert_eq!(view(store, &id(lookalike)).await.job.id, id(lookalike));
    }
}

pub(crate) async fn a_queue_is_known_before_its_first_job_runs<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue(store, NewJob { due: Due::In(60_000), ..job("a") }).await;
    enqueue(store, NewJob { queue: name("q"), ..job("a") }).await;
    let lanes = store.lanes().await.expect("lanes");
    let mut names: Vec<String> = lanes.iter().map(|lane| format!("{}:{}", lane.queue, lane.kind)).collect();
    names.sort();
    assert_eq!(names, ["a:a", "q:a"]);
}

pub(crate) async fn two_namespaces_never_meet<B: Bed>(bed: B) {
    let (one, two) = (bed.open("a").await, bed.open("a.b").await);
    for (store, payload) in [(&one, "one"), (&two, "two")] {
        enqueue(store, NewJob { payload: payload.into(), queue: name("b.q"), ..job_with_id("k", "x") }).await;
    }
    assert_eq!(view(&one, &id("x")).await.job.payload, "one");
    assert_eq!(view(&two, &id("x")).await.job.payload, "two");
    let ids = (one.identity().await.expect("identity"), two.identity().await.expect("identity"));
    assert_ne!(ids.0, ids.1);
    assert_eq!(bed.open("a").await.identity().await, Ok(ids.0), "the same from everywhere");
    while one.purge(&name("b.q")).await.expect("purge").1 {}
    assert_eq!(one.find(None, &id("x")).await, Ok(vec![]));
    assert_eq!(view(&two, &id("x")).await.job.payload, "two");
}

/// A file is checked whole by [`NewJob::validate`] before anything of it is taken: a store that refused what
/// passed there would stop in the middle of the file.
async fn assert_one_verdict(store: &dyn Store, job: NewJob) {
    let taken = store.enqueue(std::slice::from_ref(&job)).await;
    match job.validate() {
        Err(_) => assert!(matches!(taken, Err(StoreError::Invalid(_))), "{taken:?}: {job:?}"),
        Ok(()) => {
            let taken = taken.unwrap_or_else(|error| panic!("{error}: {job:?}")).remove(0);
            let view = store.find(Some(&job.queue), &taken.id).await.expect("find answers").remove(0);
            assert_eq!(view.job.meta, job.meta);
            assert_eq!(view.job.traceparent.unwrap_or_default(), job.traceparent.unwrap_or_default());
            assert_eq!(view.job.source, job.source);
            assert_eq!((view.job.max_attempts, view.job.timeout_ms), (job.max_attempts, job.timeout_ms));
            assert_eq!(view.job.payload, job.payload);
        }
    }
}

/// Characters at the edges of what texts may hold.
const ODD: [char; 24] = [
    '\0',
    '\u{1}',
    '\t',
    '\n',
    '\u{1e}',
    '\u{1f}',
    ' ',
    '"',
    '/',
    ':',
    '\\',
    '~',
    '\u{7f}',
    '\u{80}',
    '\u{85}',
    '\u{9f}',
    '\u{a0}',
    'é',
    '\u{2028}',
    '\u{3000}',
    '\u{d7ff}',
    '\u{feff}',
    '\u{ffff}',
    '\u{10ffff}',
];

pub(crate) async fn what_passes_the_check_is_taken<B: Bed>(bed: B) {
    let store = bed.store();
    for odd in ODD {
        for text in [odd.to_string(), format!("a{odd}b"), format!("{odd}a"), format!("a{odd}")] {
            let meta = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
            assert_one_verdict(store, NewJob { meta: meta(&text, "v"), ..job("a") }).await;
            assert_one_verdict(store, NewJob { meta: meta("k", &text), ..job("a") }).await;
            assert_one_verdict(store, NewJob { source: text.clone(), ..job("a") }).await;
            assert_one_verdict(store, NewJob { traceparent: Some(text.clone()), ..job("a") }).await;
            if let Ok(id) = text.parse() {
                assert_one_verdict(store, NewJob { id: Some(id), ..job("a") }).await;
            }
        }
    }
    for (source, traceparent) in [(256, 128), (257, 1), (1, 129)] {
        let traceparent = Some("t".repeat(traceparent));
        assert_one_verdict(store, NewJob { source: "s".repeat(source), traceparent, ..job("a") }).await;
    }
    for length in [1, 199, 200] {
        assert_one_verdict(store, NewJob { id: Some(id(&"i".repeat(length))), ..job("a") }).await;
        assert_one_verdict(store, NewJob { id: Some(id(&"é".repeat(length.min(100)))), ..job("b") }).await;
    }
    for text in ["7-abcde", "0-abcde", "99999999999999-abcde", "~c 1 2", "a/b", "+1", "@1", "null", "-"] {
        assert_one_verdict(store, NewJob { id: Some(id(text)), ..job("c") }).await;
    }
    for due in [
        Due::In(0),
        Due::In(DELAY_MS_MAX),
        Due::In(DELAY_MS_MAX + 1),
        Due::In(u64::MAX),
        Due::At(0),
        Due::At(1),
        Due::At(1_000_000_000_000),
        Due::At(u64::MAX),
    ] {
        assert_one_verdict(store, NewJob { due, ..job("a") }).await;
    }
    for max_attempts in [0, 1, 999, 1_000, 1_001, u32::MAX] {
        assert_one_verdict(store, NewJob { max_attempts: Some(max_attempts), ..job("a") }).await;
    }
    for timeout_ms in [0, 1, 86_399_999, 86_400_000, 86_400_001, u64::MAX] {
        assert_one_verdict(store, NewJob { timeout_ms: Some(timeout_ms), ..job("a") }).await;
    }
    for (key, value) in [(0, 1), (1, 0), (1, 4_095), (1, 4_096), (4_096, 0), (2_048, 2_049)] {
        let meta = vec![("k".repeat(key), "\u{7f}".repeat(value))];
        assert_one_verdict(store, NewJob { meta, ..job("a") }).await;
    }
    let many = (0..1_500).map(|n| (format!("k{}", n % 10), String::new())).collect();
    assert_one_verdict(store, NewJob { meta: many, ..job("a") }).await;
}

pub(crate) async fn what_passes_the_check_is_taken_whatever_is_in_it<B: Bed>(bed: B) {
    let store = bed.store();
    let mut random = crate::random::Random::seeded();
    let text = |random: &mut crate::random::Random, max: usize| -> String {
        let length = random.below(max);
        (0..length).map(|_| if random.below(3) == 0 { random.pick(&ODD) } else { 'x' }).collect()
    };
    for _ in 0..600 {
        let pairs = random.below(4);
        let meta: Vec<(String, String)> =
            (0..pairs).map(|_| (text(&mut random, 6), text(&mut random, 12))).collect();
        let new = NewJob {
            id: text(&mut random, 8).parse().ok(),
            meta,
            source: text(&mut random, 4),
            traceparent: Some(text(&mut random, 4)),
            due: random.pick(&[Due::NOW, Due::In(DELAY_MS_MAX), Due::At(0), Due::At(1 << 41)]),
            max_attempts: random.pick(&[None, Some(0), Some(1), Some(1_000), Some(1_001)]),
            timeout_ms: random.pick(&[None, Some(0), Some(1), Some(86_400_000), Some(86_400_001)]),
            priority: random.pick(&Priority::ALL),
            payload: text(&mut random, 20).into(),
            on_conflict: OnConflict::Replace,
            ..job("a")
        };
        assert_one_verdict(store, new).await;
    }
}
