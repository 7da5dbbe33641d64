//! Random steps of everybody at once: whatever happens in whatever order, each job is in exactly one place,
//! and what the store counts is what is there.
//!
//! The seed is printed; HOURHAND_SEED repeats a run.

use hourhand::job::{Due, NewJob, OnConflict, Priority};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimRequest, ClaimedJob, IdMemory, JobRef, Retention, Settled, Settlement, Store};

use crate::bed::*;

const STEPS: usize = 1_500;
const KINDS: [&str; 3] = ["a", "b", "c"];

/// xorshift64*: small, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded anew; the seed is printed.
    pub(crate) fn seeded() -> Self {
        let given = std::env::var("HOURHAND_SEED").ok().and_then(|seed| seed.parse().ok());
        let mut bytes = [0u8; 8];
        getrandom::fill(&mut bytes).expect("random bytes");
        let seed = given.unwrap_or(u64::from_le_bytes(bytes) | 1);
        #[allow(clippy::print_stdout, reason = "whoever sees it fail repeats it with this")]
        {
            println!("HOURHAND_SEED={seed}");
        }
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    pub(crate) fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn job(&mut self) -> NewJob {
        let kind = self.of(&KINDS);
        let id = (self.below(3) > 0).then(|| id(&format!("id{}", self.0 % 40)));
        NewJob {
            id,
            priority: self.of(&Priority::ALL),
            due: Due::In(self.of(&[0, 0, 3, 15, 200])),
            max_attempts: self.of(&[None, Some(1), Some(2)]),
            payload: vec![b'x'; self.below(200)].into(),
            on_conflict: self.of(&[
                OnConflict::Keep,
                OnConflict::Replace,
                OnConflict::Reschedule,
                OnConflict::Reject,
            ]),
            ..job(kind)
        }
    }

    fn job_ref(&mut self) -> JobRef {
        let number = self.below(40);
        job_ref(self.of(&KINDS), &format!("id{number}"))
    }

    fn outcome(&mut self) -> Outcome {
        match self.below(8) {
            0 | 1 => completed(b"result"),
            2 | 3 => retry(self.0 % 20),
            4 => dead(),
            5 => Outcome::Snoozed { delay_ms: self.0 % 20 },
            6 => Outcome::Released { message: self.of(&[None, Some(())]).map(|()| "stopping".to_owned()) },
            _ => Outcome::Cancelled,
        }
    }

    fn retention(&mut self) -> Retention {
        let age_ms = self.of(&[None, Some(0), Some(1), Some(20), Some(60_000)]);
        let count = self.of(&[None, None, Some(3), Some(10)]);
        Retention { age_ms, count, bytes: self.of(&[None, Some(5_000)]) }
    }
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
        let id_memory = IdMemory { age_ms: random.of(&[0, 1, 60_000]), bytes: 3_000 };
        batch.push(Settlement {
            retention: random.retention(),
            id_memory,
            ..settlement(&job, random.outcome())
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
    let refs = [random.job_ref(), random.job_ref(), random.job_ref()];
    let queue = name(random.of(&KINDS));
    match random.below(12) {
        0 | 1 => drop(store.cancel(&refs, random.retention()).await.expect("cancel")),
        2..=4 => drop(store.requeue(&refs).await.expect("requeue")),
        5 => drop(store.delete(&refs).await.expect("delete")),
        6 | 7 => drop(store.reschedule(&refs[0], Due::In(random.0 % 30)).await.expect("reschedule")),
        8 => store.pause(&queue).await.expect("pause"),
        9 => store.resume(&queue).await.expect("resume"),
        10 if random.below(8) == 0 => drop(store.purge(&queue).await.expect("purge")),
        10 => {
            let mut some = leases(store).await;
            some.truncate(random.below(4));
            store.reclaim(&some, random.retention()).await.expect("reclaim");
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
            let jobs: Vec<NewJob> = (0..1 + random.below(4)).map(|_| random.job()).collect();
            store.enqueue(&jobs).await.expect("enqueue");
        }
        4..=7 => work(random, hand, claimed).await,
        _ => operate(random, store).await,
    }
}

pub(crate) async fn random_steps_keep_every_job_in_exactly_one_place<B: Bed>(bed: B) {
    let store = bed.store();
    let mut random = Random::seeded();
    let mut hands = [Hand::new(store, "s1"), Hand::new(store, "s2")];
    let mut claimed = [Vec::new(), Vec::new()];
    for at in 0..STEPS {
        let who = random.below(2);
        step(&mut random, store, &mut hands[who], &mut claimed[who]).await;
        if at % 50 == 49 {
            let wrong = bed.audit().await;
            assert!(wrong.is_empty(), "step {at}: {wrong:#?}");
            assert_eq!(store.doctor(false).await, Ok(vec![]), "step {at}");
        }
    }
    for kind in KINDS {
        let tally: u64 = tally(store, kind).await.values().sum();
        let counts = store.counts().await.expect("counts");
        let q = counts.queues.iter().find(|q| q.queue.as_str() == kind).expect("the queue");
        let counted = q.scheduled + q.ready + q.running + q.completed + q.dead + q.cancelled;
        assert_eq!(counted, tally, "{q:?}");
    }
}
