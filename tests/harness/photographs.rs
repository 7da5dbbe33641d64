//! Real photographs, fetched once and not committed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Four photographs: two PNGs and two JPEGs.
pub fn photographs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target/photographs");
    if !folder.is_dir() {
        let output = Command::new(root.join("scripts/photographs.sh")).output().expect("run the script");
        assert!(output.status.success(), "fetch photographs:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let entries = fs::read_dir(&folder).expect("the folder of photographs");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 4, "{paths:?}");
    paths
}
