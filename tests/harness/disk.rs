//! A small disk in memory, which a test can fill.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the copy of a test that runs in a namespace where it may mount.
const INSIDE: &str = "HOURHAND_TEST_NAMESPACE";

/// A disk of 64 MiB.
pub(crate) struct Disk(PathBuf);

#[allow(unsafe_code, reason = "the standard library mounts nothing")]
impl Disk {
    fn mount(folder: &Path) -> std::io::Result<Self> {
        let text = |bytes: &[u8]| CString::new(bytes).expect("no zero byte");
        let (place, kind, size) = (text(folder.as_os_str().as_bytes()), text(b"tmpfs"), text(b"size=64m"));
        // SAFETY: all are terminated strings that outlive the call.
        let done = unsafe {
            libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), libc::MS_NOSUID, size.as_ptr().cast())
        };
        if done == 0 { Ok(Self(folder.to_owned())) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes that there is room for.
    pub(crate) fn free(&self) -> u64 {
        let place = CString::new(self.0.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: all of a statvfs may be zero, and the call fills it; the path is a terminated string.
        let room = unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::statvfs(place.as_ptr(), &raw mut room), 0);
            room
        };
        room.f_bavail * room.f_frsize
    }

    /// Takes so many bytes.
    pub(crate) fn take(&self, name: &str, bytes: usize) {
        fs::write(self.0.join(name), vec![0; bytes]).expect("written");
    }

    /// Takes all that is left, to the last byte.
    pub(crate) fn fill_up(&self, name: &str) {
        let mut file = File::create(self.0.join(name)).expect("made");
        for piece in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    /// Gives back what was taken under this name.
    pub(crate) fn give_back(&self, name: &str) {
        fs::remove_file(self.0.join(name)).expect("removed");
    }
}

#[allow(unsafe_code, reason = "the standard library mounts nothing")]
impl Drop for Disk {
    fn drop(&mut self) {
        let place = CString::new(self.0.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: a terminated string that outlives the call.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Runs the test of this full name on a small disk. Where only root may mount, a copy of the test does it in a namespace of its own,
/// if the system lets a user have one; else it says that it was not tried.
#[allow(clippy::print_stdout, reason = "what a copy says, and what was not tried")]
pub(crate) fn on_a_disk(test: &str, body: impl FnOnce(&Disk)) {
    let folder = tempfile::tempdir().expect("a folder");
    match Disk::mount(folder.path()) {
        Ok(disk) => body(&disk),
        Err(_) if std::env::var_os(INSIDE).is_none() => in_a_namespace(test),
        Err(error) => println!("not tried: a disk cannot be mounted: {error}"),
    }
}

#[allow(clippy::print_stdout, reason = "what a copy says, and what was not tried")]
fn in_a_namespace(test: &str) {
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(this)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            println!("{said}");
            assert!(output.status.success(), "{said}");
        }
        _ => println!("not tried: neither may a disk be mounted nor a namespace be made"),
    }
}
