//! What belongs to one running job: its store's data, and the host functions that it may call.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::clock::Monotonic;
use crate::outcome::{MESSAGE_BYTES_MAX, capped};

use super::Offer;
use super::bindings::hourhand::job::types::Refusal;
use super::bindings::hourhand::job::{host, jobs, state, types};
use super::command::Command;
use super::limiter::JobMemory;
use super::log::{JobLog, Printed};
use super::stop::StopSignal;
use super::turns::Sliced;

/// Random bytes that a guest may ask for at once.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// Host resources (streams, pollables) that a guest may hold.
const RESOURCES_MAX: usize = 1_000;
/// Longest path in a panic report, in bytes.
const FILE_BYTES_MAX: usize = 512;

/// The data of a job's store. The epoch callback reads it and touches nothing else.
pub(super) struct GuestState {
    wasi: WasiCtx,
    resources: ResourceTable,
    pub(super) memory: JobMemory,
    pub(super) deadline: Monotonic,
    pub(super) sliced: Sliced,
    pub(super) stop: StopSignal,
    pub(super) log: Arc<JobLog>,
    pub(super) panic: Option<PanicReport>,
    pub(super) offer: Offer,
    /// Where the guest is a plain command.
    pub(super) command: Option<Command>,
}

/// What the guest's panic hook said. The last report counts.
#[derive(Debug)]
pub(super) struct PanicReport {
    pub(super) message: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl GuestState {
    pub(super) fn new(
        memory: JobMemory,
        deadline: Monotonic,
        offer: Offer,
        stop: StopSignal,
        log: Arc<JobLog>,
        command: Option<Command>,
    ) -> Self {
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(RESOURCES_MAX);
        // The builder's defaults grant nothing: no files, no network, no environment, no arguments,
        // an empty stdin. Clock and random numbers are real.
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(Printed(Arc::clone(&log)))
            .stderr(Printed(Arc::clone(&log)))
            .max_random_size(RANDOM_BYTES_MAX);
        // Before what the manifest adds: of two variables with one name, guests find the first.
        if let Some(command) = &command {
            command.set_up(&mut wasi);
        }
        wasi.envs(&offer.grants.env);
        let (wasi, sliced) = (wasi.build(), Sliced::default());
        Self { wasi, resources, memory, deadline, sliced, stop, log, panic: None, offer, command }
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.resources }
    }
}

impl types::Host for GuestState {}

impl host::Host for GuestState {
    fn log(&mut self, level: host::Level, message: String) {
        let level = match level {
            host::Level::Error => "ERROR",
            host::Level::Warn => "WARN",
            host::Level::Info => "INFO",
            host::Level::Debug => "DEBUG",
            host::Level::Trace => "TRACE",
        };
        self.log.line(level, &message);
    }

    fn report_panic(&mut self, message: String, file: String, line: u32) {
        let message = capped(message, MESSAGE_BYTES_MAX);
        self.panic = Some(PanicReport { message, file: capped(file, FILE_BYTES_MAX), line });
    }

    fn progress(&mut self, _percent: u8, _message: String) {}

    fn is_cancelled(&mut self) -> bool {
        false
    }

    fn secret(&mut self, _name: String) -> Result<String, Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }
}

impl jobs::Host for GuestState {
    fn enqueue(&mut self, _job: jobs::NewJob) -> Result<String, Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }
}

impl state::Host for GuestState {
    async fn get(&mut self, _key: String) -> Result<Option<Vec<u8>>, Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }

    async fn set(&mut self, _key: String, _value: Vec<u8>) -> Result<(), Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }

    async fn delete(&mut self, _key: String) -> Result<(), Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }

    async fn increment(&mut self, _key: String, _by: i64) -> Result<i64, Refusal> {
        Err(Refusal::Unavailable(String::new()))
    }
}
