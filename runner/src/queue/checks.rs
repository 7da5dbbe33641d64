//! What every store checks before it takes anything, and the ids that stores make: one place, one wording.

use super::{
    BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, CLAIM_LANES_MAX, ClaimRequest, ClaimedJob, Lane, LogWrite, SessionId,
    Settlement, StoreError,
};
use crate::effects::{PROGRESS_BYTES_MAX, check_keys, check_value};
use crate::job::NewJob;
use crate::names::JobId;

/// Largest token: what a double holds exactly, less a batch.
const TOKEN_MAX: u64 = (1 << 53) - 1_000;
/// Letters and digits of the random part of a generated id.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A batch of jobs to enqueue.
pub(crate) fn check_batch(jobs: &[NewJob]) -> Result<(), StoreError> {
    if jobs.len() > BATCH_MAX {
        return Err(StoreError::Invalid(format!(
            "batch of {} jobs: expected at most {BATCH_MAX}",
            jobs.len()
        )));
    }
    for (index, job) in jobs.iter().enumerate() {
        job.validate().map_err(|text| StoreError::Invalid(format!("job {index}: {text}")))?;
    }
    check_bytes(jobs.len(), jobs.iter().map(|job| job.payload.len()).sum())
}

/// Jobs that a runner offers.
pub(super) fn check_offer(jobs: &[ClaimedJob]) -> Result<(), StoreError> {
    if jobs.len() > BATCH_MAX {
        return Err(too_many(jobs.len()));
    }
    let mut bytes = 0;
    for claimed in jobs {
        check_session(&claimed.lease.session)?;
        bytes += claimed.job.payload.len();
        let (attempt, token) = (claimed.attempt, claimed.lease.token);
        if attempt == 0 || token > TOKEN_MAX {
            return Err(StoreError::Invalid(format!(
                "offer of attempt {attempt} under token {token}: expected 1 or more, and at most {TOKEN_MAX}"
            )));
        }
    }
    check_bytes(jobs.len(), bytes)
}

/// A batch's payload.
fn check_bytes(jobs: usize, bytes: usize) -> Result<(), StoreError> {
    if jobs > 1 && bytes > BATCH_PAYLOAD_BYTES_MAX {
        return Err(StoreError::Invalid(format!(
            "batch with {bytes} bytes of payload: expected at most {BATCH_PAYLOAD_BYTES_MAX}, or a single job"
        )));
    }
    Ok(())
}

/// A batch of settlements: what is dropped with its effects is not looked at.
pub(super) fn check_settlements(settlements: &[Settlement]) -> Result<(), StoreError> {
    if settlements.len() > BATCH_MAX {
        return Err(too_many(settlements.len()));
    }
    for (index, settlement) in settlements.iter().enumerate() {
        if let Some(effects) = settlement.commits() {
            effects
                .validate()
                .map_err(|text| StoreError::Invalid(format!("effects of settlement {index}: {text}")))?;
        }
    }
    Ok(())
}

/// A batch of logs.
pub(super) fn check_logs(logs: &[LogWrite]) -> Result<(), StoreError> {
    if logs.len() > BATCH_MAX {
        return Err(too_many(logs.len()));
    }
    for (index, progress) in logs.iter().enumerate().filter_map(|(i, log)| Some((i, log.progress.as_ref()?)))
    {
        let (percent, bytes) = (progress.percent, progress.message.len());
        if percent > 100 || bytes > PROGRESS_BYTES_MAX {
            return Err(StoreError::Invalid(format!(
                "progress {index} of {percent} % and {bytes} bytes: expected at most 100, and {PROGRESS_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(())
}

/// Keys of state that are read.
pub(super) fn check_state_keys(keys: &[impl AsRef<str>]) -> Result<(), StoreError> {
    check_keys(keys).map_err(StoreError::Invalid)
}

/// An entry of state that is set.
pub(super) fn check_state_entry(key: &str, value: &[u8]) -> Result<(), StoreError> {
    check_keys(&[key]).and_then(|()| check_value(key, value)).map_err(StoreError::Invalid)
}

/// The refusal of a batch of over [`BATCH_MAX`].
pub(super) fn too_many(got: usize) -> StoreError {
    StoreError::Invalid(format!("batch of {got}: expected at most {BATCH_MAX}"))
}

/// A session's name goes into leases, which are separated by spaces.
pub(super) fn check_session(session: &SessionId) -> Result<(), StoreError> {
    let plain = session.0.bytes().all(|b| b.is_ascii_graphic());
    if plain && (1..=128).contains(&session.0.len()) {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "invalid session {:?}: expected 1 to 128 visible ASCII characters",
        session.0
    )))
}

/// A claim, whole.
pub(super) fn check_claim(request: &ClaimRequest) -> Result<(), StoreError> {
    check_session(&request.session)?;
    check_lanes("claim of", request.lanes.len())?;
    let jobs = request.due_max.max(request.ahead_max);
    if jobs > BATCH_MAX {
        return Err(too_many(jobs));
    }
    if request.first_token > TOKEN_MAX {
        return Err(StoreError::Invalid(format!(
            "token {}: expected at most {TOKEN_MAX}",
            request.first_token
        )));
    }
    Ok(())
}

/// A heartbeat's session and lanes.
pub(super) fn check_heartbeat(session: &SessionId, lanes: &[Lane]) -> Result<(), StoreError> {
    check_session(session)?;
    check_lanes("heartbeat that looks at", lanes.len())
}

fn check_lanes(what: &str, lanes: usize) -> Result<(), StoreError> {
    if lanes > CLAIM_LANES_MAX {
        let said = format!("{what} {lanes} lanes: expected at most {CLAIM_LANES_MAX}");
        return Err(StoreError::Invalid(said));
    }
    Ok(())
}

/// Random letters and digits.
pub(crate) fn random_text(length: usize) -> Result<String, StoreError> {
    let mut bytes = vec![0u8; length];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::NotReady(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes.iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect())
}

/// The record id in a generated id: `<sequence without leading zeros>-<5 characters>`.
pub(super) fn generated_record(id: &JobId) -> Option<u64> {
    let (sequence, random) = id.as_str().split_once('-')?;
    let plain =
        !sequence.starts_with('0') && sequence.len() <= 14 && sequence.bytes().all(|b| b.is_ascii_digit());
    (plain && random.len() == 5).then(|| sequence.parse().ok()).flatten()
}
