//! What a guest sees of files and variables: what its grants name, and nothing else.

use std::fs;

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
/// operator allowed is ours to see to: somebody may have put a link in its place since.
fn give_dir(wasi: &mut WasiCtxBuilder, dir: &DirGrant) -> Result<(), String> {
    let real = fs::canonicalize(&dir.host).map_err(|error| error.to_string())?;
    if real != dir.host {
        return Err(format!("it is a link to {}", real.display()));
    }
    let perms = if dir.writable { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
    wasi.preopened_dir(&real, &dir.guest, perms).map(drop).map_err(|error| format!("{error:#}"))
}
