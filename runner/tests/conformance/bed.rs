//! What a store must bring to be tried by the suite, and the little runner that tries it.
//!
//! Everything the suite asserts goes through the [`Store`] trait; a [`Bed`] only starts a store, opens
//! it again, and damages its data in ways that the trait rightly does not offer.

use async_trait::async_trait;
use bytes::Bytes;
use hourhand::job::{JobView, NewJob, State};
use hourhand::names::{JobId, Name};
use hourhand::outcome::Outcome;
use hourhand::queue::{
    ClaimRequest, Claimed, ClaimedJob, IdMemory, JobRef, Lane, LaneClaim, Lease, ListQuery, Retention,
    RunFacts, RunnerInfo, SessionId, Settled, Settlement, Store,
};

/// The namespace of a bed's first store.
pub(crate) const NAMESPACE: &str = "bed";

/// A store to be tried, and its data for the suite to damage.
#[async_trait]
pub(crate) trait Bed: Sized + Send + Sync {
    /// The store.
    type S: Store;

    /// A fresh, empty one.
    async fn start() -> Self;

    /// The store of the bed's first namespace.
    fn store(&self) -> &Self::S;

    /// Another namespace of the same data.
    async fn open(&self, namespace: &str) -> Self::S;

    /// Takes a waiting job's record away and leaves its index entry.
    async fn lose_record(&self, job: &JobView);

    /// Puts an entry with a due time of -1 into the lane's index, and one of 0, and one that is none of ours.
    async fn spoil_index(&self, lane: &Lane);

    /// Puts foreign data where the store keeps what a settle writes; returns what the whole store holds now, comparable.
    async fn foreign_data(&self) -> Vec<u8>;

    /// What the whole store holds now, comparable with [`foreign_data`](Self::foreign_data)'s answer.
    async fn contents(&self) -> Vec<u8>;

    /// What is wrong inside the store: jobs in no index or in two, counters that do not fit. Empty when all is well.
    async fn audit(&self) -> Vec<String>;

    /// Everything that the store holds now, for [`go_back`](Self::go_back).
    async fn backup(&self) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Puts a backup in the place of everything that the store holds; an empty store when it is empty.
    async fn go_back(&self, to: &[(Vec<u8>, Vec<u8>)]);

    /// Deletes a session's registration by hand.
    async fn lose_session(&self, session: &SessionId);

    /// Steps the wall clock of the machine on which the store is; false where a test cannot do that.
    async fn step_clock(&self, ms: i64) -> bool {
        let _ = ms;
        false
    }

    /// Lets time pass on all clocks of that machine; false where a test cannot do that.
    async fn pass_time(&self, ms: u64) -> bool {
        let _ = ms;
        false
    }
}

/// Keeps everything for ever.
pub(crate) const KEEP: Retention = Retention { age_ms: None, count: None, bytes: None };

/// A name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// An id.
pub(crate) fn id(text: &str) -> JobId {
    JobId::new(text).expect("an id")
}

/// The lane of a kind on its own queue.
pub(crate) fn lane(kind: &str) -> Lane {
    Lane { queue: name(kind), kind: name(kind) }
}

/// A job of a kind on its own queue, due now.
pub(crate) fn job(kind: &str) -> NewJob {
    NewJob::new(name(kind))
}

/// As [`job`], with an id.
pub(crate) fn job_with_id(kind: &str, text: &str) -> NewJob {
    NewJob { id: Some(id(text)), ..job(kind) }
}

/// The place of a job on its kind's own queue.
pub(crate) fn job_ref(kind: &str, text: &str) -> JobRef {
    JobRef { queue: name(kind), id: id(text) }
}

/// Takes jobs of any number, a batch at a time, and returns their ids in order.
pub(crate) async fn enqueue_all(store: &dyn Store, jobs: &[NewJob]) -> Vec<JobId> {
    let mut ids = Vec::with_capacity(jobs.len());
    for batch in jobs.chunks(hourhand::queue::BATCH_MAX) {
        let enqueued = store.enqueue(batch).await.expect("the store takes jobs");
        ids.extend(enqueued.into_iter().map(|e| e.id));
    }
    ids
}

/// Takes one job and returns its id.
pub(crate) async fn enqueue_one(store: &dyn Store, job: &NewJob) -> JobId {
    enqueue_all(store, std::slice::from_ref(job)).await.remove(0)
}

/// The only job with this id.
pub(crate) async fn view(store: &dyn Store, id: &JobId) -> JobView {
    let mut found = store.find(None, id).await.expect("find answers");
    assert_eq!(found.len(), 1, "one job {id}");
    found.remove(0)
}

/// The state of the only job with this id.
pub(crate) async fn state(store: &dyn Store, id: &JobId) -> State {
    view(store, id).await.state
}

/// All jobs that a query wants, page after page.
pub(crate) async fn list_all(store: &dyn Store, query: &ListQuery) -> Vec<JobView> {
    let mut query = query.clone();
    let mut items = Vec::new();
    loop {
        let page = store.list(&query).await.expect("list answers");
        assert!(page.items.len() <= query.limit, "a page holds at most what was asked for");
        items.extend(page.items);
        let Some(cursor) = page.cursor else { return items };
        assert_ne!(query.cursor.as_ref(), Some(&cursor), "each page goes on");
        query.cursor = Some(cursor);
    }
}

/// How many jobs are in each state, by the records.
pub(crate) async fn tally(store: &dyn Store, queue: &str) -> std::collections::HashMap<State, u64> {
    let query = ListQuery { queue: Some(name(queue)), limit: 1_000, ..ListQuery::default() };
    let mut tally = std::collections::HashMap::new();
    for view in list_all(store, &query).await {
        *tally.entry(view.state).or_default() += 1;
    }
    tally
}

/// A runner without a loop: it claims and settles when it is told to.
pub(crate) struct Hand<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) session: SessionId,
    next_token: u64,
}

impl<'a> Hand<'a> {
    pub(crate) fn new(store: &'a dyn Store, session: &str) -> Self {
        Self { store, session: SessionId(session.into()), next_token: 1 }
    }

    /// A request for due jobs of some kinds' own queues.
    pub(crate) fn request(&mut self, kinds: &[&str], due_max: usize) -> ClaimRequest {
        let lanes = kinds.iter().map(|kind| LaneClaim::new(lane(kind), 5)).collect();
        ClaimRequest {
            session: self.session.clone(),
            lanes,
            due_max,
            ahead_max: 0,
            look_ahead_ms: 0,
            suspect: true,
            first_token: self.next_token,
            beat: 0,
        }
    }

    pub(crate) async fn send(&mut self, request: ClaimRequest) -> Claimed {
        self.next_token = request.first_token + (request.due_max + request.ahead_max) as u64;
        self.store.claim(&request).await.expect("claim answers")
    }

    /// Claims up to `due_max` due jobs of some kinds' own queues.
    pub(crate) async fn claim(&mut self, kinds: &[&str], due_max: usize) -> Vec<ClaimedJob> {
        let request = self.request(kinds, due_max);
        self.send(request).await.jobs
    }

    /// Claims exactly one.
    pub(crate) async fn claim_one(&mut self, kind: &str) -> ClaimedJob {
        let mut jobs = self.claim(&[kind], 1).await;
        assert_eq!(jobs.len(), 1, "a job of {kind} is due");
        jobs.remove(0)
    }

    /// Claims exactly one, as soon as the store says that it is due.
    pub(crate) async fn claim_when_due(&mut self, kind: &str) -> ClaimedJob {
        loop {
            let request = self.request(&[kind], 1);
            let mut claimed = self.send(request).await;
            if let Some(job) = claimed.jobs.pop() {
                return job;
            }
            let due_ms = claimed.next_due_ms.expect("a job of this kind is scheduled");
            let wait_us = (due_ms * 1_000).saturating_sub(claimed.now_us);
            assert!(wait_us < 10_000_000, "due within a test's patience");
            tokio::time::sleep(std::time::Duration::from_micros(wait_us)).await;
        }
    }

    /// Holds up to `ahead_max` jobs that fall due within 10 s.
    pub(crate) async fn hold(&mut self, kinds: &[&str], ahead_max: usize) -> Vec<ClaimedJob> {
        let request = ClaimRequest { ahead_max, look_ahead_ms: 10_000, ..self.request(kinds, 0) };
        self.send(request).await.jobs
    }

    pub(crate) async fn settle(&self, job: &ClaimedJob, outcome: Outcome) -> Settled {
        self.settle_kept(job, outcome, KEEP).await
    }

    pub(crate) async fn settle_kept(
        &self,
        job: &ClaimedJob,
        outcome: Outcome,
        retention: Retention,
    ) -> Settled {
        self.settle_all(&[Settlement { retention, ..settlement(job, outcome) }]).await.remove(0)
    }

    pub(crate) async fn settle_all(&self, settlements: &[Settlement]) -> Vec<Settled> {
        self.store.settle(settlements).await.expect("settle answers")
    }

    pub(crate) async fn complete(&self, job: &ClaimedJob) {
        assert_eq!(self.settle(job, Outcome::Completed { result: None }).await, Settled::Done);
    }

    pub(crate) async fn beat(&self) -> hourhand::queue::Pulse {
        self.beat_told(0).await
    }

    /// A heartbeat of a runner that was told this beat last.
    pub(crate) async fn beat_told(&self, told: u64) -> hourhand::queue::Pulse {
        self.store
            .heartbeat(&self.session, &info(&self.session), told, &[lane("a")])
            .await
            .expect("heartbeat answers")
    }
}

/// What becomes of a job that ran for 2 ms.
pub(crate) fn settlement(job: &ClaimedJob, outcome: Outcome) -> Settlement {
    let run = RunFacts {
        started_us: job.due_ms * 1_000 + 250,
        duration_us: 2_000,
        lateness_us: 250,
        runner: "host:1".to_owned(),
        handler: "0123456789ab".to_owned(),
    };
    Settlement {
        lease: job.lease.clone(),
        lane: Lane { queue: job.job.queue.clone(), kind: job.job.kind.clone() },
        outcome,
        run: Some(run),
        retention: KEEP,
        id_memory: IdMemory::default(),
        effects: None,
        receipt: job.receipt.clone(),
    }
}

/// A failure that asks for another attempt after `delay_ms`.
pub(crate) fn retry(delay_ms: u64) -> Outcome {
    Outcome::Retry { reason: hourhand::outcome::Reason::Error, message: "not yet".to_owned(), delay_ms }
}

/// The end of all attempts.
pub(crate) fn dead() -> Outcome {
    Outcome::Dead { reason: hourhand::outcome::Reason::Permanent, message: "no such order".to_owned() }
}

/// Success with a result.
pub(crate) fn completed(result: &[u8]) -> Outcome {
    Outcome::Completed { result: Some(Bytes::copy_from_slice(result)) }
}

/// What a runner says of itself.
pub(crate) fn info(session: &SessionId) -> RunnerInfo {
    RunnerInfo {
        name: format!("host:{session}"),
        host: "host".to_owned(),
        pid: 1,
        version: "0.1.0".to_owned(),
        started_ms: 0,
        concurrency: 4,
        running: 0,
        held: 0,
        kinds: vec![name("a")],
        stopping: false,
    }
}

/// All leases, each once.
pub(crate) async fn leases(store: &dyn Store) -> Vec<hourhand::queue::LeaseSeen> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.leases(cursor).await.expect("leases answers");
        all.extend(page.items);
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    all.sort_unstable_by_key(|seen| (seen.lease.record, seen.lease.token));
    all.dedup();
    all
}

/// A lease with another token.
pub(crate) fn forged(lease: &Lease) -> Lease {
    Lease { token: lease.token + 1_000_000, ..lease.clone() }
}
