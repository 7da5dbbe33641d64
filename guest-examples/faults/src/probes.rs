//! What a handler can see of the world outside; and whether two jobs see each other.

use std::cell::Cell;
use std::io::Read;
use std::net::TcpStream;
use std::{env, fs};

use hourhand_sdk::prelude::*;

/// What was tried, and what came of it.
#[derive(Serialize)]
struct Report {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Each path with what reading or writing it gave; all of it is to be refused.
    opened: Vec<(String, String)>,
    connected: String,
    stdin: String,
}

/// Tries to get out of the sandbox.
#[handler(keep_results = true)]
fn probe() -> Report {
    let paths = ["/", ".", "..", "../..", "/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/tmp"];
    let mut opened: Vec<(String, String)> = Vec::new();
    for path in paths {
        opened.push((format!("list {path}"), outcome(fs::read_dir(path).map(|dir| dir.count()))));
        opened.push((format!("read {path}"), outcome(fs::read(path).map(|bytes| bytes.len()))));
    }
    opened.push(("write /tmp/x".to_owned(), outcome(fs::write("/tmp/x", b"x"))));
    opened.push(("write x".to_owned(), outcome(fs::write("x", b"x"))));
    Report {
        arguments: env::args().collect(),
        environment: env::vars().collect(),
        opened,
        connected: outcome(TcpStream::connect("127.0.0.1:6379")),
        stdin: outcome(std::io::stdin().read(&mut [0; 16])),
    }
}

fn outcome<T: std::fmt::Debug>(tried: std::io::Result<T>) -> String {
    match tried {
        Ok(got) => format!("got {got:?}"),
        Err(error) => format!("refused: {error}"),
    }
}

thread_local! {
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

/// How often this instance has run: always 1.
#[handler]
fn seen() -> u32 {
    SEEN.set(SEEN.get() + 1);
    SEEN.get()
}

/// The context, as the handler sees it.
#[derive(Serialize)]
struct Told<'a> {
    id: &'a str,
    kind: &'a str,
    queue: &'a str,
    attempt: u32,
    max_attempts: u32,
    enqueued_at_ms: u128,
    due_at_ms: u128,
    remaining_ms: u128,
    meta: Vec<(&'a str, &'a str)>,
    traceparent: Option<&'a str>,
}

#[handler(keep_results = true)]
fn told(ctx: &Context) -> Result<Vec<u8>, Failure> {
    let since = |time: std::time::SystemTime| time.duration_since(std::time::SystemTime::UNIX_EPOCH);
    let told = Told {
        id: ctx.id(),
        kind: ctx.kind(),
        queue: ctx.queue(),
        attempt: ctx.attempt(),
        max_attempts: ctx.max_attempts(),
        enqueued_at_ms: since(ctx.enqueued_at())?.as_millis(),
        due_at_ms: since(ctx.due_at())?.as_millis(),
        remaining_ms: ctx.remaining().as_millis(),
        meta: ctx.meta_all().collect(),
        traceparent: ctx.traceparent(),
    };
    Ok(serde_json::to_vec(&told)?)
}

/// A line at each level.
#[handler]
fn logs(ctx: &Context) {
    ctx.error("an error");
    ctx.warn("a warning");
    ctx.info("a line\nand a second one, with \u{1b}[31mcolour\u{1b}[0m and Zoë");
    ctx.debug("a detail");
    ctx.trace("a step");
}
