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

/// The clocks of a machine, as the embedded store needs them: tests set them by hand.
pub trait HostClock: Send + Sync + 'static {
    /// The wall clock, in microseconds since 1970 (UTC).
    fn wall_us(&self) -> u64;
    /// Time since the machine started, sleep included, in microseconds: the same for all its programs, and
    /// never set.
    fn boot_us(&self) -> u64;
    /// Names the boot that [`boot_us`](Self::boot_us) counts from.
    fn boot_id(&self) -> &str;
}

/// The name of a boot that the system does not tell.
pub(crate) const BOOT_UNKNOWN: &str = "unknown";

/// This machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl HostClock for SystemClock {
    fn wall_us(&self) -> u64 {
        wall_us()
    }

    fn boot_us(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a timespec of ours, which the call fills.
        if unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) } != 0 {
            return 0;
        }
        time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
    }

    fn boot_id(&self) -> &str {
        static ID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        ID.get_or_init(|| {
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .map_or_else(|_| BOOT_UNKNOWN.to_owned(), |id| id.trim().to_owned())
        })
    }
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

/// The tightest map of the store's clock that its readings allow.
///
/// Each reading was taken between the asking and the arrival of its reply, so it gives a lower and an upper
/// bound. The map follows the highest lower bound, and so never runs ahead of the store; a reply that was
/// slow to arrive does not set it back. A reading whose upper bound is below the map says that the store's
/// clock was set back: the map starts anew from it.
#[derive(Debug, Default)]
pub struct ClockTracker {
    best: Option<StoreClock>,
}

/// Two clocks may drift apart by this part of the time that passes (100 ppm).
const DRIFT: u64 = 10_000;

impl ClockTracker {
    /// Takes in a reading, in microseconds since 1970, and gives the map that it leads to.
    pub fn observe(&mut self, store_us: u64, asked: Monotonic, arrived: Monotonic) -> StoreClock {
        let reading = StoreClock::new(store_us, arrived);
        let under_way_us = arrived.saturating_duration_since(asked).as_micros() as u64;
        let mapped = self.best.map(|best| {
            let age_us = arrived.saturating_duration_since(best.at).as_micros() as u64;
            StoreClock::new(best.us_at(arrived).saturating_sub(age_us / DRIFT), arrived)
        });
        let next = match mapped {
            Some(mapped) if (store_us..=store_us + under_way_us).contains(&mapped.store_us) => mapped,
            _ => reading,
        };
        self.best = Some(next);
        next
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
    fn a_slow_reply_does_not_set_the_map_back_and_a_clock_that_was_set_back_does() {
        let start = monotonic();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut tracker = ClockTracker::default();
        tracker.observe(1_000_100, at(0), at(200));
        // Read at 1,000 by the store, arrived 8 ms later: the map stays where the quick reply put it.
        let map = tracker.observe(1_001_000, at(900), at(9_000));
        assert_eq!(map.us_at(at(9_000)), 1_008_900);
        let map = tracker.observe(1_010_000, at(9_900), at(10_000));
        assert_eq!(map.us_at(at(10_000)), 1_010_000, "a tighter reading moves it on");
        let map = tracker.observe(500_000, at(20_000), at(20_100));
        assert_eq!(map.us_at(at(20_100)), 500_000, "set back");
        let map = tracker.observe(9_000_000, at(30_000), at(30_100));
        assert_eq!(map.us_at(at(30_100)), 9_000_000, "set forward");
    }

    #[test]
    fn a_due_time_a_century_ahead_does_not_overflow() {
        let arrived = monotonic();
        let clock = StoreClock::new(0, arrived);
        assert_eq!(clock.instant_of(u64::MAX), arrived + Duration::from_secs(86_400));
    }
}
