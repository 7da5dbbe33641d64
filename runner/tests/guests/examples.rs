//! Guests that several tests use.

use wasm_encoder::{BlockType, Instruction as I, ValType};

use super::{Guest, PAYLOAD_LEN, PAYLOAD_PTR, RESULT, TEXT, at, guest, ok, put};

pub fn echo() -> Guest {
    let mut body = Vec::new();
    body.extend(put(0, 0));
    body.extend([I::I32Const(RESULT), I::LocalGet(0), I::I32Load(at(PAYLOAD_PTR)), I::I32Store(at(8))]);
    body.extend([I::I32Const(RESULT), I::LocalGet(0), I::I32Load(at(PAYLOAD_LEN)), I::I32Store(at(12))]);
    body.push(I::I32Const(RESULT));
    guest(body)
}

/// An endless loop around `body`.
pub fn forever(body: impl IntoIterator<Item = I<'static>>) -> Vec<I<'static>> {
    let mut all = vec![I::Loop(BlockType::Empty)];
    all.extend(body);
    all.extend([I::Br(0), I::End]);
    all
}

pub fn spin() -> Guest {
    let mut body = forever([]);
    body.push(I::Unreachable);
    guest(body)
}

/// Sleeps for `nanoseconds` by `poll_oneoff`, `times` times or for ever.
pub fn sleep(nanoseconds: u64, once: bool) -> Guest {
    const SUBSCRIPTION: i32 = 2048;
    const EVENT: i32 = 4096;
    let mut body = vec![
        // A relative subscription to the monotonic clock.
        I::I32Const(SUBSCRIPTION),
        I::I32Const(0),
        I::I32Store8(at(8)),
        I::I32Const(SUBSCRIPTION),
        I::I32Const(1),
        I::I32Store(at(16)),
        I::I32Const(SUBSCRIPTION),
        I::I64Const(nanoseconds as i64),
        I::I64Store(at(24)),
    ];
    let poll =
        [I::I32Const(SUBSCRIPTION), I::I32Const(EVENT), I::I32Const(1), I::I32Const(64), I::Call(0), I::Drop];
    if once {
        body.extend(poll);
    } else {
        body.extend(forever(poll));
    }
    body.extend(ok(0, 0));
    guest(body).wasi("poll_oneoff", &[ValType::I32; 4])
}

/// Writes the text to `fd`, `times` times (0: for ever), and completes.
pub fn print(fd: i32, text: &[u8], times: i32) -> Guest {
    const VECTOR: i32 = 512;
    const WRITTEN: i32 = 528;
    let write = [I::I32Const(fd), I::I32Const(VECTOR), I::I32Const(1), I::I32Const(WRITTEN), I::Call(0)];
    let mut body = vec![
        I::I32Const(VECTOR),
        I::I32Const(TEXT),
        I::I32Store(at(0)),
        I::I32Const(VECTOR),
        I::I32Const(text.len() as i32),
        I::I32Store(at(4)),
        I::I32Const(times),
        I::LocalSet(1),
        I::Loop(BlockType::Empty),
    ];
    body.extend(write);
    // A write that fails traps.
    body.extend([I::If(BlockType::Empty), I::Unreachable, I::End]);
    body.extend([I::LocalGet(1), I::I32Const(1), I::I32Sub, I::LocalTee(1), I::BrIf(0), I::End]);
    body.extend(ok(0, 0));
    guest(body).locals(&[ValType::I32]).text(text).wasi("fd_write", &[ValType::I32; 4])
}

pub fn exit(code: i32) -> Guest {
    guest([I::I32Const(code), I::Call(0), I::Unreachable]).import(
        "wasi_snapshot_preview1",
        "proc_exit",
        &[ValType::I32],
        &[],
    )
}

/// Wants `pages` more; traps where it gets none, completes otherwise.
pub fn grow(pages: i32) -> Guest {
    let mut body = vec![
        I::I32Const(pages),
        I::MemoryGrow(0),
        I::I32Const(-1),
        I::I32Eq,
        I::If(BlockType::Empty),
        I::Unreachable,
        I::End,
    ];
    body.extend(ok(0, 0));
    guest(body)
}

/// Calls itself for ever.
pub fn recurse() -> Guest {
    guest([I::LocalGet(0), I::Call(0), I::I32Const(1), I::I32Add])
}

/// Calls itself for ever and keeps 64 bytes a call on a stack that grows down to address 0.
pub fn recurse_in_memory() -> Guest {
    guest([
        I::LocalGet(0),
        I::I32Const(64),
        I::I32Sub,
        I::LocalTee(0),
        I::I32Const(1),
        I::I32Store(at(0)),
        I::LocalGet(0),
        I::Call(0),
        I::I32Const(1),
        I::I32Add,
    ])
}

/// A module of some 100 KB whose one function keeps the compiler busy for a long time: many variables that are
/// alive through many joined branches.
pub fn bomb() -> Vec<u8> {
    const LOCALS: u32 = 3_000;
    let mut body = Vec::new();
    for block in 0..6_000_u32 {
        body.extend([I::Block(BlockType::Empty), I::LocalGet(1 + block % LOCALS), I::BrIf(0)]);
        body.extend([
            I::LocalGet(1 + (block * 7) % LOCALS),
            I::LocalGet(1 + (block * 13) % LOCALS),
            I::I32Add,
        ]);
        body.extend([I::LocalSet(1 + (block * 11) % LOCALS), I::End]);
        if block % 50 == 0 {
            body.push(I::Loop(BlockType::Empty));
        }
    }
    for _ in 0..6_000 / 50 {
        body.extend([I::LocalGet(5), I::BrIf(0), I::End]);
    }
    body.extend(ok(0, 0));
    guest(body).locals(&vec![ValType::I32; LOCALS as usize]).build()
}
