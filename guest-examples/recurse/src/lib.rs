//! `recurse`: calls itself for ever, until its stack is at its end.

use std::hint::black_box;

use hourhand_sdk::prelude::*;

#[handler]
fn recurse() -> u64 {
    deeper(1)
}

#[allow(unconditional_recursion, reason = "it is what this handler is for")]
fn deeper(depth: u64) -> u64 {
    // Work after the call, or the compiler makes a loop of it.
    black_box(deeper as fn(u64) -> u64)(depth + 1).wrapping_mul(31) ^ depth
}
