//! The only place that reads time.
//!
//! Durations and deadlines come from [`Monotonic`]; wall time is for people (log lines, the
//! guest's deadline, resolving `--at tomorrow`) and is never compared with a due time: due
//! times belong to the store's clock, which [`StoreClock`] maps onto the monotonic one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant on this process's monotonic clock.
pub type Monotonic = Instant;

/// Now, on the monotonic clock.
#[allow(clippy::disallowed_methods, reason = "the one reader of the monotonic clock")]
pub fn monotonic() -> Monotonic {
    Instant::now()
}

/// Now, on this machine's wall clock, in microseconds since 1970 (UTC). 0 before 1970.
#[allow(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
pub fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Now, on this machine's wall clock, in milliseconds since 1970 (UTC).
pub fn wall_ms() -> u64 {
    wall_us() / 1_000
}

/// The store's clock as seen from here: a reading of it, tied to the monotonic instant at which the
/// reply carrying it arrived.
///
/// The reading was taken before the reply arrived, so this clock never runs ahead of the store's
/// (rule 3: never early); it lags by at most the reply's travel time.
#[derive(Debug, Clone, Copy)]
pub struct StoreClock {
    store_us: u64,
    at: Monotonic,
}

impl StoreClock {
    /// `store_us` is what the store's clock said, in microseconds since 1970; `arrived` is when we
    /// learnt it.
    pub fn new(store_us: u64, arrived: Monotonic) -> Self {
        Self { store_us, at: arrived }
    }

    /// What the store's clock says at `instant`, at the latest, in microseconds since 1970.
    pub fn us_at(&self, instant: Monotonic) -> u64 {
        match instant.checked_duration_since(self.at) {
            Some(after) => self.store_us.saturating_add(after.as_micros() as u64),
            None => self.store_us.saturating_sub(self.at.duration_since(instant).as_micros() as u64),
        }
    }

    /// What the store's clock says now, in microseconds since 1970.
    pub fn now_us(&self) -> u64 {
        self.us_at(monotonic())
    }

    /// The first instant at which the store's clock is sure to have reached `due_ms`
    /// (milliseconds since 1970). Far due times are capped at a day from the reading: ask again then.
    pub fn instant_of(&self, due_ms: u64) -> Monotonic {
        let ahead_us = due_ms.saturating_mul(1_000).saturating_sub(self.store_us);
        self.at + Duration::from_micros(ahead_us.min(DAY_US))
    }
}

const DAY_US: u64 = 24 * 3_600 * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_maps_to_the_instant_at_which_the_store_has_reached_it() {
        let arrived = monotonic();
        let clock = StoreClock::new(5_000_000, arrived);
        assert_eq!(clock.instant_of(5_250), arrived + Duration::from_millis(250));
        assert_eq!(clock.instant_of(4_000), arrived, "a past due time is now");
        assert_eq!(clock.us_at(arrived + Duration::from_micros(7)), 5_000_007);
        assert_eq!(clock.us_at(arrived), 5_000_000);
    }

    #[test]
    fn a_due_time_a_century_ahead_does_not_overflow() {
        let arrived = monotonic();
        let clock = StoreClock::new(0, arrived);
        assert_eq!(clock.instant_of(u64::MAX), arrived + Duration::from_secs(86_400));
    }
}
