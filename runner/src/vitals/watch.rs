//! Looks at the signs of life again and again: have all loops gone on, and which stands still? Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Sign;
use crate::clock::Monotonic;

/// A loop that stands still for so long is told of: longer than any call to the store may take.
const STILL_MAX: Duration = Duration::from_secs(15);
/// The same for one that is in the hands of the machine.
const OUTSIDE_MAX: Duration = Duration::from_secs(60);
/// It is told of again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What was seen of each loop.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Steps at the last sign of life of the whole; `None` for a loop that was at rest.
    signed: BTreeMap<&'static str, Option<u64>>,
    still: BTreeMap<&'static str, Still>,
}

#[derive(Debug)]
struct Still {
    sign: Sign,
    since: Monotonic,
    said: Option<Monotonic>,
}

/// A loop that stands still, to be told of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stuck {
    pub(crate) name: &'static str,
    pub(crate) since: Duration,
    /// It waits for the machine: a file system, the compiler.
    pub(crate) outside: bool,
}

impl Watch {
    /// Whether every loop has gone on since the last time that this was so, or may stand still. A watched whole that gives no sign
    /// is restarted.
    pub(crate) fn all_went_on(&mut self, signs: &[(&'static str, Sign)]) -> bool {
        let steps = |sign: &Sign| match sign {
            Sign::Steps(steps) => Some(*steps),
            Sign::AtRest | Sign::Outside(_) => None,
        };
        let stuck = signs.iter().any(|(name, sign)| {
            steps(sign).is_some_and(|now| self.signed.get(name).copied().flatten() == Some(now))
        });
        if stuck {
            // One that rests has all of its next time.
            for (name, sign) in signs.iter().filter(|(_, sign)| steps(sign).is_none()) {
                self.signed.insert(name, steps(sign));
            }
        } else {
            self.signed = signs.iter().map(|(name, sign)| (*name, steps(sign))).collect();
        }
        !stuck
    }

    /// Which loops stand still and should be told of now.
    pub(crate) fn stuck(&mut self, signs: &[(&'static str, Sign)], now: Monotonic) -> Vec<Stuck> {
        self.still.retain(|name, _| signs.iter().any(|(it, _)| it == name));
        let mut stuck = Vec::new();
        for &(name, sign) in signs {
            let still = self.still.entry(name).or_insert(Still { sign, since: now, said: None });
            if still.sign != sign {
                *still = Still { sign, since: now, said: None };
            }
            let since = now.duration_since(still.since);
            let (outside, most) = match sign {
                Sign::AtRest => continue,
                Sign::Steps(_) => (false, STILL_MAX),
                Sign::Outside(_) => (true, OUTSIDE_MAX),
            };
            if since >= most && still.said.is_none_or(|said| now.duration_since(said) >= AGAIN_AFTER) {
                still.said = Some(now);
                stuck.push(Stuck { name, since, outside });
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;
    use Sign::{AtRest, Outside, Steps};

    fn three(signs: [Sign; 3]) -> [(&'static str, Sign); 3] {
        [("a", signs[0]), ("b", signs[1]), ("c", signs[2])]
    }

    #[test]
    fn one_loop_that_stands_still_is_enough_to_give_no_sign() {
        for stuck in 0..3 {
            let mut watch = Watch::default();
            assert!(watch.all_went_on(&three([Steps(0); 3])));
            for steps in 1..100 {
                let mut signs = [Steps(steps); 3];
                signs[stuck] = Steps(0);
                assert!(!watch.all_went_on(&three(signs)), "loop {stuck}");
            }
            assert!(watch.all_went_on(&three([Steps(100); 3])), "it was only slow");
        }
    }

    #[test]
    fn a_loop_at_rest_is_not_stuck_and_begins_anew() {
        let mut watch = Watch::default();
        assert!(watch.all_went_on(&three([Steps(1), Steps(1), Steps(5)])));
        assert!(watch.all_went_on(&three([Steps(2), Steps(2), AtRest])));
        assert!(watch.all_went_on(&three([Steps(3), Steps(3), Steps(5)])), "new work, a moment ago");
        assert!(!watch.all_went_on(&three([Steps(4), Steps(4), Steps(5)])));
        assert!(!watch.all_went_on(&three([Steps(3), Steps(9), AtRest])), "another one is stuck");
        assert!(watch.all_went_on(&three([AtRest, Outside(9), Steps(5)])));
        assert!(watch.all_went_on(&[("d", Steps(0))]), "others came in their place");
        assert!(!watch.all_went_on(&[("d", Steps(0))]));
    }

    #[test]
    fn one_that_stands_still_is_told_of_after_a_while_and_now_and_then() {
        let (mut watch, start) = (Watch::default(), monotonic());
        let mut said = Vec::new();
        for second in 0..=200u64 {
            let signs = three([Steps(second), if second < 100 { Steps(7) } else { AtRest }, Outside(3)]);
            let now = start + Duration::from_secs(second);
            said.extend(watch.stuck(&signs, now).into_iter().map(|it| (second, it.name, it.outside)));
        }
        assert_eq!(
            said,
            [(15, "b", false), (60, "c", true), (75, "b", false), (120, "c", true), (180, "c", true)]
        );
    }
}
