use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tempfile::TempDir;

use super::fake::{Fake, Mood};
use super::*;
use crate::clock::HostClock;
use crate::job::{Due, OnConflict};
use crate::names::Name;

mod lost;

/// Clocks that are set by hand, in milliseconds.
#[derive(Default)]
struct Hands(AtomicU64);

impl HostClock for Hands {
    fn wall_us(&self) -> u64 {
        self.boot_us()
    }
    fn boot_us(&self) -> u64 {
        self.0.load(Relaxed) * 1_000
    }
    fn boot_id(&self) -> &str {
        "this boot"
    }
}

struct World {
    door: Arc<Fake>,
    client: Client,
    spool: Spool,
    hands: Arc<Hands>,
    _dir: TempDir,
}

impl World {
    fn new(mood: Mood, jobs: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let hands = Arc::new(Hands::default());
        let options = SpoolOptions { jobs, clock: hands.clone(), ..SpoolOptions::default() };
        let spool = Spool::new(&dir.path().join("spool"), options);
        let door = Arc::new(Fake::new(mood));
        let client = Client::at(door.clone());
        client.set_spool(Some(spool.clone()));
        Self { door, client, spool, hands, _dir: dir }
    }

    async fn spooled(&self, job: NewJob) -> Spooled {
        match self.client.enqueue(&[job]).await.expect("taken").remove(0) {
            Accepted::Spooled(spooled) => spooled,
            other => panic!("expected it in the spool, got {other:?}"),
        }
    }

    async fn stored(&self, job: NewJob) -> Enqueued {
        match self.client.enqueue(&[job]).await.expect("taken").remove(0) {
            Accepted::Stored(stored) => stored,
            other => panic!("expected it in the store, got {other:?}"),
        }
    }

    async fn drain(&self) -> Drained {
        self.client.drain(None, false).await.expect("drained")
    }
}

fn job(payload: &str) -> NewJob {
    NewJob { payload: payload.to_owned().into(), ..NewJob::new(Name::new("k").expect("a name")) }
}

fn with_id(payload: &str, id: &str, on_conflict: OnConflict) -> NewJob {
    NewJob { id: Some(JobId::new(id).expect("an id")), on_conflict, ..job(payload) }
}

#[tokio::test]
async fn what_was_spooled_comes_before_what_is_enqueued_next_with_its_id_and_age() {
    let world = World::new(Mood::Full, 100);
    let mut ids = Vec::new();
    for (n, payload) in ["1", "2", "3"].into_iter().enumerate() {
        world.hands.0.store(n as u64 * 1_000, Relaxed);
        let spooled = world.spooled(NewJob { due: Due::In(60_000), ..job(payload) }).await;
        assert_eq!((spooled.position, &*spooled.why), (n as u64 + 1, "the store is out of reach (no room)"));
        ids.push(spooled.id);
    }
    world.door.be(Mood::Up);
    world.hands.0.store(10_000, Relaxed);
    let stored = world.stored(job("4")).await;
    assert_eq!(stored.disposition, Disposition::Created);
    assert_eq!(world.door.payloads(), ["1", "2", "3", "4"]);
    let jobs = world.door.jobs.lock().clone();
    assert_eq!(jobs[..3].iter().map(|job| job.id.clone().expect("an id")).collect::<Vec<_>>(), ids);
    assert_eq!(jobs.iter().map(|job| job.age_ms).collect::<Vec<_>>(), [10_000, 9_000, 8_000, 0]);
    assert_eq!(jobs[0].due, Due::In(60_000), "its delay counts from its acceptance");
    assert_eq!(world.spool.list(0, 10).expect("a list"), []);
}

#[tokio::test]
async fn an_answer_ends_the_count_of_failures_though_nothing_was_drained() {
    let world = World::new(Mood::Full, 100);
    world.spooled(NewJob { kind: Name::new("invalid").expect("a name"), ..job("bad") }).await;
    world.door.be(Mood::Up);
    world.stored(job("x")).await;
    assert_eq!(world.spool.rest("fake").expect("counts").aside, 1);
    assert_eq!(world.spool.outlook("fake").expect("known").failures, 0);
}

#[tokio::test]
async fn jobs_that_go_one_by_one_stop_when_the_time_is_over() {
    let world = World::new(Mood::Full, 100);
    let mut jobs = ["1", "2", "bad", "4", "5", "6", "7"].map(job);
    jobs[2].kind = Name::new("invalid").expect("a name");
    world.client.enqueue(&jobs).await.expect("spooled");
    // The first goes alone, and then two, of which one is bad: the time is over when the other is through.
    world.door.be(Mood::SlowAt(3));
    let drained = world.client.drain(Some(monotonic() + Duration::from_millis(900)), false).await;
    assert_eq!(drained.expect("drained"), Drained { sent: 2, set_aside: 0, left: true });
    assert_eq!(world.door.payloads(), ["1", "2"]);
    world.door.be(Mood::Up);
    assert_eq!(world.drain().await, Drained { sent: 4, set_aside: 1, left: false });
}

#[tokio::test]
async fn a_store_that_is_back_within_the_second_needs_no_spool() {
    for job in [job("x"), with_id("x", "x", OnConflict::Reject), with_id("x", "x", OnConflict::Replace)] {
        let world = World::new(Mood::LosesOne, 100);
        let stored = world.stored(job).await;
        assert_eq!(stored.disposition, Disposition::Created, "it is no repeat of somebody else's");
        assert_eq!(world.door.payloads(), ["x"]);
        assert!(!world.spool.exists());
    }
}

#[tokio::test]
async fn what_the_store_refuses_for_good_is_set_aside_and_keeps_nobody_waiting() {
    let world = World::new(Mood::Up, 100);
    world.door.take(&[with_id("theirs", "x", OnConflict::Keep)]).expect("taken");
    world.door.be(Mood::Full);
    world.spooled(job("1")).await;
    world.spooled(with_id("mine", "x", OnConflict::Reject)).await;
    world.spooled(NewJob { kind: Name::new("invalid").expect("a name"), ..job("bad") }).await;
    world.spooled(job("2")).await;
    world.door.be(Mood::Up);
    assert_eq!(world.drain().await, Drained { sent: 2, set_aside: 2, left: false });
    assert_eq!(world.door.payloads(), ["theirs", "1", "2"]);
    let aside: Vec<_> = world.spool.list(0, 10).expect("a list").into_iter().map(|e| e.aside).collect();
    let reject = "x exists in queue k and is ready: reject cannot be done";
    assert_eq!(aside, [Some(reject.to_owned()), Some("not that".to_owned())]);
    assert_eq!(world.drain().await, Drained::default(), "they stay aside");
    assert_eq!(world.spool.rest("fake").expect("counts").aside, 2);
    assert_eq!(world.spool.delete(None, "x", false), Ok(SpoolDeleted::Deleted(1)));
    assert_eq!(world.spool.delete(None, "x", false), Ok(SpoolDeleted::NotFound));
}

#[tokio::test]
async fn after_five_failures_the_store_is_not_asked_for_half_a_minute() {
    let world = World::new(Mood::Full, 100);
    let asked = || world.door.calls.load(Relaxed);
    for n in 1..=5 {
        world.spooled(job("x")).await;
        assert_eq!(asked(), n);
    }
    let spooled = world.spooled(job("x")).await;
    assert_eq!((asked(), spooled.position), (5, 6));
    assert!(spooled.why.contains("five times"), "{}", spooled.why);
    // Another client of the same folder knows it too.
    let other = Client::at(world.door.clone());
    other.set_spool(Some(world.spool.clone()));
    other.enqueue(&[job("x")]).await.expect("spooled");
    assert_eq!(asked(), 5);
    world.hands.0.store(29_999, Relaxed);
    world.spooled(job("x")).await;
    assert_eq!(asked(), 5);
    world.hands.0.store(30_000, Relaxed);
    world.spooled(job("x")).await;
    world.spooled(job("x")).await;
    assert_eq!(asked(), 6, "one try, and then another rest");
    world.hands.0.store(60_000, Relaxed);
    world.door.be(Mood::Up);
    world.stored(job("x")).await;
    world.door.be(Mood::Full);
    let before = asked();
    for n in 1..=5 {
        world.spooled(job("x")).await;
        assert_eq!(asked() - before, n, "counted anew");
    }
    world.door.be(Mood::Up);
    world.drain().await;
    world.stored(job("x")).await;
}

#[tokio::test]
async fn a_full_spool_takes_nothing_and_says_what_may_have_happened() {
    let world = World::new(Mood::Full, 2);
    let error = world.client.enqueue(&[job("1"), job("2"), job("3")]).await.expect_err("all or none");
    assert!(
        matches!(&error, EnqueueError::Neither { spool: SpoolError::Full(_), unsure: false, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("spool_jobs"), "{error}");
    assert_eq!(world.spool.list(0, 10).expect("a list"), []);
    world.client.enqueue(&[job("1"), job("2")]).await.expect("room for two");
    world.door.be(Mood::Silent);
    let error = world.client.enqueue(&[job("3")]).await.expect_err("full");
    assert!(
        matches!(error, EnqueueError::Neither { unsure: false, .. }),
        "only those before it were sent: {error}"
    );
    world.door.be(Mood::Up);
    world.drain().await;
    assert_eq!(world.door.payloads(), ["1", "2"]);

    let world = World::new(Mood::LosesReply, 0);
    let error = world.client.enqueue(&[job("1")]).await.expect_err("full");
    assert!(error.is_unsure(), "{error}");
}

#[tokio::test]
async fn a_store_that_says_nothing_has_a_second() {
    let world = World::new(Mood::Silent, 100);
    let asked = monotonic();
    let spooled = world.spooled(with_id("x", "x", OnConflict::Reject)).await;
    let waited = monotonic().duration_since(asked);
    assert!((Duration::from_millis(900)..Duration::from_millis(3_000)).contains(&waited), "{waited:?}");
    assert!(spooled.why.contains("no answer from fake within 1 s"), "{}", spooled.why);
    world.door.be(Mood::Up);
    world.drain().await;
    assert_eq!(world.door.payloads(), ["x"]);
}

#[tokio::test]
async fn a_store_that_refuses_is_no_store_that_is_away() {
    let world = World::new(Mood::Refuses, 100);
    let error = world.client.enqueue(&[job("1")]).await.expect_err("refused");
    assert_eq!(error, EnqueueError::Store(StoreError::Refused("not you".to_owned())));
    assert!(!world.spool.exists());
    world.door.be(Mood::Full);
    world.spooled(job("1")).await;
    world.door.be(Mood::Refuses);
    let error = world.client.enqueue(&[job("2")]).await.expect_err("refused");
    assert!(matches!(error, EnqueueError::Store(StoreError::Refused(_))), "{error}");
    world.door.be(Mood::Up);
    world.stored(job("3")).await;
    assert_eq!(world.door.payloads(), ["1", "3"]);
    let invalid = NewJob { max_attempts: Some(0), ..job("x") };
    world.door.be(Mood::Full);
    let error = world.client.enqueue(&[invalid]).await.expect_err("invalid");
    assert!(matches!(error, EnqueueError::Store(StoreError::Invalid(_))), "{error}");
}

#[tokio::test]
async fn while_another_drains_what_comes_goes_behind() {
    let world = World::new(Mood::Full, 100);
    world.spooled(job("1")).await;
    world.door.be(Mood::Up);
    let other = world.spool.drainer("fake").expect("a lock").expect("free");
    assert_eq!(world.client.drain(None, false).await, Err(DrainError::Busy));
    let spooled = world.spooled(job("2")).await;
    assert_eq!((spooled.position, &*spooled.why), (2, "jobs before it are on their way from the spool"));
    drop(other);
    world.drain().await;
    assert_eq!(world.door.payloads(), ["1", "2"]);
}

#[tokio::test]
async fn hundreds_of_jobs_of_any_size_are_drained_in_order() {
    let world = World::new(Mood::Full, 10_000);
    let sent: Vec<String> =
        (0..400).map(|n| format!("{n} {}", "x".repeat(if n % 40 == 0 { 200 << 10 } else { 10 }))).collect();
    for some in sent.chunks(100) {
        let jobs: Vec<NewJob> = some.iter().map(|payload| job(payload)).collect();
        let ready = prepare::with_ids(&jobs).expect("ids");
        world.spool.append("fake", &ready, false, false).expect("room");
    }
    world.door.be(Mood::Up);
    assert_eq!(world.drain().await.sent, 400);
    assert!(world.door.payloads() == sent, "in order, whole");
    let ids: HashSet<_> = world.door.jobs.lock().iter().map(|job| job.id.clone()).collect();
    assert_eq!(ids.len(), 400);
}

#[tokio::test]
async fn without_a_spool_the_store_has_the_word_and_a_job_keeps_what_it_has() {
    let world = World::new(Mood::Full, 100);
    world.client.set_spool(None);
    let error = world.client.enqueue(&[with_id("1", "x", OnConflict::Keep)]).await.expect_err("full");
    assert_eq!(error, EnqueueError::Store(StoreError::Full("no room".to_owned())));
    assert!(!world.spool.exists());
    assert_eq!(world.drain().await, Drained::default());
}

#[tokio::test]
async fn jobs_for_another_store_wait_for_it_unless_it_is_the_same_by_another_name() {
    let world = World::new(Mood::Up, 100);
    let ready = prepare::with_ids(&[job("other")]).expect("ids");
    world.spool.append("elsewhere", &ready, false, false).expect("room");
    world.stored(job("mine")).await;
    assert_eq!(world.drain().await.sent, 0);
    let rest = world.spool.rest("fake").expect("counts");
    assert_eq!((rest.waiting, rest.others), (0, vec![("elsewhere".to_owned(), 1)]));
    let theirs = world.spool.drainer("elsewhere").expect("a lock").expect("free");
    assert_eq!(world.client.drain(None, true).await, Err(DrainError::Busy), "its own drain is at it");
    drop(theirs);
    assert_eq!(world.client.drain(None, true).await.expect("drained").sent, 1);
    assert_eq!(world.door.payloads(), ["mine", "other"]);
}
