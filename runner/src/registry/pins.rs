//! Pins: a file `NAME.pin` beside `NAME.wasm` holds the hash of the version that is to serve, whatever lies in
//! the folder. It counts for every runner of the folder, and stays until somebody removes it.
//!
//! Beside it lies a copy of that version under a name that no scan looks at, so that a runner that never had it
//! has it too.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::versions::sha256_of;
use super::{Versions, regular, verdict};

/// Hex digits of a hash that name a version: records of runs hold twelve.
const DIGITS_MIN: usize = 12;
const DIGITS_MAX: usize = 64;
/// A file that is longer is no pin.
const FILE_BYTES_MAX: u64 = 4_096;

/// What a pin says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The hash of the version that is to serve, or the beginning of it; or what is wrong with the file.
    pub wanted: Result<String, String>,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// The stem of a pin's file name, or `None` for another file.
pub(super) fn stem(name: &str) -> Option<&str> {
    name.strip_suffix(".pin").filter(|stem| !stem.is_empty() && !name.starts_with('.'))
}

/// The pin of the module `stem` in the folder `dir`.
pub fn pin_file(dir: &Path, stem: &str) -> PathBuf {
    dir.join(format!("{stem}.pin"))
}

/// Where the version that is pinned is kept for everybody.
pub fn copy_file(dir: &Path, stem: &str) -> PathBuf {
    dir.join(format!(".{stem}.pinned.wasm"))
}

/// Reads the pin of a module; `None` when it has none.
pub fn read(dir: &Path, stem: &str) -> Option<Pin> {
    let path = pin_file(dir, stem);
    let mut text = String::new();
    let read = (|| {
        let file = regular::open(&path)?;
        let modified = file.metadata()?.modified()?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok::<_, io::Error>(modified.duration_since(UNIX_EPOCH).map_or(0, |at| at.as_millis() as u64))
    })();
    match read {
        Ok(since_ms) => Some(Pin { wanted: wanted(&text), since_ms }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // It is there, and says something: what serves must stay.
        Err(error) => Some(Pin { wanted: Err(format!("cannot be read: {error}")), since_ms: 0 }),
    }
}

/// The hash that `text` names, in lower case.
///
/// # Errors
/// What is expected, and what came.
pub fn wanted(text: &str) -> Result<String, String> {
    let text = text.trim();
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    if digits && (DIGITS_MIN..=DIGITS_MAX).contains(&text.len()) {
        return Ok(text.to_ascii_lowercase());
    }
    // Not quoted: a pin may be a link to a file that is nobody's to show.
    Err(format!(
        "expected {DIGITS_MIN} to {DIGITS_MAX} hex digits of a module's sha256, got {} bytes of {}text",
        text.len(),
        if digits { "" } else { "other " }
    ))
}

/// Pins the module `stem` to the version with these bytes. First its copy, then the pin: a runner that sees the
/// pin finds both.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(dir: &Path, stem: &str, bytes: &[u8]) -> io::Result<()> {
    // Whoever may read the module may read these, whatever this user's umask is.
    let module = fs::metadata(dir.join(format!("{stem}.wasm")));
    let mode = module.map_or(0o644, |module| module.permissions().mode() & 0o777);
    put(&copy_file(dir, stem), bytes, mode)?;
    put(&pin_file(dir, stem), format!("{}\n", sha256_of(bytes)).as_bytes(), mode)
}

/// Removes the pin of a module, and its copy. False when there was none.
///
/// # Errors
/// When the folder cannot be written.
pub fn remove(dir: &Path, stem: &str) -> io::Result<bool> {
    let remove = |path: PathBuf| match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    let was_pinned = remove(pin_file(dir, stem))?;
    remove(copy_file(dir, stem))?;
    Ok(was_pinned)
}

/// Under another name first, so that no runner sees half of it.
fn put(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Nobody who may write the folder can have put a link under this name.
    let number = getrandom::u64().map_err(io::Error::other)?;
    let temporary = path.with_file_name(format!(".{}.{number:016x}.tmp", name.trim_start_matches('.')));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    let written = (|| {
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // What is left of the attempt, if anything is.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// The version whose hash begins with `wanted`: from what this machine keeps, from the copy beside the pin, or
/// from the folder's file.
///
/// # Errors
/// Where it was looked for.
pub(super) fn find(
    file: &Path,
    wanted: &str,
    versions: Option<&Versions>,
    bytes_max: u64,
) -> Result<Vec<u8>, String> {
    let (dir, name) = (file.parent().unwrap_or(Path::new("")), file.file_name().unwrap_or_default());
    let name = name.to_string_lossy();
    let stem = verdict::stem(&name).unwrap_or(&name);
    let mut looked = Vec::new();
    if let Some(versions) = versions {
        match kept(versions, stem, wanted) {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => looked.push(format!("the versions kept in {}", versions.dir().display())),
            Err(error) => looked.push(format!("the versions kept in {} ({error})", versions.dir().display())),
        }
    }
    for path in [copy_file(dir, stem), file.to_owned()] {
        match small_enough(&path, bytes_max) {
            Ok(bytes) if sha256_of(&bytes).starts_with(wanted) => return Ok(bytes),
            Ok(_) => looked.push(path.display().to_string()),
            Err(error) => looked.push(format!("{} ({error})", path.display())),
        }
    }
    Err(format!(
        "it is pinned to {wanted}, which is in none of: {}; pin it to a version that is there, or unpin it",
        looked.join(", ")
    ))
}

fn kept(versions: &Versions, stem: &str, wanted: &str) -> Result<Option<Vec<u8>>, String> {
    let all = versions.list(stem).map_err(|error| error.to_string())?;
    let mut of_it = all.iter().filter(|version| version.sha256.starts_with(wanted));
    let Some(first) = of_it.next() else { return Ok(None) };
    if let Some(second) = of_it.next() {
        return Err(format!("{} and {} both begin so", first.sha256, second.sha256));
    }
    versions.bytes(stem, &first.sha256).map_err(|error| error.to_string())
}

fn small_enough(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = regular::open(path)?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other("too large for a module"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_hex_digits_and_nothing_else() {
        let hash = sha256_of(b"module");
        assert_eq!(wanted(&format!(" {}\n", hash.to_uppercase())), Ok(hash.clone()));
        assert_eq!(wanted(&hash[..12]), Ok(hash[..12].to_owned()));
        for text in ["", "latest", &hash[..11], &format!("{hash}0"), "0123456789ag"] {
            assert!(wanted(text).unwrap_err().contains("expected 12 to 64 hex digits"), "{text}");
        }
        // It may be a link to somebody's secret.
        let secret = wanted("hunter2-of-the-root-user").unwrap_err();
        assert!(secret.contains("got 24 bytes") && !secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn a_pin_and_its_copy_come_and_go_together() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(read(dir, "a.b"), None);
        write(dir, "a.b", b"one").unwrap();
        write(dir, "a.b", b"two").unwrap();
        let hash = sha256_of(b"two");
        assert_eq!(read(dir, "a.b").unwrap().wanted, Ok(hash.clone()));
        assert_eq!(fs::read(copy_file(dir, "a.b")).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "nothing else is left");
        let file = dir.join("a.b.wasm");
        assert_eq!(find(&file, &hash[..12], None, 10), Ok(b"two".to_vec()));
        let none = find(&file, &sha256_of(b"one"), None, 10).unwrap_err();
        assert!(none.contains(".a.b.pinned.wasm") && none.contains("unpin it"), "{none}");
        fs::write(&file, b"one").unwrap();
        assert_eq!(find(&file, &sha256_of(b"one"), None, 10), Ok(b"one".to_vec()));
        assert!(find(&file, &sha256_of(b"one"), None, 2).unwrap_err().contains("too large"));
        assert!(remove(dir, "a.b").unwrap());
        assert!(!remove(dir, "a.b").unwrap());
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
    }

    #[test]
    fn a_pin_that_cannot_be_read_is_still_one() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("k.pin"), [0xff, 0xfe]).unwrap();
        assert!(read(dir.path(), "k").unwrap().wanted.unwrap_err().contains("cannot be read"));
        fs::create_dir(dir.path().join("d.pin")).unwrap();
        assert!(read(dir.path(), "d").unwrap().wanted.is_err());
        // Nobody writes into it: whoever waited would wait for ever.
        let pipe = dir.path().join("p.pin");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refusal = read(dir.path(), "p").unwrap().wanted.unwrap_err();
        assert!(refusal.contains("expected a regular file"), "{refusal}");
        assert!(small_enough(&pipe, 10).unwrap_err().to_string().contains("expected a regular file"));
    }
}
