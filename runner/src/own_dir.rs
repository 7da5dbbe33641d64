//! A folder that only this user may enter: for compiled code, and for what will be compiled.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Makes the folder, with those above it, and refuses one that others may write.
///
/// # Errors
/// When it cannot be made, belongs to somebody else, or may be written by others.
pub(crate) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check(dir)
}

/// Refuses a folder that others may write.
///
/// # Errors
/// When it is not there, belongs to somebody else, or may be written by others.
pub(crate) fn check(dir: &Path) -> io::Result<()> {
    let metadata = fs::metadata(dir)?;
    if metadata.uid() == own_user() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "code is only kept in a folder that belongs to this user and that nobody else may write",
    ))
}

/// Who we are.
fn own_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}
