//! The calls out of a handler: to the runner in a module, to a test host natively.
//!
//! The generated bindings cannot be called outside WebAssembly, so natively every call goes to the
//! [`Host`] of this thread. Without one, log lines go nowhere and the clock is the system's.

use std::time::SystemTime;

#[cfg(not(target_family = "wasm"))]
use crate::log::Level;

#[cfg(target_family = "wasm")]
pub(crate) use crate::guest::log;
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{Host, entered, log};

/// What time it is, for the handler.
pub(crate) fn now() -> SystemTime {
    #[cfg(not(target_family = "wasm"))]
    if let Some(time) = native::with_host(|host| host.now()) {
        return time;
    }
    #[allow(clippy::disallowed_methods, reason = "the one place of the SDK that reads the clock")]
    SystemTime::now()
}

#[cfg(not(target_family = "wasm"))]
mod native {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::{Level, SystemTime};

    /// Stands in for a runner.
    pub(crate) trait Host {
        /// Takes a line of the log.
        fn log(&self, level: Level, message: &str);

        /// What time it is.
        fn now(&self) -> SystemTime;
    }

    thread_local! {
        static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
    }

    /// Puts the former host back when a run ends, also by a panic.
    struct Former(Option<Rc<dyn Host>>);

    impl Drop for Former {
        fn drop(&mut self) {
            HOST.with_borrow_mut(|host| *host = self.0.take());
        }
    }

    /// Runs `work` with `host` as this thread's host.
    pub(crate) fn entered<T>(host: Rc<dyn Host>, work: impl FnOnce() -> T) -> T {
        let _former = Former(HOST.with_borrow_mut(|current| current.replace(host)));
        work()
    }

    pub(crate) fn with_host<T>(call: impl FnOnce(&dyn Host) -> T) -> Option<T> {
        let host = HOST.with_borrow(Option::clone)?;
        Some(call(host.as_ref()))
    }

    pub(crate) fn log(level: Level, message: &str) {
        with_host(|host| host.log(level, message));
    }
}
