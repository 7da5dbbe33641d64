//! Claims that are on their way: one of the claim loop, and one beside it while more is ready than one claim brings.

use parking_lot::Mutex;

/// Whose a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The claim loop's.
    Loop,
    /// The one beside it.
    Beside,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Flights(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    next_token: u64,
    flights: [Option<Flight>; 2],
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    first_token: u64,
    /// Due jobs that it may bring: their slots are spoken for.
    asked: usize,
}

/// A claim that may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) due_max: usize,
    pub(super) first_token: u64,
}

impl Default for Flights {
    fn default() -> Self {
        Self(Mutex::new(Inner { next_token: 1, flights: [None; 2] }))
    }
}

impl Flights {
    /// A claim begins that uses up to so many tokens. `due_max` says how many due jobs it asks for, given how many the other one may
    /// bring; nothing begins where that is none.
    pub(super) fn begin(&self, who: Who, tokens: u64, due_max: impl FnOnce(usize) -> usize) -> Option<Begun> {
        let mut inner = self.0.lock();
        let asked = due_max(inner.flights.iter().flatten().map(|flight| flight.asked).sum());
        if asked == 0 {
            return None;
        }
        let first_token = inner.next_token;
        inner.next_token += tokens;
        inner.flights[who as usize] = Some(Flight { first_token, asked });
        Some(Begun { due_max: asked, first_token })
    }

    /// It has ended, and what it brought is in the hand.
    pub(super) fn end(&self, who: Who) {
        self.0.lock().flights[who as usize] = None;
    }

    /// Whether any is on its way.
    pub(super) fn any(&self) -> bool {
        self.0.lock().flights.iter().any(Option::is_some)
    }

    /// Whether a claim that has ended used this token.
    pub(super) fn are_over_with(&self, token: u64) -> bool {
        let inner = self.0.lock();
        let flying = inner.flights.iter().flatten().map(|flight| flight.first_token).min();
        token < flying.unwrap_or(inner.next_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_over_when_no_claim_before_it_is_on_its_way() {
        let flights = Flights::default();
        let begin = |who| flights.begin(who, 500, |_| 9).map(|begun| begun.first_token);
        assert_eq!((begin(Who::Loop), begin(Who::Beside)), (Some(1), Some(501)));
        assert!(!flights.are_over_with(1) && flights.are_over_with(0));
        flights.end(Who::Beside);
        assert!(!flights.are_over_with(501), "the older one may not have ended");
        assert_eq!(begin(Who::Beside), Some(1_001));
        flights.end(Who::Loop);
        assert!(flights.are_over_with(501) && flights.are_over_with(1_000) && !flights.are_over_with(1_001));
        assert!(flights.any());
        flights.end(Who::Beside);
        assert!(flights.are_over_with(1_500) && !flights.are_over_with(1_501) && !flights.any());
    }

    #[test]
    fn slots_are_spoken_for_once() {
        let flights = Flights::default();
        let begin = |who| flights.begin(who, 500, |asked| 10_usize.saturating_sub(asked).min(7));
        assert_eq!(begin(Who::Loop), Some(Begun { due_max: 7, first_token: 1 }));
        assert_eq!(begin(Who::Beside), Some(Begun { due_max: 3, first_token: 501 }));
        flights.end(Who::Loop);
        assert_eq!(begin(Who::Loop), Some(Begun { due_max: 7, first_token: 1_001 }));
        flights.end(Who::Beside);
        assert_eq!(flights.begin(Who::Beside, 500, |asked| asked - 7), None, "nothing begins");
    }
}
