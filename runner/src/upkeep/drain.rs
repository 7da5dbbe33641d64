//! What waits in the spool of this machine goes to the store, while that answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::client::{Client, DrainError, Spool, SpoolError};
use crate::clock::monotonic;
use crate::vitals::Vital;
use crate::worker::Worker;

/// It is looked into the folder after each heartbeat, for then the store answers, and at least so often. Where there is no file, that is
/// all that it costs.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long one drain goes on before it is looked whether it is still wanted.
const DRAIN_FOR: Duration = Duration::from_secs(1);

/// Drains whichever spool is wanted, until the worker is over.
pub(super) async fn drain_loop(
    worker: Arc<Worker>,
    vital: Vital,
    mut wanted: watch::Receiver<Option<Spool>>,
) {
    let client = Client::new(Arc::clone(&worker.store));
    // The last thing that was said of a spool that cannot be used.
    let mut said: Option<SpoolError> = None;
    while !worker.is_over() {
        vital.step();
        let spool = wanted.borrow_and_update().clone();
        let mut more = false;
        if let Some(spool) = spool.filter(Spool::exists) {
            client.set_spool(Some(spool));
            let drained = client.drain(Some(monotonic() + DRAIN_FOR), false).await;
            if let Err(DrainError::Spool(error)) = &drained
                && said.as_ref() != Some(error)
            {
                tracing::warn!(%error, "cannot drain the spool; trying on");
                said = Some(error.clone());
            }
            match drained {
                Ok(drained) => {
                    more = drained.left;
                    said = None;
                    worker.outage.succeeded("drain");
                    if drained.sent > 0 {
                        tracing::info!(jobs = drained.sent, "enqueued what had waited in the spool");
                    }
                }
                Err(DrainError::Store(error)) => worker.outage.failed("drain", &error),
                Err(DrainError::Busy | DrainError::Spool(_)) => {}
            }
        } else {
            worker.outage.succeeded("drain");
        }
        if !more {
            // A change counts at once. Without a sender there is none.
            let changed = async {
                if wanted.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = changed => {}
                () = worker.next_heartbeat() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}
