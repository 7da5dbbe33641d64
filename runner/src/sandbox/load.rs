//! From a module's bytes to something that can run: check, wrap, compile, link.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::clock;

use super::bindings::{JobHandler, JobHandlerPre};
use super::cache::CodeCache;
use super::compile::{Bounds, Compiled, Compiler};
use super::engine::CodeSettings;
use super::engine::{MEMORIES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX};
use super::facts::{self, Facts, Form};
use super::guest::GuestState;
use super::{Declared, LoadError, Role, SandboxConfig, bounds, check, http, stranger, wrap};

/// A compiled and linked version of a handler. Cheap to clone.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    entry: Entry,
    name: String,
    declared: Vec<Declared>,
    sha256: String,
    build: Build,
}

/// What is called for a job.
pub(super) enum Entry {
    /// The handler of `hourhand:job`.
    Handler(JobHandlerPre<GuestState>),
    /// A plain command's `wasi:cli/run`.
    Command(CommandPre<GuestState>),
}

/// How the compiled code came about, and what it needs of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// How long it was compiled, in milliseconds; `None` when it came from the cache.
    pub compile_ms: Option<u64>,
    /// Memories of one instance.
    pub memories: u32,
    /// Tables of one instance.
    pub tables: u32,
    /// Elements that its largest table starts with.
    pub table_elements: u64,
}

impl Module {
    /// What the module says of its handlers; empty when it says nothing.
    pub fn declared(&self) -> &[Declared] {
        &self.0.declared
    }

    /// The hash of the file's bytes: 64 hex digits.
    pub fn sha256(&self) -> &str {
        &self.0.sha256
    }

    /// The file stem that it was loaded under, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How it was compiled, and what it needs.
    pub fn build(&self) -> &Build {
        &self.0.build
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.0.entry
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("name", &self.0.name).field("sha256", &self.0.sha256).finish()
    }
}

/// What modules are loaded with.
pub(super) struct Loader {
    engine: Engine,
    linker: Linker<GuestState>,
    cache: Option<CodeCache>,
    /// One module at a time: compiling takes all its threads, and memory by the gigabyte.
    compiler: Mutex<Compiler>,
    memory_bytes_max: u64,
    /// Whether the pool's bounds hold for what is loaded.
    pub(super) pooled: bool,
}

impl Loader {
    pub(super) fn new(
        engine: &Engine,
        settings: CodeSettings,
        cache: Option<CodeCache>,
        config: &SandboxConfig,
        pooled: bool,
    ) -> Result<Self, String> {
        let mut linker = Linker::new(engine);
        // All of WASI, granting nothing: a guest that asks for a file or a socket is told no, rather than
        // not being loaded, because the standard libraries of most languages import all of it.
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(|error| format!("{error:#}"))?;
        // Requests go where the handler's grants allow.
        http::link(&mut linker).map_err(|error| format!("{error:#}"))?;
        JobHandler::add_to_linker::<GuestState, HasSelf<GuestState>>(&mut linker, |state| state)
            .map_err(|error| format!("{error:#}"))?;
        let bounds =
            Bounds { time_max: config.compile_time_max, memory_bytes_max: config.compile_memory_bytes_max };
        Ok(Self {
            engine: engine.clone(),
            linker,
            cache,
            compiler: Mutex::new(Compiler::new(engine, settings, bounds)),
            memory_bytes_max: config.memory_bytes_max,
            pooled,
        })
    }

    /// Loads a module, from the cache where it is there. Never panics.
    pub(super) fn load(&self, name: &str, bytes: &[u8]) -> Result<Module, LoadError> {
        // To their authors, panics of compilers on bad input are no security faults.
        catch_unwind(AssertUnwindSafe(|| self.load_checked(name, bytes)))
            .unwrap_or_else(|_| Err(LoadError::Compile("the compiler panicked".to_owned())))
            .map_err(LoadError::tidied)
    }

    fn load_checked(&self, name: &str, bytes: &[u8]) -> Result<Module, LoadError> {
        stranger::looks_like_wasm(bytes)?;
        let facts = facts::read(bytes)?;
        let declared = facts.declared.clone()?;
        let role = check::role(&facts)?;
        self.check_memory(&facts)?;
        bounds::check(bytes)?;
        let sha256 = hex(&Sha256::digest(bytes));
        let (component, compile_ms) = self.compiled(bytes, &facts, role, &sha256)?;
        let build = Build { compile_ms, ..self.check_resources(&component)? };
        // The first job need not do it.
        component
            .initialize_copy_on_write_image()
            .map_err(|error| LoadError::Compile(format!("its memory cannot be prepared: {error:#}")))?;
        let entry = self.link(&component, role)?;
        Ok(Module(Arc::new(Loaded { entry, name: name.to_owned(), declared, sha256, build })))
    }

    /// The code from the cache, or compiled now; and how long that took, in milliseconds.
    fn compiled(
        &self,
        bytes: &[u8],
        facts: &Facts,
        role: Role,
        sha256: &str,
    ) -> Result<(Component, Option<u64>), LoadError> {
        let cached = || self.cache.as_ref().and_then(|cache| cache.get(sha256, &self.engine));
        if let Some(component) = cached() {
            return Ok((component, None));
        }
        let compiler = self.compiler.lock();
        // Somebody else may have compiled the same while we waited for our turn.
        if let Some(component) = cached() {
            return Ok((component, None));
        }
        let begun = clock::monotonic();
        let Compiled { component, kept_form } =
            compiler.compile(bytes, || as_component(bytes, facts, role))?;
        let compile_ms = clock::monotonic().duration_since(begun).as_millis() as u64;
        // Before it is kept: what does not fit the pool is not worth a place in the cache.
        self.check_resources(&component)?;
        if let Some(cache) = &self.cache {
            cache.put(sha256, &component, kept_form.as_deref());
        }
        // The same code once more: gone before its memory is prepared.
        drop(kept_form);
        Ok((component, Some(compile_ms)))
    }

    fn link(&self, component: &Component, role: Role) -> Result<Entry, LoadError> {
        let pre = self.linker.instantiate_pre(component).map_err(|error| {
            LoadError::Refused(format!(
                "{error:#}; the sandbox offers WASI 0.2 with wasi:http and hourhand:job, nothing else"
            ))
        })?;
        if role == Role::Command {
            let command = CommandPre::new(pre).map(Entry::Command);
            return command.map_err(|error| {
                LoadError::Refused(format!("its wasi:cli/run is another than that of WASI 0.2 ({error:#})"))
            });
        }
        JobHandlerPre::new(pre).map(Entry::Handler).map_err(|error| {
            LoadError::Refused(format!(
                "its handler has another signature than hourhand:job asks for ({error:#}); build it with the \
                 hourhand-sdk of this runner's version"
            ))
        })
    }

    fn check_memory(&self, facts: &Facts) -> Result<(), LoadError> {
        if facts.memory_bytes_initial <= self.memory_bytes_max {
            return Ok(());
        }
        let (starts, may) = (super::size(facts.memory_bytes_initial), super::size(self.memory_bytes_max));
        Err(LoadError::Refused(format!("it starts with {starts} of memory, and handlers may have {may}")))
    }

    /// Refuses at load what could not be instantiated at the first job.
    fn check_resources(&self, component: &Component) -> Result<Build, LoadError> {
        let Some(required) = component.resources_required() else {
            return Err(LoadError::Refused(
                "the component imports core modules, which nobody can offer".to_owned(),
            ));
        };
        let elements = required.max_initial_table_size.unwrap_or(0);
        if self.pooled
            && (required.num_memories > MEMORIES_MAX
                || required.num_tables > TABLES_MAX
                || elements > TABLE_ELEMENTS_MAX as u64)
        {
            return Err(LoadError::Refused(format!(
                "it needs {} memories, {} tables and {elements} table elements; the pool has {MEMORIES_MAX}, \
                 {TABLES_MAX} and {TABLE_ELEMENTS_MAX} for each job",
                required.num_memories, required.num_tables
            )));
        }
        Ok(Build {
            compile_ms: None,
            memories: required.num_memories,
            tables: required.num_tables,
            table_elements: elements,
        })
    }
}

/// The module in the one form that is compiled.
pub(super) fn as_component(bytes: &[u8], facts: &Facts, role: Role) -> Result<Vec<u8>, LoadError> {
    match facts.form {
        Form::Component => Ok(bytes.to_vec()),
        Form::Core => wrap::core_module(bytes, facts, role),
    }
}

/// Lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
