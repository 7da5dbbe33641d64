//! Behind the store's back: looking at a Redis of the test's own, and troubling it.

use std::time::Duration;

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
    let processed = || -> u64 {
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.client()).expect("INFO");
        // Calls from inside scripts are not round trips.
        let calls = |name: &str| -> u64 {
            let line = info.lines().find(|l| l.starts_with(&format!("cmdstat_{name}:calls=")));
            line.and_then(|l| l.split(['=', ',']).nth(1)?.parse().ok()).unwrap_or(0)
        };
        calls("evalsha") + calls("eval") + calls("hscan") + calls("smembers") + calls("ping")
    };
    let before = processed();
    std::thread::sleep(span);
    processed() - before
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
