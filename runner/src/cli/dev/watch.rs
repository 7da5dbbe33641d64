//! Waits until files of the projects may have changed: events of the file system, and where there are none, the time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// How long after an event all is quiet before anybody looks: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(40);
/// How long it may go on before somebody looks all the same.
const QUIET_MAX: Duration = Duration::from_millis(500);
/// How often files are looked at where there are no events, and whether to stop is.
const POLL: Duration = Duration::from_millis(500);

/// The watch of all folders that hold sources.
pub(super) struct Watch {
    events: Receiver<()>,
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// What some folder could not be watched for, said once.
    trouble: Option<String>,
}

impl Watch {
    /// Watches nothing yet.
    pub(super) fn new() -> Self {
        let (sender, events) = mpsc::sync_channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| matters(&event)) {
                // A full channel is an event that nobody has answered yet.
                let _ = sender.try_send(());
            }
        });
        let (watcher, trouble) = match watcher {
            Ok(watcher) => (Some(watcher), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { events, watcher, watched: BTreeSet::new(), trouble }
    }

    /// Watches these folders from now on, and no others.
    pub(super) fn follow<'a>(&mut self, folders: impl Iterator<Item = &'a PathBuf>) {
        let wanted: BTreeSet<PathBuf> = folders.cloned().collect();
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&wanted) {
            // Of a folder that is deleted nothing is left to unwatch.
            let _ = watcher.unwatch(gone);
        }
        for new in wanted.difference(&self.watched) {
            if let Err(error) = watcher.watch(Path::new(new), RecursiveMode::NonRecursive)
                && new.is_dir()
            {
                self.trouble = Some(error.to_string());
            }
        }
        self.watched = wanted;
    }

    /// Why changes are found by looking every half second; told once.
    pub(super) fn new_trouble(&mut self, said: &mut bool) -> Option<&str> {
        let trouble = self.trouble.as_deref().filter(|_| !*said);
        *said |= trouble.is_some();
        trouble
    }

    /// Waits until it is worth to look. False when nothing has happened for a while, so that the caller can see whether
    /// it is to stop.
    pub(super) fn wait(&self) -> bool {
        match self.events.recv_timeout(POLL) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return self.trouble.is_some(),
            // Without a watcher nobody sends.
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(POLL);
                return true;
            }
        }
        let mut waited = Duration::ZERO;
        while waited < QUIET_MAX && self.events.recv_timeout(QUIET).is_ok() {
            waited += QUIET;
        }
        true
    }
}

/// Our own reading makes events too, and they must not make us look.
fn matters(event: &Event) -> bool {
    event.need_rescan()
        || match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
            EventKind::Access(_) => false,
            _ => true,
        }
}
