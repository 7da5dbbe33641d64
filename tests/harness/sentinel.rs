//! A Redis with replicas, under the eyes of a sentinel: real servers on free ports, each ended by its process id.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::at_redis;
use super::redis_server::{RedisServer, free_port};
use super::waiting::eventually;

/// What the sentinel calls the primary.
pub const MASTER: &str = "orders";
/// How long a primary may be silent before the sentinel takes it for dead.
const DOWN_AFTER_MS: u32 = 1_000;
/// How long servers and sentinel may take to find each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// A primary, its replicas, and one sentinel, whose word is enough.
pub struct Watched {
    /// The primary at the start; then the replicas.
    pub servers: Vec<RedisServer>,
    sentinel: Sentinel,
    password: Option<String>,
}

/// Passwords of servers and sentinel.
pub struct Passwords<'a> {
    pub servers: &'a str,
    pub sentinel: &'a str,
}

impl Watched {
    /// A primary with so many replicas, all in step.
    pub fn start(replicas: usize) -> Self {
        Self::start_with(replicas, None)
    }

    /// A primary with one replica, which can be told to hang (`DEBUG SLEEP`).
    pub fn start_to_hang() -> Self {
        Self::launch(1, &["--enable-debug-command", "local"], None)
    }

    /// As [`start`](Self::start), with these passwords.
    pub fn start_with(replicas: usize, passwords: Option<Passwords<'_>>) -> Self {
        Self::launch(replicas, &[], passwords)
    }

    fn launch(replicas: usize, more: &[&str], passwords: Option<Passwords<'_>>) -> Self {
        let password = passwords.as_ref().map(|all| all.servers.to_owned());
        let mut args = [&["--repl-diskless-sync-delay", "0"], more].concat();
        if let Some(password) = &password {
            args.extend(["--requirepass", password, "--masterauth", password]);
        }
        let start =
            |more: &[&str]| RedisServer::start_with_secret(&[&args[..], more].concat(), password.as_deref());
        let primary = start(&[]);
        let port = primary.port().to_string();
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(start(&["--replicaof", "127.0.0.1", &port]));
        }
        for replica in &servers[1..] {
            eventually("a replica is in step", PATIENCE, || {
                info(replica, "replication").contains("master_link_status:up").then_some(())
            });
        }
        let lines = passwords.as_ref().map_or(String::new(), |all| {
            format!("requirepass {}\nsentinel auth-pass {MASTER} {}\n", all.sentinel, all.servers)
        });
        let own = passwords.map(|all| all.sentinel.to_owned());
        let sentinel = Sentinel::start(servers[0].port(), &lines, own);
        let watched = Self { servers, sentinel, password };
        eventually("the sentinel knows the replicas", PATIENCE, || {
            let text = format!("{:?}", watched.sentinel.ask(&["SENTINEL", "REPLICAS", MASTER]));
            let well = text.matches("\"ok\"").count();
            (well == replicas).then_some(())
        });
        watched
    }

    /// Where the jobs are; `dead` is a sentinel that is named first and is not there.
    pub fn url(&self, dead: Option<u16>) -> String {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let dead = dead.map(|port| format!("127.0.0.1:{port},")).unwrap_or_default();
        let own = &self.sentinel.password;
        let query = own.as_ref().map(|own| format!("?sentinel_password={own}")).unwrap_or_default();
        format!("redis+sentinel://{user}{dead}127.0.0.1:{}/{MASTER}{query}", self.sentinel.port)
    }

    /// The sentinel's port.
    pub fn sentinel_port(&self) -> u16 {
        self.sentinel.port
    }

    /// The server that the sentinel takes for the primary.
    pub fn primary(&self) -> Option<&RedisServer> {
        let named = self.sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER]);
        let (_, port): (String, u16) = redis::from_redis_value(named).ok()?;
        self.servers.iter().find(|server| server.port() == port)
    }

    /// Waits until the sentinel has another primary than `before`, and that takes writes.
    pub fn wait_for_another(&self, before: u16) -> &RedisServer {
        eventually("the sentinel promotes a replica", PATIENCE, || {
            let primary = self.primary().filter(|primary| primary.port() != before)?;
            info(primary, "replication").contains("role:master").then_some(primary)
        })
    }

    /// Asks for a fail-over while the primary is alive: it becomes a replica.
    pub fn fail_over(&self) {
        // It is refused while the sentinel is still busy with something.
        eventually("the sentinel takes the order", PATIENCE, || {
            let answer = self.sentinel.ask(&["SENTINEL", "FAILOVER", MASTER]);
            matches!(answer, redis::Value::Okay).then_some(())
        });
    }
}

/// A section of what a server says of itself.
pub fn info(server: &RedisServer, section: &str) -> String {
    redis::from_redis_value(at_redis::command(server, &["INFO", section])).expect("text")
}

/// A running sentinel.
pub struct Sentinel {
    child: Child,
    port: u16,
    password: Option<String>,
    dir: tempfile::TempDir,
}

impl Sentinel {
    /// A sentinel that watches the primary on this port, with more lines for its file, and the password in those.
    pub fn start(primary: u16, lines: &str, password: Option<String>) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the sentinel");
        let port = free_port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {MASTER} 10000\n{lines}",
            dir.path().display()
        );
        // It keeps what it learns in this file.
        let file = dir.path().join("sentinel.conf");
        fs::write(&file, text).expect("a file");
        let log = fs::File::create(dir.path().join("sentinel.log")).expect("a log file");
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log file"))
            .stderr(log)
            .spawn()
            .expect("redis-server is installed");
        let this = Self { child, port, password, dir };
        eventually("the sentinel answers", PATIENCE, || this.client().map(drop));
        this
    }

    fn client(&self) -> Option<redis::Connection> {
        let user = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let client = redis::Client::open(format!("redis://{user}127.0.0.1:{}", self.port)).expect("a URL");
        client.get_connection().ok()
    }

    /// What it answers; nil when it refuses.
    fn ask(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let mut client = self.client().unwrap_or_else(|| panic!("no answer: {}", self.log()));
        command.query(&mut client).unwrap_or(redis::Value::Nil)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("sentinel.log")).unwrap_or_default()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
