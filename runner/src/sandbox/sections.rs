//! A core module as it goes to wit-component: only what is needed of it, with a world that we trust.
//!
//! Custom sections are left out, but for the names of functions; the world in them is checked and
//! replaced by our own. The import of `proc_exit` is renamed on the way: the preview-1 adapter maps it to
//! `wasi:cli/exit#exit`, which knows success and failure but no number, and the same interface has
//! `exit-with-code` with the signature of `proc_exit`. (A code's low 8 bits count, as everywhere.)

use wasmparser::{ImportSectionReader, Parser, Payload};

use super::{LoadError, Role, world};

const PROC_EXIT: &[u8] = b"\x16wasi_snapshot_preview1\x09proc_exit";
const EXIT_WITH_CODE: &[u8] = b"\x14wasi:cli/exit@0.2.12\x0eexit-with-code";
const HEADER_BYTES: usize = 8;

/// The module for wit-component, once the world of a handler is found to be ours. A command needs none.
pub(super) fn prepared(bytes: &[u8], role: Role) -> Result<Vec<u8>, LoadError> {
    let mut prepared = bytes[..HEADER_BYTES].to_vec();
    let mut worlds = Vec::new();
    let mut exits = false;
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
                if let Some(renamed) = with_exit_renamed(bytes, imports)? {
                    exits = true;
                    push_section(&mut prepared, 2, &renamed);
                    continue;
                }
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
    world::embed(&mut prepared, role, exits)?;
    Ok(prepared)
}

/// The import section's content with `proc_exit` renamed, or `None` where it is not imported.
fn with_exit_renamed(bytes: &[u8], imports: &ImportSectionReader<'_>) -> Result<Option<Vec<u8>>, LoadError> {
    let range = imports.range();
    for import in imports.clone().into_imports_with_offsets() {
        let (at, import) = import.map_err(invalid)?;
        let is_exit = import.module == "wasi_snapshot_preview1" && import.name == "proc_exit";
        if is_exit && bytes[at..range.end].starts_with(PROC_EXIT) {
            let (before, after) = (&bytes[range.start..at], &bytes[at + PROC_EXIT.len()..range.end]);
            return Ok(Some([before, EXIT_WITH_CODE, after].concat()));
        }
    }
    Ok(None)
}

fn invalid(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Refused(format!("not valid WebAssembly: {error}"))
}

fn push_section(module: &mut Vec<u8>, id: u8, content: &[u8]) {
    module.push(id);
    let mut size = content.len();
    while size >= 0x80 {
        module.push((size as u8) | 0x80);
        size >>= 7;
    }
    module.push(size as u8);
    module.extend_from_slice(content);
}
