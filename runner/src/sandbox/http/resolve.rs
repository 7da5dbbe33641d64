//! From names to addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

/// Names that are looked up at once, by all jobs: a look-up cannot be stopped, so that those of jobs which are gone
/// count too. What the jobs of one handler may have of these is bounded in `client`.
const LOOKUPS_MAX: usize = 64;

/// Looks up names.
#[async_trait]
pub trait Resolver: Send + Sync + fmt::Debug {
    /// The addresses of a name, in the order in which to try them.
    ///
    /// # Errors
    /// Why there are none.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// As this machine does it: its hosts file, its DNS servers.
#[derive(Debug)]
pub(super) struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl SystemResolver {
    pub(super) fn new() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let lookup = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let _lookup = lookup;
            (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
        });
        found.await.map_err(io::Error::other)?
    }
}
