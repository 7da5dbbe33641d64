//! What a client needs of a store: little enough for a test to stand in for it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::job::{JobView, NewJob};
use crate::names::{JobId, Name};
use crate::queue::{Enqueued, Store, StoreError};

/// The way into a store.
#[async_trait]
pub(super) trait Door: Send + Sync {
    /// As [`Store::address`].
    fn address(&self) -> String;

    /// As [`Store::enqueue`].
    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError>;

    /// The job with this id in this queue.
    async fn find(&self, queue: &Name, id: &JobId) -> Result<Option<JobView>, StoreError>;
}

/// A real one.
pub(super) struct StoreDoor(pub(super) Arc<dyn Store>);

#[async_trait]
impl Door for StoreDoor {
    fn address(&self) -> String {
        self.0.address()
    }

    async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        self.0.enqueue(jobs).await
    }

    async fn find(&self, queue: &Name, id: &JobId) -> Result<Option<JobView>, StoreError> {
        Ok(self.0.find(Some(queue), id).await?.into_iter().next())
    }
}
