//! Damaged data: what the store does with what should not be there.

use hourhand::job::State;
use hourhand::queue::{Settled, Store, StoreError};

use crate::bed::*;

pub(crate) async fn an_entry_without_a_record_goes_to_the_orphans<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 5]).await;
    for i in [0, 3] {
        bed.lose_record(&view(store, &ids[i]).await).await;
    }
    let mut hand = Hand::new(store, "s");
    let request = hand.request(&["a"], 10);
    let claimed = hand.send(request).await;
    let got: Vec<_> = claimed.jobs.iter().map(|c| &c.job.id).collect();
    assert_eq!(got, [&ids[1], &ids[2], &ids[4]], "the others are not held up");
    assert_eq!((claimed.damaged, claimed.next_due_ms), (2, None));
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.orphans, counts.quarantined), (2, 0));
    let request = hand.request(&["a"], 10);
    assert_eq!(hand.send(request).await.damaged, 0, "counted once");
    assert_eq!(counts.queues[0].running, 3);
}

pub(crate) async fn an_impossible_due_time_is_quarantined_and_never_run<B: Bed>(bed: B) {
    let store = bed.store();
    let good = enqueue_one(store, &job("a")).await;
    bed.spoil_index(&lane("a")).await;
    let mut hand = Hand::new(store, "s");
    let (mut damaged, mut got) = (0, Vec::new());
    for _ in 0..5 {
        let request = hand.request(&["a"], 2);
        let claimed = hand.send(request).await;
        damaged += claimed.damaged;
        got.extend(claimed.jobs);
    }
    assert_eq!(damaged, 3);
    assert_eq!(got.iter().map(|c| &c.job.id).collect::<Vec<_>>(), [&good]);
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.quarantined, counts.orphans), (3, 0));
}

pub(crate) async fn foreign_data_under_our_names_stops_a_call_before_it_writes<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 3]).await;
    let mut hand = Hand::new(store, "s");
    let claimed = hand.claim(&["a"], 2).await;
    let before = bed.foreign_data().await;
    let settlements = [settlement(&claimed[0], completed(b"")), settlement(&claimed[1], retry(0))];
    match store.settle(&settlements).await {
        Err(StoreError::Refused(text)) => assert!(!text.is_empty()),
        other => panic!("expected to be refused, got {other:?}"),
    }
    assert_eq!(bed.contents().await, before, "nothing was written");
    drop(ids);
}

pub(crate) async fn a_lost_record_under_a_lease_harms_nobody_else<B: Bed>(bed: B) {
    let store = bed.store();
    let ids = enqueue_all(store, &vec![job("a"); 2]).await;
    let mut hand = Hand::new(store, "s");
    let lost = view(store, &ids[0]).await;
    let claimed = hand.claim(&["a"], 2).await;
    bed.lose_record(&lost).await;
    let answers = hand
        .settle_all(&[settlement(&claimed[0], completed(b"")), settlement(&claimed[1], completed(b""))])
        .await;
    assert_eq!(answers[1], Settled::Done);
    assert_eq!(state(store, &ids[1]).await, State::Completed);
    assert_eq!(store.find(None, &ids[0]).await, Ok(vec![]));
}
