//! Dead letters that a limit in number or bytes takes are counted for ever: nobody had seen to them.

use std::collections::BTreeMap;
use std::time::Duration;

use hourhand::outcome::Outcome;
use hourhand::queue::{Retention, Settlement, Store};

use crate::bed::*;

/// Runs jobs of a kind to their ends, in batches of 150.
async fn end(store: &dyn Store, kind: &str, count: usize, outcome: Outcome, retention: Retention) {
    let mut hand = Hand::new(store, "finisher");
    for left in (1..=count).rev().step_by(150) {
        enqueue_all(store, &vec![job(kind); left.min(150)]).await;
        let claimed = hand.claim(&[kind], 150).await;
        let settlements: Vec<Settlement> =
            claimed.iter().map(|c| Settlement { retention, ..settlement(c, outcome.clone()) }).collect();
        hand.settle_all(&settlements).await;
    }
}

/// By queue, dead letters there and dropped ever; a prune must tell the same.
async fn dead_and_dropped(store: &dyn Store) -> BTreeMap<String, (u64, u64)> {
    let counts = store.counts().await.expect("counts");
    let counted: BTreeMap<String, (u64, u64)> =
        counts.queues.iter().map(|q| (q.queue.to_string(), (q.dead, q.dead_dropped_total))).collect();
    let pruned = store.prune().await.expect("pruned");
    assert!(!pruned.more);
    let told: BTreeMap<String, u64> =
        pruned.dead_dropped.iter().map(|(queue, total)| (queue.to_string(), *total)).collect();
    let expected: BTreeMap<String, u64> =
        counted.iter().map(|(queue, (_, dropped))| (queue.clone(), *dropped)).collect();
    assert_eq!(told, expected);
    counted
}

pub(crate) async fn of_ten_thousand_and_fifty_dead_letters_fifty_are_over_the_cap_and_counted<B: Bed>(
    bed: B,
) {
    let store = bed.store();
    let cap = Retention { count: Some(10_000), ..Retention::DEAD };
    end(store, "capped", 10_050, dead(), cap).await;
    let seen = dead_and_dropped(store).await;
    assert_eq!(seen["capped"], (10_000, 50));
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn dead_letters_that_a_limit_takes_are_counted_for_ever_and_no_others<B: Bed>(bed: B) {
    let store = bed.store();
    let three = Retention { count: Some(3), ..KEEP };
    // Other finished jobs go without a word, and so does what is over its age, or was never to be kept.
    end(store, "fine", 10, completed(b""), three).await;
    end(store, "stopped", 10, Outcome::Cancelled, three).await;
    end(store, "aged", 4, dead(), Retention { age_ms: Some(1), ..three }).await;
    end(store, "unkept", 4, dead(), Retention { age_ms: Some(0), ..KEEP }).await;
    end(store, "unwanted", 4, dead(), Retention { count: Some(0), ..KEEP }).await;
    end(store, "heavy", 2, dead(), Retention { bytes: Some(1), ..KEEP }).await;
    end(store, "heavy", 1, dead(), Retention { bytes: Some(0), ..KEEP }).await;
    end(store, "many", 10, dead(), three).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    store.prune().await.expect("pruned");
    let mut seen = dead_and_dropped(store).await;
    // Of four that end in one step under a cap of three, one is over it.
    assert_eq!(seen.remove("aged"), Some((0, 1)));
    let expected = [
        ("fine", (0, 0)),
        ("heavy", (0, 3)),
        ("many", (3, 7)),
        ("stopped", (0, 0)),
        ("unkept", (0, 0)),
        ("unwanted", (0, 4)),
    ];
    assert_eq!(seen, expected.map(|(queue, counts)| (queue.to_owned(), counts)).into());

    // What a lost runner leaves is under the same limits.
    let mut hand = Hand::new(store, "lost");
    enqueue_all(store, &[hourhand::job::NewJob { max_attempts: Some(1), ..job("many") }]).await;
    assert_eq!(hand.claim(&["many"], 1).await.len(), 1);
    store.reclaim(&leases(store).await, three).await.expect("reclaimed");
    assert_eq!(dead_and_dropped(store).await["many"], (3, 8));

    // A copy brings what was counted once, however often it is repeated.
    let target = bed.open("target").await;
    let source = store.export_source().await.expect("a source");
    for _ in 0..2 {
        let mut cursor = None;
        loop {
            let page = store.export(cursor).await.expect("exported");
            target.import(&source, &page.items).await.expect("imported");
            match page.cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
    }
    assert_eq!(dead_and_dropped(&target).await["many"], (3, 8));
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(store.doctor(false).await, Ok(vec![]));
}
