//! A moment that is known to lie between two readings of the store's clock.

use anyhow::{Result, ensure};

/// Both ends are included. The unit is that of whoever has it: milliseconds for due times, microseconds
/// for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

impl Window {
    pub(crate) fn exact(at: u64) -> Self {
        Self { lo: at, hi: at }
    }

    /// Between two readings, in whatever order they are: a clock may be set back.
    pub(crate) fn between(one: u64, other: u64) -> Self {
        Self { lo: one.min(other), hi: one.max(other) }
    }

    pub(crate) fn plus(self, ahead: u64) -> Self {
        Self { lo: self.lo.saturating_add(ahead), hi: self.hi.saturating_add(ahead) }
    }

    pub(crate) fn minus(self, back: u64) -> Self {
        Self { lo: self.lo.saturating_sub(back), hi: self.hi.saturating_sub(back) }
    }

    /// A window in milliseconds as one in microseconds.
    pub(crate) fn micros(self) -> Self {
        Self { lo: self.lo * 1_000, hi: self.hi * 1_000 + 999 }
    }

    pub(crate) fn holds(self, at: u64) -> bool {
        (self.lo..=self.hi).contains(&at)
    }

    /// Whether `at` has come; `None` when that depends on where in the window the moment is.
    pub(crate) fn reached(self, at: u64) -> Option<bool> {
        if at <= self.lo {
            Some(true)
        } else if at > self.hi {
            Some(false)
        } else {
            None
        }
    }

    /// Takes in what the store says the moment was.
    pub(crate) fn pin(&mut self, what: &str, at: u64) -> Result<()> {
        ensure!(self.holds(at), "{what} is {at}, and not in {self:?}");
        *self = Self::exact(at);
        Ok(())
    }

    /// The window in parts, within each of which every one of `marks` has either come or not.
    pub(crate) fn parts(self, marks: impl Iterator<Item = u64>) -> Vec<Self> {
        let mut cuts: Vec<u64> = marks.filter(|at| self.reached(*at).is_none()).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts = Vec::with_capacity(cuts.len() + 1);
        let mut lo = self.lo;
        for cut in cuts {
            parts.push(Self { lo, hi: cut - 1 });
            lo = cut;
        }
        parts.push(Self { lo, hi: self.hi });
        parts
    }
}
