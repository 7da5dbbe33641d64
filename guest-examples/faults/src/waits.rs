//! Sleeps, snoozes, and waits without end.

use std::io::Read;
use std::thread;
use std::time::Duration;

use hourhand_sdk::prelude::*;

/// Sleeps for u64::MAX nanoseconds, over and over.
#[handler]
fn sleep_forever() {
    loop {
        thread::sleep(Duration::from_nanos(u64::MAX));
    }
}

/// Asks to be woken at once, for ever.
#[handler]
fn sleep_zero() {
    loop {
        thread::sleep(Duration::ZERO);
        thread::yield_now();
        thread::sleep(Duration::from_nanos(1));
    }
}

/// Reads stdin until something comes.
#[handler]
fn read_stdin() {
    let mut byte = [0];
    while !matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
}

/// Logs for ever.
#[handler]
fn log_forever(ctx: &Context) {
    loop {
        ctx.info("and another one");
    }
}

#[derive(Deserialize)]
struct Snooze {
    /// How long each snooze is.
    ms: u64,
    /// How many there are: the handler reckons by the time since the job was enqueued. For ever if it
    /// is not said.
    times: Option<u32>,
    /// How many attempts fail after them.
    #[serde(default)]
    fails: u32,
}

#[handler(backoff = "fixed(1s)")]
fn snooze(ctx: &Context, snooze: Snooze) -> Result<u32, Failure> {
    let span = milliseconds(snooze.ms);
    let until = snooze.times.map(|times| ctx.enqueued_at() + span * times);
    if until.is_none_or(|until| ctx.now() < until) {
        return Err(Failure::snooze(span));
    }
    if ctx.attempt() <= snooze.fails {
        return Err(Failure::retry(format_args!("attempt {} fails", ctx.attempt())));
    }
    Ok(ctx.attempt())
}
