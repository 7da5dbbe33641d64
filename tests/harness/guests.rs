//! The modules that tests run: those of `guest-examples`, built when they are missing or older than their
//! source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::SystemTime;

/// The module of an example, ready to be copied into a handlers folder.
pub fn guest(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(build_if_stale);
    let module = root().join("target/guests").join(name).with_extension("wasm");
    assert!(module.is_file(), "guest-examples has no handler {name}: {}", module.display());
    module
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Each test may be a process of its own, and asking cargo every time would make them queue.
fn build_if_stale() {
    let root = root();
    let built = fs::metadata(root.join("target/guests/.built")).and_then(|stamp| stamp.modified());
    let sources = ["guest-examples", "sdk", "wit", "scripts/guests.sh"];
    if built.is_ok_and(|built| sources.iter().all(|source| newest(&root.join(source)) < built)) {
        return;
    }
    let output = Command::new(root.join("scripts/guests.sh")).output().expect("run scripts/guests.sh");
    assert!(output.status.success(), "build the guests:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// When the newest file at or below `path` was written.
fn newest(path: &Path) -> SystemTime {
    let metadata = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if metadata.is_file() {
        return metadata.modified().expect("a time of modification");
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entries = entries.map(|entry| entry.expect("a folder's entry").path());
    let sources = entries.filter(|entry| entry.file_name().is_some_and(|name| name != "target"));
    sources.map(|entry| newest(&entry)).max().unwrap_or(SystemTime::UNIX_EPOCH)
}
