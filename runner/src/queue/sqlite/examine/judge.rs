//! What is to be said about a file and its disk. Pure: from what was seen to findings.

use crate::queue::examination::Facts;
use crate::queue::sqlite::disk::Trust;
use crate::queue::{Finding, Severity};

/// The log does not get shorter when it is longer than this, in bytes: it is cut back at a quarter of it.
const LOG_BYTES_MAX: u64 = 128 << 20;
/// A disk is nearly full with less than a tenth free, unless that is more than this, in bytes.
const FREE_BYTES_PLENTY: u64 = 8 << 30;

/// What the file system says of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSeen {
    /// Its path.
    pub(super) place: String,
    pub(super) bytes: u64,
    pub(super) log_bytes: u64,
    /// What must be free for new jobs to be taken.
    pub(super) needed_bytes: u64,
    pub(super) free_bytes: Option<u64>,
    pub(super) disk_bytes: Option<u64>,
    pub(super) file_system: Option<(String, Trust)>,
    /// Who may read and write it.
    pub(super) mode: Option<u32>,
}

impl FileSeen {
    pub(super) fn tell(&self, facts: &mut Facts) {
        facts.add("file_bytes", self.bytes);
        facts.add("log_bytes", self.log_bytes);
        facts.add_known("disk_free_bytes", self.free_bytes);
        facts.add_known("disk_bytes", self.disk_bytes);
        facts.add_known("file_system", self.file_system.as_ref().map(|(name, _)| name.as_str()));
        facts.add_known("file_mode", self.mode.map(|mode| format!("{mode:04o}")));
    }
}

/// What is wrong or unwise about it.
pub(super) fn set_up(seen: &FileSeen) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut note = |check, severity, message: String, fix: &str| {
        found.push(Finding::around(check, severity, seen.place.as_str(), message, fix));
    };
    match &seen.file_system {
        Some((name, Trust::Shared)) => note(
            "file-system",
            Severity::Error,
            format!("it is on {name}, where SQLite's locks do not hold: two programs can damage the file"),
            "move it to a local disk, or share a Redis (`hourhand store copy`)",
        ),
        Some((name, Trust::Unknown)) => note(
            "file-system",
            Severity::Warning,
            format!("it is on {name}, which does not say whether SQLite's locks hold there"),
            "make sure that it is no network file system (`findmnt -T FILE`), or move it to a local disk",
        ),
        Some((name, Trust::Memory)) => note(
            "persistence",
            Severity::Warning,
            format!("it is on {name}, in memory: a restart of the machine loses all jobs"),
            "move it to a local disk",
        ),
        Some((_, Trust::Local)) | None => {}
    }
    if let (Some(free), Some(all)) = (seen.free_bytes, seen.disk_bytes) {
        let mib = |bytes: u64| bytes >> 20;
        if free < seen.needed_bytes {
            note(
                "disk",
                Severity::Error,
                format!(
                    "its disk has {} MiB free, and the last {} are kept for finishing jobs: new jobs are refused",
                    mib(free),
                    mib(seen.needed_bytes)
                ),
                "free some space, or move the file to a larger disk",
            );
        } else if free < all / 10 && free < FREE_BYTES_PLENTY {
            note(
                "disk",
                Severity::Warning,
                format!("its disk is nearly full: {} MiB free of {}", mib(free), mib(all)),
                "free some space, or move the file to a larger disk",
            );
        }
    }
    if seen.log_bytes > LOG_BYTES_MAX {
        note(
            "log-size",
            Severity::Warning,
            format!("its log has {} MiB: something reads the file without an end", seen.log_bytes >> 20),
            "look which program keeps the file open (`fuser -v FILE`), and end it",
        );
    }
    if let Some(mode) = seen.mode.filter(|mode| mode & 0o007 != 0) {
        note(
            "file-mode",
            Severity::Warning,
            format!("everybody on this machine may open it (mode {mode:04o}), and read what jobs carry"),
            "chmod o= FILE",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> FileSeen {
        FileSeen {
            place: "/var/lib/jobs.db".to_owned(),
            bytes: 1 << 20,
            log_bytes: 4 << 20,
            needed_bytes: 20 << 20,
            free_bytes: Some(50 << 30),
            disk_bytes: Some(100 << 30),
            file_system: Some(("ext".to_owned(), Trust::Local)),
            mode: Some(0o660),
        }
    }

    fn words(seen: &FileSeen) -> Vec<(Severity, &'static str)> {
        set_up(seen).into_iter().map(|finding| (finding.severity, finding.check)).collect()
    }

    #[test]
    fn each_fault_is_found_by_its_word() {
        let on = |name: &str, trust| Some((name.to_owned(), trust));
        let unknown =
            FileSeen { free_bytes: None, disk_bytes: None, file_system: None, mode: None, ..sound() };
        for (seen, wanted) in [
            (sound(), None),
            (unknown, None),
            (FileSeen { free_bytes: Some(9 << 30), disk_bytes: Some(4 << 40), ..sound() }, None),
            (
                FileSeen { file_system: on("nfs", Trust::Shared), ..sound() },
                Some((Severity::Error, "file-system")),
            ),
            (
                FileSeen { file_system: on("fuse", Trust::Unknown), ..sound() },
                Some((Severity::Warning, "file-system")),
            ),
            (
                FileSeen { file_system: on("tmpfs", Trust::Memory), ..sound() },
                Some((Severity::Warning, "persistence")),
            ),
            (FileSeen { free_bytes: Some(19 << 20), ..sound() }, Some((Severity::Error, "disk"))),
            (FileSeen { free_bytes: Some(7 << 30), ..sound() }, Some((Severity::Warning, "disk"))),
            (FileSeen { log_bytes: 129 << 20, ..sound() }, Some((Severity::Warning, "log-size"))),
            (FileSeen { mode: Some(0o644), ..sound() }, Some((Severity::Warning, "file-mode"))),
        ] {
            assert_eq!(words(&seen), wanted.into_iter().collect::<Vec<_>>(), "{seen:?}");
        }
    }
}
