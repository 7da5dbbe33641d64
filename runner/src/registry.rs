//! The handlers folder: which code serves which kind, right now.
//!
//! A scan of the folder is the truth; events of the file system only bring it forward. One thread scans,
//! one loads what changed (reads, hashes, compiles) and swaps in a new [`Snapshot`] as a whole. What does
//! not load leaves the last good version serving. Jobs keep the [`Handler`] that they started with.

mod files;
mod folder;
mod loading;
mod manifests;
mod network;
mod pinned;
pub mod pins;
mod publish;
mod regular;
mod tracked;
mod verdict;
mod versions;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::backoff::Backoff;
use crate::clock;
use crate::grants::Grants;
use crate::manifest::{Keep, Operator};
use crate::names::Name;
use crate::sandbox::{Build, Limits, Module, Sandbox};
use crate::vitals::{Vital, Vitals};

use files::Files;
use loading::LoadOrder;
use pinned::PinOrder;
use publish::Published;

pub use manifests::manifest_beside;
pub use verdict::{Verdict, kinds_of, stem, verdict};
pub use versions::{VERSIONS_KEPT, Version, Versions, sha256_of};

/// A loop that panicked begins again after this.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Settings of the handlers folder.
#[derive(Debug, Clone)]
pub struct RegistryConfig {
    /// The folder.
    pub dir: PathBuf,
    /// How often it is scanned whatever the file system says.
    pub scan_every: Duration,
    /// Whether events of the file system bring a scan forward.
    pub events: bool,
    /// Where the last versions are kept, and looked for when one is pinned.
    pub versions: Option<Versions>,
    /// Files larger than this are refused unread, in bytes.
    pub module_bytes_max: u64,
    /// What the operator says for all handlers.
    pub operator: Arc<Operator>,
    /// Where its threads show that they live.
    pub vitals: Vitals,
}

impl RegistryConfig {
    /// The defaults for a folder: events, a scan every 2 s, modules of up to 64 MiB, no versions kept, an operator without
    /// secrets and ceiling.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            scan_every: Duration::from_secs(2),
            events: true,
            versions: None,
            module_bytes_max: 64 << 20,
            operator: Arc::default(),
            vitals: Vitals::default(),
        }
    }
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The folder is not there or cannot be read.
    #[error("cannot read the handlers folder {}: {source}", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread for the handlers folder: {0}")]
    Thread(io::Error),
}

/// One version of the code for one kind.
#[derive(Debug, Clone)]
pub struct Handler {
    /// The kind that it serves.
    pub kind: Name,
    /// The file that it came from.
    pub file: PathBuf,
    /// The first 12 hex digits of [`sha256`](Self::sha256): what records of runs hold.
    pub hash: String,
    /// The hash of the file's bytes: 64 hex digits.
    pub sha256: String,
    /// The code.
    pub module: Arc<Module>,
    /// What a job may use.
    pub limits: Limits,
    /// Attempts for jobs that do not say.
    pub max_attempts: u32,
    /// How long failed jobs wait.
    pub backoff: Backoff,
    /// Keep results over 4 KiB.
    pub keep_results: bool,
    /// What it may reach.
    pub grants: Arc<Grants>,
    /// Jobs of this kind that one runner runs at once; no bound of its own when `None`.
    pub concurrency: Option<u32>,
    /// Turns that this kind has for each turn of a kind of weight 1.
    pub weight: u32,
    /// Attempts that no job of it may exceed, whoever asked for more.
    pub attempts_cap: Option<u32>,
    /// How long its completed and cancelled jobs are kept, where the manifest says so.
    pub retention_finished: Keep,
    /// How long its dead letters are kept, where the manifest says so.
    pub retention_dead: Keep,
}

impl Handler {
    /// Takes other code, and leaves the rest.
    fn run_on(&mut self, module: &Arc<Module>) {
        module.sha256().clone_into(&mut self.sha256);
        self.hash = self.sha256.chars().take(12).collect();
        self.module = Arc::clone(module);
    }
}

/// How a file, or one kind of it, is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Serves its kind.
    Active,
    /// Does not serve, and `error` says why; an older version may be active beside it.
    Broken,
    /// Replaced or removed, with jobs that still run on it.
    Draining,
}

impl Status {
    /// The word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Broken => "broken",
            Self::Draining => "draining",
        }
    }
}

/// One line of `hourhand handler list`.
#[derive(Debug, Clone, PartialEq)]
pub struct HandlerStatus {
    /// The kind; of a file that never loaded, its stem.
    pub kind: String,
    /// The file.
    pub file: PathBuf,
    /// The hash of the file's bytes, once they were read.
    pub sha256: Option<String>,
    /// How it is doing.
    pub status: Status,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// Why it is broken.
    pub error: Option<String>,
    /// What a job may use.
    pub limits: Limits,
    /// How its code came about; `None` for one that never loaded.
    pub build: Option<Build>,
    /// The pin that counts for it.
    pub pin: Option<PinStatus>,
    /// What it may reach. Its secrets are not for lists.
    pub grants: Arc<Grants>,
    /// Jobs of this kind that one runner runs at once; no bound of its own when `None`.
    pub concurrency: Option<u32>,
    /// Turns that this kind has for each turn of a kind of weight 1.
    pub weight: u32,
    /// What module, manifest and ceiling do not agree about: the narrower counts.
    pub notes: Vec<String>,
}

/// A pin, and what it keeps from serving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinStatus {
    /// The hash that it names, or its beginning; or the text that is none.
    pub wanted: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The hash of what lies in the folder instead, as far as it was read.
    pub folder_sha256: Option<String>,
}

/// All handlers at one moment. Immutable.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Counts the changes.
    pub generation: u64,
    /// What serves each kind.
    pub handlers: BTreeMap<Name, Arc<Handler>>,
    /// Every file with its state, by kind.
    pub files: Vec<HandlerStatus>,
}

/// The handlers folder, watched. Cheap to clone; the last clone's end ends the watching.
#[derive(Clone)]
pub struct Registry(Arc<Watching>);

struct Watching {
    shared: Arc<Shared>,
    hints: SyncSender<()>,
}

/// Where the scan thread sends what is to be loaded. The other ends are gone only when we are about to be.
struct Orders {
    loads: mpsc::Sender<LoadOrder>,
    pins: mpsc::Sender<PinOrder>,
}

/// What the three threads and the handle share.
struct Shared {
    config: RegistryConfig,
    sandbox: Arc<Sandbox>,
    snapshot: ArcSwap<Snapshot>,
    generation: tokio::sync::watch::Sender<u64>,
    settled: tokio::sync::watch::Sender<bool>,
    files: Mutex<Files>,
    published: Mutex<Published>,
    stopping: AtomicBool,
}

impl Registry {
    /// Reads the folder, starts to load what is in it, and watches it from then on. Blocking for the
    /// time of one scan.
    ///
    /// # Errors
    /// [`RegistryError`] when the folder is not there or cannot be read.
    pub fn start(config: RegistryConfig, sandbox: Arc<Sandbox>) -> Result<Self, RegistryError> {
        let seen = folder::scan(&config.dir)
            .map_err(|source| RegistryError::Folder { dir: config.dir.clone(), source })?;
        let shared = Arc::new(Shared {
            files: Mutex::new(Files::new(config.module_bytes_max)),
            config,
            sandbox,
            snapshot: ArcSwap::default(),
            generation: tokio::sync::watch::Sender::new(0),
            settled: tokio::sync::watch::Sender::new(false),
            published: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let (hints, hinted) = mpsc::sync_channel(1);
        let (loads, to_load) = mpsc::channel();
        let (pins, to_pin) = mpsc::channel();
        let orders = Orders { loads, pins };
        shared.take_in(seen, &orders, None);

        let spawn = |name, body| spawn(shared.config.vitals.enter(name), name, body);
        let (loader, done) = (Arc::clone(&shared), hints.clone());
        spawn("handlers-load", Box::new(move |vital| loading::run(&loader, vital, &to_load, &done)))?;
        let (pinner, done) = (Arc::clone(&shared), hints.clone());
        spawn("handlers-pin", Box::new(move |vital| loading::run_pins(&pinner, vital, &to_pin, &done)))?;
        let (scanner, hint) = (Arc::clone(&shared), hints.clone());
        spawn("handlers-scan", Box::new(move |vital| scanner.watch_folder(vital, &hint, &hinted, &orders)))?;
        Ok(Self(Arc::new(Watching { shared, hints })))
    }

    /// Scans the folder now, and tries once more what does not serve.
    pub fn reload(&self) {
        self.0.shared.files.lock().try_again();
        // A full channel wakes the thread just as well.
        let _ = self.0.hints.try_send(());
    }

    /// What serves now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.0.shared.snapshot.load_full()
    }

    /// Tells of each new generation.
    pub fn subscribe(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.shared.generation.subscribe()
    }

    /// Resolves when every file that was there at the start is loaded, reported as broken or gone. However
    /// many wait for the load thread, it waits for all; a file that keeps changing is given up after 10 s.
    pub async fn settled(&self) {
        let mut settled = self.0.shared.settled.subscribe();
        // The sender lives as long as we do.
        let _ = settled.wait_for(|settled| *settled).await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        // A full channel wakes the thread just as well.
        let _ = self.hints.try_send(());
    }
}

/// A thread whose loop begins again after a panic: a folder that nobody watches any more would go
/// unnoticed for days.
fn spawn(vital: Vital, name: &'static str, body: Box<dyn Fn(&Vital) + Send>) -> Result<(), RegistryError> {
    let run = move || {
        while catch_unwind(AssertUnwindSafe(|| body(&vital))).is_err() {
            tracing::error!(thread = name, "panic in the registry; going on");
            std::thread::sleep(AFTER_PANIC);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(RegistryError::Thread)
}

impl Shared {
    /// The scan thread: scans every so often, on a hint, and when a file's quiet time is over.
    fn watch_folder(&self, vital: &Vital, hint: &SyncSender<()>, hinted: &Receiver<()>, orders: &Orders) {
        let mut watch = watch::Watch::new(&self.config, hint.clone());
        let mut unreadable = false;
        loop {
            let next_check = self.files.lock().next_check(clock::monotonic());
            let wait = next_check.map_or(self.config.scan_every, |due| due.min(self.config.scan_every));
            let rest = vital.rest();
            let woken = hinted.recv_timeout(wait);
            drop(rest);
            match woken {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            // A network folder may keep us for as long as it likes.
            let outside = vital.outside();
            watch.follow();
            let scanned = folder::scan(&self.config.dir);
            drop(outside);
            match scanned {
                Ok(seen) => {
                    unreadable = false;
                    self.take_in(seen, orders, Some(vital));
                }
                // Nothing is unloaded for it: a network folder that is away for a moment must not stop jobs.
                Err(error) if !unreadable => {
                    unreadable = true;
                    tracing::error!(dir = %self.config.dir.display(), %error, "the handlers folder cannot be read; going on with what is loaded");
                }
                Err(_) => {}
            }
            // Hints come in storms: one scan answers for all of them.
            std::thread::sleep(tracked::QUIET_CHECK);
        }
    }

    /// What one scan saw: orders loads, drops what is gone.
    fn take_in(&self, seen: Vec<folder::Seen>, orders: &Orders, vital: Option<&Vital>) {
        let now = clock::monotonic();
        let mut files = self.files.lock();
        let loads = files.observe(seen, now, clock::wall_ms());
        let pins = files.pins_due(now);
        drop(files);
        for order in loads {
            let _ = orders.loads.send(order);
        }
        for order in pins {
            let _ = orders.pins.send(order);
        }
        let manifests = self.files.lock().manifests_due(clock::monotonic());
        for (path, id) in manifests {
            let outside = vital.map(Vital::outside);
            let read = manifests::read(&path, &id);
            drop(outside);
            self.files.lock().manifest_read(&path, id, read, clock::monotonic(), clock::wall_ms());
        }
        self.publish();
    }

    /// Swaps in a new snapshot, if it differs.
    fn publish(&self) {
        let mut published = self.published.lock();
        let files = self.files.lock();
        let snapshot = published.next(&files, &self.sandbox, &self.config.operator, clock::wall_ms());
        let settled = files.initial_settled(clock::monotonic());
        drop(files);
        if let Some(snapshot) = snapshot {
            let generation = snapshot.generation;
            self.snapshot.store(Arc::new(snapshot));
            self.generation.send_replace(generation);
        }
        if settled {
            self.settled.send_replace(true);
        }
    }
}
