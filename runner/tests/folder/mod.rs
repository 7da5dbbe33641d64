//! A handlers folder under a registry, for tests.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::guests::{self, guest, ok};
use hourhand::names::Name;
use hourhand::registry::{HandlerStatus, Registry, RegistryConfig, Snapshot, Status, sha256_of as hash};
use hourhand::sandbox::{Sandbox, SandboxConfig};

/// One for all tests of a file: building a pool for each would only cost time.
pub fn sandbox() -> Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let config = SandboxConfig { concurrency: 4, ..SandboxConfig::default() };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

pub fn registry(dir: &Path) -> Registry {
    Registry::start(RegistryConfig::new(dir.to_owned()), sandbox()).expect("a registry")
}

/// A module whose code differs with `text`.
pub fn version(text: &str) -> Vec<u8> {
    guest(ok(guests::TEXT, text.len() as i32)).text(text).build()
}

pub fn hash_of(bytes: &[u8]) -> String {
    hash(bytes)
}

/// What serves a kind.
pub fn sha256_of(snapshot: &Snapshot, kind: &str) -> Option<String> {
    snapshot.handlers.get(&Name::new(kind).unwrap()).map(|handler| handler.sha256.clone())
}

/// The first snapshot that `wanted` accepts. Events drive it; the limit only ends a failed test.
pub async fn until(registry: &Registry, wanted: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let mut generations = registry.subscribe();
    let search = async {
        loop {
            generations.borrow_and_update();
            let snapshot = registry.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            generations.changed().await.expect("the registry lives");
        }
    };
    match tokio::time::timeout(Duration::from_secs(60), search).await {
        Ok(snapshot) => snapshot,
        Err(_) => panic!("not reached; the last: {:#?}", registry.snapshot().files),
    }
}

/// Waits until these bytes serve the kind; their hash.
pub async fn until_hash(registry: &Registry, kind: &str, bytes: &[u8]) -> String {
    let wanted = hash(bytes);
    until(registry, |s| sha256_of(s, kind).as_ref() == Some(&wanted)).await;
    wanted
}

pub fn serves(kind: &str) -> impl Fn(&Snapshot) -> bool + '_ {
    move |snapshot| sha256_of(snapshot, kind).is_some()
}

pub fn status_of<'a>(snapshot: &'a Snapshot, file: &str, status: Status) -> Option<&'a HandlerStatus> {
    snapshot.files.iter().find(|s| s.status == status && s.file.ends_with(file))
}
