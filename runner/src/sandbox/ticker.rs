//! The thread that lets guests be interrupted: it moves the engine's epoch on, every 10 ms while guests run.
//!
//! A thread of its own and not a tokio task: guests that spin must not be able to stop it. While no guest runs it sleeps, so that an idle
//! runner is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::Thread;
use std::time::Duration;

use wasmtime::{Engine, EngineWeak};

use super::SandboxError;
use crate::vitals::Vitals;

/// One tick of the epoch: how exact a time-out is, and how long a guest holds its thread.
const TICK: Duration = Duration::from_millis(10);
/// It goes on for so many ticks after the last guest: jobs that follow each other wake nobody.
const TICKS_IDLE: u32 = 100;
/// It looks by itself so often.
const NAP: Duration = Duration::from_secs(1);

/// The way to the thread. It ends by itself when the engine is gone.
#[derive(Clone)]
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    guests: AtomicU64,
    asleep: AtomicBool,
}

/// A guest that may have to be interrupted, for as long as it lives.
pub(super) struct Ticking(Arc<Shared>);

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn start(engine: &Engine, vitals: &Vitals) -> Result<Self, SandboxError> {
        let shared = Arc::<Shared>::default();
        let (of_thread, engine, vital) = (Arc::clone(&shared), engine.weak(), vitals.enter("epoch"));
        let run = move || {
            of_thread.run(&engine, || vital.step());
        };
        let thread = std::thread::Builder::new()
            .name("epoch".to_owned())
            .spawn(run)
            .map_err(|error| SandboxError::Engine(format!("cannot start the epoch thread: {error}")))?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// A guest begins: the ticks go on until what is returned is dropped.
    pub(super) fn guest(&self) -> Ticking {
        self.shared.guests.fetch_add(1, SeqCst);
        // After the count: the thread looks at it once it has said that it sleeps.
        if self.shared.asleep.load(SeqCst) {
            self.thread.unpark();
        }
        Ticking(Arc::clone(&self.shared))
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, SeqCst);
    }
}

impl Shared {
    fn run(&self, engine: &EngineWeak, step: impl Fn()) {
        let mut idle = 0;
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            step();
            if self.guests.load(SeqCst) > 0 {
                idle = 0;
            } else {
                idle += 1;
            }
            if idle < TICKS_IDLE {
                std::thread::sleep(TICK);
                continue;
            }
            self.asleep.store(true, SeqCst);
            if self.guests.load(SeqCst) == 0 {
                std::thread::park_timeout(NAP);
            }
            self.asleep.store(false, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sleeps_without_guests_and_ticks_from_the_first_on() {
        let ticks = Arc::<AtomicU64>::default();
        let shared = Arc::<Shared>::default();
        let engine = Engine::default();
        let (of_thread, counted, weak) = (Arc::clone(&shared), Arc::clone(&ticks), engine.weak());
        let joined = std::thread::spawn(move || of_thread.run(&weak, || _ = counted.fetch_add(1, SeqCst)));
        let ticker = Ticker { shared, thread: joined.thread().clone() };
        std::thread::sleep(Duration::from_millis(2_000));
        let asleep = ticks.load(SeqCst);
        assert!(asleep <= u64::from(TICKS_IDLE) + 3, "{asleep} ticks without a guest");
        let guest = ticker.guest();
        std::thread::sleep(Duration::from_millis(500));
        let awake = ticks.load(SeqCst) - asleep;
        assert!(awake >= 5, "{awake} ticks in half a second with a guest");
        drop((guest, engine));
        joined.join().unwrap();
    }
}
