//! What an error of SQLite means for the caller.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::queue::StoreError;

/// The error for the caller.
pub(super) fn store_error(error: &rusqlite::Error, path: &Path) -> StoreError {
    let place = path.display();
    let code = error.sqlite_error_code();
    let extended = error.sqlite_extended_error_code().unwrap_or_default();
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::NotReady(format!(
            "{place}: another program has held the file for too long; end what holds it open, or try again"
        )),
        Some(ErrorCode::DiskFull) => full(path),
        Some(ErrorCode::OutOfMemory) => StoreError::Full(format!("{place}: no memory left")),
        Some(ErrorCode::CannotOpen) => StoreError::Unreachable(cannot_open(path)),
        Some(ErrorCode::ReadOnly) if extended == ffi::SQLITE_READONLY_DBMOVED => {
            StoreError::Unreachable(format!("{place} was moved or deleted while it was open"))
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => StoreError::Refused(format!(
            "{place} cannot be written: this user needs the right to write the file and its folder"
        )),
        Some(ErrorCode::NotADatabase) => not_a_database(path),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Refused(format!(
            "{place} is damaged ({error}): keep a copy, and look with `hourhand doctor`"
        )),
        // The memory that programs share is a file too.
        Some(ErrorCode::SystemIoFailure) if extended == ffi::SQLITE_IOERR_SHMSIZE => full(path),
        Some(ErrorCode::SystemIoFailure | ErrorCode::FileLockingProtocolFailed) => {
            StoreError::Unreachable(format!("{place}: {error}"))
        }
        _ => StoreError::Refused(format!("{place}: {error}")),
    }
}

/// True when the connection may not be used again.
pub(super) fn is_broken(error: &StoreError) -> bool {
    matches!(error, StoreError::Unreachable(_) | StoreError::Refused(_))
}

/// The error for a file that is something else.
pub(super) fn not_a_database(path: &Path) -> StoreError {
    StoreError::Refused(format!(
        "{} is no SQLite database: name another file, or move it away",
        path.display()
    ))
}

fn full(path: &Path) -> StoreError {
    StoreError::Full(format!("{}: the disk is full; free some space, and work goes on", path.display()))
}

/// What cannot be the place of a file, and is said at once rather than waited for.
///
/// # Errors
/// What is wrong with the path.
pub(super) fn check_place(path: &Path) -> Result<(), StoreError> {
    misplaced(path).map_or(Ok(()), |problem| Err(StoreError::Invalid(problem)))
}

fn misplaced(path: &Path) -> Option<String> {
    let place = path.display();
    if path.is_dir() {
        return Some(format!(
            "{place} is a folder: expected the path of a file, such as {place}/hourhand.db"
        ));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    (!folder.is_dir())
        .then(|| format!("{place} cannot be opened: there is no folder {}; make it first", folder.display()))
}

fn cannot_open(path: &Path) -> String {
    let place = path.display();
    misplaced(path).unwrap_or_else(|| {
        format!(
            "{place} cannot be opened: this user needs the right to read and write the file and its folder"
        )
    })
}
