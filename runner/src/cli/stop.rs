//! What tells a command of some length to stop, so that it can tidy up.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Fault;

/// Ctrl-C, SIGTERM, and the end of the terminal.
pub(super) struct Stop([Signal; 3]);

impl Stop {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system does not let it.
    pub(super) fn new() -> Result<Self, Fault> {
        let of =
            |kind| signal(kind).map_err(|error| Fault::failed(format!("cannot listen to signals: {error}")));
        Ok(Self([of(SignalKind::interrupt())?, of(SignalKind::terminate())?, of(SignalKind::hangup())?]))
    }

    /// Waits for one of them.
    pub(super) async fn told(&mut self) {
        let [interrupt, terminate, hang_up] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    }
}
