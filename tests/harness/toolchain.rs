//! Rust's own tools for processes of a test: the machine's toolchain and its downloaded crates, no network, and one
//! target folder for all new crates, so that what they depend on is built once.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Gives a process what cargo needs.
pub fn with_toolchain(command: &mut Command) -> &mut Command {
    for (variable, below_home) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home));
        if let Some(folder) = named.or_else(home) {
            command.env(variable, folder);
        }
    }
    command
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-handlers"))
}
