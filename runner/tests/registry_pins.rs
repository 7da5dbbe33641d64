//! Pinned handlers: what serves is what the pin names, whatever lies in the folder, on every runner of the folder.

mod folder;
mod guests;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use folder::*;
use guests::{echo, guest, ok};
use hourhand::names::Name;
use hourhand::registry::{Registry, RegistryConfig, Snapshot, Status, VERSIONS_KEPT, Versions, pins};

/// A runner's registry with versions kept in a cache of its own.
fn with_cache(dir: &Path, cache: &Path) -> Registry {
    let versions = Some(Versions::of_folder(cache, dir));
    Registry::start(RegistryConfig { versions, ..RegistryConfig::new(dir.to_owned()) }, sandbox()).unwrap()
}

fn pin_by_hand(dir: &Path, stem: &str, hash: &str) {
    fs::write(dir.join(".staged"), hash).unwrap();
    fs::rename(dir.join(".staged"), pins::pin_file(dir, stem)).unwrap();
}

/// The folder holds `folder` and the pin names `pinned`.
fn is_pinned<'a>(pinned: &'a str, folder: &'a str) -> impl Fn(&Snapshot) -> bool + 'a {
    move |snapshot| {
        status_of(snapshot, "k.wasm", Status::Active).is_some_and(|active| {
            active.sha256.as_deref() == Some(pinned)
                && active.pin.as_ref().is_some_and(|pin| pin.folder_sha256.as_deref() == Some(folder))
        })
    }
}

#[tokio::test]
async fn an_old_version_serves_while_it_is_pinned_and_survives_a_restart() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = dir.path().join("k.wasm");
    let (old, new) = (version("old"), version("new"));
    let registry = with_cache(dir.path(), cache.path());
    fs::write(&file, &old).unwrap();
    let old_hash = until_hash(&registry, "k", &old).await;
    fs::write(&file, &new).unwrap();
    let new_hash = until_hash(&registry, "k", &new).await;

    // Twelve digits, as they stand in records of runs, are enough.
    pin_by_hand(dir.path(), "k", &old_hash[..12]);
    until(&registry, is_pinned(&old_hash, &new_hash)).await;
    // A newer file is loaded, and does not serve; a broken one is said, and does no harm.
    let newer = version("newer");
    fs::write(&file, &newer).unwrap();
    until(&registry, is_pinned(&old_hash, &hash_of(&newer))).await;
    fs::write(&file, "(module)").unwrap();
    let broken = until(&registry, |s| status_of(s, "k.wasm", Status::Broken).is_some()).await;
    assert_eq!(sha256_of(&broken, "k").as_ref(), Some(&old_hash));

    drop(registry);
    fs::write(&file, &newer).unwrap();
    let registry = with_cache(dir.path(), cache.path());
    registry.settled().await;
    assert_eq!(sha256_of(&registry.snapshot(), "k").as_ref(), Some(&old_hash), "after a restart");

    fs::remove_file(pins::pin_file(dir.path(), "k")).unwrap();
    until_hash(&registry, "k", &newer).await;
    assert!(status_of(&registry.snapshot(), "k.wasm", Status::Active).unwrap().pin.is_none());
}

#[tokio::test]
async fn a_runner_that_never_had_the_version_has_it_from_the_copy_beside_the_pin() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (version("old"), version("new"));
    fs::write(dir.path().join("k.wasm"), &new).unwrap();
    pins::write(dir.path(), "k", &old).unwrap();
    // One without any cache, and one with an empty one.
    let cache = tempfile::tempdir().unwrap();
    for registry in [registry(dir.path()), with_cache(dir.path(), cache.path())] {
        registry.settled().await;
        assert_eq!(sha256_of(&registry.snapshot(), "k"), Some(hash_of(&old)));
    }
    // The module itself may go: the pin is the operator's word.
    let registry = registry(dir.path());
    registry.settled().await;
    fs::remove_file(dir.path().join("k.wasm")).unwrap();
    let gone = |s: &Snapshot| {
        status_of(s, "k.wasm", Status::Active)
            .and_then(|active| active.pin.as_ref())
            .is_some_and(|pin| pin.folder_sha256.is_none())
    };
    let snapshot = until(&registry, gone).await;
    assert_eq!(sha256_of(&snapshot, "k"), Some(hash_of(&old)));
    assert!(pins::remove(dir.path(), "k").unwrap());
    until(&registry, |s| s.handlers.is_empty()).await;
}

#[tokio::test]
async fn what_cannot_be_found_leaves_what_serves_and_lets_nothing_new_in() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = dir.path().join("k.wasm");
    let (one, two) = (version("one"), version("two"));
    fs::write(&file, &one).unwrap();
    let running = with_cache(dir.path(), cache.path());
    let one_hash = until_hash(&running, "k", &one).await;
    let lost = "0123456789abcdef";
    for (pin, said) in [(lost, "is in none of"), ("latest", "expected 12 to 64 hex digits")] {
        pin_by_hand(dir.path(), "k", pin);
        let said_so = |s: &Snapshot| {
            let broken = status_of(s, "k.wasm", Status::Broken).and_then(|broken| broken.error.as_ref());
            broken.is_some_and(|error| error.contains(said))
        };
        let snapshot = until(&running, said_so).await;
        assert_eq!(sha256_of(&snapshot, "k").as_ref(), Some(&one_hash), "{pin}");
    }
    pin_by_hand(dir.path(), "k", lost);
    fs::write(&file, &two).unwrap();
    let two_hash = hash_of(&two);
    until(&running, is_pinned(&one_hash, &two_hash)).await;
    // A runner that starts now has nothing that it may run: the jobs wait.
    let started = with_cache(dir.path(), tempfile::tempdir().unwrap().path());
    started.settled().await;
    assert!(started.snapshot().handlers.is_empty());
    assert!(status_of(&started.snapshot(), "k.wasm", Status::Broken).is_some());
    // The copy comes late; a reload looks at once.
    fs::write(dir.path().join("k.wasm"), &one).unwrap();
    pin_by_hand(dir.path(), "k", &one_hash);
    until_hash(&started, "k", &one).await;
    until(&running, |s| status_of(s, "k.wasm", Status::Broken).is_none()).await;
}

#[tokio::test]
async fn a_copy_that_is_not_what_the_pin_says_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (good, bad) = (version("good"), version("bad"));
    fs::write(dir.path().join("k.wasm"), version("folder")).unwrap();
    pins::write(dir.path(), "k", &good).unwrap();
    fs::write(pins::copy_file(dir.path(), "k"), &bad).unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    assert!(registry.snapshot().handlers.is_empty());
    fs::write(pins::copy_file(dir.path(), "k"), &good).unwrap();
    registry.reload();
    until_hash(&registry, "k", &good).await;
}

#[tokio::test]
async fn a_pin_holds_all_kinds_of_a_module_and_jobs_that_run_drain() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = dir.path().join("several.wasm");
    let module =
        |text: &str| guest(ok(0, 0)).text(text).handlers("{\"kind\":\"a\"}\n{\"kind\":\"b\"}").build();
    let registry = with_cache(dir.path(), cache.path());
    fs::write(&file, module("one")).unwrap();
    let one = until_hash(&registry, "a", &module("one")).await;
    fs::write(&file, module("two")).unwrap();
    until_hash(&registry, "a", &module("two")).await;
    let running = Arc::clone(&registry.snapshot().handlers[&Name::new("b").unwrap()]);
    pin_by_hand(dir.path(), "several", &one);
    let snapshot = until(&registry, |s| sha256_of(s, "a").as_ref() == Some(&one)).await;
    assert_eq!(sha256_of(&snapshot, "b"), Some(one));
    assert!(status_of(&snapshot, "several.wasm", Status::Draining).is_some());
    drop((running, snapshot));
    until(&registry, |s| status_of(s, "several.wasm", Status::Draining).is_none()).await;
}

#[tokio::test]
async fn the_last_versions_are_kept_as_they_come_and_broken_ones_are_not() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = dir.path().join("k.wasm");
    let registry = with_cache(dir.path(), cache.path());
    let mut hashes = Vec::new();
    for n in 0..VERSIONS_KEPT + 2 {
        let bytes = version(&format!("version {n}"));
        fs::write(&file, &bytes).unwrap();
        hashes.insert(0, until_hash(&registry, "k", &bytes).await);
    }
    fs::write(&file, echo().pages(9_000).build()).unwrap();
    until(&registry, |s| status_of(s, "k.wasm", Status::Broken).is_some()).await;
    let kept = Versions::of_folder(cache.path(), dir.path()).list("k").unwrap();
    let kept: Vec<&str> = kept.iter().map(|version| version.sha256.as_str()).collect();
    assert_eq!(kept, hashes[..VERSIONS_KEPT]);
}
