//! Signs of life of the loops that a runner cannot do without: tasks and threads, in one list.
//!
//! A loop enters itself, counts its steps, and says when it may stand still: because it has nothing to do, or because it is in the hands of
//! the machine (a file system, the compiler). It counts steps and not successes: each try of the store ends in bounded time, so that a loop
//! goes on counting while the store is away. One that stands still otherwise is stuck; one that panics has broken, and with it
//! the runner: a restart is better than half a runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch::Sender;

mod watch;

pub(crate) use watch::Watch;

/// The loops of a runner. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Vitals(Arc<List>);

#[derive(Debug, Default)]
struct List {
    loops: Mutex<Vec<Arc<Loop>>>,
    broken: Sender<Option<&'static str>>,
}

#[derive(Debug)]
struct Loop {
    name: &'static str,
    steps: AtomicU64,
    state: AtomicU8,
    fault: AtomicU8,
}

/// Values of [`Loop::state`].
const GOING: u8 = 0;
const AT_REST: u8 = 1;
const OUTSIDE: u8 = 2;

/// What one loop shows at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// So many steps: more of them at the next look, or it is stuck.
    Steps(u64),
    /// It has nothing to do, and may stand still.
    AtRest,
    /// After so many steps it is in the hands of the machine. A restart would not help it, but people should know.
    Outside(u64),
}

/// How a loop fails that is made to.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It panics.
    Panic = 1,
    /// It stands still.
    Hang = 2,
}

impl Vitals {
    /// One more loop.
    pub(crate) fn enter(&self, name: &'static str) -> Vital {
        let entry =
            Arc::new(Loop { name, steps: 0.into(), state: AtomicU8::new(GOING), fault: AtomicU8::new(0) });
        self.0.loops.lock().push(Arc::clone(&entry));
        Vital { list: self.clone(), entry }
    }

    /// What the loops show now, each with its name.
    pub(crate) fn signs(&self) -> Vec<(&'static str, Sign)> {
        self.0.loops.lock().iter().map(|entry| (entry.name, entry.sign())).collect()
    }

    /// Resolves when a loop has broken, with its name.
    pub(crate) async fn broken(&self) -> &'static str {
        let mut broken = self.0.broken.subscribe();
        match broken.wait_for(Option::is_some).await {
            Ok(name) => name.unwrap_or_default(),
            // The sender lives as long as we do.
            Err(_) => std::future::pending().await,
        }
    }

    /// The names of all loops.
    #[doc(hidden)]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.loops.lock().iter().map(|entry| entry.name).collect()
    }

    /// Makes a loop fail at its next step, so that tests see whether somebody notices.
    #[doc(hidden)]
    pub fn trip(&self, name: &str, fault: Fault) {
        for entry in self.0.loops.lock().iter().filter(|entry| entry.name == name) {
            entry.fault.store(fault as u8, Relaxed);
        }
    }
}

impl Loop {
    fn sign(&self) -> Sign {
        let steps = self.steps.load(Relaxed);
        match self.state.load(Relaxed) {
            AT_REST => Sign::AtRest,
            OUTSIDE => Sign::Outside(steps),
            _ => Sign::Steps(steps),
        }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Relaxed);
        if self.fault.load(Relaxed) != 0 {
            self.fail();
        }
    }

    #[cold]
    fn fail(&self) {
        let fault = self.fault.swap(0, Relaxed);
        assert!(fault != Fault::Panic as u8, "the loop {} was made to fail", self.name);
        if fault == Fault::Hang as u8 {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

/// A loop's own entry. It leaves the list when it is dropped, and has broken if that is a panic's doing.
#[derive(Debug)]
pub(crate) struct Vital {
    list: Vitals,
    entry: Arc<Loop>,
}

impl Vital {
    /// The loop goes on.
    pub(crate) fn step(&self) {
        self.entry.step();
    }

    /// It has nothing to do until what is returned is dropped.
    pub(crate) fn rest(&self) -> Rest<'_> {
        self.entry.step();
        self.pause(AT_REST)
    }

    /// It is in the hands of the machine until what is returned is dropped.
    pub(crate) fn outside(&self) -> Rest<'_> {
        self.pause(OUTSIDE)
    }

    fn pause(&self, state: u8) -> Rest<'_> {
        self.entry.state.store(state, Relaxed);
        Rest(&self.entry)
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        self.list.0.loops.lock().retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        if std::thread::panicking() {
            self.list.0.broken.send_replace(Some(self.entry.name));
        }
    }
}

/// See [`Vital::rest`].
pub(crate) struct Rest<'a>(&'a Loop);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Relaxed);
        self.0.state.store(GOING, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Sign::{AtRest, Outside, Steps};

    #[test]
    fn a_loop_shows_its_steps_and_where_it_is_until_it_leaves() {
        let vitals = Vitals::default();
        let (a, b) = (vitals.enter("a"), vitals.enter("b"));
        a.step();
        assert_eq!(vitals.signs(), [("a", Steps(1)), ("b", Steps(0))]);
        let rest = a.rest();
        let outside = b.outside();
        assert_eq!(vitals.signs(), [("a", AtRest), ("b", Outside(0))]);
        drop((rest, outside));
        assert_eq!(vitals.signs(), [("a", Steps(3)), ("b", Steps(1))], "new work, a moment ago");
        drop(a);
        assert_eq!(vitals.signs(), [("b", Steps(1))]);
        drop(b);
        assert_eq!(*vitals.0.broken.borrow(), None, "they ended as they should");
    }

    #[tokio::test]
    async fn a_thread_and_a_task_that_panic_have_broken() {
        let vitals = Vitals::default();
        let thread = vitals.enter("thread");
        vitals.trip("thread", Fault::Panic);
        assert!(std::thread::spawn(move || thread.step()).join().is_err());
        assert_eq!(vitals.broken().await, "thread");

        let vitals = Vitals::default();
        let task = vitals.enter("task");
        vitals.trip("task", Fault::Panic);
        let task = tokio::spawn(async move {
            tokio::task::yield_now().await;
            let _rest = task.rest();
            std::future::pending::<()>().await;
        });
        assert!(task.await.is_err());
        assert_eq!(vitals.broken().await, "task");
        assert_eq!(vitals.names(), [""; 0]);
    }
}
