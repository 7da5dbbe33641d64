//! The handlers folder as people and tools treat it: slow copies, renames, links, folders that are exchanged, and
//! file systems that tell nothing.

mod folder;
mod guests;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use folder::*;
use guests::{guest, ok};
use hourhand::registry::{Registry, RegistryConfig, Status};

/// A folder on another file system than that of temporary files, where there is one.
fn elsewhere() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// A valid module of 8 MB.
fn large(byte: u8) -> Vec<u8> {
    guest(ok(0, 0)).pages(160).text(vec![byte; 8 << 20]).build()
}

/// Copies as a slow network would: pieces, with a pause in the middle that is longer than any quiet time.
async fn copy_slowly(registry: &Registry, file: &Path, bytes: &[u8], old: Option<&str>) {
    let mut out = fs::File::create(file).unwrap();
    let pieces: Vec<&[u8]> = bytes.chunks(64 << 10).collect();
    for (n, piece) in pieces.iter().enumerate() {
        out.write_all(piece).unwrap();
        let pause = if n == pieces.len() / 2 { 2_000 } else { 15 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let snapshot = registry.snapshot();
        if n + 1 < pieces.len() {
            assert_eq!(sha256_of(&snapshot, "k").as_deref(), old, "after {n} pieces");
        }
        assert_eq!(status_of(&snapshot, "k.wasm", Status::Broken), None, "after {n} pieces");
    }
}

#[tokio::test]
async fn eight_megabytes_that_come_slowly_are_never_taken_half_nor_reported() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    copy_slowly(&registry, &file, &large(1), None).await;
    let first = hash_of(&large(1));
    until(&registry, |s| sha256_of(s, "k").as_ref() == Some(&first)).await;
    // Over the one that is there: in place, as `cp` does it.
    copy_slowly(&registry, &file, &large(2), Some(&first)).await;
    let second = until(&registry, |s| sha256_of(s, "k") == Some(hash_of(&large(2)))).await;
    assert_eq!(status_of(&second, "k.wasm", Status::Broken), None);
}

#[tokio::test]
async fn a_slow_copy_from_a_clock_that_is_behind_is_not_reported_either() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    let old = version("old");
    fs::write(&file, &old).unwrap();
    let old = until_hash(&registry, "k", &old).await;
    let new = guest(ok(0, 0)).text(vec![7_u8; 60_000]).build();
    let behind = || {
        std::time::UNIX_EPOCH + Duration::from_micros(hourhand::clock::wall_us()) - Duration::from_secs(3_600)
    };
    fs::write(&file, b"").unwrap();
    for piece in new.chunks(8_000) {
        let mut out = fs::OpenOptions::new().append(true).open(&file).unwrap();
        out.write_all(piece).unwrap();
        out.set_modified(behind()).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let snapshot = registry.snapshot();
        assert_eq!(status_of(&snapshot, "k.wasm", Status::Broken), None);
        assert!(sha256_of(&snapshot, "k").is_some_and(|hash| hash == old || hash == hash_of(&new)));
    }
    until_hash(&registry, "k", &new).await;
}

#[tokio::test]
async fn a_file_comes_by_rename_from_here_and_from_another_file_system_and_by_rewriting() {
    let dir = tempfile::tempdir().unwrap();
    let other = elsewhere();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    for (n, from) in [dir.path(), other.path(), dir.path(), other.path()].into_iter().enumerate() {
        let bytes = version(&format!("renamed {n}"));
        let staged = from.join("staged");
        fs::write(&staged, &bytes).unwrap();
        let moved = std::process::Command::new("mv").arg(&staged).arg(&file).status().unwrap();
        assert!(moved.success());
        until_hash(&registry, "k", &bytes).await;
        let bytes = version(&format!("rewritten {n}"));
        let mut out = fs::OpenOptions::new().write(true).truncate(true).open(&file).unwrap();
        out.write_all(&bytes).unwrap();
        until_hash(&registry, "k", &bytes).await;
    }
}

#[tokio::test]
async fn what_editors_and_tools_leave_beside_a_module_is_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = version("good");
    fs::write(dir.path().join("k.wasm"), &bytes).unwrap();
    for name in [
        "k.wasm~",
        "k.wasm.tmp",
        "k.wasm.part",
        ".k.wasm.swp",
        ".k.wasm.Xa12",
        "#k.wasm#",
        "4913",
        "k.wasm.bak",
    ] {
        fs::write(dir.path().join(name), "half a mod").unwrap();
    }
    fs::create_dir(dir.path().join("folder.wasm")).unwrap();
    symlink("nowhere", dir.path().join("dangling.wasm")).unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    let snapshot = registry.snapshot();
    assert_eq!(snapshot.files.len(), 1, "{:#?}", snapshot.files);
    // As editors save: the old file is renamed, and the new one written under its name.
    let better = version("better");
    fs::rename(dir.path().join("k.wasm"), dir.path().join("k.wasm~")).unwrap();
    fs::write(dir.path().join("k.wasm"), &better).unwrap();
    let snapshot = until(&registry, |s| sha256_of(s, "k") == Some(hash_of(&better))).await;
    assert_eq!(snapshot.files.iter().filter(|f| f.status == Status::Broken).count(), 0);
}

/// As Kubernetes mounts a ConfigMap: files are links through `..data`, which is exchanged as a whole.
#[tokio::test]
async fn a_config_map_is_followed_through_many_flips() {
    let dir = tempfile::tempdir().unwrap();
    let publish = |n: u32| {
        let (folder, bytes) = (format!("..2026_{n}"), version(&format!("flip {n}")));
        fs::create_dir(dir.path().join(&folder)).unwrap();
        fs::write(dir.path().join(&folder).join("k.wasm"), &bytes).unwrap();
        symlink(&folder, dir.path().join("..data_tmp")).unwrap();
        fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
        if n > 0 {
            fs::remove_dir_all(dir.path().join(format!("..2026_{}", n - 1))).unwrap();
        }
        bytes
    };
    let first = publish(0);
    symlink("..data/k.wasm", dir.path().join("k.wasm")).unwrap();
    let registry = registry(dir.path());
    until_hash(&registry, "k", &first).await;
    for n in 1..5 {
        let bytes = publish(n);
        until_hash(&registry, "k", &bytes).await;
    }
    let snapshot = registry.snapshot();
    assert!(snapshot.files.iter().all(|file| file.status != Status::Broken), "{:#?}", snapshot.files);
}

/// Two folders with a version of `k` each, and the link or the name that leads to one of them.
fn two_releases() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    for n in [1, 2] {
        let folder = root.path().join(format!("release{n}"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("k.wasm"), version(&format!("release {n}"))).unwrap();
    }
    let handlers = root.path().join("handlers");
    (root, handlers)
}

#[tokio::test]
async fn a_link_to_the_folder_is_followed_when_it_is_flipped() {
    let (root, handlers) = two_releases();
    symlink("release1", &handlers).unwrap();
    let registry = registry(&handlers);
    until_hash(&registry, "k", &version("release 1")).await;
    symlink("release2", root.path().join("next")).unwrap();
    fs::rename(root.path().join("next"), &handlers).unwrap();
    until_hash(&registry, "k", &version("release 2")).await;
    // It is the new folder that is watched.
    fs::write(root.path().join("release2/late.wasm"), version("late")).unwrap();
    until_hash(&registry, "late", &version("late")).await;
}

#[tokio::test]
async fn a_folder_that_is_replaced_is_followed_and_meanwhile_nothing_is_unloaded() {
    let (root, handlers) = two_releases();
    fs::rename(root.path().join("release1"), &handlers).unwrap();
    let registry = registry(&handlers);
    let first = until_hash(&registry, "k", &version("release 1")).await;
    fs::rename(&handlers, root.path().join("old")).unwrap();
    // No folder at all, as while a network folder is away, for longer than two scans.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(sha256_of(&registry.snapshot(), "k"), Some(first));
    fs::rename(root.path().join("release2"), &handlers).unwrap();
    until_hash(&registry, "k", &version("release 2")).await;
    // Deleted and made anew, perhaps with the same number.
    fs::remove_dir_all(&handlers).unwrap();
    fs::create_dir(&handlers).unwrap();
    fs::write(handlers.join("k.wasm"), version("anew")).unwrap();
    until_hash(&registry, "k", &version("anew")).await;
}

#[tokio::test]
async fn without_events_the_scan_finds_everything() {
    let dir = tempfile::tempdir().unwrap();
    let config = RegistryConfig {
        events: false,
        scan_every: Duration::from_millis(500),
        ..RegistryConfig::new(dir.path().to_owned())
    };
    let registry = Registry::start(config, sandbox()).unwrap();
    let file = dir.path().join("k.wasm");
    for n in 0..3 {
        let bytes = version(&format!("scanned {n}"));
        fs::write(&file, &bytes).unwrap();
        until_hash(&registry, "k", &bytes).await;
    }
    fs::remove_file(&file).unwrap();
    until(&registry, |s| s.handlers.is_empty()).await;
}

#[tokio::test]
async fn a_reload_tries_once_more_what_did_not_load() {
    let dir = tempfile::tempdir().unwrap();
    let config = RegistryConfig {
        events: false,
        scan_every: Duration::from_secs(3_600),
        ..RegistryConfig::new(dir.path().to_owned())
    };
    fs::write(dir.path().join("k.wasm"), "(module)").unwrap();
    fs::File::open(dir.path().join("k.wasm")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let registry = Registry::start(config, sandbox()).unwrap();
    registry.settled().await;
    let before = status_of(&registry.snapshot(), "k.wasm", Status::Broken).expect("broken").since_ms;
    // Times are milliseconds: the second try is to have one of its own.
    tokio::time::sleep(Duration::from_millis(5)).await;
    registry.reload();
    until(&registry, |s| status_of(s, "k.wasm", Status::Broken).is_some_and(|b| b.since_ms > before)).await;
    // And it is a scan: nothing else would find this within the hour.
    fs::write(dir.path().join("k.wasm"), version("good")).unwrap();
    registry.reload();
    until_hash(&registry, "k", &version("good")).await;
}
