//! Who may import whom (ARCHITECTURE.md), by grep.

use std::fs;
use std::path::{Path, PathBuf};

/// Every source file of the runner, with its path below `runner/src` and its code without comments.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a source folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let code: Vec<&str> = text.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
                let name = path.strip_prefix(&root).expect("below the root").display().to_string();
                found.push((name, code.join("\n")));
            }
        }
    }
    assert!(found.len() > 30, "found only {} files", found.len());
    found
}

/// Fails when `word` stands in a file whose path starts with none of `allowed`.
#[track_caller]
fn only_in(word: &str, allowed: &[&str]) {
    let strays: Vec<String> = sources()
        .into_iter()
        .filter(|(name, code)| !allowed.iter().any(|a| name.starts_with(a)) && code.contains(word))
        .map(|(name, _)| name)
        .collect();
    assert!(strays.is_empty(), "{word:?} belongs in {allowed:?}, and stands in {strays:?}");
}

#[test]
fn only_the_redis_store_knows_redis() {
    only_in("::redis::", &["queue/redis", "app.rs", "cli"]);
    only_in("use redis", &["queue/redis"]);
    only_in("redis::cmd", &["queue/redis"]);
}

#[test]
fn only_the_embedded_store_knows_sqlite() {
    only_in("rusqlite", &["queue/sqlite"]);
    for verb in ["SELECT ", "INSERT INTO ", "DELETE FROM ", "BEGIN IMMEDIATE"] {
        only_in(verb, &["queue/sqlite"]);
    }
}

#[test]
fn only_the_sandbox_knows_wasmtime() {
    only_in("wasmtime", &["sandbox"]);
    only_in("wit_component", &["sandbox"]);
}

#[test]
fn only_the_clock_reads_time() {
    only_in("Instant::now", &["clock.rs"]);
    only_in("SystemTime::now", &["clock.rs"]);
    only_in("Timestamp::now", &["clock.rs"]);
    only_in("Zoned::now", &["clock.rs"]);
}

#[test]
fn nobody_imports_the_composition_root_but_the_command_line() {
    only_in("crate::app", &["cli", "main.rs"]);
}

#[test]
fn the_worker_knows_the_store_contract_and_no_store() {
    for (name, code) in sources() {
        if name.starts_with("worker") || name.starts_with("upkeep") {
            assert!(
                !code.contains("queue::redis") && !code.contains("queue::sqlite"),
                "{name} names a store"
            );
        }
        if name.starts_with("queue") {
            assert!(!code.contains("crate::registry") && !code.contains("crate::sandbox"), "{name} looks up");
        }
        if name.starts_with("sandbox") {
            assert!(!code.contains("crate::queue") && !code.contains("crate::worker"), "{name} looks up");
        }
    }
}

#[test]
fn the_domain_does_no_io() {
    for (name, code) in sources() {
        if ["job.rs", "outcome.rs", "backoff.rs", "names.rs"].contains(&name.as_str()) {
            for word in ["std::fs", "std::net", "tokio::", "std::io", "std::env"] {
                assert!(!code.contains(word), "{name} uses {word}");
            }
        }
    }
}
