//! What a job gets before it is sent for the first time, so that a repeat is known as one.
//!
//! Every job gets an id: then the store answers `kept` to a repeat. That does for all but those that ask for something else
//! when their id exists: a repeat of theirs would replace or refuse itself. They get a mark in their source too, by which the
//! one that is there is told from others (`deliver`).

use crate::job::{NewJob, OnConflict};
use crate::names::JobId;
use crate::outcome::capped;
use crate::queue::StoreError;
use crate::queue::checks::random_text;

/// Characters of an id that is made here: 26, which never look like one that a store makes.
const ID_LENGTH: usize = 26;
/// What a mark begins with.
const MARK: &str = " spool:";
/// Random characters behind it.
const MARK_LENGTH: usize = 16;
/// Longest source, in bytes.
const SOURCE_BYTES_MAX: usize = 256;

/// The jobs, each with an id, and with a mark where it needs one.
pub(super) fn with_ids(jobs: &[NewJob]) -> Result<Vec<NewJob>, StoreError> {
    jobs.iter().cloned().map(prepared).collect()
}

fn prepared(mut job: NewJob) -> Result<NewJob, StoreError> {
    if job.id.is_none() {
        let id = random_text(ID_LENGTH)?;
        job.id = Some(JobId::new(&id).map_err(|error| StoreError::Refused(error.to_string()))?);
        // Nobody else has it.
        job.on_conflict = OnConflict::Keep;
    }
    if job.on_conflict != OnConflict::Keep {
        let mark = format!("{MARK}{}", random_text(MARK_LENGTH)?);
        let source = capped(std::mem::take(&mut job.source), SOURCE_BYTES_MAX - mark.len());
        job.source = source + &mark;
    }
    Ok(job)
}
