//! A store that has lost data, and what runners then offer it from their hands.

use bytes::Bytes;
use hourhand::effects::Progress;
use hourhand::job::{Due, JobView, NewJob, Priority, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{
    BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, ClaimRequest, ClaimedJob, Disposition, IdMemory, Lease, LogWrite,
    Offered, RecallAction, Reclaimed, Retention, SessionId, Settled, Settlement, Store, StoreError, Verdict,
};

use crate::bed::*;

const NO_TRACE: Retention = Retention { age_ms: Some(0), count: None, bytes: None };

/// Nothing is wrong in the store, whoever looks.
async fn sound<B: Bed>(bed: &B) {
    assert_eq!(bed.store().doctor(false).await, Ok(vec![]));
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

async fn offer(store: &dyn Store, jobs: &[ClaimedJob]) -> Vec<Offered> {
    store.offer(jobs).await.expect("offers are answered")
}

/// Offers jobs that must all be restored; each with the record that it has now.
async fn restored(store: &dyn Store, jobs: &[ClaimedJob]) -> Vec<ClaimedJob> {
    let answers = offer(store, jobs).await;
    let now = jobs.iter().zip(&answers).map(|(job, answer)| {
        let Offered::Restored { record } = *answer else { panic!("{answer:?} of {}", job.job.id) };
        renumbered(job, record)
    });
    let now: Vec<ClaimedJob> = now.collect();
    let again: Vec<Offered> = now.iter().map(|job| Offered::Kept { record: job.lease.record }).collect();
    assert_eq!(offer(store, jobs).await, again, "a repeat finds them");
    assert_eq!(offer(store, &now).await, again, "by their new numbers, too");
    now
}

fn renumbered(job: &ClaimedJob, record: u64) -> ClaimedJob {
    let mut job = job.clone();
    job.lease.record = record;
    job
}

/// What is shown of a job, but for what happened to it and when it was claimed.
fn facts(view: &JobView) -> impl PartialEq + std::fmt::Debug {
    let JobView { job, state, attempt, max_attempts, crashes, due_ms, .. } = view.clone();
    (job, state, attempt, max_attempts, crashes, due_ms)
}

pub(crate) async fn a_beat_that_was_told_is_lost_only_when_the_store_went_back<B: Bed>(bed: B) {
    let store = bed.store();
    let name = store.identity().await.expect("a name");
    let (mut one, two) = (Hand::new(store, "one"), Hand::new(store, "two"));
    let first = one.beat().await;
    assert_eq!((first.beat_before, first.identity.as_str()), (None, &*name));
    enqueue_all(store, &vec![job("a"); 2]).await;
    let other = two.beat().await;
    let request = one.request(&["a"], 1);
    let claimed = one.send(request).await;
    assert_eq!(claimed.beat, first.beat + 1, "a claim that takes jobs is a beat");
    let backup = bed.backup().await;
    let request = one.request(&["a"], 1);
    assert_eq!(one.send(request).await.beat, first.beat + 2);
    let request = one.request(&["a"], 1);
    assert_eq!(one.send(request).await.beat, first.beat + 2, "one that takes none is not");
    let second = one.beat().await;
    assert_eq!((second.beat_before, second.beat), (Some(first.beat + 2), first.beat + 3));
    assert!(first.mark < other.mark && other.mark < second.mark, "each heartbeat has a higher mark");
    // What an intact store knows of a session is never less than it told: whatever ended it shows as none.
    store.end_session(&one.session).await.expect("ended");
    let ended = one.beat().await;
    assert_eq!((ended.beat_before, ended.mark > second.mark), (None, true));

    bed.go_back(&backup).await;
    for answer in ["is lost", "arrives"] {
        let back = one.beat_told(second.beat).await;
        let beats = (back.beat_before, back.beat);
        assert_eq!(
            beats,
            (Some(first.beat + 1), first.beat + 1),
            "what is lost shows until an answer {answer}"
        );
    }
    let back = one.beat_told(first.beat + 1).await;
    assert_eq!((back.beat_before, back.beat), (Some(first.beat + 1), first.beat + 2));
    bed.go_back(&[]).await;
    let empty = one.beat().await;
    assert_eq!((empty.beat_before, empty.identity.as_str()), (None, ""));
    assert!(empty.mark <= second.mark);
    assert_ne!(store.identity().await.expect("a name"), name, "it is another store");
}

pub(crate) async fn a_claim_takes_nothing_from_a_store_that_knows_less<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &vec![job("a"); 3]).await;
    let mut hand = Hand::new(store, "s");
    let beat = hand.beat().await.beat;
    let backup = bed.backup().await;
    let request = ClaimRequest { beat, ..hand.request(&["a"], 1) };
    let claimed = hand.send(request).await;
    assert_eq!((claimed.jobs.len(), claimed.beat), (1, beat + 1));
    bed.go_back(&backup).await;
    let request = ClaimRequest { beat: beat + 1, ..hand.request(&["a"], 1) };
    let refused = hand.send(request.clone()).await;
    assert_eq!((refused.jobs.len(), refused.beat), (0, beat), "what waits may be in the hand");
    bed.lose_session(&hand.session).await;
    let refused = hand.send(request).await;
    assert_eq!((refused.jobs.len(), refused.beat), (0, 0));
    let told = hand.beat().await.beat;
    let request = ClaimRequest { beat: told, ..hand.request(&["a"], 3) };
    assert_eq!(hand.send(request).await.jobs.len(), 3);
    sound(&bed).await;
}

pub(crate) async fn an_offer_to_a_store_that_has_lost_nothing_changes_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job("a"), job_with_id("a", "x"), job("b")]).await;
    enqueue_one(store, &NewJob { due: Due::In(5_000), ..job("held") }).await;
    let mut hand = Hand::new(store, "s");
    let mut jobs = hand.claim(&["a", "b"], 5).await;
    jobs.extend(hand.hold(&["held"], 1).await);
    assert_eq!(jobs.len(), 4);
    let before = bed.contents().await;
    let kept: Vec<Offered> = jobs.iter().map(|job| Offered::Kept { record: job.lease.record }).collect();
    assert_eq!(offer(store, &jobs).await, kept);
    assert_eq!(offer(store, &[]).await, []);
    assert_eq!(bed.contents().await, before);
}

pub(crate) async fn a_job_whose_lease_is_lost_is_leased_again<B: Bed>(bed: B) {
    let store = bed.store();
    let urgent = NewJob { priority: Priority::High, ..job("a") };
    let later = NewJob { due: Due::In(5_000), ..job_with_id("a", "held") };
    enqueue_all(store, &[job_with_id("a", "x"), urgent, later, job_with_id("a", "tried"), job("pill")]).await;
    let mut hand = Hand::new(store, "s");
    let first = hand.claim(&["a"], 5).await;
    for job in &first {
        hand.settle(
            job,
            if job.job.id == id("tried") { retry(0) } else { Outcome::Released { message: None } },
        )
        .await;
    }
    for _ in 0..2 {
        Hand::new(store, "lost").claim_one("pill").await;
        store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    }
    let backup = bed.backup().await;
    let mut jobs = hand.claim(&["a", "pill"], 5).await;
    jobs.extend(hand.hold(&["a"], 1).await);
    assert_eq!(jobs.len(), 5);
    let mut before = Vec::new();
    for job in &jobs {
        before.push(view(store, &job.job.id).await);
    }
    bed.go_back(&backup).await;
    let now = restored(store, &jobs).await;
    assert_eq!(now, jobs, "under their numbers");
    sound(&bed).await;
    for (job, before) in jobs.iter().zip(&before) {
        let after = view(store, &job.job.id).await;
        assert_eq!(facts(&after), facts(before));
        assert_eq!(after.history, before.history, "nothing has happened to it");
    }
    let mut other = Hand::new(store, "other");
    let claims = ClaimRequest { ahead_max: 5, look_ahead_ms: 10_000, ..other.request(&["a", "pill"], 5) };
    assert_eq!(other.send(claims).await.jobs, [], "nobody else gets them");
    for job in &jobs {
        hand.complete(job).await;
        assert_eq!(state(store, &job.job.id).await, State::Completed);
    }
    sound(&bed).await;
}

pub(crate) async fn a_lost_job_is_made_again_as_it_was<B: Bed>(bed: B) {
    let store = bed.store();
    let full = NewJob {
        queue: name("q"),
        priority: Priority::Low,
        payload: Bytes::from_static(b"\x1f\x00\x1e as it is"),
        max_attempts: Some(7),
        timeout_ms: Some(1_234),
        meta: vec![("k".to_owned(), "\u{1e}".to_owned()), ("k".to_owned(), "v".to_owned())],
        traceparent: Some("00-x".to_owned()),
        source: "somebody".to_owned(),
        ..job_with_id("a", "full")
    };
    enqueue_all(store, &[job("b"), full.clone(), job("b"), job_with_id("b", "tried")]).await;
    enqueue_one(store, &job_with_id("b", "later")).await;
    let mut hand = Hand::new(store, "s");
    hand.beat().await;
    let lanes = hand.request(&["b"], 5).lanes;
    let of_q = hourhand::queue::Lane { queue: name("q"), kind: name("a") };
    let lanes = [lanes, vec![hourhand::queue::LaneClaim::new(of_q, 5)]].concat();
    for job in hand.claim(&["b"], 5).await {
        let end = match job.job.id.as_str() {
            "tried" => retry(0),
            "later" => retry(5_000),
            _ => Outcome::Released { message: None },
        };
        hand.settle(&job, end).await;
    }
    let request =
        ClaimRequest { lanes: lanes.clone(), ahead_max: 1, look_ahead_ms: 10_000, ..hand.request(&[], 5) };
    let jobs = hand.send(request).await.jobs;
    assert_eq!(jobs.len(), 5);
    let mut before = Vec::new();
    for job in &jobs {
        before.push(view(store, &job.job.id).await);
    }
    bed.go_back(&[]).await;
    let now = restored(store, &jobs).await;
    assert_eq!(now, jobs, "under their numbers");
    sound(&bed).await;
    for (job, before) in jobs.iter().zip(&before) {
        let after = view(store, &job.job.id).await;
        assert_eq!(facts(&after), facts(before));
        let events: Vec<&str> = after.history.iter().map(|event| event.event.as_str()).collect();
        assert_eq!(events, ["enqueued", "restored"]);
    }
    let counts = store.counts().await.expect("counts");
    let of = |queue: &str| counts.queues.iter().find(|q| q.queue == name(queue)).expect("it is known");
    assert_eq!((of("b").running, of("b").scheduled, of("b").enqueued_total), (3, 1, 4));
    assert_eq!(store.lanes().await.expect("lanes").len(), 2);
    let again = store.enqueue(&[full]).await.expect("answered").remove(0);
    assert_eq!((again.disposition, again.state), (Disposition::Kept, State::Running), "its id is its own");
    let next = enqueue_one(store, &job("b")).await;
    let newest = jobs.iter().map(|job| job.lease.record).max().expect("some");
    let number: u64 = next.as_str().split('-').next().and_then(|n| n.parse().ok()).expect("a made id");
    assert!(number > newest, "the sequence goes on behind them: {next} after {newest}");
    for job in &jobs {
        hand.complete(job).await;
        assert_eq!(state(store, &job.job.id).await, State::Completed);
    }
    sound(&bed).await;
}

pub(crate) async fn a_lost_job_whose_number_is_anothers_gets_a_new_one<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job("a"), job_with_id("a", "x"), job("a"), job("a")]).await;
    let mut hand = Hand::new(store, "s");
    let jobs = hand.claim(&["a"], 4).await;
    bed.go_back(&[]).await;
    // These have the first numbers now; and one of them takes another as its place.
    let newer = enqueue_all(store, &[job_with_id("a", "new"), job("a")]).await;
    hand.beat().await;
    let replaced = NewJob { on_conflict: hourhand::job::OnConflict::Replace, ..job_with_id("a", "new") };
    enqueue_one(store, &replaced).await;
    let now = restored(store, &jobs).await;
    let records: std::collections::BTreeSet<u64> = now.iter().map(|job| job.lease.record).collect();
    assert_eq!(records.len(), 4, "each has one of its own: {records:?}");
    sound(&bed).await;
    for job in jobs.iter().map(|job| &job.job.id) {
        assert_eq!(state(store, job).await, State::Running, "found by its id");
    }
    let log = LogWrite {
        lease: now[0].lease.clone(),
        attempt: 1,
        text: "it goes on".to_owned(),
        progress: Some(Progress { percent: 40, message: "so far".to_owned() }),
    };
    assert_eq!(store.write_logs(&[log]).await, Ok(vec![Settled::Done]));
    assert_eq!(view(store, &jobs[0].job.id).await.progress.map(|p| p.percent), Some(40));
    // The old number is the newer job's, which waits: whoever names it is refused.
    assert_eq!(hand.settle(&jobs[0], completed(b"")).await, Settled::Stale);
    assert_eq!(hand.settle(&now[0], retry(0)).await, Settled::Done);
    for job in &now[1..] {
        hand.complete(job).await;
    }
    assert_eq!(hand.claim(&["a"], 9).await.len(), newer.len() + 1);
    for id in [&newer[0], &newer[1], &jobs[0].job.id] {
        assert_eq!(view(store, id).await.state, State::Running);
    }
    sound(&bed).await;
}

pub(crate) async fn each_job_that_is_made_again_has_a_place_of_its_own<B: Bed>(bed: B) {
    let store = bed.store();
    // One due time, so that the place alone tells them apart; some numbers are used up by heartbeats since.
    let ids = enqueue_all(store, &vec![NewJob { due: Due::In(5_000), ..job("a") }; 6]).await;
    let mut hand = Hand::new(store, "s");
    let jobs = hand.hold(&["a"], 6).await;
    assert_eq!(jobs.len(), 6);
    bed.go_back(&[]).await;
    for _ in 0..3 {
        hand.beat().await;
    }
    let now = restored(store, &jobs).await;
    for claimed in &now {
        assert_eq!(hand.settle(claimed, Outcome::Released { message: None }).await, Settled::Done);
    }
    for id in &ids {
        assert_eq!(state(store, id).await, State::Scheduled);
    }
    sound(&bed).await;
}

pub(crate) async fn a_lease_that_is_put_back_brings_its_crashes<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { max_attempts: Some(9), ..job_with_id("a", "x") }).await;
    let crash = async |session: &str| {
        Hand::new(store, session).claim(&["a"], 1).await;
        assert_eq!(
            store.reclaim(&leases(store).await, KEEP).await,
            Ok(Reclaimed { ready: 1, ..Reclaimed::default() })
        );
    };
    crash("first").await;
    let backup = bed.backup().await;
    crash("second").await;
    let mut hand = Hand::new(store, "s");
    let suspects = ClaimRequest { suspect: true, ..hand.request(&["a"], 1) };
    let jobs = hand.send(suspects).await.jobs;
    assert_eq!((jobs.len(), jobs[0].crashes), (1, 2));
    bed.go_back(&backup).await;
    hand.beat().await;
    let now = restored(store, &jobs).await;
    assert_eq!(hand.settle(&now[0], retry(0)).await, Settled::Done);
    assert_eq!(view(store, &id("x")).await.crashes, 2, "none is forgotten");
    sound(&bed).await;
    assert_eq!(store.cancel(&[job_ref("a", "x")], KEEP).await, Ok(vec![Verdict::Done]));
    let suspects = ClaimRequest { suspect: true, ..hand.request(&["a"], 1) };
    assert_eq!(hand.send(suspects).await.jobs, []);
    sound(&bed).await;
}

pub(crate) async fn what_is_somebody_elses_by_now_stays_as_it_is<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = [
        "theirs",
        "done",
        "dead",
        "reclaimed",
        "tried",
        "cancelled",
        "remembered",
        "called-off",
        "newer",
        "other-kind",
    ];
    let wanted: Vec<NewJob> = ids.iter().map(|text| job_with_id("a", text)).collect();
    enqueue_all(store, &wanted).await;
    let made = enqueue_one(store, &job("a")).await;
    let backup = bed.backup().await;
    let mut hand = Hand::new(store, "s");
    let jobs = hand.claim(&["a"], 11).await;
    assert_eq!(jobs.len(), 11);
    bed.go_back(&backup).await;
    assert_eq!(store.cancel(&[job_ref("a", "called-off")], KEEP).await, Ok(vec![Verdict::Done]));
    let mut other = Hand::new(store, "other");
    let theirs = other.claim(&["a"], 10).await;
    for job in &theirs {
        match job.job.id.as_str() {
            "theirs" => continue,
            "reclaimed" => {
                let lease = leases(store).await.into_iter().find(|seen| seen.lease == job.lease);
                store.reclaim(&[lease.expect("listed")], KEEP).await.expect("reclaimed");
            }
            "dead" => assert_eq!(other.settle(job, dead()).await, Settled::Done),
            "tried" => assert_eq!(other.settle(job, retry(0)).await, Settled::Done),
            "cancelled" => assert_eq!(other.settle(job, Outcome::Cancelled).await, Settled::Done),
            "remembered" => {
                assert_eq!(other.settle_kept(job, completed(b""), NO_TRACE).await, Settled::Done);
            }
            "newer" | "other-kind" => {
                let id_memory = IdMemory { age_ms: 0, ..IdMemory::default() };
                let end = settlement(job, completed(b""));
                let end = Settlement { retention: NO_TRACE, id_memory, ..end };
                assert_eq!(other.settle_all(&[end]).await, [Settled::Done], "nothing is left of it");
            }
            _ => other.complete(job).await,
        }
    }
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    let kind_b = NewJob { queue: name("a"), ..job_with_id("b", "other-kind") };
    for new in [job_with_id("a", "newer"), kind_b] {
        let enqueued = store.enqueue(std::slice::from_ref(&new)).await.expect("taken").remove(0);
        assert_eq!(enqueued.disposition, Disposition::Created, "{new:?}");
    }
    let before = bed.contents().await;
    for job in &jobs {
        assert_eq!(offer(store, std::slice::from_ref(job)).await, [Offered::Taken], "{}", job.job.id);
    }
    assert_eq!(offer(store, &jobs).await, vec![Offered::Taken; jobs.len()]);
    assert_eq!(bed.contents().await, before, "nothing has changed");
    assert_eq!(state(store, &made).await, State::Completed);
    sound(&bed).await;
}

pub(crate) async fn what_was_restored_ends_like_any_other<B: Bed>(bed: B) {
    let store = bed.store();
    let kinds = ["fails", "snoozes", "released", "crashed", "cancelled"];
    let wanted: Vec<NewJob> = kinds.iter().map(|text| job_with_id("a", text)).collect();
    enqueue_all(store, &wanted).await;
    let held = enqueue_one(store, &NewJob { due: Due::In(5_000), ..job("a") }).await;
    let mut hand = Hand::new(store, "s");
    let mut jobs = hand.claim(&["a"], 9).await;
    jobs.extend(hand.hold(&["a"], 1).await);
    bed.go_back(&[]).await;
    // Their numbers are other jobs' by now.
    enqueue_all(store, &vec![NewJob { due: Due::In(3_600_000), ..job("z") }; 9]).await;
    hand.beat().await;
    let now = restored(store, &jobs).await;
    let of = |text: &str| now.iter().find(|claimed| claimed.job.id == id(text)).expect("restored");
    hand.settle(of("fails"), retry(0)).await;
    hand.settle(of("snoozes"), Outcome::Snoozed { delay_ms: 0 }).await;
    hand.settle(of("released"), Outcome::Released { message: None }).await;
    let crashed = leases(store).await.into_iter().find(|seen| seen.lease == of("crashed").lease);
    let crashed = [crashed.expect("it is listed")];
    assert_eq!(store.reclaim(&crashed, KEEP).await, Ok(Reclaimed { ready: 1, ..Reclaimed::default() }));
    assert_eq!(store.cancel(&[job_ref("a", "cancelled")], KEEP).await, Ok(vec![Verdict::Asked]));
    let recalls = hand.beat().await.recalls;
    let expected = (of("cancelled").lease.record, of("cancelled").lease.token, RecallAction::Cancel);
    assert_eq!(recalls.iter().map(|r| (r.record, r.token, r.action)).collect::<Vec<_>>(), [expected]);
    hand.settle(of("cancelled"), Outcome::Cancelled).await;
    assert_eq!(state(store, &id("cancelled")).await, State::Cancelled);
    assert_eq!(state(store, &held).await, State::Scheduled, "it is held");
    let held = now.iter().find(|claimed| claimed.job.id == held).expect("restored");
    assert_eq!(hand.settle(held, Outcome::Released { message: None }).await, Settled::Done);
    sound(&bed).await;
    let again = Hand::new(store, "other").claim(&["a"], 9).await;
    let got: Vec<(&str, u32, u32)> =
        again.iter().map(|c| (c.job.id.as_str(), c.attempt, c.crashes)).collect();
    for expected in [("fails", 2, 0), ("snoozes", 1, 0), ("released", 1, 0), ("crashed", 2, 1)] {
        assert!(got.contains(&expected), "{expected:?} is not among {got:?}");
    }
    assert_eq!(got.len(), 4);
    sound(&bed).await;
}

pub(crate) async fn one_job_offered_twice_in_a_batch_is_one<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_all(store, &[job_with_id("a", "x"), job("a")]).await;
    let backup = bed.backup().await;
    let mut hand = Hand::new(store, "s");
    let jobs = hand.claim(&["a"], 2).await;
    for back in [&backup[..], &[]] {
        bed.go_back(back).await;
        let mut other = jobs[0].clone();
        other.lease = Lease { session: SessionId("other".into()), ..other.lease };
        let third = jobs[1].clone();
        let answers = offer(store, &[jobs[0].clone(), jobs[0].clone(), other, third.clone(), third]).await;
        let [first, second] = [jobs[0].lease.record, jobs[1].lease.record];
        let expected = [
            Offered::Restored { record: first },
            Offered::Kept { record: first },
            Offered::Taken,
            Offered::Restored { record: second },
            Offered::Kept { record: second },
        ];
        assert_eq!(answers, expected);
        assert_eq!(leases(store).await.len(), 2);
        sound(&bed).await;
    }
}

pub(crate) async fn offers_against_the_rules_are_refused<B: Bed>(bed: B) {
    let store = bed.store();
    let half = Bytes::from(vec![b'x'; BATCH_PAYLOAD_BYTES_MAX / 2 + 1]);
    enqueue_one(store, &NewJob { payload: half.clone(), ..job("a") }).await;
    let claimed = Hand::new(store, "s").claim_one("a").await;
    bed.go_back(&[]).await;
    store.identity().await.expect("a name");
    let before = bed.contents().await;
    let odd = |change: fn(&mut ClaimedJob)| {
        let mut odd = claimed.clone();
        change(&mut odd);
        vec![odd]
    };
    for offers in [
        vec![claimed.clone(); BATCH_MAX + 1],
        vec![claimed.clone(); 2],
        odd(|job| job.lease.session = SessionId("two words".into())),
        odd(|job| job.lease.token = u64::MAX),
        odd(|job| job.attempt = 0),
    ] {
        let answer = store.offer(&offers).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
    assert_eq!(bed.contents().await, before, "nothing has changed");
    restored(store, &[claimed]).await;
}

pub(crate) async fn a_full_batch_of_offers_is_one_step<B: Bed>(bed: B) {
    let store = bed.store();
    let kinds: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let wanted: Vec<NewJob> = (0..BATCH_MAX)
        .map(|n| NewJob { payload: vec![b'x'; 1_000].into(), ..job(kinds[n % kinds.len()]) })
        .collect();
    enqueue_all(store, &wanted).await;
    let backup = bed.backup().await;
    let mut hand = Hand::new(store, "s");
    let jobs = hand.claim(&kinds, BATCH_MAX).await;
    assert_eq!(jobs.len(), BATCH_MAX);
    for back in [&backup[..], &[]] {
        bed.go_back(back).await;
        assert_eq!(restored(store, &jobs).await, jobs);
        sound(&bed).await;
    }
    let ends: Vec<Settlement> = jobs.iter().map(|job| settlement(job, completed(b"done"))).collect();
    assert_eq!(hand.settle_all(&ends).await, vec![Settled::Done; BATCH_MAX]);
    sound(&bed).await;
}
