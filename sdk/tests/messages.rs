//! Mistakes are compile errors, at their own line, in words that help.
//!
//! The files in `messages/` say after `//~` what the compiler has to answer there; it has to answer
//! nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn mistakes_in_the_attribute_and_the_head_of_the_function_are_told() {
    check("attribute", &["check"]);
}

#[test]
fn types_that_cannot_go_through_are_told() {
    check("types", &["check"]);
}

#[test]
fn a_job_that_was_not_sent_is_told() {
    check("unsent", &["check"]);
}

#[test]
fn two_handlers_of_one_kind_do_not_compile() {
    // Natively they do: it is in a module that one would hide the other.
    check("twins", &["build", "--target", "wasm32-wasip1"]);
}

/// Runs cargo on `messages/<name>.rs` and compares what it says.
fn check(name: &str, command: &[&str]) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(sdk.join(format!("tests/messages/{name}.rs"))).expect("read the source");
    let errors = errors(sdk, name, &source, command);
    let mut expected_lines = BTreeSet::new();
    for (line, text) in source.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        for expected in text.split("//~").skip(1).map(str::trim) {
            expected_lines.insert(line);
            let told = errors.iter().any(|(at, error)| *at == line && error.contains(expected));
            assert!(told, "line {line} of {name}.rs: no error with {expected:?} in {errors:#?}");
        }
    }
    assert!(!expected_lines.is_empty());
    let told_lines: BTreeSet<usize> = errors.iter().map(|(line, _)| *line).collect();
    assert_eq!(told_lines, expected_lines, "{errors:#?}");
}

/// The errors that a crate of this source gives, with their lines.
fn errors(sdk: &Path, name: &str, source: &str, command: &[&str]) -> Vec<(usize, String)> {
    let folder = scratch_crate(sdk, name, source);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(command)
        .args(["--quiet", "--message-format=short", "--target-dir"])
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages"))
        .current_dir(&folder)
        .output()
        .expect("run cargo");
    assert!(!output.status.success(), "{name}.rs compiles");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    // src/main.rs:7:5: error: what is wrong
    let error = |line: &str| {
        let (at, message) = line.strip_prefix("src/main.rs:")?.split_once(" error")?;
        Some((at.split(':').next()?.parse().ok()?, message.to_owned()))
    };
    let errors: Vec<_> = text.lines().filter_map(error).collect();
    assert!(!errors.is_empty(), "no errors of {name}.rs, but: {text}");
    errors
}

fn scratch_crate(sdk: &Path, name: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("messages-{name}"));
    fs::create_dir_all(folder.join("src")).expect("a folder for the crate");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nhourhand-sdk = {{ path = {:?} }}\n\n[workspace]\n",
        sdk.display().to_string()
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("write the manifest");
    // The versions that are here already.
    fs::copy(sdk.join("../Cargo.lock"), folder.join("Cargo.lock")).expect("copy the lock file");
    fs::write(folder.join("src/main.rs"), source).expect("write the source");
    folder
}
