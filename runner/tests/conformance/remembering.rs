//! State that outlives jobs: checked and written together with a completion, exact in its numbers and totals.

use hourhand::effects::{Effects, StateChange, StateEffects, StateFound};
use hourhand::job::State;
use hourhand::queue::{ClaimedJob, Settled, Settlement, Store, Verdict};

use crate::bed::*;
use crate::committing::{committing, parent};

use StateChange::{Add, Delete};

fn set(value: &str) -> StateChange {
    StateChange::Set(value.to_owned().into())
}

/// Reads and changes of the bucket `b`.
fn state(reads: &[(&str, u64)], changes: &[(&str, StateChange)]) -> Effects {
    let reads = reads.iter().map(|(key, version)| ((*key).to_owned(), *version)).collect();
    let changes = changes.iter().map(|(key, change)| ((*key).to_owned(), change.clone())).collect();
    Effects { state: Some(StateEffects { bucket: name("b"), reads, changes }), ..Effects::default() }
}

async fn read(store: &dyn Store, keys: &[&str]) -> StateFound {
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    store.read_state(&name("b"), &keys).await.expect("state is read")
}

/// An entry's value as text and its version; empty and 0 when there is none.
pub(crate) async fn entry(store: &dyn Store, key: &str) -> (String, u64) {
    match read(store, &[key]).await.values.remove(0) {
        Some(found) => (String::from_utf8(found.value.to_vec()).expect("text"), found.version),
        None => (String::new(), 0),
    }
}

/// Commits these effects with a job of its own.
async fn commit(store: &dyn Store, job: &str, effects: Effects) -> Settled {
    let (hand, claimed) = parent(store, job).await;
    hand.settle_all(&[committing(&claimed, effects)]).await.remove(0)
}

/// What is there is told right, and nothing is wrong inside.
pub(crate) async fn sound<B: Bed>(bed: &B) {
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(bed.store().doctor(false).await, Ok(vec![]));
}

pub(crate) async fn state_comes_with_the_completion_and_totals_are_exact<B: Bed>(bed: B) {
    let store = bed.store();
    let nothing = StateFound { values: vec![None, None], entries: 0, bytes: 0 };
    assert_eq!(read(store, &["k", "é"]).await, nothing, "an unknown bucket is an empty one");
    let raw = StateChange::Set(vec![0, b' ', 0x1f, 0xff].into());
    let effects =
        state(&[], &[("k", set("value")), ("é", raw), ("empty", set("")), ("n", Add(-7)), ("x", Delete)]);
    assert_eq!(commit(store, "1", effects).await, Settled::Done);
    let found = read(store, &["k", "é", "empty", "n", "x", "k"]).await;
    let values: Vec<Option<&[u8]>> = found.values.iter().map(|v| v.as_ref().map(|v| &v.value[..])).collect();
    let expected: [Option<&[u8]>; 6] =
        [Some(b"value"), Some(&[0, b' ', 0x1f, 0xff]), Some(b""), Some(b"-7"), None, Some(b"value")];
    assert_eq!(values, expected);
    assert_eq!((found.entries, found.bytes), (4, 6 + 6 + 5 + 3), "bytes of keys and values");
    assert_eq!(view(store, &id("1")).await.state, State::Completed);

    assert_eq!(
        commit(store, "2", state(&[], &[("k", set("v")), ("é", Delete), ("empty", Delete)])).await,
        Settled::Done
    );
    let found = read(store, &[]).await;
    assert_eq!((found.entries, found.bytes), (2, 2 + 3));
    assert_eq!(commit(store, "3", state(&[], &[("k", Delete), ("n", Delete)])).await, Settled::Done);
    assert_eq!(read(store, &["k", "é"]).await, nothing);
    assert_eq!(store.buckets(None).await.expect("buckets").items, vec![], "an empty bucket is none");
    sound(&bed).await;
}

pub(crate) async fn state_that_changed_since_it_was_read_is_a_conflict<B: Bed>(bed: B) {
    let store = bed.store();
    store.set_state(&name("b"), "k", b"old").await.expect("set");
    store.set_state(&name("b"), "gone", b"x").await.expect("set");
    let (mut hand, claimed) = parent(store, "p").await;
    let (_, version) = entry(store, "k").await;
    let (_, gone) = entry(store, "gone").await;
    store.set_state(&name("b"), "k", b"new").await.expect("set");
    store.delete_state(&name("b"), "gone").await.expect("deleted");
    for reads in [
        &[("k", version)][..],
        &[("gone", gone)],
        &[("k", 0)],
        &[("none", 9)],
        &[("none", 0), ("k", version)],
    ] {
        let mut effects = state(reads, &[("k", set("mine")), ("other", set("mine"))]);
        effects.children = vec![job_with_id("child", "x")];
        let again = if claimed.lease == hand_lease(store).await {
            claimed.clone()
        } else {
            hand.claim_when_due("parent").await
        };
        assert_eq!(again.attempt, 1, "the attempt is unspent");
        let settlement = committing(&again, effects);
        assert_eq!(
            hand.settle_all(std::slice::from_ref(&settlement)).await,
            [Settled::Conflict],
            "{reads:?}"
        );
        let after = view(store, &id("p")).await;
        assert!(matches!(after.state, State::Ready | State::Scheduled), "it waits again: {}", after.state);
        assert_eq!(after.attempt, 0);
        assert_eq!((after.error, after.result), (None, None));
        let event = after.history.last().expect("an event");
        let message = event.message.as_deref().unwrap_or_default();
        assert_eq!((event.event.as_str(), event.attempt), ("released", 1));
        assert!(message.contains("state had changed") && message.contains("bucket b"), "{message}");
        assert_eq!(entry(store, "k").await.0, "new");
        assert_eq!(entry(store, "other").await, (String::new(), 0), "nothing of the effects is written");
        assert_eq!(store.find(None, &id("x")).await, Ok(vec![]));
        let once = bed.contents().await;
        assert_eq!(
            hand.settle_all(&[settlement.clone(), settlement]).await,
            [Settled::Conflict; 2],
            "also when its reply was lost"
        );
        assert_eq!(bed.contents().await, once);
    }
    let counts = store.counts().await.expect("counts");
    assert_eq!(
        (counts.stale_total, counts.queues[0].completed_total, counts.queues[0].failed_total),
        (0, 0, 0)
    );
    let last = hand.claim_when_due("parent").await;
    let (_, version) = entry(store, "k").await;
    let effects = state(&[("k", version), ("none", 0)], &[("k", set("mine"))]);
    assert_eq!(hand.settle_all(&[committing(&last, effects)]).await, [Settled::Done]);
    assert_eq!(entry(store, "k").await.0, "mine");
    sound(&bed).await;
}

/// The only lease, or one that nobody has.
async fn hand_lease(store: &dyn Store) -> hourhand::queue::Lease {
    match leases(store).await.pop() {
        Some(seen) => seen.lease,
        None => hourhand::queue::Lease {
            record: 0,
            session: hourhand::queue::SessionId("nobody".into()),
            token: 0,
        },
    }
}

pub(crate) async fn conflicts_in_a_row_wait_longer_each_time<B: Bed>(bed: B) {
    let store = bed.store();
    let (mut hand, mut claimed) = parent(store, "p").await;
    let first_due_ms = claimed.due_ms;
    // Soon by hand, so that nobody waits for it: the count goes on.
    let again = async |hand: &mut Hand<'_>| {
        let soon = hourhand::job::Due::In(0);
        assert_eq!(store.reschedule(&job_ref("parent", "p"), soon).await, Ok(Verdict::Done));
        hand.claim_when_due("parent").await
    };
    let conflict = async |claimed: &ClaimedJob| {
        let settlement = committing(claimed, state(&[("k", 7)], &[]));
        let before = store.counts().await.expect("counts").now_ms;
        assert_eq!(hand_settle(store, &settlement).await, Settled::Conflict);
        let after = store.counts().await.expect("counts").now_ms;
        let once = bed.contents().await;
        assert_eq!(hand_settle(store, &settlement).await, Settled::Conflict, "also when its reply was lost");
        assert_eq!(bed.contents().await, once);
        let seen = view(store, &id("p")).await;
        assert_eq!(seen.attempt, claimed.attempt - 1, "the attempt is unspent");
        (before, seen.due_ms, after)
    };
    let (_, due_ms, _) = conflict(&claimed).await;
    assert_eq!(due_ms, first_due_ms, "the first time at once, where it was");
    for in_a_row in 1..=13_u32 {
        claimed = again(&mut hand).await;
        let ms = 10 << in_a_row.min(10);
        let wait_ms = ms + claimed.lease.token * 7_919 % ms;
        let (before, due_ms, after) = conflict(&claimed).await;
        let expected = before + wait_ms..=after + wait_ms;
        assert!(expected.contains(&due_ms), "{in_a_row}: due at {due_ms}, expected {expected:?}");
    }
    // A settlement of another kind, and a reclaim, begin anew.
    claimed = again(&mut hand).await;
    assert_eq!(hand.settle(&claimed, retry(0)).await, Settled::Done);
    claimed = hand.claim_when_due("parent").await;
    let (_, due_ms, _) = conflict(&claimed).await;
    assert_eq!(due_ms, claimed.due_ms, "a run that failed is between");
    hand.claim_when_due("parent").await;
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    claimed = hand.claim_when_due("parent").await;
    let (_, due_ms, _) = conflict(&claimed).await;
    assert_eq!(due_ms, claimed.due_ms, "a crash is between");
    claimed = hand.claim_when_due("parent").await;
    let done = committing(&claimed, state(&[("k", 0)], &[("k", set("mine"))]));
    assert_eq!(hand_settle(store, &done).await, Settled::Done);
    assert_eq!(view(store, &id("p")).await.state, State::Completed);
    sound(&bed).await;
}

async fn hand_settle(store: &dyn Store, settlement: &Settlement) -> Settled {
    store.settle(std::slice::from_ref(settlement)).await.expect("settle answers").remove(0)
}

pub(crate) async fn a_copy_of_a_job_in_conflict_counts_anew<B: Bed>(bed: B) {
    let (store, to) = (bed.store(), bed.open("target").await);
    let (mut hand, claimed) = parent(store, "p").await;
    let conflict = |claimed: &ClaimedJob| committing(claimed, state(&[("k", 7)], &[]));
    assert_eq!(hand_settle(store, &conflict(&claimed)).await, Settled::Conflict);
    let claimed = hand.claim_one("parent").await;
    assert_eq!(hand_settle(store, &conflict(&claimed)).await, Settled::Conflict);
    crate::copying::copy(store, &to).await;
    assert_eq!(view(&to, &id("p")).await, view(store, &id("p")).await);
    let mut hand = Hand::new(&to, "t");
    let claimed = hand.claim_when_due("parent").await;
    assert_eq!(hand_settle(&to, &conflict(&claimed)).await, Settled::Conflict);
    assert_eq!(view(&to, &id("p")).await.due_ms, claimed.due_ms, "at once");
    sound(&bed).await;
}

pub(crate) async fn reads_alone_are_checked_too<B: Bed>(bed: B) {
    let store = bed.store();
    let version = store.set_state(&name("b"), "k", b"1").await.expect("set");
    assert_eq!(commit(store, "p", state(&[("k", version)], &[])).await, Settled::Done);
    assert_eq!(commit(store, "q", state(&[("k", version + 1)], &[])).await, Settled::Conflict);
    assert_eq!(entry(store, "k").await, ("1".to_owned(), version), "a read changes nothing");
    sound(&bed).await;
}

pub(crate) async fn a_version_never_comes_back<B: Bed>(bed: B) {
    let store = bed.store();
    let mut seen = std::collections::BTreeSet::new();
    let mut last = 0;
    for round in 0..3 {
        commit(store, &format!("a{round}"), state(&[], &[("k", set("same"))])).await;
        let (_, made) = entry(store, "k").await;
        commit(store, &format!("b{round}"), state(&[("k", made)], &[("k", set("same"))])).await;
        let (_, changed) = entry(store, "k").await;
        assert!(made > last && changed > made, "versions grow: {last} {made} {changed}");
        assert!(seen.insert(made) && seen.insert(changed));
        last = changed;
        commit(store, &format!("c{round}"), state(&[], &[("k", Delete)])).await;
        assert_eq!(entry(store, "k").await.1, 0);
        if round == 1 {
            store.delete_state(&name("b"), "k").await.expect("nothing to delete");
        }
    }
    assert_eq!(commit(store, "late", state(&[("k", last)], &[])).await, Settled::Conflict);
}

pub(crate) async fn changes_in_a_row_have_versions_of_their_own<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("parent"); 3]).await;
    let mut hand = Hand::new(store, "s");
    let mut versions = vec![0];
    // Nothing else takes a number in between.
    for claimed in hand.claim(&["parent"], 3).await {
        let effects = state(&[], &[("k", set("same"))]);
        assert_eq!(hand.settle_all(&[committing(&claimed, effects)]).await, [Settled::Done]);
        versions.push(entry(store, "k").await.1);
    }
    assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
    sound(&bed).await;
}

pub(crate) async fn additions_are_exact_to_64_bits<B: Bed>(bed: B) {
    let store = bed.store();
    const MAX: &str = "9223372036854775807";
    const MIN: &str = "-9223372036854775808";
    for (n, (before, by, after)) in [
        ("", 5, "5"),
        ("0", 0, "0"),
        ("-0", 0, "0"),
        ("007", 1, "8"),
        ("1", -1, "0"),
        ("0", -1, "-1"),
        ("-1", 1, "0"),
        ("-5", 3, "-2"),
        ("5", -8, "-3"),
        ("999999999", 1, "1000000000"),
        ("1000000000", -1, "999999999"),
        ("-1000000000", 1, "-999999999"),
        ("-999999999", -1, "-1000000000"),
        ("9007199254740993", 1, "9007199254740994"),
        ("9007199254740992", 1, "9007199254740993"),
        ("-9007199254740993", -1, "-9007199254740994"),
        ("1999999999", 8_000_000_001, "10000000000"),
        ("9223372036854775806", 1, MAX),
        ("-9223372036854775807", -1, MIN),
        ("", i64::MAX, MAX),
        ("", i64::MIN, MIN),
        (MAX, i64::MIN, "-1"),
        (MIN, i64::MAX, "-1"),
        ("4611686018427387904", 4_611_686_018_427_387_903, MAX),
        ("9000000000999999999", -9_000_000_001_000_000_000, "-1"),
        // No whole number of 64 bits, before or after.
        (MAX, 1, "conflict"),
        (MIN, -1, "conflict"),
        ("1", i64::MAX, "conflict"),
        ("-1", i64::MIN, "conflict"),
        ("9223372036854775808", -1, "conflict"),
        ("-9223372036854775809", 1, "conflict"),
        ("00000000000000000001", 1, "conflict"),
        ("1.0", 1, "conflict"),
        ("1e3", 1, "conflict"),
        ("0x10", 1, "conflict"),
        ("+1", 1, "conflict"),
        (" 1", 1, "conflict"),
        ("1\n", 1, "conflict"),
        ("-", 1, "conflict"),
        ("text", 1, "conflict"),
    ]
    .into_iter()
    .enumerate()
    {
        if before.is_empty() {
            store.delete_state(&name("b"), "n").await.expect("deleted");
        } else {
            store.set_state(&name("b"), "n", before.as_bytes()).await.expect("set");
        }
        let answer = commit(store, &format!("j{n}"), state(&[], &[("n", Add(by))])).await;
        let (found, _) = entry(store, "n").await;
        match after {
            "conflict" => assert_eq!((answer, &*found), (Settled::Conflict, before), "{before} + {by}"),
            _ => assert_eq!((answer, &*found), (Settled::Done, after), "{before} + {by}"),
        }
        store.delete(&[job_ref("parent", &format!("j{n}"))]).await.expect("deleted");
    }
    store.set_state(&name("b"), "n", b"").await.expect("set");
    assert_eq!(commit(store, "empty", state(&[], &[("n", Add(1))])).await, Settled::Conflict, "no digit");
    sound(&bed).await;
}

pub(crate) async fn additions_of_many_jobs_all_count<B: Bed>(bed: B) {
    const JOBS: usize = 200;
    let store = bed.store();
    enqueue_all(store, &vec![job("parent"); JOBS]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["parent"], JOBS).await;
    let handles = [bed.open(NAMESPACE).await, bed.open(NAMESPACE).await];
    let mut settling = Vec::new();
    for (n, chunk) in claimed.chunks(7).enumerate() {
        let batch: Vec<Settlement> = chunk
            .iter()
            .enumerate()
            .map(|(i, job)| committing(job, state(&[], &[("n", Add(1)), (&format!("k{}", i % 3), Add(-2))])))
            .collect();
        let store = &handles[n % 2];
        settling.push(async move { store.settle(&batch).await });
    }
    for answers in futures_together(settling).await {
        assert!(answers.expect("settled").iter().all(|answer| *answer == Settled::Done));
    }
    assert_eq!(entry(store, "n").await.0, JOBS.to_string());
    let mut sum = 0;
    for key in ["k0", "k1", "k2"] {
        sum += entry(store, key).await.0.parse::<i64>().expect("a number");
    }
    assert_eq!(sum, -2 * JOBS as i64);
    sound(&bed).await;
}

/// All of them at once.
async fn futures_together<F: Future>(all: Vec<F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.into_iter().map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|context| {
        let mut waits = false;
        for (future, done) in &mut all {
            if done.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => waits = true,
                }
            }
        }
        if waits { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

pub(crate) async fn changes_of_one_batch_follow_each_other<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("parent"); 4]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["parent"], 4).await;
    let batch = [
        committing(&claimed[0], state(&[("k", 0)], &[("k", set("first"))])),
        committing(&claimed[1], state(&[("k", 0)], &[("k", set("second"))])),
        committing(&claimed[2], state(&[], &[("n", Add(1))])),
        committing(&claimed[3], state(&[], &[("n", Add(1))])),
    ];
    use Settled::{Conflict, Done};
    assert_eq!(hand.settle_all(&batch).await, [Done, Conflict, Done, Done]);
    assert_eq!((entry(store, "k").await.0.as_str(), entry(store, "n").await.0.as_str()), ("first", "2"));
    sound(&bed).await;
}

pub(crate) async fn state_of_any_other_outcome_or_a_stale_lease_is_dropped<B: Bed>(bed: B) {
    let store = bed.store();
    let effects = state(&[], &[("k", set("never"))]);
    for (n, outcome) in [retry(60_000), dead(), hourhand::outcome::Outcome::Cancelled].into_iter().enumerate()
    {
        let (hand, claimed) = parent(store, &format!("p{n}")).await;
        let settlement = Settlement { outcome, ..committing(&claimed, effects.clone()) };
        assert_eq!(hand.settle_all(&[settlement]).await, [Settled::Done]);
    }
    let (hand, claimed) = parent(store, "late").await;
    let mut late = committing(&claimed, effects);
    late.lease = forged(&late.lease);
    assert_eq!(hand.settle_all(&[late]).await, [Settled::Stale]);
    assert_eq!(entry(store, "k").await.1, 0);
}

pub(crate) async fn a_cancelled_job_in_conflict_does_not_come_back<B: Bed>(bed: B) {
    let store = bed.store();
    let (hand, claimed) = parent(store, "p").await;
    assert_eq!(store.cancel(&[job_ref("parent", "p")], KEEP).await, Ok(vec![Verdict::Asked]));
    let settlement = committing(&claimed, state(&[("k", 7)], &[("k", set("never"))]));
    assert_eq!(hand.settle_all(std::slice::from_ref(&settlement)).await, [Settled::Conflict]);
    let after = view(store, &id("p")).await;
    assert_eq!(after.state, State::Cancelled);
    let events: Vec<&str> = after.history.iter().map(|e| e.event.as_str()).collect();
    assert_eq!(events, ["enqueued", "started", "released", "cancelled"]);
    assert_eq!(hand.settle_all(&[settlement]).await, [Settled::Conflict], "also when its reply was lost");
    sound(&bed).await;
}

pub(crate) async fn a_conflict_keeps_place_and_priority<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("parent"); 3]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["parent"], 2).await;
    let conflict = |i: usize| committing(&claimed[i], state(&[("k", 7)], &[]));
    assert_eq!(hand.settle_all(&[conflict(1), conflict(0)]).await, [Settled::Conflict; 2]);
    let again: Vec<_> = hand.claim(&["parent"], 3).await.into_iter().map(|c| c.job.id).collect();
    assert_eq!(again, ids);
}
