//! Events of the file system: hints that a scan is worth doing now.
//!
//! The folder is watched, not its files: editors and deployments replace files, and a watch follows
//! the old one. Where there are no events (network folders, used-up watches) the scan alone has to do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// The watch of one folder, moved along when another folder takes the name.
pub(super) struct Watch {
    dir: PathBuf,
    scan_every: Duration,
    hint: SyncSender<()>,
    watching: Option<(u64, u64)>,
    /// Events come while this lives.
    watcher: Option<RecommendedWatcher>,
    said: bool,
}

impl Watch {
    /// Begins to watch `dir`; each event that matters sends a hint.
    pub(super) fn new(dir: PathBuf, scan_every: Duration, hint: SyncSender<()>) -> Self {
        let mut watch = Self { dir, scan_every, hint, watching: None, watcher: None, said: false };
        watch.follow();
        watch
    }

    /// Watches the folder that has the name now.
    pub(super) fn follow(&mut self) {
        let Ok(metadata) = fs::metadata(&self.dir) else { return };
        let id = (metadata.dev(), metadata.ino());
        if self.watching == Some(id) {
            return;
        }
        self.watching = Some(id);
        match self.start() {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => {
                self.watcher = None;
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
        let hint = self.hint.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| matters(&event)) {
                // A full channel is a hint that nobody has answered yet.
                let _ = hint.try_send(());
            }
        })?;
        watcher.watch(&self.dir, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    }
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
