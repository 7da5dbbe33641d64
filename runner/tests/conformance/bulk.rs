//! Large numbers: nothing grows with the backlog, and no step is too large for the store.

use hourhand::job::{NewJob, State};
use hourhand::queue::{BATCH_MAX, JobRef, Settlement, Store, Verdict};

use crate::bed::*;

pub(crate) async fn a_hundred_thousand_due_jobs_are_taken_in_order<B: Bed>(bed: B) {
    let store = bed.store();
    let expected = enqueue_all(store, &vec![job("a"); 100_000]).await;
    let mut hand = Hand::new(store, "s");
    let mut got = Vec::with_capacity(100_000);
    while got.len() < 100_000 {
        let claimed = hand.claim(&["a"], BATCH_MAX).await;
        assert_eq!(claimed.len(), BATCH_MAX);
        let settlements: Vec<Settlement> = claimed.iter().map(|c| settlement(c, completed(b""))).collect();
        hand.settle_all(&settlements).await;
        got.extend(claimed.into_iter().map(|c| c.job.id));
    }
    assert!(got == expected, "in the order of their enqueue");
    let counts = store.counts().await.expect("counts");
    assert_eq!(
        (counts.queues[0].completed, counts.queues[0].running, counts.queues[0].ready),
        (100_000, 0, 0)
    );
}

pub(crate) async fn operators_verbs_take_thousands_at_once<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> = (0..5_000).map(|i| job_with_id("a", &format!("{i}"))).collect();
    enqueue_all(store, &jobs).await;
    let refs: Vec<JobRef> = (0..5_000).map(|i| job_ref("a", &format!("{i}"))).collect();
    assert_eq!(store.cancel(&refs, KEEP).await, Ok(vec![Verdict::Done; 5_000]));
    assert_eq!(store.requeue(&refs).await, Ok(vec![Verdict::Done; 5_000]));
    assert_eq!(store.counts().await.expect("counts").queues[0].ready, 5_000);
    assert_eq!(store.delete(&refs).await, Ok(vec![Verdict::Done; 5_000]));
    assert_eq!(tally(store, "a").await.len(), 0);
}

pub(crate) async fn a_lost_runner_with_thousands_of_jobs_is_no_burden<B: Bed>(bed: B) {
    let store = bed.store();
    let expected = enqueue_all(store, &vec![job("a"); 3_000]).await;
    let mut lost = Hand::new(store, "lost");
    while !lost.claim(&["a"], BATCH_MAX).await.is_empty() {}
    let seen = leases(store).await;
    assert_eq!(seen.len(), 3_000);
    for batch in seen.chunks(BATCH_MAX) {
        assert_eq!(store.reclaim(batch, KEEP).await.map(|r| r.ready), Ok(BATCH_MAX as u64));
    }
    let mut hand = Hand::new(store, "s");
    let mut order = Vec::new();
    for _ in 0..expected.len().div_ceil(BATCH_MAX) {
        order.extend(hand.claim(&["a"], BATCH_MAX).await.into_iter().map(|c| c.job.id));
    }
    assert!(order == expected);
    assert_eq!(tally(store, "a").await.get(&State::Running), Some(&3_000));
}
