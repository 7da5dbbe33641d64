//! The handlers folder, with real files: what is dropped in, replaced, broken and removed.

mod folder;
mod guests;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use folder::*;
use guests::{Guest, echo, guest, ok, spin};
use hourhand::manifest::Operator;
use hourhand::names::Name;
use hourhand::registry::{Registry, RegistryConfig, Snapshot, Status, Verdict, verdict};
use hourhand::sandbox::Limits;

/// What `handler check` says, without a ceiling.
fn looked_at(path: &Path, bytes: &[u8]) -> Verdict {
    verdict(path, bytes, &Operator::default(), Limits::default().memory_bytes)
}

#[tokio::test]
async fn what_is_there_at_the_start_serves_once_settled() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("order_close.wasm"), echo().build()).unwrap();
    let several = r#"{"kind":"b","timeout_ms":3000,"max_attempts":7,"backoff":{"base_ms":5},"keep_results":true}
{"kind":"c"}"#;
    fs::write(dir.path().join("several.wasm"), echo().handlers(several).build()).unwrap();
    fs::write(dir.path().join(".hidden.wasm"), echo().build()).unwrap();
    fs::write(dir.path().join("copy.wasm.part"), echo().build()).unwrap();
    fs::write(dir.path().join("readme.txt"), "no handler").unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    let snapshot = registry.snapshot();
    let kinds: Vec<&str> = snapshot.handlers.keys().map(Name::as_str).collect();
    assert_eq!(kinds, ["b", "c", "order_close"]);
    let b = &snapshot.handlers[&Name::new("b").unwrap()];
    assert_eq!((b.limits.timeout_ms, b.max_attempts, b.backoff.base_ms), (3000, 7, 5));
    assert!(b.keep_results && b.sha256.starts_with(&b.hash) && b.hash.len() == 12);
    let c = &snapshot.handlers[&Name::new("c").unwrap()];
    assert_eq!((c.limits.timeout_ms, c.max_attempts, c.keep_results), (30_000, 5, false));
    assert!(Arc::ptr_eq(&b.module, &c.module));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_said_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nowhere");
    let error = Registry::start(RegistryConfig::new(missing), sandbox()).err().expect("no registry");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn a_file_is_dropped_in_replaced_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    assert!(registry.snapshot().handlers.is_empty());

    let file = dir.path().join("k.wasm");
    fs::write(&file, version("one")).unwrap();
    let first = until(&registry, serves("k")).await;
    let first_hash = sha256_of(&first, "k").unwrap();

    let next = dir.path().join("k.wasm.tmp");
    fs::write(&next, version("two")).unwrap();
    fs::rename(&next, &file).unwrap();
    let second = until(&registry, |s| sha256_of(s, "k").is_some_and(|hash| hash != first_hash)).await;
    assert!(second.generation > first.generation);
    assert!(status_of(&second, "k.wasm", Status::Active).is_some());

    // A job still holds the first version: it drains.
    let held = Arc::clone(&first.handlers[&Name::new("k").unwrap()]);
    drop(first);
    let draining = until(&registry, |s| status_of(s, "k.wasm", Status::Draining).is_some()).await;
    assert_eq!(status_of(&draining, "k.wasm", Status::Draining).unwrap().sha256, Some(first_hash));
    drop((held, draining));
    until(&registry, |s| status_of(s, "k.wasm", Status::Draining).is_none()).await;

    fs::remove_file(&file).unwrap();
    let gone = until(&registry, |s| s.handlers.is_empty()).await;
    assert!(status_of(&gone, "k.wasm", Status::Active).is_none());
}

#[tokio::test]
async fn a_broken_file_leaves_the_last_good_version_serving_until_a_good_one_comes() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    fs::write(&file, version("good")).unwrap();
    let good = sha256_of(&*until(&registry, serves("k")).await, "k");

    fs::write(&file, "(module)").unwrap();
    let broken = until(&registry, |s| status_of(s, "k.wasm", Status::Broken).is_some()).await;
    let error = status_of(&broken, "k.wasm", Status::Broken).unwrap().error.clone().unwrap();
    assert!(error.contains("WebAssembly text"), "{error}");
    assert_eq!(sha256_of(&broken, "k"), good);
    assert!(status_of(&broken, "k.wasm", Status::Active).is_some());

    fs::write(&file, version("better")).unwrap();
    let better = until(&registry, |s| sha256_of(s, "k") != good).await;
    assert!(sha256_of(&better, "k").is_some());
    assert!(status_of(&better, "k.wasm", Status::Broken).is_none());
}

fn append(file: &Path, bytes: &[u8]) {
    use std::io::Write;
    fs::OpenOptions::new().append(true).create(true).open(file).unwrap().write_all(bytes).unwrap();
}

#[tokio::test]
async fn a_slow_copy_is_never_reported_nor_loaded_half() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    let old = version("old");
    fs::write(&file, &old).unwrap();
    let old_hash = sha256_of(&*until(&registry, serves("k")).await, "k").unwrap();

    let new = guest(ok(0, 0)).text(vec![7_u8; 60_000]).build();
    fs::write(&file, b"").unwrap();
    let mut seen = Vec::new();
    for (n, piece) in new.chunks(8_000).enumerate() {
        append(&file, piece);
        // Longer than the quiet time in the middle: half a module looks complete then.
        let pause = if n == 3 { 1_500 } else { 60 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let snapshot = registry.snapshot();
        seen.push(sha256_of(&snapshot, "k").unwrap());
        assert_eq!(status_of(&snapshot, "k.wasm", Status::Broken), None);
    }
    assert!(seen.iter().all(|hash| *hash == old_hash));
    let done = until(&registry, |s| sha256_of(s, "k").unwrap() != old_hash).await;
    assert_eq!(status_of(&done, "k.wasm", Status::Broken), None);
}

#[tokio::test]
async fn a_file_that_is_touched_without_end_still_loads() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let file = dir.path().join("k.wasm");
    fs::write(&file, version("touched")).unwrap();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let touching = tokio::spawn(async move {
        while stopped.try_recv().is_err() {
            let now = std::time::UNIX_EPOCH + Duration::from_micros(hourhand::clock::wall_us());
            fs::File::open(&file).unwrap().set_modified(now).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    until(&registry, serves("k")).await;
    stop.send(()).unwrap();
    touching.await.unwrap();
}

#[tokio::test]
async fn names_that_are_no_kinds_are_reserved_or_too_large_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let echo_bytes = echo().build();
    for name in ["a b.wasm", "k.next.wasm", "schedules.wasm"] {
        fs::write(dir.path().join(name), &echo_bytes).unwrap();
    }
    let declared = echo().handlers(r#"{"kind":"fine"}"#).build();
    fs::write(dir.path().join("a name that is no kind.wasm"), declared).unwrap();
    // Sparse: 2 GiB that nobody reads.
    fs::File::create(dir.path().join("big.wasm")).unwrap().set_len(2 << 30).unwrap();
    for n in 0..2_000 {
        fs::write(dir.path().join(format!("unrelated-{n}")), "").unwrap();
    }
    let registry = registry(dir.path());
    registry.settled().await;
    let all = |s: &Snapshot| s.files.iter().filter(|f| f.status == Status::Broken).count() == 4;
    let snapshot = until(&registry, all).await;
    for (file, said) in [
        ("a b.wasm", "invalid name"),
        ("k.next.wasm", "reserved"),
        ("schedules.wasm", "reserved"),
        ("big.wasm", "module limit"),
    ] {
        let error = status_of(&snapshot, file, Status::Broken).unwrap().error.clone().unwrap();
        assert!(error.contains(said), "{file}: {error}");
    }
    let kinds: Vec<&str> = snapshot.handlers.keys().map(Name::as_str).collect();
    assert_eq!(kinds, ["fine"]);
}

#[tokio::test]
async fn a_check_gives_the_verdict_of_the_runner() {
    let dir = tempfile::tempdir().unwrap();
    let fine = echo().build();
    let declared = echo().handlers("{\"kind\":\"one\"}\n{\"kind\":\"two\"}").build();
    let files = [
        ("k.wasm", fine.clone()),
        ("x.next.wasm", fine.clone()),
        ("schedules.wasm", fine.clone()),
        ("no kind.wasm", fine.clone()),
        ("a name that is none.wasm", declared),
        ("text.wasm", b"(module)".to_vec()),
        // 187.5 MiB, and a page more and no page more than a handler may have.
        ("large.wasm", echo().pages(3_000).build()),
        ("over.wasm", echo().pages(2_049).build()),
        ("exact.wasm", echo().pages(2_048).build()),
        ("section.wasm", echo().handlers("{").build()),
    ];
    for (name, bytes) in &files {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        // Old enough for a failure to be said at once.
        fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let registry = registry(dir.path());
    registry.settled().await;
    let snapshot = registry.snapshot();
    let mut served = Vec::new();
    for (name, bytes) in &files {
        let path = dir.path().join(name);
        let broken = status_of(&snapshot, name, Status::Broken).and_then(|status| status.error.clone());
        let verdict = looked_at(&path, bytes);
        assert_eq!(verdict.refusal, broken, "{name}");
        let of_file = snapshot.handlers.values().filter(|handler| handler.file == path);
        let kinds: Vec<_> = of_file.map(|handler| handler.kind.clone()).collect();
        if broken.is_none() {
            assert_eq!(verdict.kinds, kinds, "{name}");
        }
        served.extend(kinds.into_iter().map(|kind| kind.to_string()));
    }
    served.sort();
    assert_eq!(served, ["exact", "k", "one", "two"]);
    for unseen in [".k.wasm", "k.wasm.tmp"] {
        assert!(looked_at(&dir.path().join(unseen), &fine).refusal.is_some(), "{unseen}");
    }
}

fn with_kind(kind: &str, text: &str) -> Guest {
    guest(ok(0, 0)).text(text).handlers(&format!(r#"{{"kind":"{kind}"}}"#))
}

#[tokio::test]
async fn of_two_files_for_one_kind_the_one_named_after_it_serves() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.wasm"), with_kind("z", "a").build()).unwrap();
    fs::write(dir.path().join("b.wasm"), with_kind("z", "b").build()).unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    let snapshot = registry.snapshot();
    let z = Name::new("z").unwrap();
    assert!(snapshot.handlers[&z].file.ends_with("a.wasm"), "the first by name");
    let error = status_of(&snapshot, "b.wasm", Status::Broken).unwrap().error.clone().unwrap();
    assert!(error.contains("already served by") && error.contains("a.wasm"), "{error}");

    fs::write(dir.path().join("z.wasm"), version("z")).unwrap();
    let snapshot = until(&registry, |s| s.handlers[&z].file.ends_with("z.wasm")).await;
    assert!(status_of(&snapshot, "a.wasm", Status::Broken).is_some());

    fs::remove_file(dir.path().join("z.wasm")).unwrap();
    until(&registry, |s| s.handlers.get(&z).is_some_and(|h| h.file.ends_with("a.wasm"))).await;
}

#[tokio::test]
async fn links_are_followed_when_they_are_flipped() {
    let dir = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    for (name, text) in [("v1", "one"), ("v2", "two")] {
        fs::create_dir(data.path().join(name)).unwrap();
        fs::write(data.path().join(name).join("k.wasm"), version(text)).unwrap();
    }
    let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
    link(&data.path().join("v1"), &dir.path().join("..data"));
    link(Path::new("..data/k.wasm"), &dir.path().join("k.wasm"));
    let registry = registry(dir.path());
    let first = sha256_of(&*until(&registry, serves("k")).await, "k");
    link(&data.path().join("v2"), &dir.path().join("..data_tmp"));
    fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    until(&registry, |s| sha256_of(s, "k").is_some() && sha256_of(s, "k") != first).await;
}

#[tokio::test]
async fn a_module_that_spins_in_its_start_function_loads_because_nothing_runs() {
    let dir = tempfile::tempdir().unwrap();
    let spinning = spin().start(guests::forever([])).build();
    fs::write(dir.path().join("k.wasm"), spinning).unwrap();
    let registry = registry(dir.path());
    registry.settled().await;
    until(&registry, serves("k")).await;
}

#[tokio::test]
async fn a_change_that_keeps_the_length_and_sets_the_time_back_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("k.wasm");
    let write = |text| {
        fs::write(&file, version(text)).unwrap();
        let file = fs::File::open(&file).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        file.metadata().unwrap()
    };
    let before = write("one");
    let registry = registry(dir.path());
    registry.settled().await;
    let one = sha256_of(&registry.snapshot(), "k").expect("served");
    let after = write("two");
    let id = |m: &fs::Metadata| {
        use std::os::unix::fs::MetadataExt;
        (m.dev(), m.ino(), m.len(), m.modified().unwrap())
    };
    assert_eq!(id(&before), id(&after), "nothing but the time of change tells them apart");
    until(&registry, |s| sha256_of(s, "k").is_some_and(|hash| hash != one)).await;
}
