//! Under a service manager: the runner tells it what `sd_notify(3)` says, over a real socket.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

on_both_stores! {
    it_is_ready_when_it_serves_gives_signs_of_life_and_says_that_it_stops
    a_store_that_is_away_is_no_reason_for_a_restart
}

/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runner as a service, and the manager's end of the socket.
struct Service {
    socket: UnixDatagram,
    child: Child,
}

impl Service {
    /// Starts a runner that is watched with this period.
    fn start(here: &Hourhand, args: &[&str], watchdog: Duration) -> Self {
        let (socket, command) = Self::prepare(here, args, watchdog);
        Self::launch(socket, command)
    }

    fn prepare(here: &Hourhand, args: &[&str], watchdog: Duration) -> (UnixDatagram, std::process::Command) {
        let path = here.dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let all: Vec<&str> = ["run", "--handlers", "handlers"].iter().chain(args).copied().collect();
        let mut command = here.command(&all);
        command.env("NOTIFY_SOCKET", path).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        (socket, command)
    }

    fn launch(socket: UnixDatagram, mut command: std::process::Command) -> Self {
        Self { socket, child: command.spawn().expect("start a runner") }
    }

    /// The next message, whole.
    fn next(&self) -> String {
        let mut message = [0u8; 4096];
        let size = self.socket.recv(&mut message).expect("the runner says something");
        String::from_utf8(message[..size].to_vec()).expect("text")
    }

    /// Reads until a line satisfies `wanted`; all messages up to there.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next());
            if messages.last().is_some_and(|message| message.lines().any(&wanted)) {
                return messages;
            }
        }
    }

    /// Waits for so many signs of life from now on.
    fn lives_on(&self, signs: usize) {
        self.socket.set_nonblocking(true).expect("a socket");
        while self.socket.recv(&mut [0u8; 4096]).is_ok() {}
        self.socket.set_nonblocking(false).expect("a socket");
        for _ in 0..signs {
            self.until(|line| line == "WATCHDOG=1");
        }
    }

    fn terminate(&self) {
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        assert_eq!(sent, 0, "send SIGTERM");
    }

    fn exit_code(&mut self) -> Option<i32> {
        eventually("the runner ends", PATIENCE, || self.child.try_wait().expect("wait")).code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn it_is_ready_when_it_serves_gives_signs_of_life_and_says_that_it_stops(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "nap"]);
    let mut service = Service::start(&here, &["--concurrency", "1"], Duration::from_secs(2));
    let before = service.until(|line| line == "READY=1");
    assert!(before.iter().all(|message| !message.contains("WATCHDOG=1")), "{before:?}");
    assert!(before.concat().contains("STATUS=serving; kinds: 2"), "{before:?}");
    let runners = here.json(&["runner", "list"]);
    assert_eq!(runners["items"][0]["kinds"], serde_json::json!(["echo", "nap"]), "at once: {runners:#}");
    service.lives_on(2);

    // Every slot taken: the claim loop has nothing to claim for, and is no less alive.
    here.ok(&["enqueue", "nap", r#"{"ms":25000}"#, "--id", "long"]);
    service.until(|line| line == "STATUS=serving; kinds: 2, running: 1, held: 0");
    service.lives_on(4);
    here.ok(&["job", "cancel", "long"]);
    here.ok(&["enqueue", "echo", "1", "--wait"]);

    service.terminate();
    let last = service.until(|line| line == "STOPPING=1");
    assert!(last.concat().contains("STATUS=stopping"), "{last:?}");
    assert_eq!(service.exit_code(), Some(0));
}

fn a_store_that_is_away_is_no_reason_for_a_restart(on: StoreKind) {
    let mut store = on.start_lasting();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let service = Service::start(&here, &[], Duration::from_secs(2));
    service.until(|line| line == "READY=1");
    store.take_away();
    service.until(|line| line.starts_with("STATUS=the store is away"));
    // A call to a file that is locked takes ten seconds to give up.
    service.lives_on(2);
    store.bring_back();
    service.until(|line| line.starts_with("STATUS=serving"));
    here.ok(&["enqueue", "echo", "1", "--wait"]);
}

#[test]
fn it_is_not_ready_before_its_store_is_there() {
    let mut redis = RedisServer::start_with_aof();
    let here = Hourhand::new(&redis.url(), &["echo"]);
    redis.kill();
    let service = Service::start(&here, &[], Duration::from_secs(2));
    let before = service.until(|line| line == "STATUS=waiting for the store");
    assert!(before.iter().all(|message| !message.contains("READY=1")), "{before:?}");
    redis.restart();
    service.until(|line| line == "READY=1");
}

#[test]
fn a_manager_that_does_not_listen_holds_nothing_up() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &["echo"]);
    let (socket, command) = Service::prepare(&here, &[], Duration::from_millis(200));
    // Fill the socket: from now on every message to it would wait.
    let other = UnixDatagram::unbound().expect("a socket");
    other.connect(here.dir.path().join("notify")).expect("connect");
    other.set_nonblocking(true).expect("a socket");
    let full = loop {
        if let Err(error) = other.send(b"X=1") {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    let mut service = Service::launch(socket, command);
    for _ in 0..3 {
        here.ok(&["enqueue", "echo", "1", "--wait"]);
    }
    service.terminate();
    assert_eq!(service.exit_code(), Some(0));
}
