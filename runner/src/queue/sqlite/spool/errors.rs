//! Why the spool did not do what it was asked.

use std::path::Path;

use rusqlite::ErrorCode;

use super::Spool;
use crate::queue::StoreError;
use crate::queue::sqlite::errors::store_error;

/// Why the spool did not do what it was asked. Nothing was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpoolError {
    /// It has no room, or its disk has none.
    #[error("the spool is full: {0}")]
    Full(String),
    /// Other programs have held the file for too long.
    #[error("the spool is busy: {0}")]
    Busy(String),
    /// Waiting mends nothing: the file is damaged, somebody else's, or may not be written.
    #[error("the spool cannot be used: {0}")]
    Unusable(String),
}

/// As [`of`], for a spool's own file.
pub(super) fn sql(spool: &Spool) -> impl Fn(rusqlite::Error) -> SpoolError + '_ {
    |error| of(&error, &spool.path())
}

/// What an error of SQLite means.
pub(super) fn of(error: &rusqlite::Error, path: &Path) -> SpoolError {
    let place = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => SpoolError::Unusable(format!(
            "{place} is no SQLite database: move it away, and another is made, or name another folder with --spool-dir"
        )),
        Some(ErrorCode::DatabaseCorrupt) => SpoolError::Unusable(format!(
            "{place} is damaged ({error}): move it away and keep it, for jobs in it may not be in the store; `sqlite3 FILE .recover` \
             shows what can be read"
        )),
        _ => store_error(error, path).into(),
    }
}

impl From<StoreError> for SpoolError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full(text) => Self::Full(text),
            StoreError::NotReady(text) => Self::Busy(text),
            StoreError::Invalid(text)
            | StoreError::Unreachable(text)
            | StoreError::Unreplicated(text)
            | StoreError::Refused(text) => Self::Unusable(text),
        }
    }
}
