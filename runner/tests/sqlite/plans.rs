//! No statement of the store looks at more than it needs, however many jobs there are.

use std::path::Path;

use hourhand::effects::{Effects, StateChange, StateEffects};
use hourhand::job::{Due, NewJob, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{BATCH_MAX, JobRef, ListQuery, LogWrite, Retention, Settlement, Store};

use crate::bed::{Hand, KEEP, dead, job, job_with_id, name, retry, settlement};
use crate::kit::{quick_store, stranger, tell};
use crate::traces::{Cost, costs, total, trace};

/// Tables that are small whatever the number of jobs: as many rows as there are names, sessions or slots.
const SMALL: [&str; 10] =
    ["clock", "sequence", "namespaces", "queues", "lanes", "leases", "sessions", "wakes", "aside", "kept"];
const SCHEDULED: usize = 200_000;

/// A store with a file that is traced.
async fn traced(file: &Path) -> hourhand::queue::sqlite::SqliteStore {
    // The hook sees connections that are opened after it.
    let first = quick_store(file);
    first.identity().await.expect("made");
    trace(file);
    quick_store(file)
}

/// Every verb, on every way that it may take.
async fn every_verb(store: &dyn Store) {
    let mut hand = Hand::new(store, "s");
    let ids = ["i1", "i2", "i3", "i4", "i5", "i6"];
    let jobs: Vec<NewJob> = ids.iter().map(|id| job_with_id("a", id)).chain(vec![job("a"); 40]).collect();
    store.enqueue(&jobs).await.expect("taken");
    for on_conflict in [
        hourhand::job::OnConflict::Keep,
        hourhand::job::OnConflict::Replace,
        hourhand::job::OnConflict::Reschedule,
    ] {
        store.enqueue(&[NewJob { on_conflict, ..job_with_id("a", "i6") }]).await.expect("taken");
    }
    let claimed = hand.claim(&["a"], 12).await;
    let held = NewJob { due: Due::In(5_000), ..job("a") };
    store.enqueue(&[held]).await.expect("taken");
    hand.hold(&["a"], 5).await;
    hand.beat().await;
    let log =
        LogWrite { lease: claimed[0].lease.clone(), attempt: 1, text: "a line".to_owned(), progress: None };
    store.write_logs(&[log]).await.expect("written");
    let outcomes = [
        Outcome::Completed { result: None },
        retry(1),
        dead(),
        Outcome::Snoozed { delay_ms: 1_000 },
        Outcome::Released { message: None },
        Outcome::Cancelled,
    ];
    for (job, outcome) in claimed.iter().zip(outcomes) {
        hand.settle_kept(job, outcome.clone(), Retention { age_ms: Some(1), count: Some(1), bytes: Some(1) })
            .await;
        // A repeat, and then one that comes too late.
        hand.settle(job, outcome).await;
    }
    let leases = store.leases(None).await.expect("listed").items;
    store.reclaim(&leases, KEEP).await.expect("taken back");
    while store.prune().await.expect("pruned").more {}
    operators_verbs(store).await;
    store.end_session(&hand.session).await.expect("ended");
}

async fn operators_verbs(store: &dyn Store) {
    let refs: Vec<JobRef> = store
        .list(&ListQuery { limit: 20, ..ListQuery::default() })
        .await
        .expect("listed")
        .items
        .iter()
        .map(|view| JobRef { queue: view.job.queue.clone(), id: view.job.id.clone() })
        .collect();
    store.reschedule(&refs[0], Due::In(60_000)).await.expect("moved");
    store.cancel(&refs[1..4], Retention::FINISHED).await.expect("cancelled");
    store.requeue(&refs[1..3]).await.expect("requeued");
    store.delete(&refs[3..6]).await.expect("deleted");
    store.logs(&refs[0]).await.expect("read");
    store.find(None, &refs[0].id).await.expect("found");
    for state in [State::Scheduled, State::Ready, State::Running, State::Completed, State::Dead] {
        let query =
            ListQuery { states: vec![state], queue: Some(name("a")), limit: 10, ..ListQuery::default() };
        store.list(&query).await.expect("listed");
    }
    store.pause(&name("a")).await.expect("paused");
    store.resume(&name("a")).await.expect("resumed");
    store.counts().await.expect("counted");
    store.sessions().await.expect("listed");
    store.lanes().await.expect("listed");
    store.purge(&name("a")).await.expect("purged");
    let bucket = name("b");
    for key in ["k", "n"] {
        store.set_state(&bucket, key, b"1").await.expect("set");
    }
    store.read_state(&bucket, &["k".to_owned()]).await.expect("read");
    store.buckets(None).await.expect("listed");
    store.state_page(&bucket, None).await.expect("listed");
    store.delete_state(&bucket, "k").await.expect("deleted");
    commit(store).await;
    store.empty_bucket(&bucket).await.expect("deleted");
}

/// A completion with effects, and one in conflict.
async fn commit(store: &dyn Store) {
    let mut hand = Hand::new(store, "s");
    for reads in [vec![("k".to_owned(), 0)], vec![("k".to_owned(), 7)]] {
        store.enqueue(&[job("p")]).await.expect("taken");
        let claimed = hand.claim_one("p").await;
        let changes = vec![
            ("k".to_owned(), StateChange::Delete),
            ("n".to_owned(), StateChange::Add(1)),
            ("new".to_owned(), StateChange::Set("x".into())),
        ];
        let effects = Effects {
            children: vec![job_with_id("c", "child")],
            state: Some(StateEffects { bucket: name("b"), reads, changes }),
        };
        let settlement = settlement(&claimed, Outcome::Completed { result: None });
        hand.settle_all(&[Settlement { effects: Some(Box::new(effects)), ..settlement }]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_scans_a_table_that_grows_with_the_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let store = traced(&file).await;
    every_verb(&store).await;
    let client = stranger(&file);
    let (mut statements, mut wrong) = (0, Vec::new());
    for sql in costs(&file).into_keys() {
        if !["SELECT", "INSERT", "UPDATE", "DELETE"].iter().any(|word| sql.starts_with(word)) {
            continue;
        }
        statements += 1;
        let mut plan = client.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a statement");
        let mut rows = plan.raw_query();
        while let Some(row) = rows.next().expect("a step") {
            let step: String = row.get(3).expect("a text");
            let scanned = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
            let sorted = step.contains("TEMP B-TREE") && !sql.contains("FROM leases");
            if scanned.is_some_and(|table| !SMALL.contains(&table)) || sorted {
                wrong.push(format!("{step}: {sql}"));
            }
        }
    }
    tell(&format!("{statements} statements"));
    assert!(statements > 60, "all of them were seen: {statements}");
    assert_eq!(wrong, Vec::<String>::new());
}

/// What the steps of a hundred jobs' lives cost: an enqueue, a claim, a settle and a prune.
async fn hundred(store: &dyn Store, file: &Path) -> [Cost; 4] {
    let mut hand = Hand::new(store, "s");
    total(file);
    store.enqueue(&vec![job("a"); 100]).await.expect("taken");
    let enqueued = total(file);
    let jobs = hand.claim(&["a"], 100).await;
    assert_eq!(jobs.len(), 100);
    let claimed = total(file);
    let settlements: Vec<Settlement> = jobs
        .iter()
        .map(|job| Settlement {
            retention: Retention { age_ms: Some(0), count: None, bytes: None },
            ..settlement(job, Outcome::Completed { result: None })
        })
        .collect();
    hand.settle_all(&settlements).await;
    let settled = total(file);
    store.prune().await.expect("pruned");
    [enqueued, claimed, settled, total(file)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_scheduled_jobs_do_not_add_to_what_a_hundred_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let store = traced(&file).await;
    hundred(&store, &file).await;
    let before = hundred(&store, &file).await;
    for number in 0..SCHEDULED / BATCH_MAX {
        let due = Due::In(3_600_000 + 977 * number as u64 % 100_000);
        store.enqueue(&vec![NewJob { due, ..job("a") }; BATCH_MAX]).await.expect("taken");
    }
    hundred(&store, &file).await;
    let after = hundred(&store, &file).await;
    for (what, (before, after)) in
        ["enqueue", "claim", "settle", "prune"].iter().zip(before.iter().zip(&after))
    {
        tell(&format!("{what} of 100: {before:?}, behind {SCHEDULED}: {after:?}"));
        assert!(after.steps <= before.steps + before.steps / 50 + 50, "{what}: {before:?} {after:?}");
        assert!(after.scanned <= before.scanned + 50, "{what}: {before:?} {after:?}");
        // The trees of the jobs are two levels higher, and a job is in several.
        assert!(after.pages <= before.pages + 1_000, "{what}: {before:?} {after:?}");
    }
    assert_eq!(store.counts().await.expect("counted").queues[0].scheduled, SCHEDULED as u64);
}
