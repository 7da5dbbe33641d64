//! A `redis-server` of a test's own: on a free port of the loopback address, in a folder of its own, with nothing
//! saved unless asked for. It is ended by its process id when dropped.
//!
//! Tests never use a Redis that they did not start.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hourhand::clock::monotonic;

/// How long a server may take to answer.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(crate) struct RedisServer {
    child: Option<Child>,
    dir: tempfile::TempDir,
    port: u16,
    args: Vec<String>,
    variables: Vec<(String, String)>,
    password: Option<String>,
}

#[allow(dead_code, reason = "each test binary uses a part of this")]
impl RedisServer {
    /// A server that saves nothing.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`start`](Self::start), with more options as on redis-server's command line.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let mut all: Vec<String> = ["--save", ""].map(str::to_owned).to_vec();
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Self::launch(all, Vec::new(), None)
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_among(variables: Vec<(String, String)>) -> Self {
        Self::launch(["--save", ""].map(str::to_owned).to_vec(), variables, None)
    }

    /// A server that wants this password.
    pub(crate) fn start_with_password(password: &str) -> Self {
        let args = ["--save", "", "--requirepass", password].map(str::to_owned).to_vec();
        Self::launch(args, Vec::new(), Some(password.to_owned()))
    }

    /// As [`start_with`](Self::start_with), for whoever has set a password among the options.
    pub(crate) fn start_with_secret(args: &[&str], password: Option<&str>) -> Self {
        let all = ["--save", ""].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        Self::launch(all, Vec::new(), password.map(str::to_owned))
    }

    /// A server that keeps an append-only file, so that it comes back with its data.
    pub(crate) fn start_with_aof() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    fn launch(args: Vec<String>, variables: Vec<(String, String)>, password: Option<String>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self { child: None, dir, port: 0, args, variables, password };
        // Somebody else may take the port between our looking and Redis's binding: then try another.
        for _ in 0..10 {
            server.port = free_port();
            server.spawn();
            if server.wait_until_ready() {
                return server;
            }
            server.kill();
        }
        panic!("redis-server did not start: {}", server.log());
    }

    fn spawn(&mut self) {
        let log = fs::File::create(self.dir.path().join("redis.log")).expect("a log file");
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(self.dir.path())
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .spawn()
            .expect("redis-server is installed");
        self.child = Some(child);
    }

    fn wait_until_ready(&mut self) -> bool {
        let until = monotonic() + START_PATIENCE;
        while monotonic() < until {
            let ended = self.child.as_mut().is_none_or(|c| matches!(c.try_wait(), Ok(Some(_)) | Err(_)));
            if ended {
                return false;
            }
            if self.answers() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// True when a PING is answered, be it by a wish for a password.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let mut answer = [0u8; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && (answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL of its database 0.
    pub(crate) fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/0", self.port),
            None => format!("redis://127.0.0.1:{}/0", self.port),
        }
    }

    /// A connection for looking at it, or damaging it, behind the store's back.
    pub(crate) fn client(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("a URL");
        client.get_connection().expect("the server answers")
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again on the same port and folder, without waiting until it answers.
    pub(crate) fn respawn(&mut self) {
        self.kill();
        self.spawn();
    }

    /// Ends it and starts it again on the same port and folder.
    pub(crate) fn restart(&mut self) {
        self.respawn();
        assert!(self.wait_until_ready(), "redis-server did not come back: {}", self.log());
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Its working folder.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("redis.log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
