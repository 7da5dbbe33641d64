//! A wall clock that a test sets, for processes that are started with it: libfaketime (Debian's package `faketime`). Their
//! monotonic clocks stay as they are.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Where Debian and Ubuntu have it.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
];

/// One clock, which any number of processes may have.
pub struct FakeClock {
    library: &'static str,
    dir: TempDir,
}

impl FakeClock {
    /// A clock that goes right so far. `None`, and a line that says so, where the library is missing.
    #[allow(clippy::print_stdout, reason = "what was not tried")]
    pub fn new() -> Option<Self> {
        let Some(library) = LIBRARIES.into_iter().find(|path| Path::new(path).is_file()) else {
            println!("not tried: libfaketime is missing: make setup");
            return None;
        };
        let clock = Self { library, dir: tempfile::tempdir().expect("a folder") };
        clock.set(0);
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    /// Sets it so many seconds off the machine's, at once.
    pub fn set(&self, offset_s: i64) {
        let staged = self.dir.path().join("staged");
        fs::write(&staged, format!("{offset_s:+}s\n")).expect("written");
        fs::rename(staged, self.file()).expect("renamed");
    }

    /// The environment of a process that goes by it.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.preloading(self.library.to_owned())
    }

    /// The same for a process that brings a memory allocator of its own, which would ask the clock before the library is
    /// ready: it gets the C library's.
    pub fn variables_without_allocator(&self) -> Vec<(String, String)> {
        self.preloading(format!("{} libc.so.6", self.library))
    }

    fn preloading(&self, libraries: String) -> Vec<(String, String)> {
        let file = self.file().display().to_string();
        [
            ("LD_PRELOAD", libraries),
            ("FAKETIME_TIMESTAMP_FILE", file),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // The name has changed with the library's versions.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}
