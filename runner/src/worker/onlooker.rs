//! Whoever looks on while jobs run: `hourhand dev` shows them as they go.

use std::fmt::Debug;
use std::sync::Arc;

use crate::queue::{ClaimedJob, Settlement};
use crate::sandbox::JobLog;

/// Is told of each run. Called on the guests' threads: must not block.
pub trait Onlooker: Debug + Send + Sync {
    /// A job has a slot, and its run begins. Its log grows meanwhile.
    fn begun(&self, job: &ClaimedJob, log: &Arc<JobLog>);

    /// The run is over, and this is to be written. It has the lease of the job that began.
    fn ended(&self, settlement: &Settlement);
}
