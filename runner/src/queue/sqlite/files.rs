//! The file and what SQLite keeps beside it, as the file system sees them.
//!
//! Nothing here opens the file: when a program closes a file, it loses all its locks on it, those of SQLite included.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Which file something is: its device, its number, and when it was made, for numbers are used again.
pub(super) type FileId = (u64, u64, Option<SystemTime>);

/// Which file a path leads to.
pub(super) fn file_of(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino(), file.created().ok()))
}

/// How many bytes a file has; 0 when there is none.
pub(super) fn bytes_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// A companion of the file: SQLite puts it beside what a symbolic link leads to.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push(suffix);
    PathBuf::from(name)
}

/// A path that is the same from every working directory, whether there is a file or not.
pub(super) fn settled(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}
