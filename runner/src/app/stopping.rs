//! The end of a runner: what a signal asks for, and how much of it the store lets be done.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::RunnerEnd;
use crate::clock::monotonic;
use crate::worker::{Loops, Worker};

/// How often the end of things is looked for.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long guests that were told to end, and their outcomes, may take beyond the grace.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a second signal leaves for giving jobs back: a shut-down uses no attempt.
const LAST_BREATH: Duration = Duration::from_millis(500);

/// Stops claiming, lets jobs finish for the grace, releases the rest, and waits for the store to
/// have every outcome. A second signal cuts it short.
pub(super) async fn stop_gracefully(worker: &Arc<Worker>, loops: Loops, stop: &mut StopSignals) -> RunnerEnd {
    worker.stop_claiming();
    let told = monotonic();
    let counts = worker.hand.counts();
    tracing::info!(
        running = counts.running,
        grace_ms = worker.config.grace.as_millis() as u64,
        "the runner stops"
    );
    let finish = async {
        let mut released = false;
        loop {
            worker.give_back_held(|_| true);
            if is_done(worker) || loops.settling.is_finished() {
                return;
            }
            let waited = monotonic().duration_since(told);
            if waited >= worker.config.grace && !released {
                released = true;
                worker.release_running();
            }
            if waited >= worker.config.grace + LAST_WORDS {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let patience = tokio::select! {
        () = finish => LAST_WORDS,
        () = stop.next() => {
            tracing::warn!("told to stop a second time: ending now");
            worker.release_running();
            emptied(worker, LAST_BREATH).await;
            LAST_BREATH
        }
    };
    let done = is_done(worker);
    worker.close();
    let Loops { serving: _serving, settling } = loops;
    if !done {
        let left = worker.hand.counts();
        tracing::warn!(running = left.running, unsettled = left.ending, "jobs are left to recovery");
        return RunnerEnd::Unsettled;
    }
    if !settling.is_finished() {
        let _ = tokio::time::timeout(patience, settling).await;
    }
    leave_the_store(worker, patience).await
}

/// Whether nothing is in hand, nor on its way to it.
fn is_done(worker: &Worker) -> bool {
    !worker.is_claiming() && worker.hand.is_empty()
}

/// Gives back what the store holds for this session all the same, because the reply to a claim was lost, and ends the session.
async fn leave_the_store(worker: &Worker, patience: Duration) -> RunnerEnd {
    if worker.has_lost_claims() {
        let given_back = tokio::time::timeout(patience, crate::upkeep::give_back_all(worker)).await;
        if !matches!(given_back, Ok(Ok(()))) {
            tracing::warn!(
                "the store did not say whether it holds jobs for this runner: they are left to recovery"
            );
            return RunnerEnd::Unsettled;
        }
    }
    match tokio::time::timeout(patience, worker.store.end_session(&worker.session)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the session stays registered until others see that it is gone");
        }
        Err(_) => tracing::warn!("the session stays registered until others see that it is gone"),
    }
    RunnerEnd::Clean
}

/// Waits until nothing is in hand, for so long at most.
async fn emptied(worker: &Worker, within: Duration) {
    let _ = tokio::time::timeout(within, async {
        while !is_done(worker) {
            worker.give_back_held(|_| true);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
    .await;
}

/// SIGTERM and SIGINT.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    told: bool,
}

impl StopSignals {
    pub(super) fn new() -> anyhow::Result<Self> {
        let of = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            told: false,
        })
    }

    /// Returns when the process has been told to stop, now or before.
    pub(super) async fn first(&mut self) {
        if !self.told {
            self.next().await;
            self.told = true;
        }
    }

    /// Returns at the next signal.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
