//! A folder that only this user may enter: for compiled code, and for what will be compiled.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bits of a mode: others may write, and who may write may not remove what is another's.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Makes the folder, with those above it, and refuses one that others may write or put another in the place of. Gives its path
/// without links, which is the one to use.
///
/// # Errors
/// When it cannot be made, belongs to somebody else, or others may write it or a folder above it.
pub(crate) fn make(dir: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    check(dir)
}

/// Refuses a folder that others may write or put another in the place of. Gives its path without links, which is the one to
/// use: nobody else can change what it leads to.
///
/// # Errors
/// When it is not there, belongs to somebody else, or others may write it or a folder above it.
pub(crate) fn check(dir: &Path) -> io::Result<PathBuf> {
    let real = fs::canonicalize(dir)?;
    let us = own_user();
    let metadata = fs::metadata(&real)?;
    if metadata.uid() != us || metadata.mode() & OTHERS_WRITE != 0 {
        return Err(denied(
            "code is only kept in a folder that belongs to this user and that nobody else may write"
                .to_owned(),
        ));
    }
    for above in real.ancestors().skip(1) {
        let metadata = fs::metadata(above)?;
        if let Some(why) = distrust(&metadata, us) {
            return Err(denied(format!(
                "code is only kept below folders that nobody else may change, and {} {why}: choose another cache folder",
                above.display()
            )));
        }
    }
    Ok(real)
}

/// Why somebody else could put another folder in the place of one below this.
fn distrust(metadata: &Metadata, us: u32) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != 0 && owner != us {
        return Some(format!("belongs to user {owner}, who is neither root nor the runner's user {us}"));
    }
    (mode & OTHERS_WRITE != 0 && mode & STICKY == 0)
        .then(|| format!("may be written by others (mode {:03o})", mode & 0o777))
}

fn denied(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

/// Who we are.
fn own_user() -> u32 {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_others_may_put_in_its_place_is_not_trusted() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let code = root.join("a/b/code");
        assert_eq!(make(&code).unwrap(), code);
        for mode in [0o777, 0o775, 0o757] {
            set(&root.join("a"), mode);
            let error = make(&code).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let named = format!("{} may be written by others (mode {mode:03o})", root.join("a").display());
            assert!(error.to_string().contains(&named), "{error}");
        }
        // As the system's folder for temporary files is.
        set(&root.join("a"), 0o1777);
        assert_eq!(check(&code).unwrap(), code);
        set(&root.join("a"), 0o755);

        // A link is followed once, and where it led is what is checked and used.
        symlink(root.join("a"), root.join("link")).unwrap();
        assert_eq!(check(&root.join("link/b/code")).unwrap(), code);
        set(&root.join("a"), 0o777);
        assert!(check(&root.join("link/b/code")).is_err());
    }

    #[test]
    fn a_folder_of_somebody_else_above_it_is_named() {
        let root = fs::metadata("/").unwrap();
        assert!(distrust(&root, own_user()).is_none_or(|why| why.contains("belongs to user")));
        let mine = tempfile::tempdir().unwrap();
        let metadata = fs::metadata(mine.path()).unwrap();
        assert_eq!(distrust(&metadata, metadata.uid()), None);
        if metadata.uid() != 0 {
            let why = distrust(&metadata, metadata.uid() + 1).unwrap();
            assert!(why.contains(&format!("belongs to user {}", metadata.uid())), "{why}");
        }
    }
}
