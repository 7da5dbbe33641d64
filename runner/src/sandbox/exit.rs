//! Exit codes that survive wrapping.
//!
//! The preview-1 adapter maps `proc_exit(n)` to `wasi:cli/exit#exit`, which knows success and failure
//! but no number. The same interface has `exit-with-code` with the signature of `proc_exit`, so a core module's
//! import is renamed to it before the module is wrapped. (A code's low 8 bits count, as everywhere.)

use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::LoadError;

/// `wasi:cli/exit` as the adapter knows it.
const EXIT_WIT: &str = "
    package hourhand:exit;
    world exits { import wasi:cli/exit@0.2.12; }
    package wasi:cli@0.2.12 {
        interface exit {
            exit: func(status: result);
            exit-with-code: func(status-code: u8);
        }
    }";
const OLD: &[u8] = b"\x16wasi_snapshot_preview1\x09proc_exit";
const NEW: &[u8] = b"\x14wasi:cli/exit@0.2.12\x0eexit-with-code";
const IMPORT_SECTION: u8 = 2;

/// The core module with `proc_exit` renamed, or `None` where it does not import it.
pub(super) fn keep_codes(bytes: &[u8]) -> Result<Option<Vec<u8>>, LoadError> {
    let Some((section, entry)) = find(bytes)? else { return Ok(None) };
    let before = &bytes[section.start..entry];
    let after = &bytes[entry + OLD.len()..section.end];
    let size = before.len() + NEW.len() + after.len();

    let mut renamed = Vec::with_capacity(bytes.len() + 1_024);
    // The sections before; then the import section with its id and its new size.
    renamed.extend_from_slice(&bytes[..header_start(bytes, section.start)?]);
    renamed.push(IMPORT_SECTION);
    push_leb128(&mut renamed, size);
    renamed.extend_from_slice(before);
    renamed.extend_from_slice(NEW);
    renamed.extend_from_slice(after);
    renamed.extend_from_slice(&bytes[section.end..]);
    add_world(&mut renamed)?;
    Ok(Some(renamed))
}

/// The range of the import section's content, and where in the file the import of `proc_exit` begins.
fn find(bytes: &[u8]) -> Result<Option<(std::ops::Range<usize>, usize)>, LoadError> {
    let invalid = |error: wasmparser::BinaryReaderError| LoadError::Refused(format!("not valid: {error}"));
    for payload in Parser::new(0).parse_all(bytes) {
        let Payload::ImportSection(imports) = payload.map_err(invalid)? else { continue };
        let range = imports.range();
        for import in imports.into_imports_with_offsets() {
            let (offset, import) = import.map_err(invalid)?;
            let is_exit = import.module == "wasi_snapshot_preview1" && import.name == "proc_exit";
            if is_exit && bytes[offset..].starts_with(OLD) {
                return Ok(Some((range, offset)));
            }
        }
    }
    Ok(None)
}

/// Where a section begins whose content begins at `content`: its id, and its size as LEB128, lie before.
fn header_start(bytes: &[u8], content: usize) -> Result<usize, LoadError> {
    // At most five bytes of size; the first before them is the id.
    let id_at = content.checked_sub(2).and_then(|last| {
        let mut at = last;
        while at > 8 && bytes[at] & 0x80 != 0 {
            at -= 1;
        }
        (bytes[at] == IMPORT_SECTION).then_some(at)
    });
    id_at.ok_or_else(|| LoadError::Refused("its import section has no header".to_owned()))
}

fn push_leb128(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn add_world(bytes: &mut Vec<u8>) -> Result<(), LoadError> {
    let added = (|| {
        let mut resolve = Resolve::default();
        let package = resolve.push_str("exit.wit", EXIT_WIT)?;
        let world = resolve.select_world(&[package], Some("exits"))?;
        embed_component_metadata(bytes, &resolve, world, StringEncoding::UTF8)
    })();
    added.map_err(|error| LoadError::Compile(format!("{error:#}")))
}
