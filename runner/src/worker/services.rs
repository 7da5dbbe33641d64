//! What a running job may ask of this runner: see [`Services`].

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Running;
use crate::effects::{Progress, StateFound};
use crate::names::Name;
use crate::sandbox::Services;

/// How far a run says that it has come.
#[derive(Debug, Default)]
pub(crate) struct Told {
    latest: Mutex<Option<Progress>>,
    version: AtomicU64,
}

impl Told {
    /// Its last word.
    pub(super) fn latest(&self) -> Option<Progress> {
        if self.version.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.latest.lock().clone()
    }
}

impl Running {
    /// Grows with each write to its log and each word about its progress; 0 while there was none.
    pub(super) fn version(&self) -> u64 {
        self.log.version() + self.told.version.load(Ordering::Acquire)
    }
}

#[async_trait]
impl Services for Running {
    async fn read_state(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, String> {
        let (store, bucket, keys) = (self.store.clone(), bucket.clone(), keys.to_vec());
        // Not on the guests' threads: they may all be computing when the store answers.
        let reading = self.io.spawn(async move { store.read_state(&bucket, &keys).await });
        match Reading(reading).end().await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the runner failed while it asked the store; its log says why".to_owned()),
        }
    }

    fn progress(&self, progress: Progress) {
        *self.told.latest.lock() = Some(progress);
        self.told.version.fetch_add(1, Ordering::AcqRel);
    }
}

/// A call of the store that ends with the run that asked for it.
struct Reading<T>(JoinHandle<T>);

impl<T> Reading<T> {
    async fn end(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
