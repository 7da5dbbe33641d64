//! Everybody at once, without a model: what keeps a store busy while somebody else looks at it.

use hourhand::job::{Due, NewJob, OnConflict, Priority};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimRequest, ClaimedJob, IdMemory, JobRef, Retention, Settled, Settlement, Store};

use crate::bed::*;
use crate::random::Random;

const KINDS: [&str; 3] = ["a", "b", "c"];

fn any_job(random: &mut Random) -> NewJob {
    let kind = random.pick(&KINDS);
    let id = (random.below(3) > 0).then(|| id(&format!("id{}", random.below(40))));
    NewJob {
        id,
        priority: random.pick(&Priority::ALL),
        due: Due::In(random.pick(&[0, 0, 3, 15, 200])),
        max_attempts: random.pick(&[None, Some(1), Some(2)]),
        payload: vec![b'x'; random.below(200)].into(),
        on_conflict: random.pick(&[
            OnConflict::Keep,
            OnConflict::Replace,
            OnConflict::Reschedule,
            OnConflict::Reject,
        ]),
        ..job(kind)
    }
}

fn any_job_ref(random: &mut Random) -> JobRef {
    let number = random.below(40);
    job_ref(random.pick(&KINDS), &format!("id{number}"))
}

fn outcome(random: &mut Random) -> Outcome {
    match random.below(8) {
        0 | 1 => completed(b"result"),
        2 | 3 => retry(random.below(20) as u64),
        4 => dead(),
        5 => Outcome::Snoozed { delay_ms: random.below(20) as u64 },
        6 => Outcome::Released { message: random.pick(&[None, Some(())]).map(|()| "stopping".to_owned()) },
        _ => Outcome::Cancelled,
    }
}

fn retention(random: &mut Random) -> Retention {
    let age_ms = random.pick(&[None, Some(0), Some(1), Some(20), Some(60_000)]);
    let count = random.pick(&[None, None, Some(3), Some(10)]);
    Retention { age_ms, count, bytes: random.pick(&[None, Some(5_000)]) }
}

/// One step of a runner.
async fn work(random: &mut Random, hand: &mut Hand<'_>, claimed: &mut Vec<ClaimedJob>) {
    if claimed.is_empty() || random.below(3) == 0 {
        let mut request = hand.request(&KINDS, random.below(6));
        request = ClaimRequest {
            ahead_max: random.below(3),
            look_ahead_ms: 10,
            suspect: random.below(2) == 0,
            ..request
        };
        claimed.extend(hand.send(request).await.jobs);
        return;
    }
    let mut batch = Vec::new();
    for _ in 0..1 + random.below(4) {
        if claimed.is_empty() {
            break;
        }
        let job = claimed.swap_remove(random.below(claimed.len()));
        let id_memory = IdMemory { age_ms: random.pick(&[0, 1, 60_000]), bytes: 3_000 };
        batch.push(Settlement {
            retention: retention(random),
            id_memory,
            ..settlement(&job, outcome(random))
        });
    }
    let settled = hand.settle_all(&batch).await;
    assert_eq!(settled.len(), batch.len());
    if random.below(4) == 0 && batch.iter().all(|s| s.retention == KEEP) {
        let again = hand.settle_all(&batch).await;
        assert!(again.iter().zip(&settled).all(|(a, b)| a == b || *a == Settled::Done));
    }
}

/// One step of an operator, or of the upkeep.
async fn operate(random: &mut Random, store: &dyn Store) {
    let refs = [any_job_ref(random), any_job_ref(random), any_job_ref(random)];
    let queue = name(random.pick(&KINDS));
    match random.below(12) {
        0 | 1 => drop(store.cancel(&refs, retention(random)).await.expect("cancel")),
        2..=4 => drop(store.requeue(&refs).await.expect("requeue")),
        5 => drop(store.delete(&refs).await.expect("delete")),
        6 | 7 => {
            store.reschedule(&refs[0], Due::In(random.below(30) as u64)).await.expect("reschedule");
        }
        8 => store.pause(&queue).await.expect("pause"),
        9 => store.resume(&queue).await.expect("resume"),
        10 if random.below(8) == 0 => drop(store.purge(&queue).await.expect("purge")),
        10 => {
            let mut some = leases(store).await;
            some.truncate(random.below(4));
            store.reclaim(&some, retention(random)).await.expect("reclaim");
        }
        _ => drop(store.prune().await.expect("prune")),
    }
}

/// One step of whoever comes along.
pub(crate) async fn step(
    random: &mut Random,
    store: &dyn Store,
    hand: &mut Hand<'_>,
    claimed: &mut Vec<ClaimedJob>,
) {
    match random.below(10) {
        0..=3 => {
            let jobs: Vec<NewJob> = (0..1 + random.below(4)).map(|_| any_job(random)).collect();
            store.enqueue(&jobs).await.expect("enqueue");
        }
        4..=7 => work(random, hand, claimed).await,
        _ => operate(random, store).await,
    }
}
