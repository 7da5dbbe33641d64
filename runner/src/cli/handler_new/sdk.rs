//! Where a new crate gets hourhand-sdk from.
//!
//! The SDK and the runner go together, so the source of this very hourhand is the first choice: one that the new project
//! or this binary lies in, or the one that this binary was built from. An installed binary whose source is gone, or
//! came from a registry, names the version.

use std::path::{Path, PathBuf};

use crate::cli::exit::Fault;

/// The dependency of a new crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sdk {
    /// What stands in Cargo.toml after `hourhand-sdk = `.
    pub(super) dependency: String,
    /// What was chosen, for people.
    pub(super) said: String,
}

/// Chooses: what was named, else the source of this hourhand, else the version.
///
/// # Errors
/// When the folder that was named is not the SDK's.
pub(super) fn choose(named: Option<&Path>, project: &Path) -> Result<Sdk, Fault> {
    if let Some(dir) = named {
        if !is_sdk(dir) {
            return Err(Fault::usage(format!(
                "--sdk: expected the folder of hourhand-sdk, got {}: no such package is there",
                dir.display()
            )));
        }
        return Ok(by_path(dir, "as --sdk says"));
    }
    let project = std::path::absolute(project).ok();
    let binary = std::env::current_exe().ok();
    let inside = [project, binary]
        .into_iter()
        .flatten()
        .find_map(|path| path.ancestors().map(|folder| folder.join("sdk")).find(|dir| is_sdk(dir)));
    if let Some(dir) = inside {
        return Ok(by_path(&dir, "of the source that is here"));
    }
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk");
    if is_sdk(&built_from) {
        return Ok(by_path(&built_from, "of the source that this hourhand was built from"));
    }
    let version = env!("CARGO_PKG_VERSION");
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    Ok(Sdk {
        dependency: format!("\"{minor}\""),
        said: format!("version {minor} of the registry; --sdk PATH names a folder instead"),
    })
}

fn by_path(dir: &Path, why: &str) -> Sdk {
    let dir: PathBuf = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let shown = dir.display().to_string();
    // A JSON string is one of TOML.
    let path = serde_json::Value::from(shown.as_str());
    Sdk { dependency: format!("{{ path = {path} }}"), said: format!("{shown}, {why}") }
}

fn is_sdk(dir: &Path) -> bool {
    let text = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().collect::<String>() == "name=\"hourhand-sdk\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_the_sdk_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let fault = choose(Some(dir.path()), Path::new("x")).expect_err("no SDK");
        assert!(fault.message.contains("--sdk"), "{fault}");
    }

    #[test]
    fn the_source_is_found_and_named_by_its_whole_path() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk").canonicalize().expect("a path");
        for named in [None, Some(sdk.as_path())] {
            let chosen = choose(named, Path::new("/nowhere/greet")).expect("an SDK");
            assert_eq!(chosen.dependency, format!("{{ path = \"{}\" }}", sdk.display()));
        }
    }
}
