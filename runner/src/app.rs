//! The composition root: builds the parts of a runner from its settings, and ends them in order.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::client::{Spool, SpoolOptions};
use crate::config::machine;
use crate::config::{Problems, RunSettings, SpoolSettings, StoreSettings};
use crate::manifest::{Operator, OperatorSettings};
use crate::queue::redis::{RedisOptions, RedisStore};
use crate::queue::sqlite::{SqliteOptions, SqliteStore};
use crate::queue::{SessionId, Store, StoreError};
use crate::registry::{Registry, RegistryConfig, Versions};
use crate::sandbox::{Sandbox, SandboxConfig};
use crate::service::ServiceManager;
use crate::upkeep::session_file::{GoneSessions, KeptFile};
use crate::vitals::{Vital, Vitals};
use crate::worker::{Onlooker, Worker, WorkerConfig};

mod reload;
mod stopping;

pub use reload::Reread;
use stopping::{LOOK_EVERY, StopSignals, stop_gracefully};

/// How a runner ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerEnd {
    /// All that it had claimed is settled or released.
    Clean,
    /// Some outcomes could not be written: their jobs are left to recovery.
    Unsettled,
}

/// The largest module that is taken, in bytes.
const MODULE_BYTES_MAX: u64 = 64 << 20;
/// The process that compiles may have as much memory as all guests together, but at least and at most this, in
/// bytes.
const COMPILE_BYTES: (u64, u64) = (1 << 30, 4 << 30);

/// The store that the settings name. A Redis need not be there yet; the file of an embedded store is made when
/// it is missing.
///
/// # Errors
/// When the URL or the file cannot be used.
pub fn open_store(settings: &StoreSettings) -> Result<Arc<dyn Store>, StoreError> {
    let (url, namespace) = (&settings.url, &settings.namespace);
    let Some(file) = url.file() else {
        let options = RedisOptions { wait_replicas: settings.wait_replicas, ..RedisOptions::default() };
        return Ok(Arc::new(RedisStore::connect(url.expose(), namespace, options)?));
    };
    let options = SqliteOptions { durability: settings.durability, ..SqliteOptions::default() };
    Ok(Arc::new(SqliteStore::open(file, namespace, options)?))
}

/// The spool that the settings name. Touches nothing.
pub fn spool(settings: &SpoolSettings) -> Spool {
    let options = SpoolOptions { jobs: settings.jobs, bytes: settings.bytes, ..SpoolOptions::default() };
    Spool::new(&settings.dir, options)
}

/// Runs a runner until it is told to stop, or until it is idle if the settings say so.
///
/// # Errors
/// When a part cannot be made, or the store refuses this runner.
pub fn run(settings: RunSettings) -> anyhow::Result<RunnerEnd> {
    start(settings, None, None)
}

/// As [`run`], and what may change while it runs is read again at SIGHUP.
///
/// # Errors
/// As [`run`].
pub fn run_rereading(reread: Reread, settings: RunSettings) -> anyhow::Result<RunnerEnd> {
    start(settings, None, Some(reread))
}

/// What a runner is made of, for whoever looks on.
pub struct Parts {
    /// Its store.
    pub store: Arc<dyn Store>,
    /// Its handlers.
    pub registry: Registry,
    /// Where calls of the store run.
    pub io: tokio::runtime::Handle,
    /// Its loops.
    #[doc(hidden)]
    pub vitals: Vitals,
}

/// Takes the parts of a runner.
pub type TakesParts = Box<dyn FnOnce(Parts) + Send>;

/// Somebody who looks on: is given the parts once they are made, and told of each run.
pub struct Audience {
    /// Takes the parts.
    pub parts: TakesParts,
    /// Is told of each run.
    pub onlooker: Option<Arc<dyn Onlooker>>,
    /// The runner stops when this is done.
    pub over: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Whether what is unwise about the store is logged at the start.
    pub hears_warnings: bool,
}

impl Audience {
    /// For a runner that is like any other.
    pub fn new(parts: TakesParts, onlooker: Option<Arc<dyn Onlooker>>) -> Self {
        Self { parts, onlooker, over: Box::pin(std::future::pending()), hears_warnings: true }
    }
}

/// As [`run`], with somebody who looks on.
///
/// # Errors
/// As [`run`].
pub fn run_before(audience: Audience, settings: RunSettings) -> anyhow::Result<RunnerEnd> {
    start(settings, Some(audience), None)
}

fn start(
    settings: RunSettings,
    audience: Option<Audience>,
    reread: Option<Reread>,
) -> anyhow::Result<RunnerEnd> {
    if let Err(error) = machine::raise_open_files() {
        tracing::warn!(%error, "the number of files that may be open stays what it is");
    }
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let io = runtime("io", cores.clamp(1, 4))?;
    let guests = runtime("guest", crate::sandbox::guest_threads())?;
    let end = io.block_on(serve(settings, guests.handle().clone(), audience, reread));
    // A guest that does not end does not hold the process: its job is released or left to recovery.
    guests.shutdown_background();
    io.shutdown_background();
    end
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name(name)
        .enable_all()
        .build()
        .with_context(|| format!("cannot make the {name} threads"))
}

async fn serve(
    settings: RunSettings,
    guests: tokio::runtime::Handle,
    audience: Option<Audience>,
    reread: Option<Reread>,
) -> anyhow::Result<RunnerEnd> {
    let mut stop = StopSignals::new()?;
    let hang_up = hang_up()?;
    let operator = Arc::new(operator(&settings.operator)?);
    let missing = settings.store.missing_file();
    let store = open_store(&settings.store)?;
    if let Some(file) = missing {
        tracing::info!(file = %file.display(), "there is no store yet: making it");
    }
    tracing::info!(
        store = store.describe(), handlers = %settings.handlers.display(), concurrency = settings.concurrency,
        lease_ms = settings.lease.as_millis() as u64, "the runner starts"
    );
    let manager =
        Arc::new(ServiceManager::find().context("cannot start the thread that tells the service manager")?);
    let vitals = Vitals::default();
    let hears_warnings = audience.as_ref().is_none_or(|audience| audience.hears_warnings);
    // Until it claims there is nothing to settle or to give back: a stop ends it where it is.
    let begun = tokio::select! {
        begun = begin(&settings, operator, &*store, &manager, &vitals, hears_warnings) => begun?,
        () = stop.first() => return Ok(RunnerEnd::Clean),
    };
    let Begun { sandbox, registry, identity } = begun;
    let session = new_session()?;
    let file = Arc::new(KeptFile::new(&settings.state_dir, &session));
    file.keep(&identity);
    let mut onlooker = None;
    let mut over: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(std::future::pending());
    if let Some(audience) = audience {
        let io = tokio::runtime::Handle::current();
        let (store, registry, vitals) = (Arc::clone(&store), registry.clone(), vitals.clone());
        (audience.parts)(Parts { store, registry, io, vitals });
        (onlooker, over) = (audience.onlooker, audience.over);
    }
    let config = worker_config(&settings, onlooker, vitals.clone());
    let (worker, mut loops) = Worker::start(config, session, store, registry.clone(), sandbox, guests)
        .context("cannot start the timer")?;
    let (drains, wanted) = watch::channel(reload::drained(&settings.spool));
    worker.identity.send_replace(identity);
    crate::upkeep::start(&worker, &mut loops.serving, wanted);
    if let Some(hang_up) = hang_up {
        let spool = settings.spool.clone();
        let vital = vitals.enter("hang-up");
        loops.serving.spawn(reload::reload_at(hang_up, vital, registry.clone(), reread, spool, drains));
    }
    loops.serving.spawn(follow_name(Arc::clone(&worker), vitals.enter("store-name"), Arc::clone(&file)));
    loops.serving.spawn(say_when_serving(Arc::clone(&worker), registry.clone(), Arc::clone(&manager)));

    let ended = tokio::select! {
        () = stop.first() => Ok(()),
        () = over => Ok(()),
        () = idle(&worker, &registry), if settings.until_idle => Ok(()),
        name = vitals.broken() => Err(name),
        Some(_) = loops.serving.join_next() => Err("serving"),
        _ = &mut loops.settling => Err("settle"),
    };
    if let Err(name) = ended {
        tracing::error!(name, "a loop of the runner ended, which none should: the runner ends with it");
    }
    manager.stopping(worker.hand.counts().running);
    let end = stop_gracefully(&worker, loops, &mut stop).await;
    manager.last_word();
    match end {
        RunnerEnd::Clean => file.remove(),
        RunnerEnd::Unsettled => file.leave(),
    }
    match ended {
        Ok(()) => Ok(end),
        Err(name) => Err(anyhow::anyhow!("a loop of the runner ended ({name}); the log says why")),
    }
}

/// What there is of a runner before it claims.
struct Begun {
    sandbox: Arc<Sandbox>,
    registry: Registry,
    identity: String,
}

/// Makes what serves, waits for the store, and takes back what earlier runners of this host left.
async fn begin(
    settings: &RunSettings,
    operator: Arc<Operator>,
    store: &dyn Store,
    manager: &ServiceManager,
    vitals: &Vitals,
    hears_warnings: bool,
) -> anyhow::Result<Begun> {
    let of_sandbox = sandbox_config(settings, vitals);
    let of_registry = registry_config(settings, operator, vitals);
    // On a thread of its own: the file system may take its time.
    let made = tokio::task::spawn_blocking(move || {
        let sandbox = Sandbox::new(of_sandbox)?;
        let registry = Registry::start(of_registry, Arc::clone(&sandbox))?;
        anyhow::Ok((sandbox, registry))
    });
    let (sandbox, registry) = made.await.context("the start was given up")??;
    let identity = first_contact(store, manager).await?;
    if hears_warnings {
        warn_of_set_up(store).await;
    }
    recover(store, settings, &identity).await?;
    Ok(Begun { sandbox, registry, identity })
}

/// What the operator says, with the secrets looked up. Blocking.
///
/// # Errors
/// All secrets that are not to be had.
pub fn operator(settings: &OperatorSettings) -> Result<Operator, Problems> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(settings
        .resolve(variable, |path| std::fs::read(path))?
        .with_real_dirs(|dir| std::fs::canonicalize(dir)))
}

/// The same without secrets, for whoever runs no jobs.
pub fn operator_without_secrets(settings: &OperatorSettings) -> Operator {
    let variable = |name: &str| std::env::var(name).ok();
    settings.without_secrets(variable).with_real_dirs(|dir| std::fs::canonicalize(dir))
}

fn sandbox_config(settings: &RunSettings, vitals: &Vitals) -> SandboxConfig {
    SandboxConfig {
        concurrency: settings.concurrency,
        memory_bytes_max: memory_bytes_max(&settings.operator),
        memory_bytes_total: settings.memory_bytes_total,
        cache_dir: settings.cache_dir.clone(),
        compile_memory_bytes_max: settings.memory_bytes_total.clamp(COMPILE_BYTES.0, COMPILE_BYTES.1),
        io: Some(tokio::runtime::Handle::current()),
        resolver: None,
        vitals: vitals.clone(),
        ..SandboxConfig::default()
    }
}

/// The largest memory of a handler, which the pool is made for.
pub fn memory_bytes_max(operator: &OperatorSettings) -> u64 {
    operator.ceiling.memory_bytes.unwrap_or(crate::sandbox::Limits::default().memory_bytes)
}

fn registry_config(settings: &RunSettings, operator: Arc<Operator>, vitals: &Vitals) -> RegistryConfig {
    RegistryConfig {
        dir: settings.handlers.clone(),
        scan_every: settings.handlers_scan,
        events: settings.handlers_events,
        versions: settings.cache_dir.as_deref().map(|dir| Versions::of_folder(dir, &settings.handlers)),
        module_bytes_max: MODULE_BYTES_MAX,
        operator,
        vitals: vitals.clone(),
    }
}

fn worker_config(
    settings: &RunSettings,
    onlooker: Option<Arc<dyn Onlooker>>,
    vitals: Vitals,
) -> WorkerConfig {
    WorkerConfig {
        name: settings.name.clone(),
        host: settings.host.clone(),
        concurrency: settings.concurrency as usize,
        lease: settings.lease,
        grace: settings.grace,
        kinds: settings.kinds.iter().flatten().cloned().collect(),
        queues: settings.queues.iter().flatten().cloned().collect(),
        retention_finished: settings.retention.finished,
        retention_dead: settings.retention.dead,
        id_memory: settings.retention.id_memory,
        onlooker,
        vitals,
    }
}

/// Waits until the store answers.
async fn first_contact(store: &dyn Store, manager: &ServiceManager) -> anyhow::Result<String> {
    let outage = crate::worker::Outage::default();
    let mut pace = crate::worker::Pace::default();
    loop {
        match store.identity().await {
            Ok(identity) => {
                outage.succeeded("identity");
                outage.say();
                manager.status("loading the handlers");
                return Ok(identity);
            }
            Err(error) if error.is_passing() => {
                outage.failed("identity", &error);
                manager.status("waiting for the store");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(pace.failed()).await;
    }
}

/// Says what is unwise about the store. A store that cannot tell is no reason not to start.
async fn warn_of_set_up(store: &dyn Store) {
    match store.warnings().await {
        Ok(warnings) => {
            for warning in warnings {
                tracing::warn!("{warning}");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot look at how the store is set up"),
    }
}

fn new_session() -> anyhow::Result<SessionId> {
    let mut bytes = [0u8; 12];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no randomness from the system: {e}"))?;
    let text: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    Ok(SessionId(text.into()))
}

/// Keeps the session's file where a restart finds it, also when the store has lost its name and got another.
async fn follow_name(worker: Arc<Worker>, vital: Vital, file: Arc<KeptFile>) {
    let mut names = worker.identity.subscribe();
    loop {
        let rest = vital.rest();
        if names.changed().await.is_err() {
            // The worker outlives its loops: this does not come.
            std::future::pending::<()>().await;
        }
        drop(rest);
        let name = names.borrow_and_update().clone();
        file.keep(&name);
    }
}

/// Takes back what earlier runners of this host left. A failure leaves it to the lease.
async fn recover(store: &dyn Store, settings: &RunSettings, identity: &str) -> anyhow::Result<()> {
    let gone = match GoneSessions::find(&settings.state_dir, identity) {
        Ok(gone) => gone,
        Err(error) => {
            tracing::warn!(%error, dir = %settings.state_dir.display(), "cannot look for earlier sessions of this host");
            return Ok(());
        }
    };
    match crate::upkeep::recover_own(store, &gone.sessions(), settings.retention.dead).await {
        Ok(()) => gone.forget(),
        Err(error) => tracing::warn!(%error, "earlier sessions of this host are left to their lease"),
    }
    Ok(())
}

/// Says which kinds are served once all modules of the start are loaded or broken; then keeps the service
/// manager informed.
async fn say_when_serving(worker: Arc<Worker>, registry: Registry, manager: Arc<ServiceManager>) {
    tokio::select! {
        () = registry.settled() => {}
        () = manager.watch(&worker, false) => {}
    }
    // So that whoever enqueues after this line finds the kinds served.
    if let Err(error) = worker.beat(None).await {
        worker.outage.failed("heartbeat", &error);
    }
    let kinds: Vec<String> = worker.kinds().iter().map(ToString::to_string).collect();
    tracing::info!(kinds = kinds.join(","), session = %worker.session, "the runner serves");
    manager.ready(&worker);
    manager.watch(&worker, true).await;
}

/// SIGHUP, where it asks for another look at handlers and settings. A runner that has a terminal ends with it, as any
/// program does.
fn hang_up() -> anyhow::Result<Option<Signal>> {
    if std::fs::File::open("/dev/tty").is_ok() {
        return Ok(None);
    }
    signal(SignalKind::hangup()).map(Some).context("cannot listen to signals")
}

/// Returns once no job that this runner serves is scheduled, ready or running anywhere.
async fn idle(worker: &Worker, registry: &Registry) {
    registry.settled().await;
    loop {
        // A look that began after the hand was empty.
        worker.saw_nothing_due.store(false, Relaxed);
        worker.wake();
        while !worker.saw_nothing_due.load(Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        if worker.hand.is_empty() && matches!(crate::upkeep::anybody_works(worker).await, Ok(false)) {
            tracing::info!("nothing is left to do");
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether a handlers folder is there, for a clear message before anything starts.
///
/// # Errors
/// When it is no folder that can be read.
pub fn check_handlers_dir(dir: &Path) -> anyhow::Result<()> {
    std::fs::read_dir(dir).map(drop).with_context(|| {
        format!("cannot read the handlers folder {}: make it, or name another with --handlers", dir.display())
    })
}
