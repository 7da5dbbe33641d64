//! What a module's bytes say, read without running or compiling anything.

use wasmparser::{Encoding, KnownCustom, Parser, Payload, TypeRef};

use super::declared;
use super::{Declared, LoadError};

/// The custom section in which the SDK's macro declares handlers.
const HANDLERS_SECTION: &str = "hourhand.handlers";
/// Imports and exports that a module may have, and bytes of all their names.
const NAMES_MAX: usize = 100_000;
const NAME_BYTES_MAX: usize = 16 << 20;
/// What is kept of the tools that made it, and how long one may be, in bytes.
const PRODUCERS_MAX: usize = 32;
const PRODUCER_BYTES_MAX: usize = 256;

/// Core module or component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A core module, as `wasm32-wasip1` gives: wrapped at load.
    Core,
    /// A component, used as it is.
    Component,
}

/// What a module is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It exports the handler of `hourhand:job`.
    Handler,
    /// It is a plain WASI command: stdin, stdout and an exit code.
    Command,
}

/// What a module's bytes say.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) form: Form,
    /// `module` or `module.name` for a core module; interface names for a component.
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
    /// Bytes of the names of both.
    name_bytes: usize,
    /// The first memory with 64-bit addresses or shared between threads.
    pub(super) memory64: bool,
    pub(super) shared_memory: bool,
    /// What a compiler writes for a linker.
    pub(super) object_file: bool,
    /// What its largest memory starts with, in bytes.
    pub(super) memory_bytes_initial: u64,
    /// Or what is wrong with the section that declares them: the module is one all the same.
    pub(super) declared: Result<Vec<Declared>, LoadError>,
    /// Language and tools with their versions, for people.
    pub(super) producers: Vec<String>,
}

impl Facts {
    fn new() -> Self {
        Self {
            form: Form::Core,
            imports: Vec::new(),
            exports: Vec::new(),
            name_bytes: 0,
            memory64: false,
            shared_memory: false,
            object_file: false,
            memory_bytes_initial: 0,
            declared: Ok(Vec::new()),
            producers: Vec::new(),
        }
    }
}

/// What the header says that the bytes are, also where the rest does not read.
pub(super) fn form_of(bytes: &[u8]) -> Option<Form> {
    match bytes.get(..8)? {
        b"\0asm\x01\0\0\0" => Some(Form::Core),
        b"\0asm\x0d\0\x01\0" => Some(Form::Component),
        _ => None,
    }
}

/// Reads `bytes`, which begin as WebAssembly does.
///
/// # Errors
/// [`LoadError::Incomplete`] where the bytes end too early, [`LoadError::Refused`] where they are no
/// module.
pub(super) fn read(bytes: &[u8]) -> Result<Facts, LoadError> {
    let mut facts = Facts::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| malformed(&error, bytes.len()))?;
        let outermost = depth == 0;
        match payload {
            Payload::Version { encoding, .. } if outermost => {
                depth += 1;
                facts.form = match encoding {
                    Encoding::Module => Form::Core,
                    Encoding::Component => Form::Component,
                };
            }
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            other => read_section(&mut facts, other, depth == 1, bytes.len())?,
        }
    }
    if let Ok(declared) = &facts.declared {
        facts.declared = declared::no_kind_twice(declared).map(|()| declared.clone());
    }
    Ok(facts)
}

fn read_section(facts: &mut Facts, payload: Payload<'_>, top: bool, size: usize) -> Result<(), LoadError> {
    let malformed = |error| malformed(&error, size);
    match payload {
        Payload::ImportSection(imports) => {
            for import in imports.into_imports() {
                let import = import.map_err(malformed)?;
                if let TypeRef::Memory(memory) = import.ty {
                    note_memory(facts, memory);
                }
                if top {
                    note_name(facts, import.module.len() + import.name.len() + 1)?;
                    facts.imports.push(format!("{}.{}", import.module, import.name));
                }
            }
        }
        Payload::MemorySection(memories) => {
            for memory in memories {
                note_memory(facts, memory.map_err(malformed)?);
            }
        }
        Payload::ExportSection(exports) if top => {
            for export in exports {
                let name = export.map_err(malformed)?.name;
                note_name(facts, name.len())?;
                facts.exports.push(name.to_owned());
            }
        }
        Payload::ComponentImportSection(imports) if top => {
            for import in imports {
                let name = import.map_err(malformed)?.name.name;
                note_name(facts, name.len())?;
                facts.imports.push(name.to_owned());
            }
        }
        Payload::ComponentExportSection(exports) if top => {
            for export in exports {
                let name = export.map_err(malformed)?.name.name;
                note_name(facts, name.len())?;
                facts.exports.push(name.to_owned());
            }
        }
        Payload::CustomSection(section) => {
            facts.object_file |= top && section.name() == "linking";
            if section.name() == HANDLERS_SECTION {
                if let Ok(declared) = &mut facts.declared
                    && let Err(refusal) = declared::extend(declared, section.data())
                {
                    facts.declared = Err(refusal);
                }
            } else if let KnownCustom::Producers(producers) = section.as_known() {
                note_producers(facts, producers);
            }
        }
        _ => {}
    }
    Ok(())
}

fn note_memory(facts: &mut Facts, memory: wasmparser::MemoryType) {
    facts.memory64 |= memory.memory64;
    facts.shared_memory |= memory.shared;
    let page = 1 << memory.page_size_log2.unwrap_or(16).min(16);
    facts.memory_bytes_initial = facts.memory_bytes_initial.max(memory.initial.saturating_mul(page));
}

/// Counts one more import or export with a name of so many bytes, and refuses too many: this is read in the runner itself.
fn note_name(facts: &mut Facts, bytes: usize) -> Result<(), LoadError> {
    facts.name_bytes = facts.name_bytes.saturating_add(bytes);
    if facts.imports.len() + facts.exports.len() >= NAMES_MAX {
        return Err(LoadError::Refused(format!(
            "it has more than {NAMES_MAX} imports and exports: export only what is called from outside"
        )));
    }
    if facts.name_bytes > NAME_BYTES_MAX {
        let most = super::size(NAME_BYTES_MAX as u64);
        return Err(LoadError::Refused(format!(
            "the names of its imports and exports take more than {most}"
        )));
    }
    Ok(())
}

/// For messages only: a section that does not read is no reason to refuse a module.
fn note_producers(facts: &mut Facts, producers: wasmparser::ProducersSectionReader<'_>) {
    for field in producers.into_iter().flatten() {
        for value in field.values.into_iter().flatten() {
            if facts.producers.len() >= PRODUCERS_MAX {
                return;
            }
            if value.name.len() + value.version.len() >= PRODUCER_BYTES_MAX {
                continue;
            }
            let known = format!("{} {}", value.name, value.version).trim().to_owned();
            if !facts.producers.contains(&known) {
                facts.producers.push(known);
            }
        }
    }
}

fn malformed(error: &wasmparser::BinaryReaderError, size: usize) -> LoadError {
    let text = error.message();
    if text.contains("unexpected end") || text.contains("unexpected eof") || error.offset() >= size {
        LoadError::Incomplete(format!("the file ends too early, at {size} bytes: is it still being copied?"))
    } else {
        LoadError::Refused(format!("not valid WebAssembly: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leb(mut n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let byte = (n & 0x7f) as u8;
            n >>= 7;
            if n == 0 {
                out.push(byte);
                return out;
            }
            out.push(byte | 0x80);
        }
    }

    fn text(text: &str) -> Vec<u8> {
        [leb(text.len()), text.as_bytes().to_vec()].concat()
    }

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [vec![id], leb(content.len()), content.to_vec()].concat()
    }

    fn module(sections: &[Vec<u8>]) -> Vec<u8> {
        [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
    }

    /// A section that exports its first function so many times.
    fn exports(names: impl ExactSizeIterator<Item = String>) -> Vec<u8> {
        let mut content = leb(names.len());
        for name in names {
            content.extend([text(&name), vec![0, 0]].concat());
        }
        section(7, &content)
    }

    fn producers(values: impl ExactSizeIterator<Item = String>) -> Vec<u8> {
        let mut content = [text("producers"), leb(1), text("processed-by"), leb(values.len())].concat();
        for value in values {
            content.extend([text(&value), text("1")].concat());
        }
        section(0, &content)
    }

    #[test]
    fn few_of_the_tools_that_made_a_module_are_kept() {
        let made = |values: Vec<String>| read(&module(&[producers(values.into_iter())])).unwrap().producers;
        assert_eq!(made(vec!["rustc".to_owned(), "rustc".to_owned()]), ["rustc 1"]);
        assert_eq!(made((0..50_000).map(|n| format!("tool{n}")).collect()).len(), PRODUCERS_MAX);
        assert_eq!(made(vec!["x".repeat(PRODUCER_BYTES_MAX), "lld".to_owned()]), ["lld 1"]);
    }

    #[test]
    fn a_module_with_names_without_end_is_refused() {
        let exported = |number: usize| read(&module(&[exports((0..number).map(|n| format!("f{n}")))]));
        assert_eq!(exported(NAMES_MAX).unwrap().exports.len(), NAMES_MAX);
        let refusal = exported(NAMES_MAX + 1).unwrap_err().to_string();
        assert!(refusal.contains("more than 100000 imports and exports"), "{refusal}");
        let long = exports((0..200).map(|n| format!("{n}{}", "x".repeat(99_000))));
        let long = read(&module(&[long])).unwrap_err().to_string();
        assert!(long.contains("names of its imports and exports"), "{long}");
    }

    #[test]
    fn handlers_are_counted_over_all_sections() {
        let declaring = |n: usize| {
            let line = format!("{{\"kind\":\"k{n}\"}}\n");
            section(0, &[text(HANDLERS_SECTION), line.into_bytes()].concat())
        };
        let declared =
            |number: usize| read(&module(&(0..number).map(declaring).collect::<Vec<_>>())).unwrap().declared;
        assert_eq!(declared(256).unwrap().len(), 256);
        let refusal = declared(257).unwrap_err().to_string();
        assert!(refusal.contains("at most 256 handlers"), "{refusal}");
    }
}
