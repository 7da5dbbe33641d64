//! Opens what lies in the handlers folder without trusting what it is: whoever may write there may put something in the place
//! of a file that makes the one who opens it wait for ever.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file, links followed. Never waits for somebody at the other end.
///
/// # Errors
/// When it cannot be opened, or is something else: a folder, a pipe, a device.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a regular file, got a folder, pipe or device"))
}
