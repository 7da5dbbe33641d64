//! How far a running job has come: kept under its lease, shown for its attempt and for no other.

use hourhand::effects::Progress;
use hourhand::job::{Due, NewJob, OnConflict};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimedJob, LogWrite, Settled, Store, StoreError};

use crate::bed::*;
use crate::copying::copy;

fn says(job: &ClaimedJob, percent: u8, message: &str) -> LogWrite {
    let progress = Some(Progress { percent, message: message.to_owned() });
    LogWrite { lease: job.lease.clone(), attempt: job.attempt, text: String::new(), progress }
}

async fn tell(store: &dyn Store, job: &ClaimedJob, percent: u8, message: &str) {
    assert_eq!(store.write_logs(&[says(job, percent, message)]).await, Ok(vec![Settled::Done]));
}

/// What is shown: percent, message and attempt.
async fn shown(store: &dyn Store) -> Option<(u8, String, u32)> {
    view(store, &id("x")).await.progress.map(|seen| (seen.percent, seen.message, seen.attempt))
}

pub(crate) async fn progress_needs_the_lease_and_the_last_word_counts<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    assert_eq!(shown(store).await, None);
    let before = store.counts().await.expect("counts").now_ms;
    tell(store, &claimed, 10, "first").await;
    let message = "half \u{1f}\n 2 of 4: é %\"".to_owned();
    tell(store, &claimed, 50, &message).await;
    assert_eq!(shown(store).await, Some((50, message.clone(), 1)));
    let at_us = view(store, &id("x")).await.progress.expect("progress").at_us;
    assert!((before..=store.counts().await.expect("counts").now_ms).contains(&(at_us / 1_000)));
    let mut forged_write = says(&claimed, 99, "forged");
    forged_write.lease = forged(&claimed.lease);
    assert_eq!(store.write_logs(&[forged_write]).await, Ok(vec![Settled::Stale]));
    let plain = LogWrite { text: "a line\n".to_owned(), progress: None, ..says(&claimed, 0, "") };
    assert_eq!(store.write_logs(&[plain]).await, Ok(vec![Settled::Done]));
    assert_eq!(shown(store).await, Some((50, message.clone(), 1)), "a log without progress leaves it");
    assert_eq!(store.logs(&job_ref("a", "x")).await.expect("logs")[0].text, "a line\n");
    for bad in [says(&claimed, 101, ""), says(&claimed, 1, &"x".repeat(501))] {
        assert!(matches!(store.write_logs(&[bad]).await, Err(StoreError::Invalid(_))));
    }
    hand.complete(&claimed).await;
    assert_eq!(shown(store).await, Some((50, message, 1)), "how far the last attempt had come");
    assert_eq!(store.write_logs(&[says(&claimed, 60, "late")]).await, Ok(vec![Settled::Stale]));
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(store.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn progress_of_an_older_attempt_is_not_shown<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &NewJob { max_attempts: Some(9), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    // A retry: the next attempt has said nothing yet.
    let claimed = hand.claim_one("a").await;
    tell(store, &claimed, 10, "one").await;
    hand.settle(&claimed, retry(0)).await;
    assert_eq!(shown(store).await, Some((10, "one".to_owned(), 1)), "until the next one runs");
    let claimed = hand.claim_one("a").await;
    assert_eq!(shown(store).await, None);
    tell(store, &claimed, 20, "two").await;
    assert_eq!(shown(store).await, Some((20, "two".to_owned(), 2)));
    // A release: the next attempt has the same number, and is another.
    hand.settle(&claimed, Outcome::Released { message: None }).await;
    assert_eq!(shown(store).await, None);
    let claimed = hand.claim_one("a").await;
    assert_eq!((claimed.attempt, shown(store).await), (2, None));
    hand.settle(&claimed, retry(0)).await;
    assert_eq!(shown(store).await, None, "this one has said nothing");
    // A crash: how far it had come when its runner went away.
    let claimed = hand.claim_one("a").await;
    tell(store, &claimed, 30, "three").await;
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    assert_eq!(shown(store).await, Some((30, "three".to_owned(), 3)));
    // A requeue begins anew.
    let claimed = hand.claim_one("a").await;
    tell(store, &claimed, 40, "four").await;
    hand.settle(&claimed, dead()).await;
    assert_eq!(shown(store).await, Some((40, "four".to_owned(), 4)));
    store.requeue(&[job_ref("a", "x")]).await.expect("requeued");
    assert_eq!(shown(store).await, None);
    for attempt in 1..=4 {
        let claimed = hand.claim_one("a").await;
        assert_eq!((claimed.attempt, shown(store).await), (attempt, None));
        hand.settle(&claimed, retry(0)).await;
        assert_eq!(shown(store).await, None);
    }
    assert!(!store.logs(&job_ref("a", "x")).await.expect("logs").is_empty(), "its logs stay");
    store.delete(&[job_ref("a", "x")]).await.expect("deleted");
    // Also where nothing but the number of the attempt tells whose it was.
    enqueue_one(store, &job_with_id("a", "x")).await;
    let claimed = hand.claim_one("a").await;
    tell(store, &claimed, 60, "before").await;
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    assert_eq!(shown(store).await, Some((60, "before".to_owned(), 1)));
    store.cancel(&[job_ref("a", "x")], KEEP).await.expect("cancelled");
    store.requeue(&[job_ref("a", "x")]).await.expect("requeued");
    hand.claim_one("a").await;
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    assert_eq!(shown(store).await, None, "of a life before");
    assert_eq!(store.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn progress_goes_with_its_job<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let anew = [
        NewJob { on_conflict: OnConflict::Replace, ..job_with_id("a", "x") },
        NewJob { due: Due::In(60_000), on_conflict: OnConflict::Replace, ..job_with_id("a", "x") },
    ];
    enqueue_one(store, &job_with_id("a", "x")).await;
    for new in anew {
        let claimed = hand.claim_one("a").await;
        tell(store, &claimed, 10, "12 345 6").await;
        hand.settle(&claimed, retry(0)).await;
        enqueue_one(store, &new).await;
        assert_eq!(shown(store).await, None, "a job that takes its place starts clean");
        assert_eq!(bed.audit().await, Vec::<String>::new());
    }
    store.delete(&[job_ref("a", "x")]).await.expect("deleted");
    for end in ["deleted", "pruned", "purged"] {
        enqueue_one(store, &job_with_id("a", "x")).await;
        let claimed = hand.claim_one("a").await;
        tell(store, &claimed, 10, "1 2 3").await;
        match end {
            "deleted" => {
                hand.settle(&claimed, retry(60_000)).await;
                store.delete(&[job_ref("a", "x")]).await.expect("deleted");
            }
            "purged" => {
                hand.settle(&claimed, retry(60_000)).await;
                store.purge(&name("a")).await.expect("purged");
            }
            _ => {
                let nothing = hourhand::queue::Retention { age_ms: Some(0), ..KEEP };
                let settlement = hourhand::queue::Settlement {
                    retention: nothing,
                    id_memory: hourhand::queue::IdMemory { age_ms: 0, bytes: 0 },
                    ..settlement(&claimed, completed(b""))
                };
                hand.settle_all(&[settlement]).await;
            }
        }
        let again = enqueue_one(store, &NewJob { queue: name("b"), ..job_with_id("a", "y") }).await;
        assert_eq!(view(store, &again).await.progress, None);
        assert_eq!(bed.audit().await, Vec::<String>::new(), "{end}");
        assert_eq!(store.doctor(false).await, Ok(vec![]), "{end}");
    }
}

pub(crate) async fn a_copy_brings_progress<B: Bed>(bed: B) {
    let (store, to) = (bed.store(), bed.open("target").await);
    enqueue_one(store, &NewJob { max_attempts: Some(9), ..job_with_id("a", "x") }).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim_one("a").await;
    tell(store, &claimed, 10, "a b").await;
    hand.settle(&claimed, retry(0)).await;
    copy(store, &to).await;
    assert_eq!(view(&to, &id("x")).await.progress, view(store, &id("x")).await.progress);
    let mut other = Hand::new(&to, "t");
    other.claim_one("a").await;
    assert_eq!(view(&to, &id("x")).await.progress, None, "the next attempt has said nothing");
    assert_eq!(to.doctor(false).await, Ok(vec![]));
}
