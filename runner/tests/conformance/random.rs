//! Random numbers that a seed repeats: small, and the same everywhere.

/// The variable that repeats a run.
pub(crate) const SEED_VARIABLE: &str = "HOURHAND_TEST_SEED";

/// The seed that somebody wants to see again.
pub(crate) fn given_seed() -> Option<u64> {
    std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok())
}

/// A seed that nobody has used.
pub(crate) fn new_seed() -> u64 {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).expect("random bytes");
    // Short enough to be typed.
    u64::from_le_bytes(bytes) >> 24
}

/// xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    /// Seeded anew; the seed is printed.
    pub(crate) fn seeded() -> Self {
        let seed = given_seed().unwrap_or_else(new_seed);
        #[allow(clippy::print_stdout, reason = "whoever sees it fail repeats it with this")]
        {
            println!("{SEED_VARIABLE}={seed}");
        }
        Self::of(seed, 0)
    }

    /// The numbers of one step of a run: what another step took changes nothing here, so that a run is
    /// repeated although the clock never says the same twice.
    pub(crate) fn of(seed: u64, step: u64) -> Self {
        // splitmix64: seeds and steps that are near give numbers that are not.
        let mut mixed = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    /// 0 to `limit - 1`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of some.
    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}
