//! Exits, traps, and the failures that a handler returns.

use std::process;

use hourhand_sdk::prelude::*;

/// Completes without a result.
#[handler]
fn exit0() {
    process::exit(0);
}

/// Fails with the reason `exit`.
#[handler]
fn exit7() {
    process::exit(7);
}

#[handler]
fn abort_now() {
    process::abort();
}

#[handler]
fn unreachable() {
    core::arch::wasm32::unreachable();
}

/// Reads where no memory is.
#[handler]
fn out_of_bounds() -> u8 {
    let address = std::hint::black_box(usize::MAX - 8) as *const u8;
    // SAFETY: none; the sandbox is to stop it.
    unsafe { address.read_volatile() }
}

#[derive(Deserialize)]
struct Text {
    msg: String,
}

#[handler(max_attempts = 10)]
fn permanent(text: Option<Text>) -> Result<(), Failure> {
    Err(Failure::permanent(text.map_or_else(|| "it cannot work".to_owned(), |text| text.msg)))
}

#[derive(Deserialize)]
struct Flaky {
    /// How many attempts fail before one succeeds.
    fails: u32,
    /// What a retry waits instead of the backoff.
    after_ms: Option<u64>,
}

#[handler(max_attempts = 20, backoff = "fixed(1s)")]
fn flaky(ctx: &Context, flaky: Flaky) -> Result<u32, Failure> {
    if ctx.attempt() > flaky.fails {
        return Ok(ctx.attempt());
    }
    let failure = Failure::retry(format_args!("attempt {} fails", ctx.attempt()));
    Err(match flaky.after_ms {
        Some(ms) => failure.after(milliseconds(ms)),
        None => failure,
    })
}

#[derive(Deserialize)]
struct Output {
    bytes: usize,
}

/// A result of any size.
#[handler(keep_results = true)]
fn output(output: Output) -> Vec<u8> {
    vec![b'x'; output.bytes]
}
