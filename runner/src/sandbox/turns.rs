//! Turns for guests that compute, so that the others are not late.
//!
//! A guest that is still computing when the epoch ticks has had its slice. It goes to the end of the
//! queue, and then waits for a turn: there are as many turns as guest threads, so at most that many
//! computing guests are ever in the runtime's queue, however many there are in all. A job that has
//! just started, or wakes from a wait, needs no turn, and finds at most one slice before it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// The turns of one runtime.
#[derive(Clone)]
pub(super) struct Turns {
    turns: Arc<Semaphore>,
}

/// Set at the tick by the epoch callback: this guest computes.
#[derive(Clone, Default)]
pub(super) struct Sliced(Arc<AtomicBool>);

impl Sliced {
    /// The guest has had its slice. What follows must be a pending poll.
    pub(super) fn mark(&self) {
        self.0.store(true, Relaxed);
    }
}

impl Turns {
    pub(super) fn new(guest_threads: usize) -> Self {
        Self { turns: Arc::new(Semaphore::new(guest_threads.max(1))) }
    }

    /// `guest`, polled in turns whenever `sliced` was marked during a poll.
    pub(super) fn take<F: Future>(&self, sliced: Sliced, guest: F) -> InTurns<F> {
        InTurns { guest: Box::pin(guest), sliced, turns: self.clone(), turn: None, queue: None }
    }

    async fn next(self) -> Option<OwnedSemaphorePermit> {
        // Behind all that wait for a thread now. A turn that is passed on goes to the front of its
        // thread's queue (tokio's LIFO slot), so step back once more with it.
        yield_now().await;
        let turn = self.turns.acquire_owned().await.ok();
        yield_now().await;
        turn
    }
}

/// See [`Turns::take`].
pub(super) struct InTurns<F: Future> {
    guest: Pin<Box<F>>,
    sliced: Sliced,
    turns: Turns,
    turn: Option<OwnedSemaphorePermit>,
    queue: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
}

impl<F: Future> Future for InTurns<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        loop {
            if let Some(queue) = &mut this.queue {
                match queue.as_mut().poll(cx) {
                    Poll::Ready(turn) => this.turn = turn,
                    Poll::Pending => return Poll::Pending,
                }
                this.queue = None;
            }
            let polled = this.guest.as_mut().poll(cx);
            this.turn = None;
            if polled.is_ready() || !this.sliced.0.swap(false, Relaxed) {
                return polled;
            }
            this.queue = Some(Box::pin(this.turns.clone().next()));
        }
    }
}

/// The yield of the epoch callback: pending once. [`InTurns`] sees to it that it is polled again.
pub(super) struct Slice(bool);

impl Slice {
    pub(super) fn over() -> Self {
        Self(false)
    }
}

impl Future for Slice {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[tokio::test]
    async fn computing_guests_take_turns_and_a_fresh_one_goes_first() {
        let turns = Turns::new(1);
        let slices = Arc::new(AtomicU32::new(0));
        let mut computing = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (sliced, slices) = (Sliced::default(), Arc::clone(&slices));
            let guest = {
                let sliced = sliced.clone();
                async move {
                    for _ in 0..10 {
                        slices.fetch_add(1, Relaxed);
                        sliced.mark();
                        Slice::over().await;
                    }
                }
            };
            computing.spawn(turns.take(sliced, guest));
        }
        // All have computed once; from now on one at a time is in the queue.
        while slices.load(Relaxed) < 25 {
            yield_now().await;
        }
        let before = slices.load(Relaxed);
        let at_start = Arc::clone(&slices);
        let fresh = turns.take(Sliced::default(), async move { at_start.load(Relaxed) });
        let seen = tokio::spawn(fresh).await.unwrap();
        assert!(seen - before <= 2, "a fresh guest waited for {} slices", seen - before);
        while computing.join_next().await.is_some() {}
        assert_eq!(slices.load(Relaxed), 200);
    }

    #[tokio::test]
    async fn a_guest_that_waits_keeps_no_turn() {
        let turns = Turns::new(1);
        let sliced = Sliced::default();
        let waiting = {
            let sliced = sliced.clone();
            async move {
                sliced.mark();
                Slice::over().await;
                std::future::pending::<()>().await;
            }
        };
        let waiting = tokio::spawn(turns.take(sliced, waiting));
        let other = Sliced::default();
        let computes = {
            let other = other.clone();
            async move {
                for _ in 0..3 {
                    other.mark();
                    Slice::over().await;
                }
                7
            }
        };
        assert_eq!(turns.take(other, computes).await, 7);
        waiting.abort();
    }
}
