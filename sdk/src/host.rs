//! The calls out of a handler: to the runner in a module, to a test host natively.
//!
//! The generated bindings cannot be called outside WebAssembly, so natively every call goes to the
//! [`Host`] of this thread. Without one, log lines and progress go nowhere, the clock is the system's, and everything else is
//! unavailable.

use std::time::SystemTime;

#[cfg(not(target_family = "wasm"))]
use crate::http::{HttpError, Response, Sent};
#[cfg(not(target_family = "wasm"))]
use crate::{Refused, enqueue::NewJob, log::Level};

#[cfg(target_family = "wasm")]
pub(crate) use crate::guest::{
    enqueue, is_cancelled, log, progress, secret, state_delete, state_get, state_increment, state_set,
};
#[cfg(target_family = "wasm")]
pub(crate) use crate::http::exchange as http;
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{
    Host, enqueue, entered, http, is_cancelled, log, progress, secret, state_delete, state_get,
    state_increment, state_set,
};

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

    use super::{HttpError, Level, NewJob, Refused, Response, Sent, SystemTime};

    /// Stands in for a runner.
    pub(crate) trait Host {
        /// Takes a line of the log.
        fn log(&self, level: Level, message: &str);

        /// What time it is.
        fn now(&self) -> SystemTime;

        /// Takes note of how far the job has come.
        fn progress(&self, percent: u8, message: &str);

        /// Whether somebody has cancelled the job.
        fn is_cancelled(&self) -> bool;

        /// A secret's value.
        fn secret(&self, name: &str) -> Result<String, Refused>;

        /// Notes a job, and returns its id.
        fn enqueue(&self, job: NewJob) -> Result<String, Refused>;

        /// The entry's value.
        fn state_get(&self, key: &str) -> Result<Option<Vec<u8>>, Refused>;

        /// Sets an entry, or removes it.
        fn state_put(&self, key: &str, value: Option<&[u8]>) -> Result<(), Refused>;

        /// Adds to an entry.
        fn state_increment(&self, key: &str, by: i64) -> Result<i64, Refused>;

        /// Answers a request.
        fn http(&self, sent: &Sent) -> Result<Response, HttpError>;
    }

    const NOBODY: &str = "no runner is here, and no TestHost::enter around the call";

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

    pub(crate) fn progress(percent: u8, message: &str) {
        with_host(|host| host.progress(percent, message));
    }

    pub(crate) fn is_cancelled() -> bool {
        with_host(|host| host.is_cancelled()).unwrap_or(false)
    }

    pub(crate) fn secret(name: &str) -> Result<String, Refused> {
        asked(|host| host.secret(name))
    }

    pub(crate) fn enqueue(job: NewJob) -> Result<String, Refused> {
        asked(|host| host.enqueue(job))
    }

    pub(crate) fn state_get(key: &str) -> Result<Option<Vec<u8>>, Refused> {
        asked(|host| host.state_get(key))
    }

    pub(crate) fn state_set(key: &str, value: &[u8]) -> Result<(), Refused> {
        asked(|host| host.state_put(key, Some(value)))
    }

    pub(crate) fn state_delete(key: &str) -> Result<(), Refused> {
        asked(|host| host.state_put(key, None))
    }

    pub(crate) fn state_increment(key: &str, by: i64) -> Result<i64, Refused> {
        asked(|host| host.state_increment(key, by))
    }

    pub(crate) fn http(sent: &Sent) -> Result<Response, HttpError> {
        with_host(|host| host.http(sent)).unwrap_or_else(|| Err(HttpError::Connection(NOBODY.to_owned())))
    }

    fn asked<T>(call: impl FnOnce(&dyn Host) -> Result<T, Refused>) -> Result<T, Refused> {
        with_host(call).unwrap_or_else(|| Err(Refused::Unavailable(NOBODY.to_owned())))
    }
}
