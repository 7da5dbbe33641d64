//! The `Store` contract: what holds the jobs, and makes every step of their lives atomic.
//!
//! Methods are job verbs. What is *not* here: connections, transactions, keys, scripts, and any clock
//! but the store's own. The 15 rules that every store keeps are in ARCHITECTURE.md; the conformance
//! suite (`runner/tests/conformance`) tries them on each store.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::effects::{BucketSeen, Effects, Progress, StateEntry, StateFound};
use crate::job::{Due, Job, JobView, NewJob, State};
use crate::names::{JobId, Name};
use crate::outcome::Outcome;

pub use copy::{Exported, Imported, Source};
pub use examination::Examination;
pub use finding::{Finding, Severity};

pub(crate) mod checks;
pub mod copy;
pub mod examination;
pub mod finding;
mod life;
mod listing;
pub mod redis;
pub mod sqlite;

/// Most jobs that one call of a batch verb takes. Callers cut larger work into calls; what one
/// call holds is all or nothing, and a store never cuts it. Keeps a script under its 5 ms (rule 6).
pub const BATCH_MAX: usize = 250;
/// Most payload bytes in one batch of more than one job (rule 6): a larger payload travels alone.
pub const BATCH_PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Most lanes that one claim looks at.
pub const CLAIM_LANES_MAX: usize = 64;

/// One runner's life, from its start to its end: what leases belong to. Random, never reused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub Arc<str>);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pair of queue and kind: what a claim looks at. Its jobs are in three parts by priority.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// Where jobs wait.
    pub queue: Name,
    /// What they are.
    pub kind: Name,
}

/// What an enqueue did with one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// The job's id, given or made.
    pub id: JobId,
    /// What happened.
    pub disposition: Disposition,
    /// The state in which the job is now (of the old job, if that was kept).
    pub state: State,
    /// Its due time, in milliseconds since 1970.
    pub due_ms: u64,
}

/// What an enqueue did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// A new job is there.
    Created,
    /// The id existed: nothing changed.
    Kept,
    /// The id existed: the new job took its place.
    Replaced,
    /// The id existed: its due time changed.
    Rescheduled,
    /// The id existed and the caller's `on_conflict` cannot be done: nothing changed.
    Conflict,
}

/// What to claim from one lane, and what its handler says about retries (rule: the job's own
/// word comes first; the effective values are stored in the lease for whoever reclaims).
#[derive(Debug, Clone, PartialEq)]
pub struct LaneClaim {
    /// The lane.
    pub lane: Lane,
    /// Attempts for jobs that do not say.
    pub max_attempts: u32,
    /// Turns that the lane's kind has for each turn of a kind of weight 1; 1 or more. The same in all lanes of a kind.
    pub weight: u32,
    /// At most so many jobs of the lane's kind in this claim; the same in all lanes of a kind. No bound of its own when `None`.
    pub kind_max: Option<u32>,
    /// Attempts that no job of the lane may exceed, whatever it says itself.
    pub attempts_cap: Option<u32>,
}

impl LaneClaim {
    /// A lane of a kind without weight or bounds.
    pub fn new(lane: Lane, max_attempts: u32) -> Self {
        Self { lane, max_attempts, weight: 1, kind_max: None, attempts_cap: None }
    }
}

/// A claim by one session.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRequest {
    /// Who claims.
    pub session: SessionId,
    /// At most [`CLAIM_LANES_MAX`], in the order in which they have their turn. Jobs of a higher
    /// priority in any of them come before those of a lower one; within a priority the kinds share
    /// by their weights, and the lanes of a kind alike: what one does not use goes to the others, and
    /// none begins a second turn before each had a first.
    pub lanes: Vec<LaneClaim>,
    /// At most so many jobs that are due, [`BATCH_MAX`] or less. They are returned in the order in
    /// which they should start.
    pub due_max: usize,
    /// At most so many jobs that fall due within `look_ahead_ms` (held jobs).
    pub ahead_max: usize,
    /// How far to look ahead, in milliseconds.
    pub look_ahead_ms: u64,
    /// Whether a job with two recorded crashes may be among them, and then at most one: a poison pill
    /// must convict itself and not its neighbours.
    pub suspect: bool,
    /// The first of `due_max + ahead_max` lease tokens that this session has never used.
    pub first_token: u64,
    /// The session's highest beat that an answer has told; 0 before the first. A store that knows of a lower one, or of none, has
    /// gone back in time or has forgotten the session: it takes nothing, for what waits there may be in this session's hand.
    pub beat: u64,
}

/// What a claim brought.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The jobs, those that are due first, each under a lease of the session.
    pub jobs: Vec<ClaimedJob>,
    /// The store's clock during the claim, in microseconds since 1970: what it decided by.
    pub now_us: u64,
    /// The store's clock as late as it could be read for this answer, in microseconds since 1970: what the caller ties its own
    /// clock to. Later than `now_us` where an answer waits for others or for the disk.
    pub answered_us: u64,
    /// The earliest due time of what is left in these lanes and may be claimed, in milliseconds since
    /// 1970: not of a kind of which this claim took all that it may. In the past when more is ready than was asked for.
    pub next_due_ms: Option<u64>,
    /// Index entries without a record that this claim moved to the orphans, entries with a score of 0
    /// or below that it put in quarantine, and indexes that hold foreign data, which it passed over.
    pub damaged: u64,
    /// The session's beat, which a claim that takes jobs counts up as a heartbeat does; 0 when it is not registered. Lower than
    /// that of the request: nothing was taken, and a heartbeat says what has happened.
    pub beat: u64,
}

/// A claimed job.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedJob {
    /// What was asked for.
    pub job: Job,
    /// The right to settle it.
    pub lease: Lease,
    /// Counts from 1; includes this one.
    pub attempt: u32,
    /// The effective cap.
    pub max_attempts: u32,
    /// Recorded crashes.
    pub crashes: u32,
    /// When it may start, in milliseconds since 1970.
    pub due_ms: u64,
    /// What the store wants back with the outcome, and only the store can read; may be empty. Settling is the faster for it, and
    /// otherwise the same without.
    pub receipt: Bytes,
}

/// The right to write what becomes of a claimed job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How the store finds the job; opaque to everybody else.
    pub record: u64,
    /// Whose it is.
    pub session: SessionId,
    /// Unique within the session.
    pub token: u64,
}

/// How long finished jobs are kept (rule 14). `None` is no limit; an age of 0 keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// In milliseconds from the end of the job.
    pub age_ms: Option<u64>,
    /// Jobs a queue and state.
    pub count: Option<u64>,
    /// Bytes of records a queue and state.
    pub bytes: Option<u64>,
}

impl Retention {
    /// Completed and cancelled jobs: 1 hour, 10,000 jobs and 64 MiB a queue.
    pub const FINISHED: Self = Self { age_ms: Some(3_600_000), count: Some(10_000), bytes: Some(64 << 20) };
    /// Dead letters: 30 days.
    pub const DEAD: Self = Self { age_ms: Some(30 * 86_400_000), count: None, bytes: None };
}

/// How long an explicit id is remembered after its job has finished (rule 14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdMemory {
    /// In milliseconds from the end of the job. 0 remembers nothing beyond the record.
    pub age_ms: u64,
    /// Bytes of ids in a namespace; the oldest go first.
    pub bytes: u64,
}

impl Default for IdMemory {
    /// 24 hours, 64 MiB.
    fn default() -> Self {
        Self { age_ms: 86_400_000, bytes: 64 << 20 }
    }
}

/// What became of one claimed job.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// The right to say so.
    pub lease: Lease,
    /// Its lane, to which a retry goes back.
    pub lane: Lane,
    /// What is to become of it.
    pub outcome: Outcome,
    /// The run; `None` when the job was held and never started.
    pub run: Option<RunFacts>,
    /// How long the record is kept if this finishes the job.
    pub retention: Retention,
    /// How long its id is remembered if this finishes the job.
    pub id_memory: IdMemory,
    /// What becomes true together with a completion (rule 12), and is dropped with any other outcome.
    pub effects: Option<Box<Effects>>,
    /// What came with the claim, as it came ([`ClaimedJob::receipt`]); empty where nothing did.
    pub receipt: Bytes,
}

impl Settlement {
    /// The effects that commit with it: those of a completion, if there are any.
    pub(crate) fn commits(&self) -> Option<&Effects> {
        let effects = self.effects.as_deref().filter(|effects| !effects.is_empty())?;
        matches!(self.outcome, Outcome::Completed { .. }).then_some(effects)
    }
}

/// Facts of one run, on the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// When it started, in microseconds since 1970.
    pub started_us: u64,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How long after its due time it started, in microseconds.
    pub lateness_us: u64,
    /// Who ran it.
    pub runner: String,
    /// First 12 hex digits of the sha256 of the module.
    pub handler: String,
}

/// The answer to one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is written; also when an earlier call of which the reply was lost wrote it.
    Done,
    /// The lease is not valid any more: nothing changed.
    Stale,
    /// State that the run had read has changed since, or cannot take its change: none of its effects is written, and the job
    /// is back in its place, its attempt unspent (or cancelled, if somebody wanted that meanwhile). Also when an earlier
    /// call of which the reply was lost found it so.
    Conflict,
}

/// A runner as it presents itself with each heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerInfo {
    /// Who it is: `host:pid`, or the configured name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// Hourhand's version.
    pub version: String,
    /// When it started, in milliseconds since 1970 on the store's clock (0 until it has heard that).
    pub started_ms: u64,
    /// Its slots.
    pub concurrency: u32,
    /// Jobs that run.
    pub running: u32,
    /// Jobs that it holds for their moment.
    pub held: u32,
    /// Kinds that it serves.
    pub kinds: Vec<Name>,
    /// True once it has stopped claiming.
    pub stopping: bool,
}

/// A session that has shown itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSeen {
    /// Whose.
    pub session: SessionId,
    /// Counts up with each heartbeat, and each claim that takes jobs, while the session is registered.
    pub beat: u64,
    /// When the store received the last heartbeat, in milliseconds since 1970: for people, never for a
    /// decision about a lease.
    pub beat_ms: u64,
    /// How the runner presented itself; `None` when that cannot be read.
    pub info: Option<RunnerInfo>,
}

/// What a heartbeat brings back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// The store's clock, in microseconds since 1970.
    pub now_us: u64,
    /// The session's beat now.
    pub beat: u64,
    /// Its beat before this heartbeat; `None` when it was not registered. A beat that was ever told is never higher than this, unless
    /// the store has gone back in time.
    pub beat_before: Option<u64>,
    /// A number of the store's sequence, taken by this heartbeat: larger than any that was given out before.
    pub mark: u64,
    /// The store's name as [`Store::identity`] gives it; empty when nobody has asked for it yet.
    pub identity: String,
    /// All sessions that are registered or hold a lease (those with `info: None` and beat 0 may be
    /// known by their leases alone).
    pub sessions: Vec<SessionSeen>,
    /// Leases of this session that an operator wants back, and how.
    pub recalls: Vec<Recall>,
    /// The earliest due time of what waits in the lanes that were asked about, suspects included, in milliseconds since 1970: the
    /// past when something is ready. Paused queues have none.
    pub next_due_ms: Option<u64>,
    /// Whether any session has a lease. Where none has, [`leases`](Store::leases) would have been empty at this moment.
    pub leased: bool,
    /// How many lanes the store lists ([`lanes`](Store::lanes)): another number than before says that there are others now.
    pub lanes: u64,
}

/// An operator's word on a leased job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// Which job.
    pub record: u64,
    /// Which claim of it.
    pub token: u64,
    /// What is wanted.
    pub action: RecallAction,
}

/// What an operator wants of a leased job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecallAction {
    /// Stop it, running or held, and settle it as cancelled.
    Cancel,
    /// Give it back if it is held and has not started; leave it alone if it runs.
    Release,
}

/// A lease as the store lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// The lease.
    pub lease: Lease,
    /// Where its job goes back to.
    pub lane: Lane,
    /// When it was claimed, in milliseconds since 1970.
    pub claimed_ms: u64,
}

/// What a reclaim did with the leases that it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Back in their lanes, a crash on the record.
    pub ready: u64,
    /// Dead-lettered as `lost`: three crashes, or no attempt left.
    pub dead: u64,
    /// Cancelled, as somebody had asked.
    pub cancelled: u64,
    /// Not that session's any more: untouched.
    pub stale: u64,
}

/// What a store says to a runner that offers it a job from its hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// The lease is there: nothing was done.
    Kept {
        /// The job's record.
        record: u64,
    },
    /// The lease was lost, and perhaps the job with it: both are there again.
    Restored {
        /// The job's record; another number than the lease had where the store has given that out anew.
        record: u64,
    },
    /// It is not the runner's any more: it has ended, somebody else has it or has had it since, or its id is another job's by
    /// now. Nothing was done.
    Taken,
}

/// Something that may let a runner work earlier than it had planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// A job of this lane is due at this time, in milliseconds since 1970, earlier than any before in it.
    Due {
        /// Where.
        lane: Lane,
        /// When.
        due_ms: u64,
    },
    /// A recall for this session is waiting: fetch it with a heartbeat.
    Recall(SessionId),
    /// Signals may have been missed: look at everything.
    Missed,
}

/// One appended piece of a job's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogWrite {
    /// The right to write.
    pub lease: Lease,
    /// Which attempt speaks.
    pub attempt: u32,
    /// The whole log of the attempt so far, capped by whoever writes. Replaces what was there.
    pub text: String,
    /// How far the attempt has come, if it says: it takes the place of what was there, which stays otherwise.
    pub progress: Option<Progress>,
}

/// The log of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLog {
    /// Which attempt.
    pub attempt: u32,
    /// Its text: stdout, stderr and log lines in order.
    pub text: String,
}

/// A job's place: its queue and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobRef {
    /// Where.
    pub queue: Name,
    /// Which.
    pub id: JobId,
}

/// The answer to an operator's verb on one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Done.
    Done,
    /// A runner has the job and was told: the state will change when it answers.
    Asked,
    /// There is no such job.
    NotFound,
    /// The job's state does not allow it: nothing changed.
    Conflict(State),
}

/// Which jobs a list wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only of this queue.
    pub queue: Option<Name>,
    /// Only of this kind.
    pub kind: Option<Name>,
    /// Only in these states; all when empty.
    pub states: Vec<State>,
    /// Only those whose last failure has a reason or message that contains this text.
    pub error: Option<String>,
    /// Only those that were enqueued (for finished ones: ended) at or after this, in milliseconds since
    /// 1970.
    pub since_ms: Option<u64>,
    /// At most so many items, 1 to 1,000.
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<String>,
}

/// One page of a list. It may hold fewer items than asked for, even none, and still have a cursor:
/// every step is bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub cursor: Option<String>,
}

/// Counts of one queue: totals count for ever, the others are what is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCounts {
    /// Which.
    pub queue: Name,
    /// The kinds that have ever been in it.
    pub kinds: Vec<Name>,
    /// Due later.
    pub scheduled: u64,
    /// Due now.
    pub ready: u64,
    /// In a runner's hands.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Completed and still kept.
    pub completed: u64,
    /// Cancelled and still kept.
    pub cancelled: u64,
    /// The earliest due time among the scheduled and ready, in milliseconds since 1970.
    pub oldest_due_ms: Option<u64>,
    /// Whether claims leave it alone.
    pub paused: bool,
    /// Jobs ever enqueued.
    pub enqueued_total: u64,
    /// Jobs ever completed.
    pub completed_total: u64,
    /// Attempts ever failed.
    pub failed_total: u64,
    /// Dead letters ever removed by a limit in number or bytes before their age was over.
    pub dead_dropped_total: u64,
}

impl QueueCounts {
    /// Of a queue that nothing has ever been in.
    pub(crate) fn none(queue: Name) -> Self {
        Self {
            queue,
            kinds: Vec::new(),
            scheduled: 0,
            ready: 0,
            running: 0,
            dead: 0,
            completed: 0,
            cancelled: 0,
            oldest_due_ms: None,
            paused: false,
            enqueued_total: 0,
            completed_total: 0,
            failed_total: 0,
            dead_dropped_total: 0,
        }
    }

    /// What counts for ever, in the order of [`copy::ExportedQueue::totals`].
    pub(crate) fn totals(&self) -> [u64; 4] {
        [self.enqueued_total, self.completed_total, self.failed_total, self.dead_dropped_total]
    }
}

/// All counts at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// By queue, in order of name.
    pub queues: Vec<QueueCounts>,
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: u64,
    /// Late settlements that were refused, ever.
    pub stale_total: u64,
    /// Index entries without a record, set aside.
    pub orphans: u64,
    /// Entries with an impossible due time, set aside.
    pub quarantined: u64,
}

/// What a prune did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Records of finished jobs that are gone.
    pub jobs: u64,
    /// Remembered ids that are gone.
    pub ids: u64,
    /// True when the bound was reached and there is more to do.
    pub more: bool,
    /// In so many milliseconds there will be something to remove, unless a job ends before: 0 when there may be something now, `None`
    /// when nothing that is kept has an end.
    pub again_ms: Option<u64>,
    /// By queue, how many dead letters limits in number and bytes have ever dropped
    /// ([`dead_dropped_total`](QueueCounts::dead_dropped_total)): of every queue, unless there is more to do.
    pub dead_dropped: Vec<(Name, u64)>,
}

/// What is refused to whoever names no password.
pub(crate) const WANTS_PASSWORD: &str = " wants a password";
/// What is refused to whoever names a wrong one.
pub(crate) const WRONG_PASSWORD: &str = " does not accept the user name or password";
/// What stands before the reason why there is no TLS.
pub(crate) const NO_TLS: &str = ": no TLS with it: ";

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The caller asked for something that is against the rules; nothing was done.
    #[error("{0}")]
    Invalid(String),
    /// The store cannot be reached or did not answer in time. What was asked may or may not have
    /// been done.
    #[error("store out of reach: {0}")]
    Unreachable(String),
    /// What was asked was done, but not on as many replicas as it should be by now: a fail-over may lose it. What has an id
    /// can be repeated safely.
    #[error("not on enough replicas: {0}")]
    Unreplicated(String),
    /// The store answered that it cannot now: loading, read-only, busy. Nothing was done.
    #[error("store not ready: {0}")]
    NotReady(String),
    /// The store has no room for new jobs; nothing was done.
    #[error("store out of memory: {0}")]
    Full(String),
    /// The store refused for a reason that waiting does not mend: wrong password, wrong version,
    /// foreign data under our names.
    #[error("store refused: {0}")]
    Refused(String),
}

impl StoreError {
    /// What happened, without the words that say what sort of error it is.
    pub fn text(&self) -> &str {
        match self {
            Self::Invalid(text)
            | Self::Unreachable(text)
            | Self::Unreplicated(text)
            | Self::NotReady(text)
            | Self::Full(text)
            | Self::Refused(text) => text,
        }
    }

    /// True when a store refused because it does not let us in: for its password, or for its certificate. It is told by phrases
    /// with spaces in them, which names of keys, queues and kinds never have.
    pub fn is_locked_out(&self) -> bool {
        let Self::Refused(text) = self else { return false };
        let no_tls = text.split_once(NO_TLS).is_some_and(|(_, why)| why.contains("certificate"));
        no_tls || text.contains(WANTS_PASSWORD) || text.contains(WRONG_PASSWORD)
    }

    /// True when the same call may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unreplicated(_) | Self::NotReady(_) | Self::Full(_))
    }
}

/// A store of which nobody asks anything, for the tests of those who only pass one on.
#[cfg(test)]
pub(crate) fn unused() -> Arc<dyn Store> {
    let path = std::env::temp_dir().join("hourhand-unused.db");
    let name = Name::new("unused").expect("a name");
    let store = sqlite::SqliteStore::open(&path, &name, sqlite::SqliteOptions::default());
    Arc::new(store.expect("a path"))
}

/// What holds the jobs of one namespace.
///
/// Every call has a deadline and may fail with [`StoreError`]. Every call is atomic: it does all of what
/// it says or nothing.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// For people: which store this is, without any password.
    fn describe(&self) -> String;

    /// Which store and namespace this is: the same from every process of this machine that names it alike. Without any
    /// password, and known without asking it.
    fn address(&self) -> String;

    /// A name of this store and namespace that is the same from every machine, made at its first use.
    async fn identity(&self) -> Result<String, StoreError>;

    /// What is unwise about how the store is set up, for the operator to hear when a runner starts: those findings of
    /// [`examine`](Self::examine) that need no measuring.
    async fn warnings(&self) -> Result<Vec<String>, StoreError>;

    // The enqueuing side.

    /// Takes up to [`BATCH_MAX`] jobs, all or none, and answers for each in order. Invalid
    /// input in any is [`StoreError::Invalid`], naming the index. Safe to repeat by the store itself
    /// after a lost reply, never by the caller unless the jobs have ids.
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError>;

    // The runner.

    /// Every lane that a job was ever enqueued to.
    async fn lanes(&self) -> Result<Vec<Lane>, StoreError>;

    /// Takes due jobs under a lease.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError>;

    /// Writes what became of claimed jobs, up to [`BATCH_MAX`], and answers for each in order. The effects of a completion are
    /// written in the same step as itself, or not at all; effects of other outcomes are dropped. Settlements of a call with effects may be
    /// written one after the other: where one is refused, those before it may be written already. Safe to repeat.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError>;

    /// Writes logs and progress of running jobs, and answers for each in order.
    async fn write_logs(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError>;

    /// Shows that a session is alive, and looks around: the one call that an idle runner makes.
    /// `told` is the session's beat as its runner was told it last, 0 if never: while the store knows a lower one it does not
    /// count up, so that a loss shows until an answer has told of it.
    /// `lanes` are those of which it wants to know when something falls due, up to [`CLAIM_LANES_MAX`].
    async fn heartbeat(
        &self,
        session: &SessionId,
        info: &RunnerInfo,
        told: u64,
        lanes: &[Lane],
    ) -> Result<Pulse, StoreError>;

    /// Ends a session that holds no lease: removes it from the registry.
    async fn end_session(&self, session: &SessionId) -> Result<(), StoreError>;

    /// A page of all leases in the store, in no order. Each lease that exists during the whole
    /// iteration is seen at least once.
    async fn leases(&self, cursor: Option<String>) -> Result<Page<LeaseSeen>, StoreError>;

    /// Takes leases, up to [`BATCH_MAX`], from a lost session: each job gets a crash on its record and goes
    /// back to its place in its lane, or to the dead letters. The caller has made sure that the session is lost.
    async fn reclaim(&self, leases: &[LeaseSeen], dead: Retention) -> Result<Reclaimed, StoreError>;

    /// Offers jobs from a runner's hand to a store that has lost data, up to [`BATCH_MAX`] with
    /// [`BATCH_PAYLOAD_BYTES_MAX`] of payload (a larger one alone), and answers for each in order. A job that waits, with no attempt
    /// since, is leased again; one of which nothing is known is made again. The caller knows for sure that the store
    /// has lost something: else what has ended long ago and is forgotten would be made again. Safe to repeat: what was
    /// restored is then kept, under the same number.
    async fn offer(&self, jobs: &[ClaimedJob]) -> Result<Vec<Offered>, StoreError>;

    /// Removes what retention does not keep, up to a bound.
    async fn prune(&self) -> Result<Pruned, StoreError>;

    /// Signals of what may be claimed earlier than thought. [`Wake::Missed`] follows each gap. Ends
    /// when the receiver is dropped.
    fn wakes(&self) -> mpsc::Receiver<Wake>;

    /// Entries of a bucket of state, up to [`STATE_ENTRIES_MAX`](crate::effects::STATE_ENTRIES_MAX), at one moment. An
    /// unknown bucket is an empty one.
    async fn read_state(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, StoreError>;

    // Operators.

    /// The job with this id: in this queue, else in all.
    async fn find(&self, queue: Option<&Name>, id: &JobId) -> Result<Vec<JobView>, StoreError>;

    /// A page of jobs.
    async fn list(&self, query: &ListQuery) -> Result<Page<JobView>, StoreError>;

    /// The kept logs of a job, by attempt. Empty when there is none.
    async fn logs(&self, job: &JobRef) -> Result<Vec<AttemptLog>, StoreError>;

    /// Cancels jobs that are scheduled, ready or running; those that are finished are in conflict, but for
    /// a cancelled one, which is done already.
    async fn cancel(&self, jobs: &[JobRef], retention: Retention) -> Result<Vec<Verdict>, StoreError>;

    /// Changes the due time of a scheduled or ready job.
    async fn reschedule(&self, job: &JobRef, due: Due) -> Result<Verdict, StoreError>;

    /// Brings finished jobs back as new: attempt and crashes reset, due now, a new place in
    /// the order. A scheduled retry becomes due now. Running and ready jobs are in conflict.
    async fn requeue(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError>;

    /// Deletes jobs that are not running: record, log and history.
    async fn delete(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError>;

    /// Lets claims leave a queue alone, and recalls what is held. Also for a queue that has no job yet.
    async fn pause(&self, queue: &Name) -> Result<(), StoreError>;

    /// Lets claims take from a queue again.
    async fn resume(&self, queue: &Name) -> Result<(), StoreError>;

    /// Deletes scheduled and ready jobs of a queue, up to a bound: how many, and whether there are more.
    async fn purge(&self, queue: &Name) -> Result<(u64, bool), StoreError>;

    /// A page of the buckets of state that hold anything, in order of name.
    async fn buckets(&self, cursor: Option<String>) -> Result<Page<BucketSeen>, StoreError>;

    /// A page of a bucket's entries, in no order. Each that is there during the whole iteration comes at least once.
    async fn state_page(&self, bucket: &Name, cursor: Option<String>)
    -> Result<Page<StateEntry>, StoreError>;

    /// Sets an entry of a bucket, whatever is there; its version.
    async fn set_state(&self, bucket: &Name, key: &str, value: &[u8]) -> Result<u64, StoreError>;

    /// Deletes an entry of a bucket; whether there was one.
    async fn delete_state(&self, bucket: &Name, key: &str) -> Result<bool, StoreError>;

    /// Deletes entries of a bucket, up to a bound: how many, and whether there are more.
    async fn empty_bucket(&self, bucket: &Name) -> Result<(u64, bool), StoreError>;

    /// Counts of every queue.
    async fn counts(&self) -> Result<Counts, StoreError>;

    /// Every session that is registered.
    async fn sessions(&self) -> Result<Vec<SessionSeen>, StoreError>;

    /// Looks at the server, or at the file and its disk: how it is set up and doing, how far its clock is from this
    /// machine's, and how long calls and claims take. Changes nothing that matters, and takes a few dozen calls.
    async fn examine(&self) -> Result<Examination, StoreError>;

    /// Looks whether everything is as this store keeps it, and with `repair` mends what is not. Nothing is deleted:
    /// what is in the way is moved aside, where no claim looks.
    ///
    /// Goes through the whole namespace in bounded steps while jobs move on; each step has a deadline of its own. What
    /// it reports was wrong at the moment at which it looked, never on its way from one place to another.
    async fn doctor(&self, repair: bool) -> Result<Vec<Finding>, StoreError>;

    // Moving to another store.

    /// What tells this store and namespace from all others as a source. Changes nothing.
    async fn export_source(&self) -> Result<Source, StoreError>;

    /// A page of everything in the namespace that outlives its runners; changes nothing. Each job that is there during
    /// the whole iteration comes at least once. Jobs that runners have come as if those were lost: the caller has made sure of it.
    async fn export(&self, cursor: Option<String>) -> Result<Page<Exported>, StoreError>;

    /// Takes up to [`BATCH_MAX`] items of at most [`copy::IMPORT_BYTES_MAX`] bytes from another store, all or none, and
    /// answers for each in order. Safe to repeat.
    async fn import(&self, source: &Source, items: &[Exported]) -> Result<Vec<Imported>, StoreError>;

    /// Remembers that everything of the source as it was was taken, so that a later copy brings nothing back.
    async fn import_done(&self, source: &Source) -> Result<(), StoreError>;
}
