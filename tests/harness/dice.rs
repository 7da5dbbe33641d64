//! Random numbers that a seed decides, so that what has failed once can be repeated.

use std::ops::RangeInclusive;

/// The seed of a scenario: `HOURHAND_TEST_SEED`, or a new one. Printed either way.
#[allow(clippy::print_stdout, reason = "a test's seed")]
pub fn seed() -> u64 {
    let given = std::env::var("HOURHAND_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| getrandom::u64().expect("random numbers"));
    println!("HOURHAND_TEST_SEED={seed}");
    seed
}

/// A generator: splitmix64.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator that the same seed decides.
    pub fn apart(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `below`, which is above 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }

    /// A number of the range.
    pub fn of(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}
