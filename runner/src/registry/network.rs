//! File systems whose changes by other machines make no events here.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// By their numbers in `statfs(2)` and the kernel's `magic.h`.
const KINDS: [(i64, &str); 8] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x7461_636f, "OCFS2"),
];

/// What kind it is, if `path` is on one of them.
pub(super) fn file_system(path: &Path) -> Option<&'static str> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut facts = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is a C string and the pointer is to a statfs of ours, which the call fills.
    if unsafe { libc::statfs(path.as_ptr(), facts.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, and so it has filled it.
    let kind = unsafe { facts.assume_init() }.f_type;
    #[allow(clippy::useless_conversion, reason = "the field has another type on other systems")]
    let kind = i64::from(kind);
    KINDS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_system_is_none_of_them_and_what_is_not_there_is_not_either() {
        assert_eq!(file_system(Path::new("/proc")), None);
        assert_eq!(file_system(Path::new("/no/such/folder")), None);
    }
}
