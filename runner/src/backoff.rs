//! How long a failed job waits before its next attempt. Pure.

/// Exponential backoff with a cap and symmetric jitter: attempt `n` waits
/// `min(base * 2^(n-1), cap)`, then moves by up to `jitter` of itself either way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// What the first retry waits, in milliseconds. 0 retries at once, always.
    pub base_ms: u64,
    /// No retry waits longer than this, in milliseconds, jitter aside.
    pub max_ms: u64,
    /// The largest change by jitter, as a part of the delay: 0.0 to 1.0.
    pub jitter: f64,
}

impl Default for Backoff {
    /// 15 s doubling to 1 h, ±20 %.
    fn default() -> Self {
        Self { base_ms: 15_000, max_ms: 3_600_000, jitter: 0.2 }
    }
}

impl Backoff {
    /// The delay before the attempt that follows `attempt` (counted from 1), in milliseconds, without
    /// jitter. Never decreases with `attempt`, never exceeds `max_ms`.
    pub fn nominal_ms(&self, attempt: u32) -> u64 {
        let doublings = attempt.saturating_sub(1);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.base_ms.saturating_mul(factor).min(self.max_ms)
    }

    /// As [`nominal_ms`](Self::nominal_ms), moved by jitter. `draw` is a uniform number in 0.0..1.0: 0.5
    /// changes nothing. At least 1 ms unless the base is 0.
    pub fn delay_ms(&self, attempt: u32, draw: f64) -> u64 {
        let nominal = self.nominal_ms(attempt);
        if nominal == 0 {
            return 0;
        }
        let spread = (draw.clamp(0.0, 1.0) * 2.0 - 1.0) * self.jitter.clamp(0.0, 1.0);
        ((nominal as f64 * (1.0 + spread)) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninety_nine_delays_grow_to_the_cap_and_stay_there() {
        let backoff = Backoff { base_ms: 1_000, max_ms: 3_600_000, jitter: 0.2 };
        let delays: Vec<u64> = (1..100).map(|n| backoff.nominal_ms(n)).collect();
        assert_eq!(&delays[..4], &[1_000, 2_000, 4_000, 8_000]);
        assert!(delays.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(delays[69], 3_600_000, "attempt 70 neither overflows nor goes negative");
        assert_eq!(backoff.nominal_ms(u32::MAX), 3_600_000);
    }

    #[test]
    fn jitter_stays_inside_its_bounds() {
        let backoff = Backoff { base_ms: 1_000, max_ms: 10_000, jitter: 0.2 };
        assert_eq!(backoff.delay_ms(1, 0.0), 800);
        assert_eq!(backoff.delay_ms(1, 0.5), 1_000);
        assert_eq!(backoff.delay_ms(1, 1.0), 1_200);
    }

    #[test]
    fn a_base_of_zero_retries_at_once_and_a_tiny_one_waits_a_millisecond() {
        let none = Backoff { base_ms: 0, ..Backoff::default() };
        assert_eq!(none.delay_ms(40, 0.9), 0);
        let tiny = Backoff { base_ms: 1, max_ms: 1, jitter: 1.0 };
        assert_eq!(tiny.delay_ms(1, 0.0), 1);
    }
}
