//! What lies in the handlers folder, by one scan. Reads names, metadata of modules, and pins: no other
//! file's contents, and nothing at all of files that are none of ours.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::pins::{self, Pin};

/// What tells one state of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
    pub(super) len: u64,
    modified_ns: i128,
    /// Nobody can set it: it tells of a change that kept the length and set the modification time back.
    changed_ns: i128,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// The same file, whatever is in it.
    pub(super) fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// The same file of the same length; its times may differ.
    pub(super) fn same_length(&self, other: &Self) -> bool {
        (self.device, self.inode, self.len) == (other.device, other.inode, other.len)
    }

    /// How long ago it was written, in milliseconds; 0 for a time in the future.
    pub(super) fn age_ms(&self, wall_ms: u64) -> u64 {
        let written_ms = u64::try_from(self.modified_ns / 1_000_000).unwrap_or(0);
        wall_ms.saturating_sub(written_ms)
    }

    #[cfg(test)]
    pub(super) fn fake(inode: u64, len: u64, modified_ms: u64) -> Self {
        let modified_ns = i128::from(modified_ms) * 1_000_000;
        Self { device: 1, inode, len, modified_ns, changed_ns: modified_ns }
    }
}

/// A module file, as one scan saw it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Its path in the folder, links not resolved.
    pub(super) path: PathBuf,
    /// Its name without `.wasm`.
    pub(super) stem: String,
    /// What the name leads to, links resolved; `None` when it cannot be looked at for the moment.
    pub(super) id: Option<FileId>,
    /// The manifest beside it.
    pub(super) manifest: Beside,
    /// What its pin says, if it has one.
    pub(super) pin: Option<Pin>,
    /// There is a pin, and no module.
    pub(super) absent: bool,
}

/// What lies beside a module under its manifest's name, links resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// No file.
    Nothing,
    /// A manifest.
    File(FileId),
    /// Something that cannot be looked at for the moment.
    Unknown,
}

impl Beside {
    fn of(module: &Path) -> Self {
        match fs::metadata(module.with_extension("toml")) {
            Ok(metadata) if metadata.is_file() => Self::File(FileId::of(&metadata)),
            Ok(_) => Self::Nothing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Nothing,
            Err(_) => Self::Unknown,
        }
    }
}

/// All module files of the folder: `*.wasm`, no dot files, and those that are pinned. A link that leads nowhere
/// is not there.
pub(super) fn scan(dir: &Path) -> io::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    let mut pins = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if let Some(pin) = pins::stem(&name).and_then(|stem| Some((stem.to_owned(), pins::read(dir, stem)?)))
        {
            pins.extend([pin]);
        }
        let Some(stem) = super::verdict::stem(&name) else { continue };
        let path = entry.path();
        let id = match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => Some(FileId::of(&metadata)),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => None,
        };
        let manifest = Beside::of(&path);
        seen.push(Seen { stem: stem.to_owned(), path, id, manifest, pin: None, absent: false });
    }
    for file in &mut seen {
        file.pin = pins.remove(&file.stem);
    }
    for (stem, pin) in pins {
        let path = dir.join(format!("{stem}.wasm"));
        let manifest = Beside::of(&path);
        seen.push(Seen { stem, path, id: None, manifest, pin: Some(pin), absent: true });
    }
    Ok(seen)
}
