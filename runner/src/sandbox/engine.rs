//! The one engine of a process: how it is set, how its pool is sized, and the check that it can interrupt guests.
//!
//! Everything about the pool follows from one number, the jobs that run at once. Where the address
//! space is too small for the pool, a tighter one is tried, and then none: loudly, because jobs are
//! slower then.

use std::num::NonZeroUsize;
use std::time::Duration;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig, Store, Trap,
    WasmBacktraceDetails,
};

use super::{SandboxConfig, SandboxError};

/// Stack of a guest, in bytes. Deep recursion ends here, as [`Trap::StackOverflow`].
pub(super) const STACK_BYTES: usize = 512 << 10;
/// Stack of a guest and of the host functions that it calls, in bytes.
const FIBER_BYTES: usize = 2 << 20;
/// What a slot keeps in memory between two jobs, in bytes: costs the runner so much for each slot that
/// was ever in use at once, saves page faults at each job.
const MEMORY_KEPT_BYTES: usize = 2 << 20;
const TABLE_KEPT_BYTES: usize = 128 << 10;
/// Freed slots that are given back to the system together. One: a slot that waits for others when its
/// module goes keeps the module's code and memory image until it is used again, which were some hundred
/// old versions. Batches of 16 would save about 3 us a job.
const DECOMMIT_BATCH: usize = 1;
/// Instance data of a component. Python's and JavaScript's are larger than wasmtime's default of 1 MiB.
const INSTANCE_BYTES_MAX: usize = 10 << 20;
/// Elements of a table; .NET wants over 10,000.
pub(super) const TABLE_ELEMENTS_MAX: usize = 100_000;
/// Core instances, memories and tables that one component may have.
const CORE_INSTANCES_MAX: u32 = 64;
pub(super) const MEMORIES_MAX: u32 = 4;
pub(super) const TABLES_MAX: u32 = 32;
/// A spinning guest must be stopped within this at start.
const SELF_CHECK: Duration = Duration::from_secs(5);

/// How instances get their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocation {
    /// From a pool with 4 GiB of address space a slot, so that guests need no bounds checks.
    Pool,
    /// From a pool with as much address space a slot as a guest may use.
    TightPool,
    /// From the system, one by one.
    OnDemand,
}

impl Allocation {
    /// Its name for another process.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::TightPool => "tight-pool",
            Self::OnDemand => "on-demand",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::Pool, Self::TightPool, Self::OnDemand].into_iter().find(|one| one.as_str() == name)
    }
}

/// What compiled code depends on, beside this binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeSettings {
    pub(super) allocation: Allocation,
    /// The largest memory that any handler may have, in bytes.
    pub(super) memory_bytes_max: u64,
}

/// Builds the engine with the best allocation that this machine can have.
pub(super) fn build(config: &SandboxConfig) -> Result<(Engine, CodeSettings), SandboxError> {
    let mut last_error: Option<String> = None;
    for allocation in [Allocation::Pool, Allocation::TightPool, Allocation::OnDemand] {
        match Engine::new(&engine_config(config, allocation)) {
            Ok(engine) => {
                if let Some(error) = last_error {
                    warn_about(allocation, config, &error);
                }
                let memory_bytes_max = config.memory_bytes_max;
                return Ok((engine, CodeSettings { allocation, memory_bytes_max }));
            }
            Err(error) => last_error = Some(format!("{error:#}")),
        }
    }
    Err(SandboxError::Engine(last_error.unwrap_or_default()))
}

/// An engine without a pool.
#[cfg(test)]
pub(super) fn build_unpooled(config: &SandboxConfig) -> Result<(Engine, CodeSettings), SandboxError> {
    let memory_bytes_max = config.memory_bytes_max;
    let settings = CodeSettings { allocation: Allocation::OnDemand, memory_bytes_max };
    Ok((build_for(settings)?, settings))
}

/// An engine that compiles for another one, and runs nothing: it has no pool.
pub(super) fn build_for(settings: CodeSettings) -> Result<Engine, SandboxError> {
    Engine::new(&code_config(settings)).map_err(|error| SandboxError::Engine(format!("{error:#}")))
}

fn warn_about(allocation: Allocation, config: &SandboxConfig, error: &str) {
    let concurrency = config.concurrency;
    match allocation {
        Allocation::TightPool => tracing::warn!(
            concurrency,
            error,
            "not enough address space for the sandbox's pool: guests get smaller reservations and run slower; \
             raise the limit (ulimit -v) or lower the concurrency"
        ),
        _ => tracing::warn!(
            concurrency,
            error,
            "NO SANDBOX POOL: not enough address space, so each job maps its memory anew and takes several times \
             as long; raise the limit (ulimit -v) or lower the concurrency"
        ),
    }
}

fn engine_config(config: &SandboxConfig, allocation: Allocation) -> Config {
    let mut engine = code_config(CodeSettings { allocation, memory_bytes_max: config.memory_bytes_max });
    if allocation != Allocation::OnDemand {
        engine.allocation_strategy(InstanceAllocationStrategy::Pooling(pool_config(config)));
    }
    engine
}

/// The one place that sets the engine, but for its pool. What is off is off on purpose: proposals that handlers
/// do not need are ways in that nobody has to guard.
fn code_config(settings: CodeSettings) -> Config {
    let mut engine = Config::new();
    engine
        .wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(FIBER_BYTES)
        .cranelift_opt_level(OptLevel::Speed)
        .parallel_compilation(true)
        .memory_init_cow(true)
        // With many modules, registering unwind information costs more than it helps.
        .native_unwind_info(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(NonZeroUsize::new(64))
        .shared_memory(false)
        .wasm_memory64(false);
    match settings.allocation {
        Allocation::Pool => {}
        Allocation::TightPool => {
            engine.memory_reservation(settings.memory_bytes_max).memory_guard_size(64 << 10);
        }
        Allocation::OnDemand => {
            engine.memory_reservation(0).memory_reservation_for_growth(1 << 20).memory_guard_size(64 << 10);
        }
    }
    engine
}

fn pool_config(config: &SandboxConfig) -> PoolingAllocationConfig {
    // One for the check at start.
    let slots = config.concurrency.max(1).saturating_add(1);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(CORE_INSTANCES_MAX))
        .total_memories(slots.saturating_mul(2))
        .total_tables(slots.saturating_mul(4))
        .total_stacks(slots)
        .max_component_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instance_size(INSTANCE_BYTES_MAX)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_memories_per_module(2)
        .max_tables_per_module(4)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_memory_size(config.memory_bytes_max as usize)
        .linear_memory_keep_resident(MEMORY_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        .decommit_batch_size(DECOMMIT_BATCH)
        .pagemap_scan(Enabled::Auto);
    pool
}

/// `(module (func (export "spin") (loop (br 0))))`
const SPIN: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x08\x01\x04spin\0\0\x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";

/// Runs a guest that spins and sees it stopped. A runner whose guests cannot be stopped must not
/// start.
pub(super) fn check_interruption(engine: &Engine) -> Result<(), SandboxError> {
    let (ended, end) = std::sync::mpsc::channel();
    let engine = engine.clone();
    std::thread::Builder::new()
        .name("epoch-check".to_owned())
        .spawn(move || {
            // Nobody listens any more when this took too long.
            let _ = ended.send(spin(&engine));
        })
        .map_err(|error| SandboxError::Engine(format!("cannot start a thread: {error}")))?;
    match end.recv_timeout(SELF_CHECK) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(SandboxError::Engine(format!("the check of interruption failed: {error:#}"))),
        Err(_) => Err(SandboxError::NotInterrupted),
    }
}

fn spin(engine: &Engine) -> wasmtime::Result<()> {
    let module = wasmtime::Module::new(engine, SPIN)?;
    let mut store = Store::new(engine, ());
    store.set_epoch_deadline(1);
    store.epoch_deadline_trap();
    let instance = wasmtime::Instance::new(&mut store, &module, &[])?;
    let spin = instance.get_typed_func::<(), ()>(&mut store, "spin")?;
    match spin.call(&mut store, ()) {
        Err(error) if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Err(wasmtime::Error::msg("a guest that spins returned")),
    }
}
