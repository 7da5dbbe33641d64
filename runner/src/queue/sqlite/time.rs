//! The store's clock: the time since the boot plus an anchor that all programs on the file share (rule 3).
//!
//! A step of the wall clock changes nothing. Only when the two have disagreed by over a second for a minute is the wall
//! clock believed, and after a boot, when there is nothing else to believe.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension};

use crate::clock::HostClock;

/// A disagreement up to this is none, in microseconds.
const TOLERANCE_US: u64 = 1_000_000;
/// A disagreement counts after so long, in microseconds.
const BELIEVED_AFTER_US: u64 = 60_000_000;
/// Two readings so close to each other are one, in microseconds; and how often that is tried.
const APART_US: u64 = 50;
const READINGS: usize = 8;

/// Reads the store's clock.
pub(super) struct StoreTime {
    clock: Arc<dyn HostClock>,
    /// Since when the wall clock disagrees, in microseconds since the boot.
    disagrees_since: Mutex<Option<u64>>,
    /// What the last transaction added to the time since the boot.
    offset_us: AtomicI64,
}

impl StoreTime {
    pub(super) fn new(clock: Arc<dyn HostClock>) -> Self {
        Self { clock, disagrees_since: Mutex::new(None), offset_us: AtomicI64::new(0) }
    }

    /// Now, in microseconds since 1970, by the anchor of the last transaction: what a caller learns at the end of a call, when
    /// its commit has waited for the disk.
    pub(super) fn latest_us(&self) -> u64 {
        self.clock.boot_us().saturating_add_signed(self.offset_us.load(Relaxed))
    }

    /// Now, in microseconds since 1970; within a transaction. One that writes keeps the anchor.
    pub(super) fn now_us(&self, connection: &Connection, writing: bool) -> rusqlite::Result<u64> {
        let boot = self.clock.boot_id();
        let (boot_us, wall_us) = self.both();
        let anchor: Option<(String, i64)> = connection
            .prepare_cached("SELECT boot, offset_us FROM clock WHERE one = 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let anchored =
            anchor.filter(|(of, _)| *of == boot).map(|(_, offset)| boot_us.saturating_add_signed(offset));
        let now_us = match anchored {
            Some(now_us) if !writing || !self.is_wrong(now_us, wall_us, boot_us) => now_us,
            _ => {
                if writing {
                    connection
                        .prepare_cached("INSERT OR REPLACE INTO clock VALUES (1, ?1, ?2)")?
                        .execute((boot, wall_us as i64 - boot_us as i64))?;
                }
                wall_us
            }
        };
        self.offset_us.store(now_us as i64 - boot_us as i64, Relaxed);
        Ok(now_us)
    }

    /// Both clocks at one moment: what comes between the two readings would stay in the anchor.
    fn both(&self) -> (u64, u64) {
        let reading = || {
            let (before, wall_us, after) = (self.clock.boot_us(), self.clock.wall_us(), self.clock.boot_us());
            let apart_us = after.saturating_sub(before);
            (apart_us, before + apart_us / 2, wall_us)
        };
        let mut best = reading();
        for _ in 1..READINGS {
            if best.0 <= APART_US {
                break;
            }
            best = best.min(reading());
        }
        (best.1, best.2)
    }

    /// Whether the wall clock has disagreed long enough.
    fn is_wrong(&self, now_us: u64, wall_us: u64, boot_us: u64) -> bool {
        let mut since = self.disagrees_since.lock();
        if now_us.abs_diff(wall_us) <= TOLERANCE_US {
            *since = None;
            return false;
        }
        let began = *since.get_or_insert(boot_us);
        if boot_us.saturating_sub(began) < BELIEVED_AFTER_US {
            return false;
        }
        *since = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// A machine whose clocks are set by hand: wall and boot, in microseconds.
    #[derive(Default)]
    struct Hands(AtomicU64, AtomicU64);

    impl HostClock for Hands {
        fn wall_us(&self) -> u64 {
            self.0.load(Relaxed)
        }
        fn boot_us(&self) -> u64 {
            self.1.load(Relaxed)
        }
        fn boot_id(&self) -> &str {
            "this boot"
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_counts_only_after_a_minute() {
        let hands = Arc::new(Hands::default());
        let set = |wall: u64, boot: u64| {
            hands.0.store(wall * 1_000_000, Relaxed);
            hands.1.store(boot * 1_000_000, Relaxed);
        };
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(include_str!("schema.sql")).expect("tables");
        let time = StoreTime::new(hands.clone());
        let now = || time.now_us(&connection, true).expect("a time") / 1_000_000;
        set(1_000, 10);
        assert_eq!(now(), 1_000);
        set(5_000, 20);
        assert_eq!(now(), 1_010, "stepped forward");
        set(5_050, 70);
        assert_eq!(now(), 1_060, "not for a minute yet");
        set(1_065, 75);
        assert_eq!(now(), 1_065, "and back");
        set(500, 80);
        assert_eq!(now(), 1_070, "stepped back");
        set(559, 139);
        assert_eq!(now(), 1_129);
        set(561, 141);
        assert_eq!(now(), 561, "for over a minute");
        let other = StoreTime::new(hands.clone());
        set(9_000, 150);
        assert_eq!(
            other.now_us(&connection, false).expect("a time") / 1_000_000,
            570,
            "the anchor is shared"
        );
        connection.execute("UPDATE clock SET boot = 'another'", []).expect("written");
        assert_eq!(now(), 9_000, "after a boot the wall clock is all there is");
    }

    /// A machine that stops for 30 ms after each of the first readings of its wall clock.
    #[derive(Default)]
    struct Busy {
        boot: AtomicU64,
        readings: AtomicU64,
    }

    impl HostClock for Busy {
        fn wall_us(&self) -> u64 {
            let wall = 7_000_000 + self.boot.load(Relaxed);
            if self.readings.fetch_add(1, Relaxed) < 3 {
                self.boot.fetch_add(30_000, Relaxed);
            }
            wall
        }
        fn boot_us(&self) -> u64 {
            self.boot.load(Relaxed)
        }
        fn boot_id(&self) -> &str {
            "this boot"
        }
    }

    #[test]
    fn a_machine_that_is_busy_does_not_move_the_anchor() {
        let connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch(include_str!("schema.sql")).expect("tables");
        StoreTime::new(Arc::new(Busy::default())).now_us(&connection, true).expect("a time");
        let offset: u64 =
            connection.query_row("SELECT offset_us FROM clock", [], |row| row.get(0)).expect("an anchor");
        assert_eq!(offset, 7_000_000);
    }
}
