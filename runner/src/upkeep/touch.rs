//! Whether this runner is in touch with its store. When it has not been for a lease, others may have taken its jobs over: what these
//! still do to the outside world would be done twice, so their calls are stopped. The jobs themselves go on: those that others
//! have are stopped once the store can be asked, and the rest may call again after that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::{Monotonic, monotonic};
use crate::sandbox::Sandbox;

/// The last sign of life that the store is known to have.
pub(super) struct Touch(watch::Sender<Monotonic>);

impl Touch {
    /// In touch from now on.
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(monotonic()))
    }

    /// Whether others may have taken its jobs over by now: there was no heartbeat for `lease`.
    pub(super) fn is_lost(&self, lease: Duration) -> bool {
        *self.0.borrow() + lease <= monotonic()
    }

    /// A heartbeat that was sent at `sent` has been answered, and all that runs is still this runner's. Others count from when the store had it, which was not before.
    pub(super) fn beat(&self, sent: Monotonic) {
        self.0.send_replace(sent);
    }

    /// Stops calls to the outside when there was no heartbeat for `lease`, and lets them be made again after the next one. Ends with
    /// the runner.
    pub(super) fn watch(&self, lease: Duration, sandbox: Arc<Sandbox>) -> impl Future<Output = ()> + use<> {
        let mut beats = self.0.subscribe();
        async move {
            loop {
                let until = *beats.borrow_and_update() + lease;
                let in_touch = until > monotonic();
                if !in_touch {
                    tracing::warn!(
                        lease_ms = lease.as_millis() as u64,
                        "out of touch with the store for a lease: calls of jobs to the outside are stopped"
                    );
                }
                sandbox.allow_calls(in_touch);
                tokio::select! {
                    beat = beats.changed() => if beat.is_err() { return },
                    () = tokio::time::sleep_until(until.into()), if in_touch => {}
                }
            }
        }
    }
}
