//! Files that are no WebAssembly: what they are instead, by how they begin, and what to do.

use super::LoadError;
use super::check::HOW_TO_BUILD;

const MAGIC: &[u8] = b"\0asm";
/// How wasmtime marks its ELF files.
const ELF_OS_WASMTIME: u8 = 200;
/// How much of a file is looked at to tell text from binary.
const TEXT_BYTES: usize = 512;

/// Refuses what is not WebAssembly at all.
pub(super) fn looks_like_wasm(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.is_empty() {
        return Err(LoadError::Incomplete("the file is empty".to_owned()));
    }
    if bytes.len() < 8 && MAGIC.starts_with(&bytes[..bytes.len().min(4)]) {
        return Err(LoadError::Incomplete(format!("the file has only {} bytes", bytes.len())));
    }
    if bytes.starts_with(MAGIC) {
        return version(bytes);
    }
    let (what, fix) = told(bytes);
    Err(LoadError::Refused(format!("{what}; {fix}")))
}

/// The four bytes after the magic word.
fn version(bytes: &[u8]) -> Result<(), LoadError> {
    match &bytes[4..8] {
        [1, 0, 0, 0] | [0x0d, 0, 1, 0] => Ok(()),
        // Zeros are what a file has that was made larger first and is being filled.
        [0, 0, 0, 0] => {
            Err(LoadError::Incomplete("the file has no contents after its first bytes yet".to_owned()))
        }
        other => Err(LoadError::Refused(format!(
            "it is WebAssembly of version {:02x}{:02x}{:02x}{:02x}, which this runner does not know; update the \
             runner, or build it with stable tools",
            other[0], other[1], other[2], other[3]
        ))),
    }
}

/// What the file is, and the fix.
fn told(bytes: &[u8]) -> (String, &'static str) {
    const PORTABLE: &str = "give the runner the .wasm that it was made from: it loads portable modules only, and compiles them \
         itself";
    let begins = |with: &[u8]| bytes.starts_with(with);
    if begins(b"\x7fELF") {
        return match bytes.get(7) {
            Some(&ELF_OS_WASMTIME) => ("compiled WebAssembly (.cwasm, native code)".to_owned(), PORTABLE),
            _ => ("native code (ELF)".to_owned(), HOW_TO_BUILD),
        };
    }
    if begins(b"MZ") || begins(b"\xcf\xfa\xed\xfe") || begins(b"\xca\xfe\xba\xbe") {
        return ("native code, or that of another machine".to_owned(), HOW_TO_BUILD);
    }
    if begins(b"!<arch>\n") {
        return ("a static library (.a, .rlib)".to_owned(), HOW_TO_BUILD);
    }
    if begins(b"version https://git-lfs") {
        return ("a Git LFS pointer and not the module".to_owned(), "run `git lfs pull`");
    }
    if begins(b"\x1f\x8b") || begins(b"PK\x03\x04") || begins(b"\x28\xb5\x2f\xfd") || begins(b"BZh") {
        return (
            format!("an archive or compressed file (it begins with {})", first_bytes(bytes)),
            "unpack it, and give the runner the .wasm in it",
        );
    }
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    if first == Some(&b'(') || begins(b";;") || begins(b"(;") {
        return (
            "WebAssembly text".to_owned(),
            "convert it with `wasm-tools parse FILE -o OUT.wasm` or `wat2wasm`",
        );
    }
    if first == Some(&b'<') {
        return (
            "a web page, not a module".to_owned(),
            "download the file itself: a link to it led elsewhere",
        );
    }
    if is_text(bytes) {
        return (
            "text, not WebAssembly: source code is compiled first".to_owned(),
            "for Rust cargo build --release --target wasm32-wasip1; other languages: docs/handlers.md",
        );
    }
    (format!("not WebAssembly: it begins with {}, not 0061736d", first_bytes(bytes)), HOW_TO_BUILD)
}

fn first_bytes(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(4)].iter().map(|b| format!("{b:02x}")).collect()
}

fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(TEXT_BYTES)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // Cut inside a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}
