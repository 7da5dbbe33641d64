//! What a run ended in: from what wasmtime and the guest say to [`RunEnd`].
//!
//! The order of the questions matters. What the host did comes before what the guest looks like
//! because of it; the guest's own words before what can be guessed from its trap.

use bytes::Bytes;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::outcome::{MESSAGE_BYTES_MAX, Reason, RunEnd, capped};

use super::bindings::hourhand::job::types::Failure;
use super::command::{self, OutputFull};
use super::engine::STACK_BYTES;
use super::guest::GuestState;
use super::host_calls::TooManyCalls;
use super::limiter::RunnerMemoryFull;
use super::stop::Stop;
use super::{Limits, size};

/// The shortest snooze, in milliseconds.
const SNOOZE_MS_MIN: u64 = 1_000;
/// Frames of a backtrace that go into a message.
const FRAMES_SHOWN: usize = 4;
/// A function that is so often among the innermost frames calls itself.
const FRAMES_RECURSIVE: usize = 4;

/// How the call came back.
pub(super) enum Ended {
    /// The guest returned or trapped.
    Called(wasmtime::Result<Result<Vec<u8>, Failure>>),
    /// The outer time-out dropped it.
    TimedOut,
    /// Somebody stopped it.
    Stopped(Stop),
    /// The host's code panicked.
    HostPanic(String),
}

/// What a run that somebody stopped ended in.
pub(super) fn stopped(why: Stop) -> RunEnd {
    match why {
        Stop::Cancel => RunEnd::Cancelled,
        Stop::Release => RunEnd::Released("the runner stops".to_owned()),
        Stop::Lost => RunEnd::Released("its runner had lost it".to_owned()),
    }
}

/// What the run ended in.
pub(super) fn run_end(ended: Ended, state: &GuestState, limits: &Limits) -> RunEnd {
    let end = match ended {
        Ended::Called(Ok(Ok(result))) => completed(result, limits),
        Ended::Called(Ok(Err(failure))) => handler_said(failure),
        Ended::Called(Err(error)) => trapped(&error, state, limits),
        Ended::TimedOut => timeout(limits),
        Ended::Stopped(why) => stopped(why),
        Ended::HostPanic(text) => {
            tracing::error!(panic = text, "the sandbox panicked");
            failed(Reason::Trap, format!("the sandbox itself failed: {text}"))
        }
    };
    match state.denied() {
        Some(denial) => after_denial(end, &denial),
        None => end,
    }
}

/// A guest that was denied something and then fails by its own doing, fails for that.
fn after_denial(end: RunEnd, denial: &str) -> RunEnd {
    let explained = |message: String| {
        let text = if message.contains(denial) { message } else { format!("{message} (after: {denial})") };
        capped(text, MESSAGE_BYTES_MAX)
    };
    match end {
        RunEnd::Failed {
            reason: Reason::Error | Reason::Panic | Reason::Trap | Reason::Exit,
            message,
            after_ms,
        } => RunEnd::Failed { reason: Reason::Denied, message: explained(message), after_ms },
        RunEnd::Permanent { reason: Reason::Permanent, message } => {
            RunEnd::Permanent { reason: Reason::Denied, message: explained(message) }
        }
        other => other,
    }
}

fn completed(result: Vec<u8>, limits: &Limits) -> RunEnd {
    if result.len() > limits.output_bytes {
        return output(&format!("a result of {} bytes", result.len()), limits);
    }
    RunEnd::Completed(Bytes::from(result))
}

fn handler_said(failure: Failure) -> RunEnd {
    let message = |text: String| capped(text, MESSAGE_BYTES_MAX);
    match failure {
        Failure::Retry(retry) => RunEnd::Failed {
            reason: Reason::Error,
            message: message(retry.message),
            after_ms: retry.after_ms,
        },
        Failure::Permanent(text) => RunEnd::Permanent { reason: Reason::Permanent, message: message(text) },
        Failure::Decode(text) => RunEnd::Permanent { reason: Reason::Decode, message: message(text) },
        Failure::Snooze(ms) => RunEnd::Snoozed(ms.max(SNOOZE_MS_MIN)),
    }
}

fn trapped(error: &wasmtime::Error, state: &GuestState, limits: &Limits) -> RunEnd {
    let trap = error.downcast_ref::<Trap>();
    if let Some(why) = state.stop.get().filter(|_| trap == Some(&Trap::Interrupt)) {
        return stopped(why);
    }
    if let Some(full) = error.downcast_ref::<RunnerMemoryFull>() {
        return RunEnd::NoRoom(full.to_string());
    }
    if let Some(exhausted) = error.downcast_ref::<PoolConcurrencyLimitError>() {
        return RunEnd::NoRoom(format!("the sandbox pool is used up: {exhausted}"));
    }
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return match (&state.command, code) {
            (Some(command), code) => command.ended(*code, &state.log),
            (None, 0) => RunEnd::Completed(Bytes::new()),
            (None, code) => failed(Reason::Exit, format!("exit code {code}")),
        };
    }
    if error.downcast_ref::<OutputFull>().is_some() {
        return output("stdout", limits);
    }
    if trap == Some(&Trap::Interrupt) {
        return timeout(limits);
    }
    if let Some(too_many) = error.downcast_ref::<TooManyCalls>() {
        return failed(Reason::Denied, too_many.to_string());
    }
    if let Some(panic) = &state.panic {
        // The place first: a long message is cut at its end.
        return failed(Reason::Panic, format!("{}:{}: {}", panic.file, panic.line, panic.message));
    }
    if state.memory.denied() {
        return failed(Reason::Memory, format!("memory limit {}", size(state.memory.limit())));
    }
    if trap == Some(&Trap::StackOverflow) || ran_below_zero(error, trap) {
        return failed(Reason::Stack, format!("stack overflow ({})", size(STACK_BYTES as u64)));
    }
    if trap.is_none() && too_much_at_once(error) {
        return match error.downcast_ref::<WasmBacktrace>() {
            Some(_) => failed(Reason::Trap, "a host call carried too much data at once".to_owned()),
            None => output("the result", limits),
        };
    }
    if trap.is_none() && is_out_of_host_memory(error) {
        return RunEnd::NoRoom(format!("the machine has no memory for a sandbox: {error:#}"));
    }
    if let Some(panic) = printed_panic(state).filter(|_| trap == Some(&Trap::UnreachableCodeReached)) {
        return failed(Reason::Panic, panic);
    }
    let mut what = trap_text(error, trap);
    // Nobody reports a command's panics: what it wrote last tells more than its trap.
    if let Some(words) = state.command.as_ref().and_then(|_| command::last_words(&state.log)) {
        what = format!("{what}: {words}");
    }
    failed(Reason::Trap, what)
}

fn failed(reason: Reason, message: String) -> RunEnd {
    RunEnd::Failed { reason, message: capped(message, MESSAGE_BYTES_MAX), after_ms: None }
}

fn timeout(limits: &Limits) -> RunEnd {
    failed(Reason::Timeout, format!("time-out after {} ms", limits.timeout_ms.max(1)))
}

fn output(what: &str, limits: &Limits) -> RunEnd {
    failed(Reason::Output, format!("{what} is over the output limit {} bytes", limits.output_bytes))
}

fn too_much_at_once(error: &wasmtime::Error) -> bool {
    format!("{error:#}").contains("fuel allocated for hostcalls has been exhausted")
}

/// Without a pool, an instance's memory is mapped anew and the system may have none.
fn is_out_of_host_memory(error: &wasmtime::Error) -> bool {
    let out_of_memory = |io: &std::io::Error| io.kind() == std::io::ErrorKind::OutOfMemory;
    error.downcast_ref::<std::io::Error>().is_some_and(out_of_memory)
        || format!("{error:#}").contains("Cannot allocate memory")
}

/// Compilers put a guest's own stack at the beginning of its memory. Endless recursion that keeps data
/// there runs below address 0 before wasmtime's stack is used up.
fn ran_below_zero(error: &wasmtime::Error, trap: Option<&Trap>) -> bool {
    trap == Some(&Trap::MemoryOutOfBounds)
        && error.downcast_ref::<WasmBacktrace>().is_some_and(is_recursive)
        && faulted_near_the_top(&format!("{error:#}"))
}

fn is_recursive(trace: &WasmBacktrace) -> bool {
    let frames = trace.frames();
    frames.iter().any(|frame| {
        frames.iter().filter(|other| other.func_index() == frame.func_index()).count() >= FRAMES_RECURSIVE
    })
}

/// wasmtime names the address only in its text: `memory fault at wasm address 0xfffffff0 in ...`.
fn faulted_near_the_top(text: &str) -> bool {
    const BELOW_ZERO: u64 = 0xF000_0000;
    let address = text.split("wasm address 0x").nth(1).and_then(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(digits, 16).ok()
    });
    address.is_some_and(|address| address >= BELOW_ZERO)
}

/// A Rust guest without our panic hook says why on stderr before it traps.
fn printed_panic(state: &GuestState) -> Option<String> {
    let text = state.log.text();
    let at = text.rfind("panicked at ")?;
    let words = text[at..].lines().take_while(|line| !line.starts_with("note: run with")).take(6);
    Some(words.collect::<Vec<_>>().join("\n"))
}

fn trap_text(error: &wasmtime::Error, trap: Option<&Trap>) -> String {
    let what = trap.map_or_else(|| error.root_cause().to_string(), ToString::to_string);
    let what = what.strip_prefix("wasm trap: ").unwrap_or(&what).to_owned();
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return what };
    let frames: Vec<&str> = trace.frames().iter().filter_map(|f| f.func_name()).take(FRAMES_SHOWN).collect();
    if frames.is_empty() { what } else { format!("{what} in {}", frames.join(" < ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_below_zero_is_read_from_wasmtime_s_text() {
        let text = "error: memory fault at wasm address 0xfffffff0 in linear memory of size 0x110000: trap";
        assert!(faulted_near_the_top(text));
        assert!(!faulted_near_the_top(
            "memory fault at wasm address 0x120000 in linear memory of size 0x110000"
        ));
        assert!(!faulted_near_the_top("out of bounds memory access"));
    }
}
