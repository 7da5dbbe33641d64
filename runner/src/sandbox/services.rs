//! What a run may ask of the runner around it. The sandbox knows neither stores nor workers: they offer this.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::effects::{Progress, StateFound};
use crate::grants::Grants;
use crate::names::Name;

/// What the runner does for a run while it goes on.
#[async_trait]
pub trait Services: Send + Sync {
    /// Entries of a bucket of state, in the order asked for.
    ///
    /// # Errors
    /// Why they cannot be read now, for people.
    async fn read_state(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, String>;

    /// Takes note of how far the job has come. Never blocks.
    fn progress(&self, progress: Progress);
}

/// Answers HTTP requests in place of the network, as when a handler is tried out.
#[async_trait]
pub trait HttpAnswers: Send + Sync {
    /// The answer to a request that the handler's grants allow. Its URI is absolute, with the host as it would be
    /// reached; its headers are the guest's own, without the secrets that the host would put in.
    ///
    /// # Errors
    /// Why there is none, for people: the guest sees a failed request, and the job's log has the text.
    async fn answer(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, String>;
}

/// What one run may reach: the handler's grants, and who answers for the rest.
#[derive(Clone, Default)]
pub struct Offer {
    /// What its manifest grants.
    pub grants: Arc<Grants>,
    /// The runner; without one, state is out of reach and progress goes nowhere.
    pub services: Option<Arc<dyn Services>>,
    /// Who answers HTTP requests; the network when `None`.
    pub http_answers: Option<Arc<dyn HttpAnswers>>,
}
