//! Retention and the memory of ids (rule 14).

use hourhand::job::{NewJob, OnConflict, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{
    Disposition, IdMemory, JobRef, ListQuery, Pruned, Retention, Settlement, Store, Verdict,
};

use crate::bed::*;

async fn prune_all(store: &dyn Store) -> Pruned {
    let mut total = Pruned::default();
    for _ in 0..1_000 {
        let pruned = store.prune().await.expect("prune answers");
        total.jobs += pruned.jobs;
        total.ids += pruned.ids;
        total.again_ms = pruned.again_ms;
        if !pruned.more {
            return total;
        }
    }
    panic!("prune never ends");
}

/// Runs `jobs` to their ends, in batches.
async fn finish_all(store: &dyn Store, jobs: &[NewJob], outcome: Outcome, retention: Retention) {
    let mut hand = Hand::new(store, "finisher");
    for batch in jobs.chunks(100) {
        enqueue_all(store, batch).await;
        let kind = batch[0].kind.to_string();
        let claimed = hand.claim(&[&kind], 100).await;
        let settlements: Vec<Settlement> =
            claimed.iter().map(|c| Settlement { retention, ..settlement(c, outcome.clone()) }).collect();
        hand.settle_all(&settlements).await;
    }
}

async fn listed(store: &dyn Store, state: State) -> Vec<String> {
    let query = ListQuery { states: vec![state], limit: 1_000, ..ListQuery::default() };
    list_all(store, &query).await.iter().map(|view| view.job.id.to_string()).collect()
}

pub(crate) async fn an_age_of_zero_keeps_nothing<B: Bed>(bed: B) {
    let store = bed.store();
    let nothing = Retention { age_ms: Some(0), count: None, bytes: None };
    finish_all(store, &[job_with_id("a", "x"), job("a")], completed(b"r"), nothing).await;
    assert_eq!(store.find(None, &id("x")).await, Ok(vec![]));
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].completed, counts.queues[0].completed_total), (0, 2));
    let again = store.enqueue(&[job_with_id("a", "x")]).await.expect("taken").remove(0);
    assert_eq!(
        (again.disposition, again.state),
        (Disposition::Kept, State::Completed),
        "its id is remembered"
    );
}

pub(crate) async fn a_count_keeps_the_newest<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> = (0..50).map(|i| job_with_id("a", &format!("{i}"))).collect();
    let three = Retention { count: Some(3), ..KEEP };
    finish_all(store, &jobs, completed(b""), three).await;
    finish_all(store, &[job_with_id("a", "50")], completed(b""), three).await;
    for _ in 0..20 {
        finish_all(store, &[job("b")], completed(b""), three).await;
    }
    let query = ListQuery { queue: Some(name("a")), limit: 10, ..ListQuery::default() };
    let kept: Vec<String> = list_all(store, &query).await.iter().map(|v| v.job.id.to_string()).collect();
    assert_eq!(kept, ["50", "49", "48"], "newest first");
    assert_eq!(store.counts().await.expect("counts").queues.iter().map(|q| q.completed).sum::<u64>(), 6);
    let zero = Retention { count: Some(0), ..KEEP };
    finish_all(store, &[job_with_id("c", "z")], completed(b""), zero).await;
    assert_eq!(store.find(None, &id("z")).await, Ok(vec![]));
}

pub(crate) async fn a_limit_in_bytes_keeps_the_newest<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> = (0..20)
        .map(|i| NewJob { payload: vec![b'x'; 10_000].into(), ..job_with_id("a", &format!("{i}")) })
        .collect();
    for job in &jobs {
        finish_all(
            store,
            std::slice::from_ref(job),
            completed(b""),
            Retention { bytes: Some(45_000), ..KEEP },
        )
        .await;
    }
    assert_eq!(listed(store, State::Completed).await, ["19", "18", "17", "16"]);
    for id in ["16", "19"] {
        assert_eq!(store.delete(&[job_ref("a", id)]).await, Ok(vec![Verdict::Done]));
    }
    finish_all(store, &jobs[..0], completed(b""), KEEP).await;
    let small = Retention { bytes: Some(45_000), ..KEEP };
    for i in 20..22 {
        let job = NewJob { payload: vec![b'x'; 10_000].into(), ..job_with_id("a", &format!("{i}")) };
        finish_all(store, &[job], completed(b""), small).await;
    }
    assert_eq!(
        listed(store, State::Completed).await,
        ["21", "20", "18", "17"],
        "what was deleted does not count"
    );
}

pub(crate) async fn prune_removes_what_is_over_its_age_and_only_that<B: Bed>(bed: B) {
    let store = bed.store();
    let short = Retention { age_ms: Some(1), ..KEEP };
    finish_all(store, &[job_with_id("a", "long")], completed(b""), KEEP).await;
    finish_all(store, &vec![job("a"); 60], completed(b""), short).await;
    finish_all(store, &vec![job("b"); 60], dead(), short).await;
    finish_all(
        store,
        &[job_with_id("a", "late")],
        Outcome::Cancelled,
        Retention { age_ms: Some(60_000), ..KEEP },
    )
    .await;
    enqueue_one(store, &job_with_id("a", "waits")).await;
    let mut gone = 0;
    // Ages that differ within one queue may take several sweeps; each is bounded.
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        gone += prune_all(store).await.jobs;
        if gone == 120 {
            break;
        }
    }
    assert_eq!(gone, 120);
    assert_eq!(prune_all(store).await.jobs, 0);
    for (text, expected) in [("long", State::Completed), ("late", State::Cancelled), ("waits", State::Ready)]
    {
        assert_eq!(state(store, &id(text)).await, expected, "{text}");
    }
    let counts = store.counts().await.expect("counts");
    assert_eq!(counts.queues.iter().map(|q| q.completed + q.dead + q.cancelled).sum::<u64>(), 2);
}

pub(crate) async fn prune_says_when_there_will_be_something_to_remove<B: Bed>(bed: B) {
    let store = bed.store();
    let aged = |age_ms| Retention { age_ms: Some(age_ms), ..KEEP };
    assert_eq!(prune_all(store).await.again_ms, None, "there is nothing");
    finish_all(store, &[job("a"), job("b")], completed(b""), KEEP).await;
    enqueue_one(store, &job("a")).await;
    assert_eq!(prune_all(store).await.again_ms, None, "nothing that is kept has an end");
    let within = |again_ms: Option<u64>, hi: u64| {
        assert!(again_ms.is_some_and(|ms| ms <= hi && ms + 60_000 > hi), "in {again_ms:?} ms, of {hi}");
    };
    // The memory of an id ends too.
    finish_all(store, &[job_with_id("c", "x")], completed(b""), aged(0)).await;
    within(prune_all(store).await.again_ms, IdMemory::default().age_ms);
    // Behind one that stays for ever.
    finish_all(store, &[job("a")], completed(b""), aged(4_000_000)).await;
    within(prune_all(store).await.again_ms, 4_000_000);
    finish_all(store, &[job("b")], dead(), aged(2_000_000)).await;
    within(prune_all(store).await.again_ms, 2_000_000);
    finish_all(store, &vec![job("a"); 3], completed(b""), aged(1)).await;
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert_eq!(prune_all(store).await.jobs, 3);
    within(prune_all(store).await.again_ms, 2_000_000);
    assert_eq!(bed.open("beside").await.prune().await.map(|pruned| pruned.again_ms), Ok(None));
    // More of different ages than one call may look through: it has to go on then.
    finish_all(store, &vec![job("a"); 300], completed(b""), KEEP).await;
    finish_all(store, &[job("a")], completed(b""), aged(1_000_000)).await;
    let again_ms = prune_all(store).await.again_ms;
    assert!(again_ms.is_some_and(|ms| ms <= 1_000_000), "in {again_ms:?} ms");
}

pub(crate) async fn prune_leaves_other_namespaces_alone<B: Bed>(bed: B) {
    let (store, other) = (bed.store(), bed.open("beside").await);
    for store in [store as &dyn Store, &other] {
        finish_all(store, &[job_with_id("a", "x")], completed(b""), Retention { age_ms: Some(1), ..KEEP })
            .await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    assert_eq!(prune_all(store).await.jobs, 1);
    assert_eq!(state(&other, &id("x")).await, State::Completed);
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(prune_all(&other).await.jobs, 1);
    assert_eq!(bed.audit().await, Vec::<String>::new());
}

pub(crate) async fn prune_never_touches_a_job_that_came_back<B: Bed>(bed: B) {
    let store = bed.store();
    finish_all(store, &[job_with_id("a", "x")], dead(), Retention { age_ms: Some(1), ..KEEP }).await;
    assert_eq!(store.requeue(&[job_ref("a", "x")]).await, Ok(vec![Verdict::Done]));
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    assert_eq!(prune_all(store).await.jobs, 0);
    assert_eq!(state(store, &id("x")).await, State::Ready);
}

pub(crate) async fn ids_that_need_no_memory_take_none_of_others<B: Bed>(bed: B) {
    const CHILDREN: usize = 60;
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    // Room for a few ids. One record is kept of each queue, so that ids leave both at once and when a record goes.
    let memory = IdMemory { bytes: 1_000, ..IdMemory::default() };
    for (text, age_ms) in [("u1", Some(0)), ("u2", None)] {
        enqueue_one(store, &job_with_id("a", text)).await;
        let claimed = hand.claim_one("a").await;
        let retention = Retention { age_ms, count: Some(1), ..KEEP };
        let ended = settlement(&claimed, completed(b""));
        assert_eq!(
            hand.settle_all(&[Settlement { retention, id_memory: memory, ..ended }]).await,
            [hourhand::queue::Settled::Done]
        );
    }
    let children: Vec<NewJob> =
        (0..CHILDREN).map(|n| job_with_id("child", &format!("42-abcdefghijkl-{n}"))).collect();
    enqueue_all(store, &children).await;
    let claimed = hand.claim(&["child"], CHILDREN).await;
    assert_eq!(claimed.len(), CHILDREN);
    for some in claimed.chunks(7) {
        let ended = some.iter().map(|claimed| Settlement {
            retention: Retention { count: Some(1), ..KEEP },
            id_memory: IdMemory { age_ms: 0, ..memory },
            ..settlement(claimed, completed(b""))
        });
        hand.settle_all(&ended.collect::<Vec<_>>()).await;
    }
    prune_all(store).await;
    for text in ["u1", "u2"] {
        let kept = store.enqueue(&[job_with_id("a", text)]).await.expect("answered").remove(0);
        assert_eq!((kept.disposition, kept.state), (Disposition::Kept, State::Completed), "{text}");
    }
    assert_eq!(tally(store, "child").await.get(&State::Completed), Some(&1));
    let fresh = store.enqueue(&children[..1]).await.expect("answered").remove(0);
    assert_eq!(fresh.disposition, Disposition::Created, "nothing of them is remembered");
    assert_eq!(bed.audit().await, Vec::<String>::new());
    assert_eq!(store.doctor(false).await, Ok(vec![]));
}

pub(crate) async fn a_finished_id_is_remembered_after_its_record<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let finish = async |hand: &mut Hand<'_>, memory: IdMemory, outcome: Outcome| {
        let claimed = hand.claim_one("a").await;
        let short = Retention { age_ms: Some(0), ..KEEP };
        hand.settle_all(&[Settlement {
            retention: short,
            id_memory: memory,
            ..settlement(&claimed, outcome)
        }])
        .await;
    };
    let enqueued = store.enqueue(&[job_with_id("a", "x")]).await.expect("taken").remove(0);
    finish(&mut hand, IdMemory::default(), dead()).await;
    for on_conflict in [OnConflict::Replace, OnConflict::Reschedule, OnConflict::Reject] {
        let again = store
            .enqueue(&[NewJob { on_conflict, ..job_with_id("a", "x") }])
            .await
            .expect("answered")
            .remove(0);
        assert_eq!((again.disposition, again.state), (Disposition::Conflict, State::Dead), "{on_conflict:?}");
    }
    let again = store.enqueue(&[job_with_id("a", "x")]).await.expect("answered").remove(0);
    assert_eq!(
        (again.disposition, again.state, again.due_ms),
        (Disposition::Kept, State::Dead, enqueued.due_ms)
    );
    assert_eq!(store.requeue(&[job_ref("a", "x")]).await, Ok(vec![Verdict::NotFound]), "its record is gone");

    enqueue_one(store, &job_with_id("a", "y")).await;
    finish(&mut hand, IdMemory { age_ms: 0, ..IdMemory::default() }, completed(b"")).await;
    let fresh = store.enqueue(&[job_with_id("a", "y")]).await.expect("taken").remove(0);
    assert_eq!(fresh.disposition, Disposition::Created, "a memory of 0 remembers nothing beyond the record");
    finish(&mut hand, IdMemory { age_ms: 1, ..IdMemory::default() }, completed(b"")).await;
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    let fresh = store.enqueue(&[job_with_id("a", "y")]).await.expect("taken").remove(0);
    assert_eq!(fresh.disposition, Disposition::Created, "its time is over, pruned or not");
    prune_all(store).await;
    assert_eq!(state(store, &id("y")).await, State::Ready, "prune leaves the new job's id alone");
    for (text, state) in [("y", State::Ready), ("x", State::Dead)] {
        let kept = store.enqueue(&[job_with_id("a", text)]).await.expect("answered").remove(0);
        assert_eq!((kept.disposition, kept.state), (Disposition::Kept, state), "{text}");
    }
}

pub(crate) async fn the_memory_of_ids_is_bounded_in_bytes<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    let short = Retention { age_ms: Some(0), ..KEEP };
    for batch in 0..10 {
        let jobs: Vec<NewJob> =
            (0..100).map(|i| job_with_id("a", &format!("job-number-{batch}-{i}"))).collect();
        enqueue_all(store, &jobs).await;
        let claimed = hand.claim(&["a"], 100).await;
        let id_memory = IdMemory { age_ms: 60_000, bytes: 20_000 };
        let settlements: Vec<Settlement> = claimed
            .iter()
            .map(|c| Settlement { retention: short, id_memory, ..settlement(c, completed(b"")) })
            .collect();
        hand.settle_all(&settlements).await;
    }
    let mut remembered = 0;
    for batch in (0..10).rev() {
        for i in (0..100).rev() {
            let again = job_with_id("a", &format!("job-number-{batch}-{i}"));
            let known =
                store.enqueue(&[again]).await.expect("answered").remove(0).disposition == Disposition::Kept;
            remembered += u32::from(known);
        }
    }
    assert!((20..=200).contains(&remembered), "{remembered} ids of 20 bytes and more in 20,000 bytes");
    let newest = store.enqueue(&[job_with_id("b", "z")]).await.expect("taken").remove(0);
    assert_eq!(newest.disposition, Disposition::Created);
}

pub(crate) async fn dead_letters_without_a_cap_all_stay<B: Bed>(bed: B) {
    let store = bed.store();
    finish_all(store, &vec![job("a"); 10_050], dead(), Retention::DEAD).await;
    prune_all(store).await;
    assert_eq!(store.counts().await.expect("counts").queues[0].dead, 10_050);
    finish_all(store, &vec![job("a"); 100], dead(), Retention { count: Some(10_000), ..KEEP }).await;
    for _ in 0..5 {
        finish_all(store, &[job("a")], dead(), Retention { count: Some(10_000), ..KEEP }).await;
    }
    assert_eq!(store.counts().await.expect("counts").queues[0].dead, 10_000);
}

pub(crate) async fn a_deleted_job_leaves_nothing_to_count<B: Bed>(bed: B) {
    let store = bed.store();
    finish_all(store, &[job_with_id("a", "x"), job_with_id("a", "y")], dead(), KEEP).await;
    enqueue_one(store, &job_with_id("a", "z")).await;
    let refs: Vec<JobRef> = ["x", "z", "nothing"].map(|text| job_ref("a", text)).to_vec();
    let verdicts = store.delete(&refs).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Done, Verdict::Done, Verdict::NotFound]));
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues[0].dead, counts.queues[0].ready), (1, 0));
    let fresh = store.enqueue(&[job_with_id("a", "z")]).await.expect("taken").remove(0);
    assert_eq!(fresh.disposition, Disposition::Created, "the id of a job that never finished is free");
}
