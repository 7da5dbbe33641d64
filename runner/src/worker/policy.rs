//! From what a run ended in to what is to become of its job. Pure.

use bytes::Bytes;

use crate::backoff::Backoff;
use crate::outcome::{MESSAGE_BYTES_MAX, Outcome, RESULT_KEPT_BYTES, RunEnd, capped};

/// Shortest snooze, in milliseconds: a handler that asks for less would spin through the store.
const SNOOZE_MS_MIN: u64 = 1_000;

/// What the retry policy needs to know of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Attempt {
    /// Which one ended, from 1.
    pub(crate) number: u32,
    /// How many there may be.
    pub(crate) max: u32,
    /// How long the next one waits.
    pub(crate) backoff: Backoff,
    /// Keep results above [`RESULT_KEPT_BYTES`].
    pub(crate) keep_results: bool,
}

/// Decides. `draw` gives a uniform number in 0.0..1.0 for the jitter.
pub(crate) fn decide(end: RunEnd, attempt: Attempt, draw: impl FnOnce() -> f64) -> Outcome {
    match end {
        RunEnd::Completed(result) => Outcome::Completed { result: kept(result, attempt.keep_results) },
        RunEnd::Failed { reason, message, .. } if attempt.number >= attempt.max => {
            Outcome::Dead { reason, message: capped(message, MESSAGE_BYTES_MAX) }
        }
        RunEnd::Failed { reason, message, after_ms } => Outcome::Retry {
            reason,
            message: capped(message, MESSAGE_BYTES_MAX),
            delay_ms: after_ms
                .unwrap_or_else(|| attempt.backoff.delay_ms(attempt.number, draw()))
                .min(crate::job::DELAY_MS_MAX),
        },
        RunEnd::Permanent { reason, message } => {
            Outcome::Dead { reason, message: capped(message, MESSAGE_BYTES_MAX) }
        }
        RunEnd::Snoozed(ms) => {
            Outcome::Snoozed { delay_ms: ms.clamp(SNOOZE_MS_MIN, crate::job::DELAY_MS_MAX) }
        }
        RunEnd::Released(message) | RunEnd::NoRoom(message) => {
            Outcome::Released { message: Some(capped(message, MESSAGE_BYTES_MAX)) }
        }
        RunEnd::Cancelled => Outcome::Cancelled,
    }
}

/// The result as the record keeps it: none when it is empty, or large and not asked for.
fn kept(result: Bytes, keep_large: bool) -> Option<Bytes> {
    let fits = keep_large || result.len() <= RESULT_KEPT_BYTES;
    (!result.is_empty() && fits).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    fn attempt(number: u32, max: u32) -> Attempt {
        let backoff = Backoff { base_ms: 1_000, max_ms: 60_000, jitter: 0.0 };
        Attempt { number, max, backoff, keep_results: false }
    }

    fn failed(after_ms: Option<u64>) -> RunEnd {
        RunEnd::Failed { reason: Reason::Error, message: "no".to_owned(), after_ms }
    }

    #[test]
    fn a_failure_is_tried_again_by_the_backoff_until_attempts_are_used_up() {
        let retry = |delay_ms| Outcome::Retry { reason: Reason::Error, message: "no".to_owned(), delay_ms };
        assert_eq!(decide(failed(None), attempt(1, 3), || 0.5), retry(1_000));
        assert_eq!(decide(failed(None), attempt(2, 3), || 0.5), retry(2_000));
        assert_eq!(
            decide(failed(None), attempt(3, 3), || 0.5),
            Outcome::Dead { reason: Reason::Error, message: "no".to_owned() }
        );
    }

    #[test]
    fn a_delay_that_the_handler_names_goes_before_the_backoff() {
        assert!(matches!(decide(failed(Some(7)), attempt(1, 3), || 0.5), Outcome::Retry { delay_ms: 7, .. }));
    }

    #[test]
    fn a_permanent_failure_never_retries() {
        let end = RunEnd::Permanent { reason: Reason::Decode, message: "bad".to_owned() };
        assert!(matches!(decide(end, attempt(1, 10), || 0.5), Outcome::Dead { reason: Reason::Decode, .. }));
    }

    #[test]
    fn a_snooze_is_a_second_at_least() {
        assert_eq!(decide(RunEnd::Snoozed(0), attempt(1, 1), || 0.5), Outcome::Snoozed { delay_ms: 1_000 });
    }

    #[test]
    fn a_large_result_is_kept_only_if_the_kind_asks() {
        let large = RunEnd::Completed(Bytes::from(vec![7; RESULT_KEPT_BYTES + 1]));
        assert_eq!(decide(large.clone(), attempt(1, 1), || 0.5), Outcome::Completed { result: None });
        let asks = Attempt { keep_results: true, ..attempt(1, 1) };
        assert!(matches!(decide(large, asks, || 0.5), Outcome::Completed { result: Some(_) }));
        let exact = RunEnd::Completed(Bytes::from(vec![7; RESULT_KEPT_BYTES]));
        assert!(matches!(decide(exact, attempt(1, 1), || 0.5), Outcome::Completed { result: Some(_) }));
    }
}
