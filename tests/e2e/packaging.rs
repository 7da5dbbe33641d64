//! What is shipped: one binary that needs no files beside it, the systemd unit, the Dockerfile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use hourhand::config::layers::KEYS;
use hourhand::wire::units::duration_ms;
use serde_json::Value;

use crate::harness::guests::guest;
use crate::harness::redis_server::RedisServer;

const BINARY: &str = env!("CARGO_BIN_EXE_hourhand");

fn from_root(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a binary that stands alone: nothing beside it, and nothing in its environment but where temporary files go.
fn alone(dir: &Path, store: Option<&str>, args: &[&str]) -> Output {
    let output = Command::new(dir.join("hourhand"))
        .args(args)
        .args(store.map(|store| ["--store", store]).into_iter().flatten())
        .current_dir(dir)
        .env_clear()
        .env("TMPDIR", dir.join("tmp"))
        .stdin(Stdio::null())
        .output()
        .expect("run the binary");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn the_binary_alone_in_an_empty_folder_with_an_empty_environment_is_enough() {
    let redis = RedisServer::start();
    for store in [None, Some(redis.url().as_str())] {
        a_binary_alone_does_its_work(store);
    }
}

/// On the store that is named, or on the embedded one that it makes.
fn a_binary_alone_does_its_work(store: Option<&str>) {
    let dir = tempfile::tempdir().expect("a folder");
    fs::copy(BINARY, dir.path().join("hourhand")).expect("copy the binary");
    fs::create_dir(dir.path().join("tmp")).expect("a folder for temporary files");
    fs::create_dir(dir.path().join("handlers")).expect("a handlers folder");
    let handler = dir.path().join("handlers/echo.wasm");
    fs::copy(guest("echo"), &handler).expect("copy a handler");

    let run = |args: &[&str]| alone(dir.path(), store, args);
    run(&["handler", "check", "handlers/echo.wasm"]);
    run(&["enqueue", "echo", "[1]", "--id", "one"]);
    run(&["run", "--until-idle"]);
    let shown = run(&["job", "show", "one", "--json"]);
    let job: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!((&job["state"], &job["result"]), (&"completed".into(), &"[1]".into()), "{job:#}");
    assert_eq!(dir.path().join("hourhand.db").exists(), store.is_none());
}

#[test]
fn the_umask_says_whether_the_group_shares_a_store() {
    for (umask, wanted) in [("007", 0o660), ("022", 0o640), ("077", 0o600)] {
        let dir = tempfile::tempdir().expect("a folder");
        let line = format!("umask {umask}; exec {BINARY} enqueue echo 1");
        let output = Command::new("sh").args(["-c", &line]).current_dir(&dir).env_clear().output();
        assert!(output.expect("run a shell").status.success(), "umask {umask}");
        let facts = fs::metadata(dir.path().join("hourhand.db")).expect("a store");
        assert_eq!(facts.permissions().mode() & 0o777, wanted, "umask {umask}");
    }
}

#[test]
fn the_binary_needs_no_library_but_those_of_every_debian() {
    let output = Command::new("ldd").arg(BINARY).output().expect("ldd is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let allowed =
        ["linux-vdso", "libc.so", "libm.so", "libgcc_s.so", "libdl.so", "libpthread.so", "librt.so"];
    for line in text.lines() {
        let name = line.trim().split(' ').next().unwrap_or_default();
        let known = allowed.iter().any(|known| name.starts_with(known)) || name.contains("/ld-linux");
        assert!(known, "{name} is none of {allowed:?}:\n{text}");
    }
    assert!(text.contains("libc.so"), "{text}");
}

/// The keys of a unit's section, each with its values in order.
fn unit() -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in from_root("runner/packaging/hourhand.service").lines() {
        if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            keys.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
    keys
}

#[track_caller]
fn is_setting(variable: &str) {
    let key = variable.strip_prefix("HOURHAND_").unwrap_or_default().to_lowercase();
    assert!(KEYS.contains(&key.as_str()), "{variable} is no setting");
}

#[test]
fn the_unit_sets_what_exists_and_leaves_time_for_a_graceful_stop() {
    let unit = unit();
    for setting in &unit["Environment"] {
        is_setting(setting.split_once('=').expect("a value").0);
    }
    let time_of = |key: &str| {
        let text = unit[key].last().expect("a value");
        Duration::from_millis(duration_ms(text).unwrap_or_else(|e| panic!("{key}: {e}")))
    };
    // The default grace, the last words of guests and outcomes, and one call to the store.
    assert!(time_of("TimeoutStopSec") >= Duration::from_secs(25 + 2 + 2 + 10));
    // A step of a loop ends within a call to the store and a second, and three looks of four may be missed.
    assert!(time_of("WatchdogSec") >= Duration::from_secs(30));
    assert_eq!(unit["Type"], ["notify"]);
    // Whoever may install handlers must not write the file that binds them.
    assert_eq!(unit["WorkingDirectory"], ["/etc/hourhand"]);
}

#[test]
fn the_dockerfile_builds_with_the_rust_that_the_workspace_names() {
    let manifest: toml::Table = from_root("Cargo.toml").parse().expect("TOML");
    let rust = manifest["workspace"]["package"]["rust-version"].as_str().expect("a version").to_owned();
    let dockerfile = from_root("Dockerfile");
    assert!(dockerfile.lines().any(|line| line.starts_with(&format!("FROM rust:{rust}-"))), "not {rust}");
    for line in dockerfile.lines() {
        for word in line.split_whitespace().filter(|word| word.starts_with("HOURHAND_")) {
            is_setting(word.split_once('=').expect("a value").0);
        }
    }
}
