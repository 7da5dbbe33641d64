//! Other processes: this program again, in a role. A child says lines on stderr, hears lines on stdin, and ends when its
//! parent does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::kit::PATIENCE;
use crate::{crashes, files, sharing, waking};

const ROLE: &str = "HOURHAND_TEST_ROLE";
const FILE: &str = "HOURHAND_TEST_FILE";

/// A child, seen from its parent.
pub(crate) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Starts this program in a role, on a file.
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["child::role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let input = process.stdin.take();
        let errors = BufReader::new(process.stderr.take().expect("its stderr"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in errors.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Self { process, input, lines }
    }

    /// The next line that it says; `None` when it has ended.
    pub(crate) fn line(&self) -> Option<String> {
        self.lines.recv_timeout(PATIENCE).ok()
    }

    /// The next line, which has to be this.
    #[track_caller]
    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.line().as_deref(), Some(line));
    }

    /// The lines that it has said by now.
    pub(crate) fn ready_lines(&self) -> impl Iterator<Item = String> {
        self.lines.try_iter()
    }

    /// Lets it hear an empty line.
    pub(crate) fn nudge(&mut self) {
        self.input.as_mut().expect("not stopped yet").write_all(b"\n").expect("it listens");
    }

    /// Lets it hear that it should end.
    pub(crate) fn stop(&mut self) {
        self.input = None;
    }

    /// Waits for its end, which has to be a good one.
    pub(crate) fn wait(&mut self) {
        let status = self.process.wait().expect("ended");
        assert!(status.success(), "{status}: {:?}", self.ready_lines().collect::<Vec<_>>());
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        let status = self.process.wait().expect("ended");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "it was alive until then");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether the parent wants this child to end.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// Says a line to the parent, in one write.
pub(crate) fn say(line: &str) {
    // A parent that is gone hears nothing.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// What a child does. In the parent there is nothing to do.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file"));
    let (nudge, nudges) = channel();
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = nudge.send(());
        }
        STOPPED.store(true, Relaxed);
        drop(nudge);
        std::thread::sleep(Duration::from_secs(5));
        std::process::exit(1);
    });
    match &*role {
        "sharer" => sharing::sharer(&file),
        "worker" => crashes::worker(&file),
        "holder" => crashes::holder(&file),
        "powerless" => files::powerless(&file),
        "enqueuer" => waking::enqueuer(&file, &nudges),
        "idler" => waking::idler(&file),
        _ => panic!("no role {role}"),
    }
    std::process::exit(0);
}

/// Runs what a child does that calls a store.
pub(crate) fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work);
}
