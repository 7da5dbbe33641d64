//! Short names for spans of time: `Failure::snooze(minutes(5))`.

use std::time::Duration;

/// So many milliseconds.
pub const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// So many seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// So many minutes; the longest span there is when they are more than fit.
///
/// ```
/// assert_eq!(hourhand_sdk::minutes(5), hourhand_sdk::seconds(300));
/// ```
pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(60))
}

/// So many hours; the longest span there is when they are more than fit.
pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count.saturating_mul(3_600))
}
