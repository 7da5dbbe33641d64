//! Waiting for something to become true, with a deadline and a message.

use std::time::{Duration, Instant};

/// Looks every 10 ms until `found` gives something.
///
/// # Panics
/// With `what` when it has not after `within`.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut found: impl FnMut() -> Option<T>) -> T {
    #[allow(clippy::disallowed_methods, reason = "a test's own deadline")]
    let start = Instant::now();
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(start.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
