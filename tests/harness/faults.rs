//! Plans of timed faults that a seed decides, and how large a scenario is.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::dice::Dice;

/// Whether scenarios run at the size that is asked of the product: `HOURHAND_TEST_FAULTS=full`. A test among many is smaller.
pub fn full() -> bool {
    std::env::var("HOURHAND_TEST_FAULTS").is_ok_and(|size| size == "full")
}

/// The first, or at full size the second.
pub fn sized<T>(small: T, large: T) -> T {
    if full() { large } else { small }
}

/// What is done, each after a pause since the one before was over.
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
        let steps: Vec<_> =
            (0..count).map(|_| (Duration::from_millis(dice.of(pause_ms.clone())), fault(dice))).collect();
        let shown: Vec<String> = steps
            .iter()
            .take(12)
            .map(|(pause, fault)| format!("{} ms {fault:?}", pause.as_millis()))
            .collect();
        println!("plan of {count} faults: {}{}", shown.join(", "), if count > 12 { ", …" } else { "" });
        Self(steps)
    }

    /// Does them.
    pub fn run(self, mut act: impl FnMut(F)) {
        for (pause, fault) in self.0 {
            std::thread::sleep(pause);
            act(fault);
        }
    }
}
