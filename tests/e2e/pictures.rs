//! Binary work on real input: photographs through the `thumbnail` handler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::photographs::photographs;

const SOON: Duration = Duration::from_secs(30);

on_both_stores! {
    photographs_become_the_same_thumbnails_as_natively
    what_is_no_picture_goes_to_the_dead_letters
}

/// Scales a picture with the handler's own code, outside any sandbox.
fn scaled_natively(picture: &Path, to: PathBuf) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "run",
            "--quiet",
            "--locked",
            "--package",
            "thumbnail",
            "--example",
            "scale",
            "--manifest-path",
        ])
        .arg(root.join("guest-examples/Cargo.toml"))
        .arg("--target-dir")
        .arg(root.join("target/guests-native"))
        .arg("--")
        .args([picture, &to])
        .output()
        .expect("run cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(to).expect("read the thumbnail")
}

fn decoded(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().expect("base64")).expect("valid base64")
}

fn photographs_become_the_same_thumbnails_as_natively(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["thumbnail"]);
    let _runner = here.runner(&[]);
    for picture in photographs() {
        let name = picture.file_name().expect("a name").to_str().expect("UTF-8");
        here.ok(&["enqueue", "thumbnail", "--payload-file", picture.to_str().unwrap(), "--id", name]);
        let native = scaled_natively(&picture, here.dir.path().join("scaled.png"));
        let job = here.job_in(name, "completed", SOON);
        assert_eq!(decoded(&job["payload_base64"]), fs::read(&picture).unwrap(), "{name}: payload");
        let thumbnail = decoded(&job["result_base64"]);
        assert_eq!(thumbnail, native, "{name}: {} and {} bytes", thumbnail.len(), native.len());
        assert!(thumbnail.len() > 10_000 && thumbnail.starts_with(b"\x89PNG"), "{name}: a picture came back");
        // Width and height, the first two numbers of a PNG's header.
        let side = |at: usize| u32::from_be_bytes(thumbnail[at..at + 4].try_into().unwrap());
        assert_eq!(side(16).max(side(20)), 256, "{name}");
    }
}

fn what_is_no_picture_goes_to_the_dead_letters(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["thumbnail"]);
    let _runner = here.runner(&[]);
    let photograph = fs::read(&photographs()[0]).unwrap();
    for (id, payload) in [("text", &b"no picture"[..]), ("half", &photograph[..photograph.len() / 2])] {
        let file = here.dir.path().join(id);
        fs::write(&file, payload).unwrap();
        here.ok(&["enqueue", "thumbnail", "--payload-file", file.to_str().unwrap(), "--id", id]);
        let job = here.job_in(id, "dead", SOON);
        assert_eq!((&job["error"]["reason"], &job["attempt"]), (&"decode".into(), &1.into()), "{job:#}");
    }
}
