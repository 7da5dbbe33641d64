//! Wake-ups: whatever makes a job claimable earlier is told, and nothing else.

use std::time::Duration;

use hourhand::job::{Due, NewJob};
use hourhand::queue::{Store, Verdict, Wake};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::bed::*;

const PATIENCE: Duration = Duration::from_secs(10);

async fn next(wakes: &mut Receiver<Wake>) -> Wake {
    timeout(PATIENCE, wakes.recv()).await.expect("a signal in time").expect("the store still listens")
}

/// Listens, and knows that it does.
async fn listen(store: &dyn Store) -> Receiver<Wake> {
    let mut wakes = store.wakes();
    assert_eq!(next(&mut wakes).await, Wake::Missed, "the first signal says that earlier ones may be missed");
    wakes
}

/// The next signal about a kind's own lane: its due time.
async fn next_due(wakes: &mut Receiver<Wake>, kind: &str) -> u64 {
    loop {
        if let Wake::Due { lane: of, due_ms } = next(wakes).await
            && of == lane(kind)
        {
            return due_ms;
        }
    }
}

pub(crate) async fn what_makes_a_job_claimable_earlier_wakes<B: Bed>(bed: B) {
    let store = bed.store();
    let mut wakes = listen(store).await;
    let mut hand = Hand::new(store, "s");
    let far =
        store.enqueue(&[NewJob { due: Due::In(100_000), ..job_with_id("a", "x") }]).await.expect("taken");
    assert_eq!(next_due(&mut wakes, "a").await, far[0].due_ms, "an enqueue");
    let near =
        store.enqueue(&[NewJob { due: Due::In(50_000), ..job_with_id("a", "y") }]).await.expect("taken");
    assert_eq!(next_due(&mut wakes, "a").await, near[0].due_ms, "an earlier one");
    assert_eq!(store.reschedule(&job_ref("a", "x"), Due::In(20_000)).await, Ok(Verdict::Done));
    assert!(next_due(&mut wakes, "a").await < near[0].due_ms, "a reschedule");
    assert_eq!(store.requeue(&[job_ref("a", "x")]).await, Ok(vec![Verdict::Done]));
    let now = next_due(&mut wakes, "a").await;
    assert!(now < near[0].due_ms, "a requeue");
    let claimed = hand.claim_one("a").await;
    hand.settle(&claimed, retry(1_000)).await;
    assert!(next_due(&mut wakes, "a").await > now, "a retry that is the next");
    store.reschedule(&job_ref("a", "x"), Due::NOW).await.expect("rescheduled");
    next_due(&mut wakes, "a").await;
    hand.claim_one("a").await;
    store.reclaim(&leases(store).await, KEEP).await.expect("reclaimed");
    next_due(&mut wakes, "a").await;
    store.pause(&name("a")).await.expect("paused");
    store.resume(&name("a")).await.expect("resumed");
    next_due(&mut wakes, "a").await;
}

pub(crate) async fn a_backlog_wakes_nobody<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job("a")).await;
    let mut wakes = listen(store).await;
    for _ in 0..20 {
        enqueue_all(store, &vec![job("a"); 10]).await;
    }
    enqueue_one(store, &job("b")).await;
    let wake = next(&mut wakes).await;
    assert!(
        matches!(&wake, Wake::Due { lane: of, .. } if *of == lane("b")),
        "the first signal is b's: {wake:?}"
    );
}

pub(crate) async fn a_recall_wakes_its_session<B: Bed>(bed: B) {
    let store = bed.store();
    enqueue_one(store, &job_with_id("a", "x")).await;
    let mut hand = Hand::new(store, "s");
    hand.claim_one("a").await;
    let mut wakes = listen(store).await;
    assert_eq!(store.cancel(&[job_ref("a", "x")], KEEP).await, Ok(vec![Verdict::Asked]));
    assert_eq!(next(&mut wakes).await, Wake::Recall(hand.session.clone()));
}
