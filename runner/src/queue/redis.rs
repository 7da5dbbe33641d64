//! The Redis store: every verb of [`Store`] is one Lua script (lua/), so that it is atomic; this side builds
//! the arguments and reads the replies.
//!
//! Only this module and those below it name a Redis key. `link` holds the connection, `scripts` the
//! embedded scripts, `keys` the layout, `record` what a job looks like in Redis.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use self::address::Address;
use self::keys::Keys;
use self::link::{Link, Target};
use self::replicas::Replicas;
pub use self::scripts::ScriptEdit;
use self::scripts::Scripts;
use self::sentinel::Sentinels;
use self::sentinel_address::{SentinelAddress, is_sentinel};
use crate::effects::{BucketSeen, StateEntry, StateFound};
use crate::job::{Due, JobView, NewJob};
use crate::names::{JobId, Name};
use crate::queue::{
    AttemptLog, ClaimRequest, Claimed, ClaimedJob, Counts, Enqueued, Examination, Exported, Finding,
    Imported, JobRef, Lane, LeaseSeen, ListQuery, LogWrite, Offered, Page, Pruned, Pulse, Reclaimed,
    Retention, RunnerInfo, SessionId, SessionSeen, Settled, Settlement, Source, Store, StoreError, Verdict,
    Wake,
};

mod address;
mod arguments;
mod claim;
mod commit;
mod complete;
mod copy;
mod counts;
mod dial;
mod doctor;
mod enqueue;
mod erase;
mod errors;
mod examine;
mod keys;
mod link;
mod list;
mod logs;
mod offer;
mod operate;
mod read;
mod record;
mod replicas;
mod reply;
mod scripts;
mod sentinel;
mod sentinel_address;
mod sessions;
mod state;
mod tls;
mod wakes;
mod walk;

/// How a [`RedisStore`] deals with time.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// No call takes longer, connecting included.
    pub call_timeout: Duration,
    /// No attempt to connect takes longer.
    pub connect_timeout: Duration,
    /// How long the doctor looks through the keys of others for names of ours.
    #[doc(hidden)]
    pub names_within: Duration,
    /// An enqueue is acknowledged once so many replicas have it, too; 0 waits for none.
    pub wait_replicas: u32,
    /// Faults to put into the scripts, for the tests of the tests.
    #[doc(hidden)]
    pub script_edits: Vec<ScriptEdit>,
}

impl Default for RedisOptions {
    /// 5 s a call, 3 s to connect, no wait for replicas.
    fn default() -> Self {
        Self {
            call_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            names_within: Duration::from_secs(20),
            wait_replicas: 0,
            script_edits: Vec::new(),
        }
    }
}

/// The jobs of one namespace in a Redis. Cheap to clone; all clones share one connection.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    /// What enqueues go through that wait for replicas.
    replicas: Option<Arc<Replicas>>,
    keys: Arc<Keys>,
    scripts: Arc<Scripts>,
    namespace: Name,
    /// How long the doctor looks through the keys of others.
    names_within: Duration,
    /// Where the next prune starts.
    prune_turn: Arc<AtomicUsize>,
}

/// Whether [`RedisStore::connect`] will take this URL. Does not connect.
///
/// # Errors
/// What is wrong with it; nothing of the URL is in the message.
pub fn check_url(url: &str) -> Result<(), &'static str> {
    if is_sentinel(url) { SentinelAddress::read(url).map(drop) } else { Address::read(url).map(drop) }
}

/// What a URL leads to, and how it is shown to people.
///
/// # Errors
/// What is wrong with it; nothing of it is in the message.
fn target_of(url: &str) -> Result<(Target, String), String> {
    let unfit = |error: redis::RedisError| error.category().to_owned();
    if is_sentinel(url) {
        let address = SentinelAddress::read(url)?;
        let place = address.place.clone();
        let sentinels = Sentinels::new(address).map_err(unfit)?;
        return Ok((Target::Sentinels(Arc::new(sentinels)), place));
    }
    let Address { info, place, tls } = Address::read(url)?;
    Ok((Target::One(Arc::new(sentinel::client(info, tls).map_err(unfit)?)), place))
}

impl RedisStore {
    /// A store at `redis://` or `rediss://[user][:password@]host[:port][/database]`, or at the primary that sentinels tell:
    /// `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master-name[/database]`. It connects when it is first
    /// used, and again whenever it must, so Redis need not be there yet.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when the URL is none. The message never holds the password.
    pub fn connect(url: &str, namespace: &Name, options: RedisOptions) -> Result<Self, StoreError> {
        let (target, place) =
            target_of(url).map_err(|problem| StoreError::Invalid(format!("invalid Redis URL: {problem}")))?;
        let scripts = Scripts::load(&options.script_edits)
            .map_err(|error| StoreError::Invalid(format!("broken scripts: {error}")))?;
        let keys = Arc::new(Keys::new(namespace));
        let link = Link::new(target, place, Arc::clone(&keys), options.call_timeout, options.connect_timeout);
        Ok(Self {
            replicas: Replicas::new(options.wait_replicas, &link).map(Arc::new),
            link: Arc::new(link),
            keys,
            scripts: Arc::new(scripts),
            namespace: namespace.clone(),
            names_within: options.names_within,
            prune_turn: Arc::default(),
        })
    }
}

#[async_trait]
impl Store for RedisStore {
    fn describe(&self) -> String {
        format!("{} (namespace {})", self.link.place(), self.namespace)
    }

    fn address(&self) -> String {
        self.describe()
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
        self.examine_server().await
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
