//! What [`Store::examine`](super::Store::examine) tells: how the server, or the file and its disk, is set up and doing.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::checks::random_text;
use super::{ClaimRequest, Finding, Lane, LaneClaim, SessionId, Severity, Store, StoreError};
use crate::clock::monotonic;
use crate::names::Name;

/// The store's clock differs from this machine's when it does so by more than this, in milliseconds.
const CLOCK_DIFFERENCE_MS: f64 = 1_000.0;
/// A claim takes long when it takes longer than this beyond the round trip, in milliseconds (rule 6).
const CLAIM_MS_MAX: f64 = 5.0;
/// How often calls are timed.
pub(super) const CALLS_TIMED: usize = 20;
/// How often a claim is timed.
const CLAIMS_TIMED: usize = 10;

/// What was measured, and what is to be said about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Examination {
    /// In the order in which people should read them.
    pub facts: Facts,
    /// What is wrong or unwise.
    pub findings: Vec<Finding>,
}

/// Measured values by name. A name ends in its unit, `_ms` or `_bytes`, where it has one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts(pub Vec<(&'static str, Value)>);

/// A measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A word or a sentence.
    Text(String),
    /// A count or a size.
    Number(u64),
    /// A time or a difference, with a fraction.
    Decimal(f64),
}

impl Examination {
    /// Takes note of something that the store does not do (`what`), where what was found so far tells why.
    ///
    /// # Errors
    /// The error, when nothing tells why: the store is away, or may work later.
    pub fn explain(&mut self, error: StoreError, what: &str, place: &str) -> Result<(), StoreError> {
        let explained = match &error {
            StoreError::Unreachable(_) => false,
            StoreError::Refused(_) => true,
            _ => self.findings.iter().any(Finding::is_open_error),
        };
        if !explained {
            return Err(error);
        }
        let text = match &error {
            StoreError::Refused(text) | StoreError::NotReady(text) | StoreError::Full(text) => text.clone(),
            error => error.to_string(),
        };
        let text = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
        let fix = "mend what else is found here, and look again";
        let message = format!("{what}: {text}");
        self.findings.push(Finding::around("access", Severity::Error, place, message, fix));
        Ok(())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Decimal((number * 1_000.0).round() / 1_000.0)
    }
}

impl Facts {
    /// Adds a fact.
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, value.into()));
    }

    /// Adds a fact, if it is known.
    pub(super) fn add_known(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        self.0.extend(value.map(|value| (name, value.into())));
    }

    /// A fact by name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// How long calls took, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) median_ms: f64,
    pub(super) max_ms: f64,
}

impl Spread {
    pub(super) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let ms = |took: Option<&Duration>| took.map_or(0.0, |took| took.as_secs_f64() * 1_000.0);
        Self { median_ms: ms(took.get(took.len() / 2)), max_ms: ms(took.last()) }
    }
}

/// A comparison of the store's clock with this machine's, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ClockSeen {
    /// How far the store is ahead of this machine; negative when it is behind.
    pub(super) ahead_ms: f64,
    /// The truth is no farther than this from it.
    pub(super) uncertainty_ms: f64,
}

/// What was measured from here, whatever the store.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Measures {
    pub(super) clock: ClockSeen,
    /// The quickest way there and back that changes nothing that matters.
    pub(super) round_trip: Spread,
    /// The claim of an empty lane, by the way of a runner's.
    pub(super) claim: Spread,
}

impl Measures {
    /// What they are, for people and programs.
    pub(super) fn tell(&self, facts: &mut Facts) {
        facts.add("clock_difference_ms", self.clock.ahead_ms);
        facts.add("clock_uncertainty_ms", self.clock.uncertainty_ms);
        facts.add("round_trip_median_ms", self.round_trip.median_ms);
        facts.add("round_trip_max_ms", self.round_trip.max_ms);
        facts.add("claim_median_ms", self.claim.median_ms);
        facts.add("claim_max_ms", self.claim.max_ms);
    }

    /// What is to be said about them. `round_trip_ms_max` is what the store should be quicker than; `slow` is what to do when
    /// it is not.
    pub(super) fn judge(&self, place: &str, round_trip_ms_max: f64, slow: &str) -> Vec<Finding> {
        let warning = |check, message: String, fix: &str| {
            Finding::around(check, Severity::Warning, place, message, fix)
        };
        let mut found = Vec::new();
        let apart_ms = self.clock.ahead_ms.abs();
        if apart_ms - self.clock.uncertainty_ms > CLOCK_DIFFERENCE_MS {
            let way = if self.clock.ahead_ms > 0.0 { "ahead of" } else { "behind" };
            found.push(warning(
                "clock",
                format!(
                    "its clock is {:.1} s {way} this machine's, and due times are by its clock: what is enqueued for an \
                     instant runs so much off",
                    apart_ms / 1_000.0
                ),
                "let both machines keep their time by NTP (`timedatectl set-ntp true`)",
            ));
        }
        if self.round_trip.median_ms > round_trip_ms_max {
            found.push(warning(
                "round-trip",
                format!(
                    "a call takes {:.1} ms and back: over {round_trip_ms_max} ms jobs start late and throughput falls",
                    self.round_trip.median_ms
                ),
                slow,
            ));
        }
        let claim_ms = (self.claim.median_ms - self.round_trip.median_ms).max(0.0);
        if claim_ms > CLAIM_MS_MAX {
            found.push(warning(
                "claim-latency",
                format!(
                    "a claim takes {claim_ms:.1} ms beyond the way there and back: over {CLAIM_MS_MAX} ms jobs start late"
                ),
                "look what else keeps the store busy: slow commands of others, swapping, a machine without free CPU",
            ));
        }
        found
    }
}

/// Times the real claim: of a lane that nobody can have named, for a session that nobody has. It takes nothing, and
/// leaves nothing behind.
pub(super) async fn time_claims(store: &dyn Store) -> Result<Spread, StoreError> {
    let mark = random_text(20)?;
    let name = |text: &str| Name::new(text).map_err(|error| StoreError::Invalid(error.to_string()));
    let lane = Lane { queue: name(&format!("doctor.{mark}"))?, kind: name("doctor")? };
    let request = ClaimRequest {
        session: SessionId(format!("doctor-{mark}").into()),
        lanes: vec![LaneClaim::new(lane, 1)],
        due_max: 1,
        ahead_max: 1,
        look_ahead_ms: 2,
        suspect: true,
        first_token: 1,
        beat: 0,
    };
    // The store may have to learn the script first.
    store.claim(&request).await?;
    let mut took = Vec::with_capacity(CLAIMS_TIMED);
    for _ in 0..CLAIMS_TIMED {
        let asked = monotonic();
        store.claim(&request).await?;
        took.push(monotonic().saturating_duration_since(asked));
    }
    Ok(Spread::of(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ahead_ms: f64, uncertainty_ms: f64, round_trip_ms: f64, claim_ms: f64) -> Vec<&'static str> {
        let spread = |ms| Spread { median_ms: ms, max_ms: 10.0 * ms };
        let measures = Measures {
            clock: ClockSeen { ahead_ms, uncertainty_ms },
            round_trip: spread(round_trip_ms),
            claim: spread(claim_ms),
        };
        measures.judge("there", 10.0, "move").into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn what_was_measured_is_judged_by_the_middle_and_with_its_doubt() {
        assert_eq!(measured(900.0, 0.0, 1.0, 5.9), [""; 0]);
        assert_eq!(measured(-1_500.0, 0.2, 9.9, 9.9), ["clock"]);
        assert_eq!(measured(1_500.0, 600.0, 11.0, 11.0), ["round-trip"], "the difference may be the way");
        assert_eq!(measured(0.0, 0.0, 0.5, 5.6), ["claim-latency"]);
        assert_eq!(measured(0.0, 0.0, 20.0, 24.0), ["round-trip"], "the way is no part of the claim");
    }

    #[test]
    fn a_spread_has_its_middle_and_its_end() {
        let ms = Duration::from_millis;
        assert_eq!(Spread::of(vec![ms(9), ms(1), ms(2)]), Spread { median_ms: 2.0, max_ms: 9.0 });
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }

    #[test]
    fn facts_are_an_object_in_their_order() {
        let mut facts = Facts::default();
        facts.add("version", "7.0");
        facts.add("keys", 3u64);
        facts.add_known("claim_ms", Some(0.123_456));
        facts.add_known("unknown", None::<u64>);
        let text = serde_json::to_string(&facts).expect("JSON");
        assert_eq!(text, r#"{"version":"7.0","keys":3,"claim_ms":0.123}"#);
        assert_eq!(facts.get("keys"), Some(&Value::Number(3)));
    }
}
