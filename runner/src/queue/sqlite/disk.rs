//! The disk: room on it, of which enqueues leave some, so that what is there can still be settled (rule 7), and what kind of
//! file system it has.

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
    let needed = needed_bytes(path, bytes);
    match room(path).map(|room| room.free_bytes) {
        Some(free) if free < needed => Err(StoreError::Full(format!(
            "{}: {} MiB free on its disk, and the last {} are kept for finishing jobs: free some space",
            path.display(),
            free >> 20,
            needed >> 20
        ))),
        _ => Ok(()),
    }
}

/// What must be free for new jobs of so many bytes to be taken.
pub(super) fn needed_bytes(path: &Path, bytes: u64) -> u64 {
    RESERVE_BYTES + 2 * bytes + bytes_of(&beside(path, "-wal"))
}

/// Room on the disk that holds a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// What a user may still write, in bytes.
    pub(super) free_bytes: u64,
    /// What the disk holds in all, in bytes.
    pub(super) all_bytes: u64,
}

/// The room on the disk that holds the file; `None` where that cannot be told.
pub(super) fn room(path: &Path) -> Option<Room> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all of a statvfs may be zero, and the call fills it; the path is a terminated string of ours.
    let mut room: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut room) } != 0 {
        return None;
    }
    Some(Room { free_bytes: room.f_bavail * room.f_frsize, all_bytes: room.f_blocks * room.f_frsize })
}

/// What SQLite can expect of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Locks and shared memory as on a local disk.
    Local,
    /// In memory: gone with the machine's next start.
    Memory,
    /// Files of another machine or of the host: locks and shared memory do not reach as far as the file does.
    Shared,
    /// What is behind it decides, and it does not say.
    Unknown,
}

/// File systems by the number that `statfs` has for them.
const FILE_SYSTEMS: [(i64, &str, Trust); 21] = [
    (0xEF53, "ext", Trust::Local),
    (0x5846_5342, "xfs", Trust::Local),
    (0x9123_683E, "btrfs", Trust::Local),
    (0x2FC1_2FC1, "zfs", Trust::Local),
    (0xF2F5_2010, "f2fs", Trust::Local),
    (0xCA45_1A4E, "bcachefs", Trust::Local),
    (0x794C_7630, "overlayfs", Trust::Local),
    (0x0102_1994, "tmpfs", Trust::Memory),
    (0x8584_58F6, "ramfs", Trust::Memory),
    (0x6969, "nfs", Trust::Shared),
    (0xFF53_4D42, "cifs", Trust::Shared),
    (0xFE53_4D42, "smb2", Trust::Shared),
    (0x517B, "smb", Trust::Shared),
    (0x0102_1997, "9p", Trust::Shared),
    (0x00C3_6400, "ceph", Trust::Shared),
    (0x5346_414F, "afs", Trust::Shared),
    (0x7375_7245, "coda", Trust::Shared),
    (0x0BD0_0BD0, "lustre", Trust::Shared),
    (0x4750_4653, "gpfs", Trust::Shared),
    (0x786F_4256, "vboxsf", Trust::Shared),
    (0x6573_5546, "fuse", Trust::Unknown),
];

/// The file system that holds the file, and what to expect of it; one that is not known counts as local. `None` where it cannot be
/// told.
pub(super) fn file_system(path: &Path) -> Option<(String, Trust)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all of a statfs may be zero, and the call fills it; the path is a terminated string of ours.
    let mut seen: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::statfs(path.as_ptr(), &raw mut seen) } != 0 {
        return None;
    }
    // Some systems have the number in 32 bits with a sign.
    Some(named(i64::from(seen.f_type as u32)))
}

fn named(number: i64) -> (String, Trust) {
    let known = FILE_SYSTEMS.iter().find(|(known, ..)| *known == number);
    known.map_or_else(
        || (format!("unknown ({number:#x})"), Trust::Local),
        |(_, name, trust)| ((*name).to_owned(), *trust),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_are_known_by_their_numbers() {
        assert_eq!(named(0x6969), ("nfs".to_owned(), Trust::Shared));
        assert_eq!(named(0xFF53_4D42), ("cifs".to_owned(), Trust::Shared));
        assert_eq!(named(0x0102_1994), ("tmpfs".to_owned(), Trust::Memory));
        assert_eq!(named(7), ("unknown (0x7)".to_owned(), Trust::Local));
        assert_eq!(file_system(Path::new("/proc/self")).map(|(_, trust)| trust), Some(Trust::Local));
        assert_eq!(file_system(Path::new("/no/such/file")), None);
    }
}
