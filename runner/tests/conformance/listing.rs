//! Lists, counts and finding.

use std::collections::HashSet;

use hourhand::job::{Due, NewJob, Priority, State};
use hourhand::queue::{ListQuery, Settlement, Store, StoreError, Verdict};

use crate::bed::*;

fn query(limit: usize) -> ListQuery {
    ListQuery { limit, ..ListQuery::default() }
}

async fn ids(store: &dyn Store, query: &ListQuery) -> Vec<String> {
    list_all(store, query).await.iter().map(|view| view.job.id.to_string()).collect()
}

/// Jobs in all states, in two queues.
async fn populate(store: &dyn Store) {
    let mut hand = Hand::new(store, "s");
    for i in 0..12 {
        let kind = if i % 2 == 0 { "a" } else { "b" };
        enqueue_one(store, &job_with_id(kind, &format!("fin{i}"))).await;
        let claimed = hand.claim_one(kind).await;
        let outcome = match i % 3 {
            0 => completed(b""),
            1 => dead(),
            _ => hourhand::outcome::Outcome::Cancelled,
        };
        hand.settle(&claimed, outcome).await;
    }
    for i in 0..5 {
        enqueue_one(store, &job_with_id("a", &format!("run{i}"))).await;
    }
    hand.claim(&["a"], 5).await;
    for i in 0..30u64 {
        let kind = if i % 3 == 0 { "b" } else { "a" };
        let due = if i % 2 == 0 { Due::NOW } else { Due::In(1_000_000 - i * 1_000) };
        let priority = Priority::ALL[i as usize % 3];
        enqueue_one(store, &NewJob { due, priority, ..job_with_id(kind, &format!("wait{i}")) }).await;
    }
}

pub(crate) async fn every_job_is_listed_once_whatever_the_page<B: Bed>(bed: B) {
    let store = bed.store();
    populate(store).await;
    let whole: HashSet<String> = ids(store, &query(1_000)).await.into_iter().collect();
    assert_eq!(whole.len(), 47);
    for limit in [1, 2, 7, 46, 47, 48] {
        let listed = ids(store, &query(limit)).await;
        assert_eq!(listed.len(), 47, "pages of {limit}");
        assert_eq!(listed.into_iter().collect::<HashSet<_>>(), whole, "pages of {limit}");
    }
}

pub(crate) async fn filters_leave_out_what_does_not_fit<B: Bed>(bed: B) {
    let store = bed.store();
    populate(store).await;
    for state in State::ALL {
        let some = list_all(store, &ListQuery { states: vec![state], ..query(4) }).await;
        assert!(!some.is_empty() && some.iter().all(|view| view.state == state), "{state}");
        let counts = store.counts().await.expect("counts");
        let counted: u64 = counts
            .queues
            .iter()
            .map(|q| match state {
                State::Scheduled => q.scheduled,
                State::Ready => q.ready,
                State::Running => q.running,
                State::Completed => q.completed,
                State::Dead => q.dead,
                State::Cancelled => q.cancelled,
            })
            .sum();
        assert_eq!(some.len() as u64, counted, "counts are the records': {state}");
    }
    let of_b = list_all(store, &ListQuery { queue: Some(name("b")), ..query(5) }).await;
    assert!(of_b.len() == 16 && of_b.iter().all(|view| view.job.queue == name("b")));
    let of_kind = list_all(store, &ListQuery { kind: Some(name("a")), ..query(5) }).await;
    assert_eq!(of_kind.len(), 47 - 16);
    let failed = list_all(store, &ListQuery { error: Some("no such".to_owned()), ..query(5) }).await;
    assert!(failed.len() == 4 && failed.iter().all(|view| view.state == State::Dead));
    let by_reason = list_all(store, &ListQuery { error: Some("permanent".to_owned()), ..query(5) }).await;
    assert_eq!(by_reason.len(), 4);
    let now = store.counts().await.expect("counts").now_ms;
    assert_eq!(list_all(store, &ListQuery { since_ms: Some(now + 60_000), ..query(5) }).await.len(), 0);
    assert_eq!(list_all(store, &ListQuery { since_ms: Some(now - 600_000), ..query(5) }).await.len(), 47);
    assert_eq!(ids(store, &ListQuery { queue: Some(name("nowhere")), ..query(5) }).await.len(), 0);
}

pub(crate) async fn waiting_jobs_are_listed_by_due_time_and_finished_ones_newest_first<B: Bed>(bed: B) {
    let store = bed.store();
    populate(store).await;
    let waiting = list_all(store, &ListQuery { states: vec![State::Scheduled], ..query(3) }).await;
    assert!(waiting.windows(2).all(|w| w[0].due_ms <= w[1].due_ms), "over queues, kinds and priorities");
    let finished = ListQuery { states: vec![State::Completed, State::Dead, State::Cancelled], ..query(3) };
    let order: Vec<u32> =
        ids(store, &finished).await.iter().map(|id| id[3..].parse().expect("a number")).collect();
    let mut ends = order.clone();
    ends.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(order, ends);
}

pub(crate) async fn a_listing_misses_nothing_that_stays<B: Bed>(bed: B) {
    let store = bed.store();
    let at = store.enqueue(&[job("clock")]).await.expect("taken")[0].due_ms + 1_000_000;
    let jobs: Vec<NewJob> =
        (0..400).map(|i| NewJob { due: Due::At(at), ..job_with_id("a", &format!("{i}")) }).collect();
    enqueue_all(store, &jobs).await;
    let mut page_query = ListQuery { queue: Some(name("a")), ..query(7) };
    let (mut seen, mut gone, mut next) = (HashSet::new(), HashSet::new(), 0);
    loop {
        let page = store.list(&page_query).await.expect("list answers");
        seen.extend(page.items.iter().map(|view| view.job.id.to_string()));
        // While somebody lists, others delete what was listed and what was not, and add before and behind.
        for i in [next, 399 - next] {
            store.delete(&[job_ref("a", &format!("{i}"))]).await.expect("deleted");
            gone.insert(format!("{i}"));
        }
        next += 1;
        enqueue_all(store, &[NewJob { due: Due::At(at), ..job("a") }, job("a")]).await;
        match page.cursor {
            Some(cursor) => page_query.cursor = Some(cursor),
            None => break,
        }
    }
    for i in 0..400 {
        let text = format!("{i}");
        assert!(gone.contains(&text) || seen.contains(&text), "job {text} was there all the time");
    }
}

pub(crate) async fn lanes_of_any_size_are_listed_in_one_order<B: Bed>(bed: B) {
    let store = bed.store();
    let at = store.enqueue(&[job("clock")]).await.expect("taken")[0].due_ms + 1_000_000;
    // One lane has nearly all of the first, others a few in between, and many share a millisecond.
    let mut jobs = Vec::new();
    for i in 0..900u64 {
        let kind = if i % 9 == 0 { format!("small{}", i / 90) } else { "large".to_owned() };
        jobs.push(NewJob { due: Due::At(at + i / 7), ..job_with_id(&kind, &format!("{i}")) });
    }
    jobs.extend((0..40).map(|i| NewJob { due: Due::At(at + 1_000 + i), ..job(&format!("late{i}")) }));
    enqueue_all(store, &jobs).await;
    for limit in [9, 100, 1_000] {
        let listed = list_all(store, &ListQuery { states: vec![State::Scheduled], ..query(limit) }).await;
        assert_eq!(listed.len(), 940, "pages of {limit}");
        assert!(listed.windows(2).all(|w| w[0].due_ms <= w[1].due_ms), "pages of {limit}");
        let ids: HashSet<&str> = listed.iter().map(|view| view.job.id.as_str()).collect();
        assert_eq!(ids.len(), 940, "pages of {limit}");
    }
}

pub(crate) async fn a_bad_cursor_or_limit_is_refused<B: Bed>(bed: B) {
    let store = bed.store();
    let huge = ["r:18446744073709551615:x", "w:18446744073709551615:x", "f:9007199254740992:x"];
    for bad in ["", "x", "w:1", "z:1:2", "w:x:y", "w:-1:y", "😀"].into_iter().chain(huge) {
        let asked = store.list(&ListQuery { cursor: Some(bad.to_owned()), ..query(5) }).await;
        assert!(matches!(asked, Err(StoreError::Invalid(_))), "{bad:?}: {asked:?}");
    }
    for limit in [0, 1_001] {
        assert!(matches!(store.list(&query(limit)).await, Err(StoreError::Invalid(_))));
    }
}

pub(crate) async fn large_records_make_short_pages<B: Bed>(bed: B) {
    let store = bed.store();
    let large = NewJob { payload: vec![b'x'; 1 << 20].into(), ..job("a") };
    for _ in 0..12 {
        enqueue_one(store, &large).await;
    }
    let first = store.list(&query(100)).await.expect("list answers");
    assert!((1..12).contains(&first.items.len()) && first.cursor.is_some(), "{} items", first.items.len());
    assert_eq!(list_all(store, &query(100)).await.len(), 12);
}

pub(crate) async fn find_answers_for_every_queue<B: Bed>(bed: B) {
    let store = bed.store();
    for queue in ["a", "b", "c"] {
        enqueue_one(store, &NewJob { queue: name(queue), ..job_with_id("k", "same") }).await;
    }
    let mut queues: Vec<String> =
        store.find(None, &id("same")).await.expect("find").iter().map(|v| v.job.queue.to_string()).collect();
    queues.sort();
    assert_eq!(queues, ["a", "b", "c"]);
    assert_eq!(store.find(Some(&name("b")), &id("same")).await.expect("find").len(), 1);
    assert_eq!(store.find(Some(&name("d")), &id("same")).await, Ok(vec![]));
    assert_eq!(store.find(None, &id("none")).await, Ok(vec![]));
    let made = enqueue_one(store, &job("k")).await;
    assert_eq!(store.find(Some(&name("k")), &made).await.expect("find").len(), 1);
    assert_eq!(store.find(Some(&name("a")), &made).await, Ok(vec![]), "a generated id belongs to its queue");
}

pub(crate) async fn counts_follow_every_step<B: Bed>(bed: B) {
    let store = bed.store();
    let mut hand = Hand::new(store, "s");
    enqueue_all(store, &[vec![job("a"); 10], vec![NewJob { due: Due::In(60_000), ..job("a") }; 5]].concat())
        .await;
    let claimed = hand.claim(&["a"], 6).await;
    let outcomes =
        [completed(b""), completed(b""), retry(60_000), dead(), hourhand::outcome::Outcome::Cancelled];
    let settlements: Vec<Settlement> =
        outcomes.into_iter().zip(&claimed).map(|(o, c)| settlement(c, o)).collect();
    hand.settle_all(&settlements).await;
    let counts = store.counts().await.expect("counts");
    let q = &counts.queues[0];
    assert_eq!((q.ready, q.scheduled, q.running), (4, 6, 1));
    assert_eq!((q.completed, q.dead, q.cancelled), (2, 1, 1));
    assert_eq!((q.enqueued_total, q.completed_total, q.failed_total), (15, 2, 2));
    assert_eq!(q.kinds, [name("a")]);
    let oldest = view(store, &claimed[0].job.id).await;
    assert!(q.oldest_due_ms.is_some_and(|due| due <= counts.now_ms && due >= oldest.job.enqueued_ms));
    assert_eq!(store.delete(&[job_ref("a", claimed[0].job.id.as_str())]).await, Ok(vec![Verdict::Done]));
    let q = store.counts().await.expect("counts").queues.remove(0);
    assert_eq!((q.completed, q.completed_total), (1, 2), "totals count for ever");
}

pub(crate) async fn hundreds_of_lanes_are_counted_and_listed<B: Bed>(bed: B) {
    let store = bed.store();
    let jobs: Vec<NewJob> = (0..400).map(|i| job_with_id(&format!("kind{i}"), &format!("{i}"))).collect();
    enqueue_all(store, &jobs).await;
    assert_eq!(store.lanes().await.expect("lanes").len(), 400);
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.queues.len(), counts.queues.iter().map(|q| q.ready).sum::<u64>()), (400, 400));
    let listed: HashSet<String> = ids(store, &query(150)).await.into_iter().collect();
    assert_eq!(listed.len(), 400);
    assert_eq!(store.find(None, &id("399")).await.expect("find").len(), 1);
}
