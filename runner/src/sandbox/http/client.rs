//! What the calls of all jobs share: where they run, how names become addresses, whom TLS trusts, and whether calls
//! may be made at all. No connection is shared.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore, watch};
use wasmtime_wasi_http::Error;

use super::fault::Fault;
use super::resolve::{Resolver, SystemResolver};
use super::tls;

/// Names that the jobs of one handler look up at once. It is far below what all handlers may together: one whose names never resolve
/// holds up its own jobs, and nobody else's.
pub(super) const LOOKUPS_OF_HANDLER_MAX: usize = 8;

/// The part of a process that talks HTTP.
pub(in super::super) struct Client {
    io: Option<Handle>,
    pub(super) resolver: Arc<dyn Resolver>,
    /// Turns for look-ups, for each handler that has jobs or look-ups under way.
    lookups: Mutex<HashMap<String, Weak<Semaphore>>>,
    tls: OnceCell<Result<Arc<ClientConfig>, String>>,
    open: watch::Sender<bool>,
}

impl Client {
    pub(in super::super) fn new(io: Option<Handle>, resolver: Option<Arc<dyn Resolver>>) -> Self {
        Self {
            io,
            resolver: resolver.unwrap_or_else(|| Arc::new(SystemResolver::new())),
            lookups: Mutex::default(),
            tls: OnceCell::new(),
            open: watch::Sender::new(true),
        }
    }

    /// Where calls run: not where guests compute, which would hold them up.
    pub(super) fn io(&self) -> Handle {
        self.io.clone().unwrap_or_else(Handle::current)
    }

    /// The turns of a handler's look-ups.
    pub(super) fn lookups_of(&self, handler: &str) -> Arc<Semaphore> {
        let mut all = self.lookups.lock();
        if let Some(turns) = all.get(handler).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(LOOKUPS_OF_HANDLER_MAX));
        all.insert(handler.to_owned(), Arc::downgrade(&turns));
        turns
    }

    /// Lets calls be made, or stops all that are under way and those to come.
    pub(in super::super) fn set_open(&self, open: bool) {
        self.open.send_if_modified(|now| std::mem::replace(now, open) != open);
    }

    /// Resolves when calls are stopped.
    pub(super) async fn stopped(&self) -> Fault {
        // The sender lives as long as this, so there is always an answer.
        let _ = self.open.subscribe().wait_for(|open| !open).await;
        Fault::out_of_touch()
    }

    /// How to speak TLS: read at the first need, once.
    pub(super) async fn tls(&self) -> Result<Arc<ClientConfig>, Fault> {
        let read = || async {
            let read = tokio::task::spawn_blocking(tls::config).await;
            read.unwrap_or_else(|error| Err(error.to_string()))
        };
        let config = self.tls.get_or_init(read).await;
        config.clone().map_err(|why| Fault::new(Error::TlsCertificateError, &why))
    }
}
