//! One module that is pinned: which version serves meanwhile. No IO, no clock of its own.
//!
//! While a pin is there, no other version begins to serve. Until the version that it names is found, what
//! served when it came serves on; at the start of a runner that is nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::sandbox::Module;

use super::pins::Pin;
use super::tracked::Good;

/// A version that was not found is looked for again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The version that a pin names is to be loaded.
#[derive(Debug, Clone)]
pub(super) struct PinOrder {
    /// The module's file, which need not be there.
    pub(super) path: PathBuf,
    pub(super) stem: String,
    pub(super) wanted: String,
}

/// A pin, and what has become of it.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) pin: Pin,
    /// What serves: the version that it names, or what served before.
    pub(super) good: Option<Good>,
    /// Why the version that it names does not serve.
    pub(super) problem: Option<String>,
    loading: bool,
    tried_at: Option<Monotonic>,
}

impl Pinned {
    /// `serving` is what serves when the pin comes.
    pub(super) fn new(path: &Path, pin: Pin, serving: Option<Good>) -> Self {
        let mut pinned = Self { pin, good: serving, problem: None, loading: false, tried_at: None };
        match pinned.pin.wanted.clone() {
            Ok(wanted) => {
                tracing::info!(file = %path.display(), hash = wanted.get(..12), "handler pinned: what lies in the folder does not count");
            }
            Err(message) => pinned.failed(path, format!("its pin: {message}")),
        }
        pinned
    }

    /// The version that it names serves.
    pub(super) fn is_met(&self) -> bool {
        let serving = self.good.as_ref().map(|good| good.module.sha256());
        matches!((&self.pin.wanted, serving), (Ok(wanted), Some(sha256)) if sha256.starts_with(wanted.as_str()))
    }

    /// Nothing is known of it yet.
    pub(super) fn is_open(&self) -> bool {
        !self.is_met() && self.problem.is_none()
    }

    /// Takes a version that is loaded already, if it is the one.
    pub(super) fn offer(&mut self, good: Option<&Good>) {
        let Some(good) = good.filter(|_| !self.is_met()) else { return };
        if self.pin.wanted.as_ref().is_ok_and(|wanted| good.module.sha256().starts_with(wanted.as_str())) {
            self.good = Some(good.clone());
            self.problem = None;
        }
    }

    /// What is to be loaded for it.
    pub(super) fn order(&mut self, path: &Path, stem: &str, now: Monotonic) -> Option<PinOrder> {
        let rested = self.tried_at.is_none_or(|tried| now.duration_since(tried) >= LOOK_AGAIN);
        let wanted = self.pin.wanted.as_ref().ok()?.clone();
        if self.loading || self.is_met() || !rested {
            return None;
        }
        self.loading = true;
        self.tried_at = Some(now);
        Some(PinOrder { path: path.to_owned(), stem: stem.to_owned(), wanted })
    }

    /// Takes in what became of an order.
    pub(super) fn loaded(&mut self, order: &PinOrder, loaded: Result<Arc<Module>, String>, wall_ms: u64) {
        self.loading = false;
        if self.pin.wanted.as_ref() != Ok(&order.wanted) || self.is_met() {
            return;
        }
        match loaded {
            Ok(module) => {
                self.good = Some(Good { module, since_ms: wall_ms });
                self.problem = None;
            }
            Err(message) => self.failed(&order.path, message),
        }
    }

    fn failed(&mut self, path: &Path, message: String) {
        if self.problem.as_ref() != Some(&message) {
            let serving = self.good.as_ref().map_or("none", |good| &good.module.sha256()[..12]);
            tracing::error!(file = %path.display(), error = message, serving, "the pinned version does not serve");
            self.problem = Some(message);
        }
    }

    /// Looks at once for what was not found.
    pub(super) fn try_again(&mut self) {
        if self.pin.wanted.is_ok() && !self.is_met() {
            self.problem = None;
            self.tried_at = None;
        }
    }

    pub(super) fn next_check(&self, now: Monotonic) -> Option<Duration> {
        let waits = self.pin.wanted.is_ok() && !self.loading && !self.is_met();
        let tried = self.tried_at.filter(|_| waits)?;
        Some((tried + LOOK_AGAIN).saturating_duration_since(now))
    }
}
