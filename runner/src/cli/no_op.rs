//! A handler that does nothing: a WASI command, which completes with exit code 0. For smoke jobs and measurements.

/// The module, section by section: `(module (memory (export "memory") 1) (func (export "_start")))`.
pub(super) const NO_OP: [u8; 50] = [
    // Magic and version of WebAssembly.
    0x00, b'a', b's', b'm', 0x01, 0x00, 0x00, 0x00, //
    // Types (1): 4 bytes, one type: a function without parameters and results.
    0x01, 0x04, 0x01, 0x60, 0x00, 0x00, //
    // Functions (3): 2 bytes, one function, of type 0.
    0x03, 0x02, 0x01, 0x00, //
    // Memories (5): 3 bytes, one memory, without a maximum, of one page.
    0x05, 0x03, 0x01, 0x00, 0x01, //
    // Exports (7): 19 bytes, two of them: memory 0 as "memory", and function 0 as "_start".
    0x07, 0x13, 0x02, //
    0x06, b'm', b'e', b'm', b'o', b'r', b'y', 0x02, 0x00, //
    0x06, b'_', b's', b't', b'a', b'r', b't', 0x00, 0x00, //
    // Code (10): 4 bytes, one body, 2 bytes, no locals, `end`.
    0x0a, 0x04, 0x01, 0x02, 0x00, 0x0b, //
];
