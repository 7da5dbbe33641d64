//! Handlers that are built in, as plain WASI commands, so that nothing needs to be built or found to measure a runner.

/// How long a [`nap`] takes, in milliseconds.
pub(super) const NAP_MS: u64 = 3_000;
/// About the size of a handler that is dropped, in bytes.
const DROPPED_BYTES: usize = 100_000;

/// Types of values, and of blocks without one.
const I32: u8 = 0x7f;
const NO_VALUE: u8 = 0x40;
/// Where modules import from.
const WASI: &str = "wasi_snapshot_preview1";
/// The type of `_start`: no parameter, no result. It is the first of each module.
const START: &[u8] = &[0x60, 0, 0];

/// Draws 16 random bytes and prints them: its result tells each run apart.
pub(super) fn nonce() -> Vec<u8> {
    let types = [START, &[0x60, 2, I32, I32, 1, I32], &[0x60, 4, I32, I32, I32, I32, 1, I32]];
    let imports = [import("random_get", 1), import("fd_write", 2)];
    // 16 bytes at 16, and at 0 the list of one buffer that says so.
    let body = [
        calls(&[16, 16], 0),
        calls(&[1, 0, 1, 8], 1), // stdout, that list, and how much was written to 8
    ];
    module(&types, &imports, &[body.concat()], Some((0, &[16, 0, 0, 0, 16, 0, 0, 0])))
}

/// Waits for [`NAP_MS`].
pub(super) fn nap() -> Vec<u8> {
    let types = [START, &[0x60, 4, I32, I32, I32, I32, 1, I32]];
    // A subscription to a clock at 0: the monotonic one (1), and the time in nanoseconds.
    let mut clock = vec![1, 0, 0, 0, 0, 0, 0, 0];
    clock.extend((NAP_MS * 1_000_000).to_le_bytes());
    module(&types, &[import("poll_oneoff", 1)], &[calls(&[0, 64, 1, 128], 0)], Some((16, &clock)))
}

/// Does nothing, in 100 kB: as much code to compile as a real handler brings.
pub(super) fn large() -> Vec<u8> {
    // x = x * 3 + its place, over and over, in functions that nobody calls.
    let mut work = Vec::new();
    for place in 0..12 {
        work.extend([0x20, 0, 0x41, 3, 0x6c, 0x41, place, 0x6a, 0x21, 0]);
    }
    let mut bodies = vec![Vec::new()];
    bodies.resize(DROPPED_BYTES / (work.len() + 4), work);
    module(&[START, &[0x60, 1, I32, 0]], &[], &bodies, None)
}

/// The module with something in it that makes it another file, and no other program.
pub(super) fn marked(module: &[u8], mark: &str) -> Vec<u8> {
    let mut custom = name("hourhand.bench");
    custom.extend(mark.as_bytes());
    [module, &section(0, &custom)].concat()
}

/// A module with a page of memory, whose first function is `_start`, and others of the second type.
fn module(types: &[&[u8]], imports: &[Vec<u8>], bodies: &[Vec<u8>], data: Option<(u8, &[u8])>) -> Vec<u8> {
    let types: Vec<Vec<u8>> = types.iter().map(|one| one.to_vec()).collect();
    let functions: Vec<Vec<u8>> = (0..bodies.len()).map(|at| vec![u8::from(at > 0)]).collect();
    let start = number(imports.len());
    let exports = [[name("memory"), vec![2, 0]].concat(), [name("_start"), vec![0], start].concat()];
    let code: Vec<Vec<u8>> = bodies
        .iter()
        .map(|body| {
            // No local variables; `end`.
            let body = [&[0], &body[..], &[0x0b]].concat();
            [number(body.len()), body].concat()
        })
        .collect();
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    module.extend(section(1, &list(&types)));
    module.extend(section(2, &list(imports)));
    module.extend(section(3, &list(&functions)));
    module.extend(section(5, &[1, 0, 1]));
    module.extend(section(7, &list(&exports)));
    module.extend(section(10, &list(&code)));
    if let Some((at, bytes)) = data {
        let segment = [&[0, 0x41, at, 0x0b], &number(bytes.len())[..], bytes].concat();
        module.extend(section(11, &list(&[segment])));
    }
    module
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id], &number(content.len())[..], content].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [number(items.len()), items.concat()].concat()
}

fn name(text: &str) -> Vec<u8> {
    [number(text.len()), text.as_bytes().to_vec()].concat()
}

fn import(function: &str, of_type: u8) -> Vec<u8> {
    [name(WASI), name(function), vec![0, of_type]].concat()
}

/// A call with these numbers that traps unless it returns 0.
fn calls(arguments: &[u8], function: u8) -> Vec<u8> {
    let mut code = Vec::new();
    for argument in arguments {
        // Signed: a number from 64 on takes two bytes.
        code.push(0x41);
        code.extend(if *argument < 64 {
            vec![*argument]
        } else {
            vec![argument & 0x7f | 0x80, argument >> 7]
        });
    }
    code.extend([0x10, function, 0x04, NO_VALUE, 0x00, 0x0b]);
    code
}

/// An unsigned number, seven bits a byte.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Sandbox, SandboxConfig};

    #[test]
    fn each_module_loads_and_a_mark_makes_it_another() {
        let sandbox =
            Sandbox::new(SandboxConfig { concurrency: 1, ..SandboxConfig::default() }).expect("one");
        let (nonce, nap, large) = (nonce(), nap(), large());
        assert!((90_000..110_000).contains(&large.len()), "{} bytes", large.len());
        for (name, module) in [("nonce", &nonce), ("nap", &nap), ("large", &large)] {
            let plain = sandbox.load(name, module).unwrap_or_else(|error| panic!("{name}: {error}"));
            let marked = sandbox.load(name, &marked(module, "1")).expect("loads as well");
            assert_ne!(plain.sha256(), marked.sha256());
        }
    }
}
