//! `src/bindings.rs` and `src/http/bindings.rs` are what the generator makes of `wit/`.
//!
//! After a change of `wit/`: `UPDATE_BINDINGS=1 cargo test -p hourhand-sdk --test bindings`.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_bindings_are_those_of_the_interface() {
    assert_generated("wit", "job-handler", "src/bindings.rs");
}

#[test]
fn the_bindings_of_the_http_client_are_those_of_wasi() {
    assert_generated("wit/wasi", "http-client", "src/http/bindings.rs");
}

fn assert_generated(wit: &str, world: &str, file: &str) {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(sdk.join("bindgen/Cargo.toml"))
        .arg("--target-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("bindgen"))
        .arg("--")
        .arg(sdk.join("..").join(wit))
        .arg(world)
        .output()
        .expect("run cargo");
    assert!(output.status.success(), "generate the bindings: {}", String::from_utf8_lossy(&output.stderr));
    let generated = String::from_utf8(output.stdout).expect("UTF-8");

    let path = sdk.join(file);
    if std::env::var_os("UPDATE_BINDINGS").is_some() {
        fs::write(&path, &generated).expect("write the bindings");
    }
    let checked_in = fs::read_to_string(&path).expect("read the bindings");
    let differ = checked_in.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        checked_in == generated,
        "{file} differs from {wit}/ (first at line {:?}): run this test with UPDATE_BINDINGS=1",
        differ.map(|line| line + 1)
    );
}
