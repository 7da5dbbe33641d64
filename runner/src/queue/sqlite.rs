//! The embedded store: an SQLite file that several processes share. Every verb of [`Store`] is one transaction, so
//! that it is atomic.
//!
//! Only this module and those below it hold SQL. `link` is the way to the file, `writer` the thread that writes, `tx` what a
//! call works with, `rows` what a
//! job looks like in the tables (schema.sql).

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use self::link::Link;
use crate::clock::{HostClock, SystemClock};
use crate::effects::{BucketSeen, StateEntry, StateFound};
use crate::job::{Due, JobView, NewJob};
use crate::names::{JobId, Name};
use crate::queue::{
    AttemptLog, ClaimRequest, Claimed, ClaimedJob, Counts, Enqueued, Examination, Exported, Finding,
    Imported, JobRef, Lane, LeaseSeen, ListQuery, LogWrite, Offered, Page, Pruned, Pulse, Reclaimed,
    Retention, RunnerInfo, SessionId, SessionSeen, Settled, Settlement, Source, Store, StoreError, Verdict,
    Wake,
};

mod claim;
mod commit;
mod copy_in;
mod copy_out;
mod counts;
mod disk;
mod doctor;
mod enqueue;
mod errors;
mod examine;
mod fair;
mod files;
mod finish;
mod heads;
mod link;
mod list;
mod logs;
mod offer;
mod open;
mod operate;
mod read;
mod rows;
mod sessions;
mod settle;
pub mod spool;
mod state;
mod time;
mod tx;
mod wakes;
mod writer;

/// What an acknowledged enqueue or settle survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A loss of power: the answer waits for the disk.
    #[default]
    Full,
    /// The end of any program, `kill -9` included; a loss of power may take the last moments.
    Normal,
}

impl Durability {
    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Normal => "normal",
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Full, Self::Normal]
            .into_iter()
            .find(|durability| durability.as_str() == text)
            .ok_or_else(|| format!("invalid durability {text:?}: expected full or normal"))
    }
}

/// A text in the SQL, and what stands there instead: a deliberate fault, for the tests of the tests.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlEdit {
    /// Which text; the first statement that holds it is meant.
    pub find: String,
    /// What stands there instead.
    pub replace: String,
}

/// How a [`SqliteStore`] works.
#[derive(Clone)]
pub struct SqliteOptions {
    /// No call takes longer, the wait for other programs' locks included.
    pub call_timeout: Duration,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// The machine's clocks.
    #[doc(hidden)]
    pub clock: Arc<dyn HostClock>,
    /// Faults to put into the SQL, for the tests of the tests.
    #[doc(hidden)]
    pub sql_edits: Vec<SqlEdit>,
}

impl Default for SqliteOptions {
    /// 10 s a call; acknowledgements wait for the disk.
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(10),
            durability: Durability::Full,
            clock: Arc::new(SystemClock),
            sql_edits: Vec::new(),
        }
    }
}

/// The jobs of one namespace in an SQLite file. Cheap to clone; all clones share one writer.
#[derive(Clone)]
pub struct SqliteStore {
    link: Arc<Link>,
}

/// The path in a store URL: `sqlite://jobs.db` is in the working directory, `sqlite:///var/lib/jobs.db` is absolute.
///
/// # Errors
/// What is wrong with it.
pub fn path_of(url: &str) -> Result<PathBuf, &'static str> {
    match url.strip_prefix("sqlite://") {
        None => Err("expected sqlite://path"),
        Some("") => Err("expected the path of a file behind sqlite://"),
        Some(path) if path.ends_with('/') => Err("expected the path of a file, not of a folder"),
        Some(path) if path.contains(['?', '#', '\0']) => {
            Err("expected a plain path: it may not hold ?, # or a zero byte")
        }
        Some(path) => Ok(PathBuf::from(path)),
    }
}

impl SqliteStore {
    /// A store in this file. It is opened when it is first used, and made if there is none.
    ///
    /// # Errors
    /// When the path leads to a folder, or into none. What else is wrong with the file shows at the first call.
    pub fn open(path: &Path, namespace: &Name, options: SqliteOptions) -> Result<Self, StoreError> {
        errors::check_place(path)?;
        Ok(Self { link: Arc::new(Link::new(path.to_owned(), namespace.clone(), options)) })
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn describe(&self) -> String {
        let shared = &self.link.shared;
        format!(
            "sqlite://{} (namespace {}, durability {})",
            shared.path.display(),
            shared.namespace,
            shared.options.durability.as_str()
        )
    }

    fn address(&self) -> String {
        let shared = &self.link.shared;
        format!("sqlite://{} (namespace {})", files::settled(&shared.path).display(), shared.namespace)
    }

    async fn identity(&self) -> Result<String, StoreError> {
        self.store_id().await
    }

    async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        self.set_up_warnings().await
    }

    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        self.enqueue_jobs(jobs).await
    }

    async fn lanes(&self) -> Result<Vec<Lane>, StoreError> {
        self.all_lanes().await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        self.claim_jobs(request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        self.settle_jobs(settlements).await
    }

    async fn write_logs(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError> {
        self.log_jobs(logs).await
    }

    async fn read_state(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, StoreError> {
        self.read_bucket(bucket, keys).await
    }

    async fn buckets(&self, cursor: Option<String>) -> Result<Page<BucketSeen>, StoreError> {
        self.bucket_page(cursor).await
    }

    async fn state_page(
        &self,
        bucket: &Name,
        cursor: Option<String>,
    ) -> Result<Page<StateEntry>, StoreError> {
        self.entry_page(bucket, cursor).await
    }

    async fn set_state(&self, bucket: &Name, key: &str, value: &[u8]) -> Result<u64, StoreError> {
        self.set_entry(bucket, key, value).await
    }

    async fn delete_state(&self, bucket: &Name, key: &str) -> Result<bool, StoreError> {
        self.delete_entry(bucket, key).await
    }

    async fn empty_bucket(&self, bucket: &Name) -> Result<(u64, bool), StoreError> {
        self.delete_entries(bucket).await
    }

    async fn heartbeat(
        &self,
        session: &SessionId,
        info: &RunnerInfo,
        told: u64,
        lanes: &[Lane],
    ) -> Result<Pulse, StoreError> {
        self.beat(session, info, told, lanes).await
    }

    async fn end_session(&self, session: &SessionId) -> Result<(), StoreError> {
        self.forget_session(session).await
    }

    async fn leases(&self, cursor: Option<String>) -> Result<Page<LeaseSeen>, StoreError> {
        self.lease_page(cursor).await
    }

    async fn reclaim(&self, leases: &[LeaseSeen], dead: Retention) -> Result<Reclaimed, StoreError> {
        self.reclaim_leases(leases, dead).await
    }

    async fn offer(&self, jobs: &[ClaimedJob]) -> Result<Vec<Offered>, StoreError> {
        self.offer_jobs(jobs).await
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        self.prune_all().await
    }

    fn wakes(&self) -> mpsc::Receiver<Wake> {
        self.listen()
    }

    async fn find(&self, queue: Option<&Name>, id: &JobId) -> Result<Vec<JobView>, StoreError> {
        self.find_job(queue, id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page<JobView>, StoreError> {
        self.list_jobs(query).await
    }

    async fn logs(&self, job: &JobRef) -> Result<Vec<AttemptLog>, StoreError> {
        self.job_logs(job).await
    }

    async fn cancel(&self, jobs: &[JobRef], retention: Retention) -> Result<Vec<Verdict>, StoreError> {
        self.cancel_jobs(jobs, retention).await
    }

    async fn reschedule(&self, job: &JobRef, due: Due) -> Result<Verdict, StoreError> {
        self.reschedule_job(job, due).await
    }

    async fn requeue(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        self.requeue_jobs(jobs).await
    }

    async fn delete(&self, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        self.delete_jobs(jobs).await
    }

    async fn pause(&self, queue: &Name) -> Result<(), StoreError> {
        self.pause_queue(queue).await
    }

    async fn resume(&self, queue: &Name) -> Result<(), StoreError> {
        self.resume_queue(queue).await
    }

    async fn purge(&self, queue: &Name) -> Result<(u64, bool), StoreError> {
        self.purge_queue(queue).await
    }

    async fn counts(&self) -> Result<Counts, StoreError> {
        self.count_all().await
    }

    async fn sessions(&self) -> Result<Vec<SessionSeen>, StoreError> {
        self.all_sessions().await
    }

    async fn examine(&self) -> Result<Examination, StoreError> {
        self.examine_file().await
    }

    async fn doctor(&self, repair: bool) -> Result<Vec<Finding>, StoreError> {
        self.look_at_all(repair).await
    }

    async fn export_source(&self) -> Result<Source, StoreError> {
        self.as_source().await
    }

    async fn export(&self, cursor: Option<String>) -> Result<Page<Exported>, StoreError> {
        self.export_page(cursor).await
    }

    async fn import(&self, source: &Source, items: &[Exported]) -> Result<Vec<Imported>, StoreError> {
        self.import_items(source, items).await
    }

    async fn import_done(&self, source: &Source) -> Result<(), StoreError> {
        self.import_end(source).await
    }
}
