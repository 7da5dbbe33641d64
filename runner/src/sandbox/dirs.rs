//! What a guest sees of files and variables: what its grants name, and nothing else.

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

use crate::grants::{DirGrant, Grants};

/// Adds a guest's variables and folders.
///
/// # Errors
/// Why a folder is not given, for people.
pub(super) fn give(wasi: &mut WasiCtxBuilder, grants: &Grants) -> Result<(), String> {
    wasi.envs(&grants.env);
    for dir in &grants.dirs {
        give_dir(wasi, dir).map_err(|error| {
            format!("the folder {} of allow.dirs cannot be given: {error}", dir.host.display())
        })?;
    }
    Ok(())
}

/// WASI itself keeps the guest below the folder, whatever links lead out of it. That the folder is still the one that the
/// operator allowed is ours to see to: somebody may have put a link in its place since. So it is opened once, and what was opened
/// is looked at and given, whatever its path leads to by then.
fn give_dir(wasi: &mut WasiCtxBuilder, dir: &DirGrant) -> Result<(), String> {
    let held = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
        .open(&dir.host)
        .map_err(|error| error.to_string())?;
    let by_handle = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let real = fs::read_link(&by_handle).map_err(|error| format!("{}: {error}", by_handle.display()))?;
    if real != dir.host {
        return Err(format!("it is a link to {}", real.display()));
    }
    let perms = if dir.writable { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
    let given = wasi.preopened_dir(&by_handle, &dir.guest, perms).map(drop);
    // Until here its number is nobody else's.
    drop(held);
    given.map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_given_and_a_link_on_the_way_to_it_is_not() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        fs::create_dir_all(root.join("other/x")).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("other"), root.join("link")).unwrap();
        let given = |below: &str, writable: bool| {
            let dir = DirGrant { host: root.join(below), guest: "/data".to_owned(), writable };
            give_dir(&mut WasiCtxBuilder::new(), &dir)
        };
        assert_eq!(given("real", false), Ok(()));
        assert_eq!(given("real", true), Ok(()));
        let other = root.join("other").display().to_string();
        assert_eq!(given("link", false), Err(format!("it is a link to {other}")));
        assert_eq!(given("link/x", false), Err(format!("it is a link to {other}/x")));
        assert!(given("file", false).unwrap_err().contains("Not a directory"));
        assert!(given("none", false).unwrap_err().contains("No such file"));
    }
}
