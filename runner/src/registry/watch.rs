//! Events of the file system: hints that a scan is worth doing now.
//!
//! The folder is watched, not its files: editors and deployments replace files, and a watch follows
//! the old one. Where there are no events (network folders, used-up watches) the scan alone has to do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::clock::{self, Monotonic};

use super::{RegistryConfig, network};

/// Events that cannot be had are asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The watch of one folder, moved along when another folder takes the name.
pub(super) struct Watch {
    dir: PathBuf,
    scan_every: Duration,
    events: bool,
    hint: SyncSender<()>,
    watching: Option<(u64, u64)>,
    /// Events come while this lives.
    watcher: Option<RecommendedWatcher>,
    /// The folder itself was moved or deleted: another may take its name, with the same number even.
    lost: Arc<AtomicBool>,
    refused_at: Option<Monotonic>,
    said: bool,
}

impl Watch {
    /// Begins to watch the folder; each event that matters sends a hint. Says how changes are found.
    pub(super) fn new(config: &RegistryConfig, hint: SyncSender<()>) -> Self {
        let mut watch = Self {
            dir: config.dir.clone(),
            scan_every: config.scan_every,
            events: config.events,
            hint,
            watching: None,
            watcher: None,
            lost: Arc::default(),
            refused_at: None,
            said: false,
        };
        watch.follow();
        watch.say();
        watch
    }

    fn say(&self) {
        let (dir, every_ms) = (self.dir.display(), self.scan_every.as_millis() as u64);
        if !self.events {
            tracing::info!(%dir, every_ms, "events are off: changes of the handlers folder are found by scanning it");
        } else if let Some(kind) = network::file_system(&self.dir) {
            tracing::info!(
                %dir, every_ms, file_system = kind,
                "the handlers folder is on a file system that tells nothing of changes made elsewhere: they are \
                 found by scanning it"
            );
        } else if self.watcher.is_some() {
            tracing::info!(%dir, every_ms, "watching the handlers folder, and scanning it");
        }
    }

    /// Watches the folder that has the name now.
    pub(super) fn follow(&mut self) {
        if !self.events {
            return;
        }
        let Ok(metadata) = fs::metadata(&self.dir) else { return };
        let id = (metadata.dev(), metadata.ino());
        let lost = self.lost.swap(false, Ordering::AcqRel);
        let now = clock::monotonic();
        let asked = self.refused_at.is_none_or(|at| now.duration_since(at) < ASK_AGAIN);
        if self.watching == Some(id) && !lost && asked {
            return;
        }
        self.watching = Some(id);
        match self.start() {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.refused_at = None;
                if self.said {
                    self.said = false;
                    tracing::info!(dir = %self.dir.display(), "there are events for the handlers folder again");
                }
            }
            Err(error) => {
                self.watcher = None;
                self.refused_at = Some(now);
                if !self.said {
                    self.said = true;
                    let every_ms = self.scan_every.as_millis() as u64;
                    tracing::warn!(
                        dir = %self.dir.display(), %error, every_ms,
                        "no events for the handlers folder: changes are found by scanning it"
                    );
                }
            }
        }
    }

    fn start(&self) -> notify::Result<RecommendedWatcher> {
        let (hint, lost, dir) = (self.hint.clone(), Arc::clone(&self.lost), self.dir.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.as_ref().is_ok_and(|event| ends_the_watch(event, &dir)) {
                lost.store(true, Ordering::Release);
            }
            if event.map_or(true, |event| matters(&event)) {
                // A full channel is a hint that nobody has answered yet.
                let _ = hint.try_send(());
            }
        })?;
        watcher.watch(&self.dir, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    }
}

/// The folder itself was moved or deleted.
fn ends_the_watch(event: &Event, dir: &std::path::Path) -> bool {
    let of_dir = event.paths.iter().any(|path| path == dir);
    of_dir && matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)))
}

/// Our own reading makes events too, and they must not make us scan.
fn matters(event: &Event) -> bool {
    event.need_rescan()
        || match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
            EventKind::Access(_) => false,
            _ => true,
        }
}
