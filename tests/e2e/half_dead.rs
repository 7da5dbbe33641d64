//! A loop of the runner that panics or stands still: the runner ends, or gives no sign of life any more. Never half a runner.
//!
//! Loops fail by a hook of the library that the binary does not have: so the runners here are this test program, started once more.

use std::fs::{self, File};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hourhand::app::{self, Audience, Parts};
use hourhand::config::machine::Machine;
use hourhand::config::{Layers, LogFormat, LogSettings, RunSettings};
use hourhand::vitals::Fault;
use hourhand::worker::Onlooker;

use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

/// Which loop fails, and how: `claims panic`.
const FAULT: &str = "HOURHAND_TEST_FAULT";
/// The loop fails once there is a file of this name in the working directory.
const NOW: &str = "now";
/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The service manager's period.
const WATCHDOG: Duration = Duration::from_secs(1);

/// Loops whose panic ends the runner.
const LOOPS: [&str; 11] = [
    "claims",
    "wakes",
    "handlers",
    "logs",
    "settle",
    "heartbeat",
    "touch",
    "prune",
    "timer",
    "epoch",
    "hang-up",
];
/// Threads that begin again after a panic.
const REGISTRY: [&str; 2] = ["handlers-load", "handlers-scan"];

#[test]
#[ignore = "a runner that the other tests here start"]
fn a_runner_that_is_made_to_fail() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    let layers = Layers::new([("grace", "1s".to_owned())].into(), std::env::vars_os()).expect("settings");
    let log = LogSettings::resolve(&layers, "info", LogFormat::Text).expect("how to log");
    hourhand::telemetry::start(&log);
    let settings = RunSettings::resolve(&layers, &Machine::read(), false).expect("settings");
    let parts = Box::new(move |parts: Parts| {
        let (name, fault) = fault.split_once(' ').expect("a loop and a fault");
        let fault = if fault == "panic" { Fault::Panic } else { Fault::Hang };
        let name = name.to_owned();
        std::thread::spawn(move || {
            eventually("the order to fail", PATIENCE, || Path::new(NOW).exists().then_some(()));
            // The fault of a loop that is no runner's is a fault of this test.
            assert!(parts.vitals.names().contains(&name.as_str()), "{name}: {:?}", parts.vitals.names());
            parts.vitals.trip(&name, fault);
        });
    });
    let end = app::run_before(Audience::new(parts, Some(Arc::new(Nobody))), settings);
    println!("the end: {end:?}");
    std::process::exit(i32::from(end.is_err()));
}

#[derive(Debug)]
struct Nobody;

impl Onlooker for Nobody {
    fn begun(&self, _: &hourhand::queue::ClaimedJob, _: &Arc<hourhand::sandbox::JobLog>) {}
    fn ended(&self, _: &hourhand::queue::Settlement) {}
}

/// A runner with a fault to come, and the service manager's end of its socket.
struct Faulty {
    here: Hourhand,
    name: &'static str,
    socket: UnixDatagram,
    log: PathBuf,
    child: Child,
}

impl Faulty {
    /// A runner on a database of its own; once it serves, one of its loops fails.
    fn start(redis: &RedisServer, database: usize, name: &'static str, fault: &str) -> Self {
        let url = format!("redis://127.0.0.1:{}/{database}", redis.port());
        let here = Hourhand::new(&url, &["echo"]);
        let path = here.dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let log = here.dir.path().join("faulty.log");
        let file = File::create(&log).expect("a log file");
        let like = here.command(&[]);
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["half_dead::a_runner_that_is_made_to_fail", "--exact", "--ignored", "--nocapture"])
            .env_clear()
            .envs(like.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .env(FAULT, format!("{name} {fault}"))
            .env("NOTIFY_SOCKET", path)
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .current_dir(here.dir.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file);
        let child = command.spawn().expect("start a runner");
        Self { here, name, socket, log, child }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits for a message; those that came before it are left out.
    fn hears(&self, wanted: &str, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).expect("a time limit");
        let mut message = [0u8; 4096];
        while let Ok(size) = self.socket.recv(&mut message) {
            if String::from_utf8_lossy(&message[..size]).contains(wanted) {
                return true;
            }
        }
        false
    }

    /// Lets the loop fail, and gives all of them something to do.
    fn fail(&self) {
        assert!(self.hears("READY=1", PATIENCE), "{}: not ready:\n{}", self.name, self.log());
        fs::write(self.here.dir.path().join(NOW), "").expect("a file");
        self.here.install("nap", "nap");
        // Some of them are held for their moment, however busy the machine is.
        let mut jobs = "{\"kind\":\"nap\",\"payload\":{\"ms\":100}}\n".to_owned();
        for n in 0..200 {
            jobs.push_str(&format!("{{\"kind\":\"echo\",\"payload\":1,\"delay\":\"{}ms\"}}\n", 20 * n));
        }
        fs::write(self.here.dir.path().join("jobs.ndjson"), jobs).expect("a file");
        self.here.ok(&["enqueue", "--ndjson", "jobs.ndjson"]);
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(self.child.id() as i32, libc::SIGHUP) };
        assert_eq!(sent, 0, "send SIGHUP");
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn on_all(names: &[&'static str], fault: &str, check: impl Fn(Faulty) + Sync) {
    let redis = RedisServer::start();
    std::thread::scope(|scope| {
        for (n, name) in names.iter().enumerate() {
            let (redis, check) = (&redis, &check);
            scope.spawn(move || check(Faulty::start(redis, n, name, fault)));
        }
    });
}

#[test]
fn a_loop_that_panics_takes_the_runner_with_it() {
    on_all(&LOOPS, "panic", |mut faulty| {
        faulty.fail();
        let ended = || faulty.child.try_wait().expect("wait for a runner");
        let status = eventually(&format!("{} ends the runner", faulty.name), PATIENCE, ended);
        let log = faulty.log();
        assert_eq!(status.code(), Some(1), "{}:\n{log}", faulty.name);
        assert!(log.contains(&format!("the loop {} was made to fail", faulty.name)), "{log}");
        assert!(log.contains("a loop of the runner ended"), "{}:\n{log}", faulty.name);
    });
}

#[test]
fn threads_of_the_registry_begin_again_after_a_panic() {
    on_all(&REGISTRY, "panic", |faulty| {
        faulty.fail();
        eventually("it panics", PATIENCE, || faulty.log().contains("was made to fail").then_some(()));
        faulty.here.install("nonce", "nonce");
        faulty.here.ok(&["enqueue", "nonce", "1", "--id", "after"]);
        faulty.here.job_in("after", "completed", PATIENCE);
        assert!(faulty.hears("WATCHDOG=1", PATIENCE), "it lives");
    });
}

#[test]
fn a_loop_that_stands_still_gives_no_sign_of_life() {
    let names: Vec<&str> = LOOPS.iter().chain(&REGISTRY).copied().collect();
    on_all(&names, "hang", |faulty| {
        faulty.fail();
        // The last sign was given before it stood still; a loop may rest for five seconds before it does.
        eventually(&format!("{} is missed", faulty.name), PATIENCE, || {
            (!faulty.hears("WATCHDOG=1", 4 * WATCHDOG)).then_some(())
        });
    });
}
