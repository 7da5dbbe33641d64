//! Looks at a module file without running it: for `hourhand handler check`.

use sha2::{Digest, Sha256};

use super::facts::{self, Form, Role};
use super::load::{Build, Loader, Module, hex};
use super::{Declared, LoadError, SandboxConfig, check, engine, stranger};

/// The interface between host and handler that this runner serves.
pub const INTERFACE_VERSION: &str = "0.1.0";

/// What a module file is, and whether a runner would load it.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The hash of its bytes: 64 hex digits.
    pub sha256: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Core module or component; `None` when it is no WebAssembly.
    pub form: Option<Form>,
    /// What it serves as; `None` when as nothing.
    pub role: Option<Role>,
    /// The version of `hourhand:job` that it was built for.
    pub interface: Option<String>,
    /// What it declares of its handlers; empty when it serves the kind named by its file stem.
    pub declared: Vec<Declared>,
    /// What it imports: `module.name` of a core module, interfaces of a component.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// Language and tools with their versions.
    pub producers: Vec<String>,
    /// What its largest memory starts with, in bytes; `None` when it is no WebAssembly.
    pub memory_bytes_initial: Option<u64>,
    /// How long it takes to compile, and what it needs of the pool; `None` when it does not load.
    pub build: Option<Build>,
    /// Why a runner would not load it.
    pub refusal: Option<LoadError>,
}

/// What the module in `bytes` declares, without compiling it.
///
/// # Errors
/// When it is no module, or its declarations do not read.
pub fn declared_in(bytes: &[u8]) -> Result<Vec<Declared>, LoadError> {
    stranger::looks_like_wasm(bytes).and_then(|()| facts::read(bytes)?.declared).map_err(LoadError::tidied)
}

/// Looks at the module in `bytes`; `name` is its file stem. Compiles it, and runs nothing. Blocking.
pub fn inspect(name: &str, bytes: &[u8]) -> Inspection {
    inspect_within(name, bytes, SandboxConfig::default().memory_bytes_max)
}

/// The same for a runner whose handlers may have this much memory, in bytes.
pub fn inspect_within(name: &str, bytes: &[u8], memory_bytes_max: u64) -> Inspection {
    let mut inspection = Inspection {
        sha256: hex(&Sha256::digest(bytes)),
        size_bytes: bytes.len() as u64,
        form: facts::form_of(bytes),
        role: None,
        interface: None,
        declared: Vec::new(),
        imports: Vec::new(),
        exports: Vec::new(),
        producers: Vec::new(),
        memory_bytes_initial: None,
        build: None,
        refusal: None,
    };
    let facts = match stranger::looks_like_wasm(bytes).and_then(|()| facts::read(bytes)) {
        Ok(facts) => facts,
        Err(refusal) => return Inspection { refusal: Some(refusal.tidied()), ..inspection },
    };
    inspection.interface = check::handler_version(&facts);
    inspection.role = check::role(&facts).ok();
    // What is wrong with it is said by the refusal.
    inspection.declared = facts.declared.unwrap_or_default();
    inspection.imports = facts.imports;
    inspection.exports = facts.exports;
    inspection.memory_bytes_initial = Some(facts.memory_bytes_initial);
    inspection.producers = facts.producers;
    match try_load(name, bytes, memory_bytes_max) {
        Ok(module) => inspection.build = Some(module.build().clone()),
        Err(refusal) => inspection.refusal = Some(refusal),
    }
    inspection
}

fn try_load(name: &str, bytes: &[u8], memory_bytes_max: u64) -> Result<Module, LoadError> {
    // As strict as a runner: with a pool, of one slot.
    let config = SandboxConfig { concurrency: 1, memory_bytes_max, ..SandboxConfig::default() };
    let (engine, settings) = engine::build(&config).map_err(|error| LoadError::Compile(error.to_string()))?;
    let loader = Loader::new(&engine, settings, None, &config, true).map_err(LoadError::Compile)?;
    loader.load(name, bytes)
}
