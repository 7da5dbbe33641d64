//! Behind the store's back: looking at a Redis of the test's own, and troubling it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::redis_server::RedisServer;

/// Sends one command; fails when it is refused.
pub fn command(redis: &RedisServer, words: &[&str]) -> redis::Value {
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query(&mut redis.client()).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// How many commands clients sent while nothing of the test's own ran.
pub fn commands_during(redis: &RedisServer, span: Duration) -> u64 {
    let mut monitor = TcpStream::connect(("127.0.0.1", redis.port())).expect("a connection");
    monitor.write_all(b"MONITOR\r\n").expect("sent");
    monitor.set_read_timeout(Some(Duration::from_millis(100))).expect("a time limit");
    let (mut seen, mut part) = (Vec::new(), [0u8; 65_536]);
    #[allow(clippy::disallowed_methods, reason = "a test's own clock")]
    let began = Instant::now();
    while began.elapsed() < span {
        let read = monitor.read(&mut part).unwrap_or(0);
        seen.extend_from_slice(&part[..read]);
    }
    // A line each. Those from inside scripts are not round trips.
    let seen = String::from_utf8_lossy(&seen);
    seen.lines().filter(|line| line.contains("] \"") && !line.contains(" lua] ")).count() as u64
}

/// Lets a script keep the server busy for so long, and ends it.
pub fn block(redis: &RedisServer, span: Duration) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let script = redis::Script::new("while true do end");
            // It is killed: an error is what it ends in.
            let _: Result<(), _> = script.invoke(&mut redis.client());
        });
        std::thread::sleep(span);
        command(redis, &["SCRIPT", "KILL"]);
    });
}
