//! The load thread: reads a file, hashes it, and has the sandbox compile it.

use std::fs::File;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};

use sha2::{Digest, Sha256};

use crate::clock;
use crate::sandbox::{LoadError, Module};
use crate::vitals::Vital;

use super::folder::FileId;
use super::pinned::PinOrder;
use super::{Shared, pins, regular};

/// A file that is to be loaded.
#[derive(Debug, Clone)]
pub(super) struct LoadOrder {
    pub(super) path: PathBuf,
    pub(super) stem: String,
    /// The state that was seen.
    pub(super) id: FileId,
    /// Hashes whose result is known: the last good version's, and the last failure's.
    pub(super) known: Vec<String>,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Loaded {
    /// It is one of the known hashes.
    Known(String),
    /// A new version.
    Version(Arc<Module>),
    /// It does not load.
    Failed { sha256: String, error: LoadError },
    /// It could not be read.
    Unreadable(String),
    /// It could not be compiled now, whatever is in it.
    NotNow(String),
    /// It is not what was seen any more.
    Changed,
}

/// Loads what is ordered, until nobody orders any more.
pub(super) fn run(shared: &Shared, vital: &Vital, ordered: &Receiver<LoadOrder>, done: &SyncSender<()>) {
    while let Some(order) = next(vital, ordered) {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let outside = vital.outside();
        // An order without an answer would keep its file waiting for ever.
        let loaded = catch_unwind(AssertUnwindSafe(|| load(shared, &order)))
            .unwrap_or_else(|_| Loaded::Unreadable("loading it panicked".to_owned()));
        drop(outside);
        shared.files.lock().loaded(&order, loaded, clock::monotonic(), clock::wall_ms());
        shared.publish();
        // The scan thread looks when this file's next moment is; a full channel wakes it as well.
        let _ = done.try_send(());
    }
}

/// Loads the versions that pins name, until nobody orders any more. A thread of its own: who goes back to an
/// old version must not wait for the compilation of a new one.
pub(super) fn run_pins(shared: &Shared, vital: &Vital, ordered: &Receiver<PinOrder>, done: &SyncSender<()>) {
    while let Some(order) = next(vital, ordered) {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        let outside = vital.outside();
        let loaded = catch_unwind(AssertUnwindSafe(|| load_pinned(shared, &order)))
            .unwrap_or_else(|_| Err("loading it panicked".to_owned()));
        drop(outside);
        shared.files.lock().pin_loaded(&order, loaded, clock::wall_ms());
        shared.publish();
        let _ = done.try_send(());
    }
}

/// The next order; `None` when nobody orders any more.
fn next<T>(vital: &Vital, ordered: &Receiver<T>) -> Option<T> {
    let _rest = vital.rest();
    ordered.recv().ok()
}

fn load_pinned(shared: &Shared, order: &PinOrder) -> Result<Arc<Module>, String> {
    let config = &shared.config;
    let bytes = pins::find(&order.path, &order.wanted, config.versions.as_ref(), config.module_bytes_max)?;
    let loaded = shared.sandbox.load(&order.stem, &bytes);
    loaded.map(Arc::new).map_err(|error| format!("it is pinned to {}: {error}", order.wanted))
}

fn load(shared: &Shared, order: &LoadOrder) -> Loaded {
    let bytes = match read(&order.path, &order.id, shared.config.module_bytes_max) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Loaded::Changed,
        // Gone between scan and load: the next scan says so.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Loaded::Changed,
        Err(error) => return Loaded::Unreadable(error.to_string()),
    };
    let sha256: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    if order.known.contains(&sha256) {
        return Loaded::Known(sha256);
    }
    let started = clock::monotonic();
    match shared.sandbox.load(&order.stem, &bytes) {
        Ok(module) => {
            let ms = clock::monotonic().duration_since(started).as_millis() as u64;
            let cached = module.build().compile_ms.is_none();
            tracing::info!(file = %order.path.display(), hash = &sha256[..12], duration_ms = ms, cached, "handler loaded");
            if let Some(versions) = &shared.config.versions {
                versions.keep(&order.stem, &sha256, &bytes);
            }
            Loaded::Version(Arc::new(module))
        }
        // No property of these contents: they must not be taken for known.
        Err(error @ LoadError::Unstarted(_)) => Loaded::NotNow(error.to_string()),
        Err(error) => Loaded::Failed { sha256, error },
    }
}

/// The whole file, or `None` when it is not the one that was seen, before or after.
fn read(path: &Path, id: &FileId, bytes_max: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut file = regular::open(path)?;
    let same = |file: &File| Ok::<_, std::io::Error>(FileId::of(&file.metadata()?).same_length(id));
    if !same(&file)? || id.len > bytes_max {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(id.len as usize);
    (&mut file).take(id.len).read_to_end(&mut bytes)?;
    Ok((same(&file)? && bytes.len() as u64 == id.len).then_some(bytes))
}
