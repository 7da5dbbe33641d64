//! Fires at instants, to a fraction of a millisecond: a thread that sleeps on a condition variable.
//!
//! tokio's timer rounds up to whole milliseconds, and its threads may be busy. Held jobs start by
//! this one instead.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use crate::clock::{Monotonic, monotonic};
use crate::vitals::Vital;

/// A thread that calls back with each token at its instant. Dropping it ends the thread; what is
/// pending then never fires.
pub(crate) struct Timer {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    sooner: Condvar,
}

#[derive(Default)]
struct State {
    pending: BinaryHeap<Reverse<(Monotonic, u64)>>,
    closed: bool,
}

impl Timer {
    /// Starts the thread. `fire` is called on it and must not block; a panic in it ends the thread, and `vital` tells.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(crate) fn start(vital: Vital, fire: impl Fn(u64) + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("timer".to_owned()).spawn(move || run(&of_thread, &vital, fire))?;
        Ok(Self { shared })
    }

    /// Fires `token` at `at`, or at once when that is past.
    pub(crate) fn at(&self, at: Monotonic, token: u64) {
        let mut state = self.shared.state.lock();
        let is_first = state.pending.peek().is_none_or(|Reverse((first, _))| at < *first);
        state.pending.push(Reverse((at, token)));
        if is_first {
            self.shared.sooner.notify_one();
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.sooner.notify_one();
    }
}

fn run(shared: &Shared, vital: &Vital, fire: impl Fn(u64)) {
    let mut state = shared.state.lock();
    while !state.closed {
        let Some(&Reverse((at, token))) = state.pending.peek() else {
            let _rest = vital.rest();
            shared.sooner.wait(&mut state);
            continue;
        };
        if monotonic() < at {
            let _rest = vital.rest();
            shared.sooner.wait_until(&mut state, at);
            continue;
        }
        state.pending.pop();
        vital.step();
        parking_lot::MutexGuard::unlocked(&mut state, || fire(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn tokens_fire_in_order_of_time_and_never_early() {
        let (sender, fired) = mpsc::channel();
        let vital = crate::vitals::Vitals::default().enter("timer");
        let timer = Timer::start(vital, move |token| sender.send((token, monotonic())).unwrap()).unwrap();
        let start = monotonic();
        let at = |ms| start + Duration::from_millis(ms);
        timer.at(at(30), 3);
        timer.at(at(10), 1);
        timer.at(at(20), 2);
        timer.at(start, 0);
        for expected in 0..4 {
            let (token, when) = fired.recv().unwrap();
            assert_eq!(token, expected);
            assert!(when >= at(expected * 10));
        }
    }
}
