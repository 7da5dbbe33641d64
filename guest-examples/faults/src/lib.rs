//! Every way to end a job, one kind each, for tests: exits, panics, traps, snoozes and sleeps.
//!
//! Also the example of a module that serves many kinds.

#![cfg(target_family = "wasm")]

mod ends;
mod panics;
mod probes;
mod waits;
