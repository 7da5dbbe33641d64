//! A core module as it goes to wit-component: only what is needed of it, with a world that we trust.
//!
//! Custom sections are left out, but for the names of functions; the world in them is checked and
//! replaced by our own. Imports of WASI 0.2 that the module has beside those of preview 1 (an HTTP client's) get the version that
//! our world has: within 0.2 they mean the same. The import of `proc_exit` is renamed on the way: the preview-1 adapter maps it to
//! `wasi:cli/exit#exit`, which knows success and failure but no number, and the same interface has
//! `exit-with-code` with the signature of `proc_exit`. (A code's low 8 bits count, as everywhere.)

use wasmparser::{ImportSectionReader, Parser, Payload};

use super::world::Needs;
use super::{LoadError, Role, world};

const PROC_EXIT: &[u8] = b"\x16wasi_snapshot_preview1\x09proc_exit";
const EXIT_WITH_CODE: &[u8] = b"\x14wasi:cli/exit@0.2.12\x0eexit-with-code";
const HEADER_BYTES: usize = 8;
const WASI: &str = "wasi:";
const WASI_VERSION: &str = "@0.2.";

/// The module for wit-component, once the world of a handler is found to be ours. A command needs none.
pub(super) fn prepared(bytes: &[u8], role: Role) -> Result<Vec<u8>, LoadError> {
    let mut prepared = bytes[..HEADER_BYTES].to_vec();
    let mut worlds = Vec::new();
    let mut needs = Needs::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(invalid)?;
        match &payload {
            Payload::CustomSection(custom) if custom.name() == "name" => {}
            Payload::CustomSection(custom) => {
                if custom.name().starts_with("component-type") {
                    worlds.push(custom.data());
                }
                continue;
            }
            Payload::ImportSection(imports) => {
                let renamed = renamed(bytes, imports, &mut needs)?;
                push_section(&mut prepared, 2, &renamed);
                continue;
            }
            _ => {}
        }
        if let Some((id, content)) = payload.as_section() {
            push_section(&mut prepared, id, &bytes[content]);
        }
    }
    if role == Role::Handler {
        world::check(&worlds)?;
    }
    world::embed(&mut prepared, role, needs)?;
    Ok(prepared)
}

/// The import section's content with `proc_exit` renamed, and with our version of WASI.
fn renamed(bytes: &[u8], imports: &ImportSectionReader<'_>, needs: &mut Needs) -> Result<Vec<u8>, LoadError> {
    let range = imports.range();
    let mut renamed = Vec::with_capacity(range.len());
    let mut done = range.start;
    for import in imports.clone().into_imports_with_offsets() {
        let (at, import) = import.map_err(invalid)?;
        let mut replace = |old: &[u8], new: &[u8]| {
            renamed.extend_from_slice(&bytes[done..at]);
            renamed.extend_from_slice(new);
            done = at + old.len();
        };
        let is_exit = import.module == "wasi_snapshot_preview1" && import.name == "proc_exit";
        if is_exit && bytes[at..range.end].starts_with(PROC_EXIT) {
            needs.exit = true;
            replace(PROC_EXIT, EXIT_WITH_CODE);
        } else if let Some(ours) = our_version(import.module) {
            needs.wasi = true;
            let old = name(import.module);
            if bytes[at..range.end].starts_with(&old) {
                replace(&old, &name(&ours));
            }
        }
    }
    renamed.extend_from_slice(&bytes[done..range.end]);
    Ok(renamed)
}

/// `wasi:http/types@0.2.4` in the version of our world; `None` for what is not of WASI 0.2.
fn our_version(module: &str) -> Option<String> {
    let (interface, patch) = module.strip_prefix(WASI)?.split_once(WASI_VERSION)?;
    let ours = world::WASI_PATCH;
    patch.bytes().all(|b| b.is_ascii_digit()).then(|| format!("{WASI}{interface}{WASI_VERSION}{ours}"))
}

/// A name as sections hold it: its length, then its bytes.
fn name(text: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len() + 2);
    push_size(&mut name, text.len());
    name.extend_from_slice(text.as_bytes());
    name
}

fn invalid(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Refused(format!("not valid WebAssembly: {error}"))
}

fn push_section(module: &mut Vec<u8>, id: u8, content: &[u8]) {
    module.push(id);
    push_size(module, content.len());
    module.extend_from_slice(content);
}

fn push_size(bytes: &mut Vec<u8>, mut size: usize) {
    while size >= 0x80 {
        bytes.push((size as u8) | 0x80);
        size >>= 7;
    }
    bytes.push(size as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wasi_0_2_gets_the_version_of_our_world_and_nothing_else_does() {
        for (module, ours) in [
            ("wasi:http/types@0.2.0", Some("wasi:http/types@0.2.12")),
            ("wasi:io/streams@0.2.12", Some("wasi:io/streams@0.2.12")),
            ("wasi:http/types@0.3.0", None),
            ("wasi:http/types@0.2.0-rc-2023-11-10", None),
            ("wasi:http/types", None),
            ("wasi_snapshot_preview1", None),
            ("hourhand:job/host@0.1.0", None),
        ] {
            assert_eq!(our_version(module).as_deref(), ours, "{module}");
        }
        assert_eq!(name(&"x".repeat(200))[..3], [0xc8, 1, b'x']);
    }
}
