use bytes::Bytes;

use super::*;
use crate::clock::monotonic;
use crate::job::{Job, Priority};
use crate::names::JobId;
use crate::outcome::Outcome;
use crate::queue::{IdMemory, Lane, Retention, SessionId};

const MEBIBYTE: usize = 1 << 20;

fn claim(token: u64, payload_bytes: usize, crashes: u32) -> Arc<Claim> {
    let kind = Name::new("k").unwrap();
    let job = Job {
        id: JobId::new(&format!("j{token}")).unwrap(),
        kind: kind.clone(),
        queue: kind,
        priority: Priority::Normal,
        enqueued_ms: 1,
        max_attempts: None,
        timeout_ms: None,
        meta: Vec::new(),
        traceparent: None,
        source: String::new(),
        payload: Bytes::from(vec![0; payload_bytes]),
    };
    let lease = Lease { record: 100 - token, session: SessionId(Arc::from("s")), token };
    Claim::new(ClaimedJob {
        job,
        lease,
        attempt: 1,
        max_attempts: 5,
        crashes,
        due_ms: 1,
        receipt: bytes::Bytes::new(),
    })
}

fn held(claimed: &Arc<Claim>) -> InHand {
    let clock = crate::clock::ClockTracker::default().observe(1_000_000, monotonic(), monotonic());
    InHand { claimed: Arc::clone(claimed), clock }
}

/// A run that nobody runs.
fn running(claimed: &Arc<Claim>) -> Arc<Running> {
    Arc::new(Running {
        claimed: Arc::clone(claimed),
        stop: StopSignal::new(),
        log: Arc::new(JobLog::new(10)),
        told: Told::default(),
        store: crate::queue::unused(),
        io: tokio::runtime::Handle::current(),
    })
}

fn counts(hand: &Hand) -> (usize, usize, usize) {
    let HandCounts { held, running, ending } = hand.counts();
    (held, running, ending)
}

fn settlement(claimed: &Claim) -> Settlement {
    let kind = claimed.job.job.kind.clone();
    Settlement {
        lease: claimed.job.lease.clone(),
        lane: Lane { queue: kind.clone(), kind },
        outcome: Outcome::Completed { result: None },
        run: None,
        retention: Retention::FINISHED,
        id_memory: IdMemory::default(),
        effects: None,
        receipt: claimed.receipt.clone(),
    }
}

#[tokio::test]
async fn everything_in_the_hand_is_offered_until_the_store_has_its_outcome() {
    let hand = Hand::new(2);
    let jobs = [claim(1, 0, 0), claim(2, 0, 0), claim(3, 0, 0), claim(4, 0, 0)];
    hand.hold(held(&jobs[0]));
    assert!(hand.start(&jobs[1], running(&jobs[1])) && hand.start(&jobs[2], running(&jobs[2])));
    assert!(!hand.start(&jobs[3], running(&jobs[3])), "no slot");
    hand.returned(2, 0);
    assert_eq!(counts(&hand), (1, 1, 2));
    let offered: Vec<u64> = hand.offers().iter().map(|job| job.lease.token).collect();
    assert_eq!(offered, [4, 3, 2, 1], "in the order of the records");
    assert_eq!(hand.working(), HashSet::from([1, 3]));
    hand.settled([2, 4]);
    assert_eq!(hand.offers().len(), 2);
    assert_eq!((counts(&hand), hand.busy(&jobs[0].job.job.kind)), ((1, 1, 0), 2));
}

#[tokio::test]
async fn a_new_record_reaches_outcomes_logs_and_offers() {
    let hand = Hand::new(2);
    let (one, two) = (claim(1, 0, 0), claim(2, 0, 0));
    let run = running(&one);
    hand.start(&one, Arc::clone(&run));
    hand.hold(held(&two));
    let mut outcomes = [settlement(&one), settlement(&two)];
    hand.name_records(&mut outcomes);
    assert_eq!(outcomes.each_ref().map(|outcome| outcome.lease.record), [99, 98]);
    hand.renumber(1, 700);
    hand.renumber(77, 1);
    assert_eq!(run.claimed.lease().record, 700, "what a run writes goes there");
    hand.returned(1, 0);
    hand.name_records(&mut outcomes);
    assert_eq!(outcomes.each_ref().map(|outcome| outcome.lease.record), [700, 98]);
    assert_eq!(hand.offers().iter().map(|job| job.lease.record).collect::<Vec<_>>(), [98, 700]);
}

#[tokio::test]
async fn what_others_have_is_let_go() {
    let hand = Hand::new(3);
    let jobs = [claim(1, 0, 2), claim(2, 0, 0), claim(3, 0, 0)];
    hand.hold(held(&jobs[0]));
    let runs = [running(&jobs[1]), running(&jobs[2])];
    hand.start(&jobs[1], Arc::clone(&runs[0]));
    hand.start(&jobs[2], Arc::clone(&runs[1]));
    hand.returned(3, 0);
    assert!(!hand.room().suspect);
    for token in 1..=4 {
        hand.let_go(token);
    }
    assert_eq!(counts(&hand), (0, 1, 1), "a held one leaves, a running one ends by itself");
    assert!(hand.room().suspect);
    assert_eq!((runs[0].stop.get(), runs[1].stop.get()), (Some(Stop::Lost), None));
    let moment = hand.moment(1, |_| unreachable!("it must not start"));
    assert!(matches!(moment, Moment::Gone));
}

#[tokio::test]
async fn payloads_that_wait_for_the_store_are_bounded() {
    let hand = Hand::new(1_000);
    for token in 1..=64 {
        assert!(hand.room().due > 0, "{token}");
        let job = claim(token, MEBIBYTE, 0);
        hand.start(&job, running(&job));
    }
    assert!(hand.room().due > 0, "those that run have slots");
    (1..=64).for_each(|token| hand.returned(token, 0));
    assert_eq!(hand.room().due, 0);
    hand.settled([7]);
    assert_eq!(hand.room().due, 1_000);
}

#[tokio::test]
async fn outcomes_that_wait_for_the_store_are_bounded_too() {
    let hand = Hand::new(1_000);
    for token in 1..=32 {
        assert!(hand.room().due > 0, "{token}");
        let job = claim(token, MEBIBYTE, 0);
        hand.start(&job, running(&job));
        hand.returned(token, MEBIBYTE);
    }
    assert_eq!(hand.room().due, 0);
    hand.settled(1..=32);
    assert_eq!((hand.room().due, hand.inner.lock().ending_bytes), (1_000, 0));
}

#[tokio::test]
async fn a_full_runner_waits_for_a_quarter_of_its_slots_but_not_for_ever() {
    use futures_util::FutureExt;
    let hand = Hand::new(8);
    let jobs: Vec<_> = (1..=8).map(|token| claim(token, 0, 0)).collect();
    assert!(jobs.iter().all(|job| hand.start(job, running(job))));
    let mut some_free = std::pin::pin!(hand.some_free(Duration::from_secs(600)));
    assert_eq!(some_free.as_mut().now_or_never(), None);
    hand.returned(1, 0);
    assert_eq!(some_free.as_mut().now_or_never(), None, "one slot of eight is no quarter");
    assert_eq!(hand.changed.notified().now_or_never(), None, "and wakes nobody");
    hand.returned(2, 0);
    assert_eq!(some_free.as_mut().now_or_never(), Some(()));
    hand.returned(3, 0);
    assert_eq!(hand.changed.notified().now_or_never(), Some(()), "from now on each counts again");
    let full = Hand::new(8);
    jobs.iter().for_each(|job| _ = full.start(job, running(job)));
    full.some_free(Duration::from_millis(1)).await;
}
