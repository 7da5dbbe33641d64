//! The examples in other languages, built when they are missing or older than their source.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The module of `examples/<language>`. What it takes to build it is installed on the first call.
pub fn language(language: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("scripts/languages.sh"))
        .arg(language)
        .output()
        .expect("run scripts/languages.sh");
    assert!(output.status.success(), "build {language}:\n{}", String::from_utf8_lossy(&output.stderr));
    root.join("target/languages").join(language).with_extension("wasm")
}
