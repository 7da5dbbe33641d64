//! Room on the disk: enqueues leave some, so that what is there can still be settled (rule 7).

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::files::{beside, bytes_of};
use crate::queue::StoreError;

/// What an enqueue leaves free, in bytes: enough for the log of the settles and releases of a fleet.
const RESERVE_BYTES: u64 = 16 << 20;

/// Refuses new jobs of so many bytes when they would use the reserve. They are written twice, to the log and to the file,
/// and so is what the log holds already.
pub(super) fn check_room(path: &Path, bytes: u64) -> Result<(), StoreError> {
    let needed = RESERVE_BYTES + 2 * bytes + bytes_of(&beside(path, "-wal"));
    match free_bytes(path) {
        Some(free) if free < needed => Err(StoreError::Full(format!(
            "{}: {} MiB free on its disk, and the last {} are kept for finishing jobs: free some space",
            path.display(),
            free >> 20,
            needed >> 20
        ))),
        _ => Ok(()),
    }
}

/// What a user may still write to the disk that holds the file, in bytes; `None` where that cannot be told.
fn free_bytes(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all of a statvfs may be zero, and the call fills it; the path is a terminated string of ours.
    let mut room: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut room) } != 0 {
        return None;
    }
    Some(room.f_bavail * room.f_frsize)
}
