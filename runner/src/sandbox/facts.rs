//! What a module's bytes say, read without running or compiling anything.

use wasmparser::{Encoding, KnownCustom, Parser, Payload, TypeRef};

use super::declared;
use super::{Declared, LoadError};

/// The custom section in which the SDK's macro declares handlers.
const HANDLERS_SECTION: &str = "hourhand.handlers";

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
                facts.exports.push(export.map_err(malformed)?.name.to_owned());
            }
        }
        Payload::ComponentImportSection(imports) if top => {
            for import in imports {
                facts.imports.push(import.map_err(malformed)?.name.name.to_owned());
            }
        }
        Payload::ComponentExportSection(exports) if top => {
            for export in exports {
                facts.exports.push(export.map_err(malformed)?.name.name.to_owned());
            }
        }
        Payload::CustomSection(section) => {
            facts.object_file |= top && section.name() == "linking";
            if section.name() == HANDLERS_SECTION {
                if let Ok(declared) = &mut facts.declared {
                    match declared::parse(section.data()) {
                        Ok(more) => declared.extend(more),
                        Err(refusal) => facts.declared = Err(refusal),
                    }
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

/// For messages only: a section that does not read is no reason to refuse a module.
fn note_producers(facts: &mut Facts, producers: wasmparser::ProducersSectionReader<'_>) {
    for field in producers.into_iter().flatten() {
        for value in field.values.into_iter().flatten() {
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
