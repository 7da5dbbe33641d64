//! `files`: does one thing after the other with files, links and variables, and reports what came of each.

use std::{env, fs, io};

use hourhand_sdk::prelude::*;

/// One thing to do.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    Read(String),
    Write(String, String),
    List(String),
    Rename(String, String),
    HardLink(String, String),
    /// Makes a link with this text in the first folder that it was given.
    Symlink(String, String),
    Env(String),
    /// Sleeps so many milliseconds.
    Nap(u64),
}

/// The text that came of each step, or `error: ` and why not.
#[handler(memory = "64MiB", state = false)]
fn files(steps: Vec<Step>) -> Vec<String> {
    let outcome = |step| done(step).unwrap_or_else(|error| format!("error: {error}"));
    steps.into_iter().map(outcome).collect()
}

fn done(step: Step) -> io::Result<String> {
    let nothing = |()| String::new();
    match step {
        Step::Read(path) => fs::read_to_string(path),
        Step::Write(path, text) => fs::write(path, text).map(nothing),
        Step::List(path) => {
            let names =
                fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            let mut names = names.collect::<io::Result<Vec<_>>>()?;
            names.sort();
            Ok(names.join(","))
        }
        Step::Rename(from, to) => fs::rename(from, to).map(nothing),
        Step::HardLink(from, to) => fs::hard_link(from, to).map(nothing),
        Step::Symlink(text, path) => symlink(&text, &path).map(nothing),
        Step::Env(name) => env::var(name).map_err(io::Error::other),
        Step::Nap(ms) => {
            std::thread::sleep(std::time::Duration::from_millis(ms));
            Ok(String::new())
        }
    }
}

#[cfg(target_family = "wasm")]
fn symlink(text: &str, path: &str) -> io::Result<()> {
    /// The first folder that a WASI program was given.
    const FIRST_FOLDER: u32 = 3;
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        fn path_symlink(
            text: *const u8,
            text_len: usize,
            folder: u32,
            path: *const u8,
            path_len: usize,
        ) -> u16;
    }
    // SAFETY: both texts live through the call, and their lengths are theirs.
    let code = unsafe { path_symlink(text.as_ptr(), text.len(), FIRST_FOLDER, path.as_ptr(), path.len()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.into())) }
}

#[cfg(not(target_family = "wasm"))]
fn symlink(text: &str, path: &str) -> io::Result<()> {
    std::os::unix::fs::symlink(text, path)
}
