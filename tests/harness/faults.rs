//! Plans of timed faults that a seed decides, and how large a scenario is.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use hourhand::clock::monotonic;

use super::dice::Dice;

/// Whether scenarios run at the size that is asked of the product: `HOURHAND_TEST_FAULTS=full`. A test among many is smaller.
pub fn full() -> bool {
    std::env::var("HOURHAND_TEST_FAULTS").is_ok_and(|size| size == "full")
}

/// The first, or at full size the second.
pub fn sized<T>(small: T, large: T) -> T {
    if full() { large } else { small }
}

/// What is done when, counted from its start.
#[derive(Debug)]
pub struct Plan<F>(Vec<(Duration, F)>);

impl<F: Debug> Plan<F> {
    /// So many faults, each a pause of so many milliseconds after the one before. Printed.
    #[allow(clippy::print_stdout, reason = "a test's plan")]
    pub fn draw(
        dice: &mut Dice,
        count: u64,
        pause_ms: RangeInclusive<u64>,
        mut fault: impl FnMut(&mut Dice) -> F,
    ) -> Self {
        let mut at = Duration::ZERO;
        let mut steps = Vec::new();
        for _ in 0..count {
            at += Duration::from_millis(dice.of(pause_ms.clone()));
            steps.push((at, fault(dice)));
        }
        let shown: Vec<String> =
            steps.iter().take(12).map(|(at, fault)| format!("{} ms {fault:?}", at.as_millis())).collect();
        println!("plan of {count} faults: {}{}", shown.join(", "), if count > 12 { ", …" } else { "" });
        Self(steps)
    }

    /// Does each at its time, or as soon as the one before is done.
    pub fn run(self, mut act: impl FnMut(F)) {
        let start = monotonic();
        for (at, fault) in self.0 {
            std::thread::sleep((start + at).saturating_duration_since(monotonic()));
            act(fault);
        }
    }
}
