//! `make demo` but for its build: what it shows, and that nothing of it is left, however it ends.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::guests::guest;
use crate::harness::waiting::eventually;

/// A demo of the test's own, in a process group of its own, as a terminal would have it.
struct Demo {
    child: Child,
    dir: TempDir,
}

impl Demo {
    fn start(binary: &Path) -> Self {
        // Built when they are missing, as `make demo` does.
        guest("order_close");
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir(dir.path().join("tmp")).expect("a folder for its own");
        let out = File::create(dir.path().join("out")).expect("a file");
        let child = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/demo.sh"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", dir.path())
            .env("TMPDIR", dir.path().join("tmp"))
            .env("HOURHAND_BIN", binary)
            .env("HOURHAND_DEMO_OUT", dir.path().join("shown"))
            // Settings of the user have no part in it.
            .env("HOURHAND_STORE", "redis://127.0.0.1:1")
            .env("REDIS_URL", "redis://127.0.0.1:1")
            .stdin(Stdio::null())
            .stdout(out.try_clone().expect("a second handle"))
            .stderr(out)
            .process_group(0)
            .spawn()
            .expect("start the demo");
        Self { child, dir }
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.dir.path().join("out")).unwrap_or_default()
    }

    fn shows(&self, words: &str) {
        eventually(words, Duration::from_secs(60), || self.shown().contains(words).then_some(()));
    }

    /// Its exit code once it has ended; fails when anything of it is left.
    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        let status =
            eventually("the demo ends", Duration::from_secs(60), || self.child.try_wait().expect("wait"));
        let tmp = self.dir.path().join("tmp");
        let left = processes_in(&tmp);
        // Whatever it left is not left to the machine.
        for pid in &left {
            signal(*pid, libc::SIGKILL);
        }
        assert!(left.is_empty(), "{left:?} still runs\n{}", self.shown());
        assert_eq!(
            fs::read_dir(&tmp).expect("its folder").count(),
            0,
            "its folder is left\n{}",
            self.shown()
        );
        status.code()
    }

    /// What Ctrl-C does in a terminal: to all processes in the foreground.
    fn interrupt(&self, everybody: bool) {
        let pid = self.child.id() as i32;
        assert!(signal(if everybody { -pid } else { pid }, libc::SIGINT), "the demo runs");
    }
}

impl Drop for Demo {
    /// A test that failed leaves nothing running either: as long as the demo runs, its group is the test's own.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(-(self.child.id() as i32), libc::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// Sends a signal to a process, or to a group for a negative number; false when there is none any more.
fn signal(to: i32, signal: i32) -> bool {
    // SAFETY: kill() has no memory effects; the process and the group are of a child of ours.
    #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
    let sent = unsafe { libc::kill(to, signal) };
    sent == 0
}

/// Processes that work in a folder or below it, by id.
fn processes_in(folder: &Path) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| entry.ok().map(|e| e.path()));
    let within =
        processes.filter(|path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)));
    within.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_hourhand"))
}

#[test]
fn the_demo_shows_a_delay_a_retry_and_a_picture_and_leaves_nothing_behind() {
    let mut demo = Demo::start(binary());
    let code = demo.end();
    let shown = demo.shown();
    assert_eq!(code, Some(0), "{shown}");
    for part in [
        "hourhand.db",
        "order-7  scheduled  attempt 0/5",
        "shaky    scheduled  attempt 2/20  error: attempt 2 fails",
        "shaky    completed  attempt 3/20",
        "cat      completed  attempt 1/5",
        "order-7  completed  attempt 1/5",
        "The picture, 256 x 170 now",
        "Where to look next",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    let picture = fs::read(demo.dir.path().join("shown/thumbnail.png")).expect("the thumbnail");
    assert!(picture.starts_with(b"\x89PNG") && picture.ends_with(b"IEND\xaeB`\x82"), "a whole picture");
}

#[test]
fn ctrl_c_ends_all_of_the_demo() {
    for everybody in [true, false] {
        let mut demo = Demo::start(binary());
        demo.shows("What happens to them");
        demo.interrupt(everybody);
        assert_eq!(demo.end(), Some(130), "{}", demo.shown());
    }
}

#[test]
fn a_demo_that_fails_says_why_and_leaves_nothing_behind() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    // A runner that runs, and commands that fail.
    let broken = dir.path().join("hourhand");
    let script = format!("#!/bin/sh\n[ \"$1\" = run ] || exit 5\nexec {} \"$@\"\n", binary().display());
    fs::write(&broken, script).expect("a script");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut demo = Demo::start(&broken);
    assert_eq!(demo.end(), Some(5), "{}", demo.shown());
    // A runner that does not start.
    fs::write(&broken, "#!/bin/sh\necho no luck >&2\nexit 1\n").expect("a script");
    let mut demo = Demo::start(&broken);
    assert_eq!(demo.end(), Some(1), "{}", demo.shown());
    assert!(
        demo.shown().contains("the runner ended") && demo.shown().contains("no luck"),
        "{}",
        demo.shown()
    );
}
