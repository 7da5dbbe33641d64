//! Panics: what they say has to reach the job's record.

use std::fmt;

use hourhand_sdk::prelude::*;

/// Longer than anybody keeps.
const LONG_BYTES: usize = 1 << 20;

#[handler]
fn panic_text() {
    panic!("bad id {}", std::hint::black_box(7));
}

#[handler]
fn panic_long() {
    panic!("{}", "é".repeat(LONG_BYTES / 2));
}

struct PanicsAtDrop;

impl Drop for PanicsAtDrop {
    fn drop(&mut self) {
        panic!("panicked while dropping");
    }
}

/// A panic, and one more in a destructor if the first one unwinds.
#[handler]
fn panic_in_drop() {
    let _guard = PanicsAtDrop;
    panic!("bad id 7");
}

struct PanicsAtDisplay;

impl fmt::Display for PanicsAtDisplay {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("panicked while writing the message");
    }
}

/// A panic whose message panics.
#[handler]
fn panic_in_panic() {
    panic!("{PanicsAtDisplay}");
}

/// Threads are not supported in a sandbox.
#[handler]
fn spawn_thread() {
    std::thread::spawn(|| ()).join().unwrap();
}

#[handler]
fn unwrap_none() -> u32 {
    std::hint::black_box(None).unwrap()
}
