//! What belongs to one running job: its store's data. What it may call is in `host_calls`.

use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use crate::clock::Monotonic;
use crate::effects::Effects;

use super::children::Children;
use super::command::Command;
use super::dirs;
use super::http::GuestHttp;
use super::limiter::JobMemory;
use super::load::Module;
use super::log::{JobLog, Printed};
use super::remembered::Remembered;
use super::stop::StopSignal;
use super::turns::Sliced;
use super::{GuestJob, Offer};

/// Random bytes that a guest may ask for at once.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// Host resources (streams, pollables) that a guest may hold.
const RESOURCES_MAX: usize = 1_000;
/// The same where it has folders: each file that it opens is one of the runner's.
const RESOURCES_MAX_WITH_DIRS: usize = 128;

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
    pub(super) http: GuestHttp,
    /// A guest that asks whether it is cancelled, and is, may compute until then.
    pub(super) cancelled_until: Option<Monotonic>,
    /// What was refused last because nobody grants it.
    pub(super) denial: Option<String>,
    pub(super) calls: u64,
    /// What it enqueues; `None` when nothing is granted.
    pub(super) children: Option<Box<Children>>,
    /// What it remembers; `None` until it asks.
    pub(super) remembered: Option<Box<Remembered>>,
    module: Module,
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

/// What ends a run, and what hears of it.
pub(super) struct Bounds {
    pub(super) memory: JobMemory,
    pub(super) deadline: Monotonic,
    pub(super) stop: StopSignal,
    pub(super) log: Arc<JobLog>,
}

impl GuestState {
    /// # Errors
    /// What its grants name and cannot be given.
    pub(super) fn new(
        module: &Module,
        job: &GuestJob,
        bounds: Bounds,
        http: GuestHttp,
        command: Option<Command>,
    ) -> Result<Self, String> {
        let Bounds { memory, deadline, stop, log } = bounds;
        let mut resources = ResourceTable::new();
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
        let offer = http.offer().clone();
        let has_dirs = !offer.grants.dirs.is_empty();
        resources.set_max_capacity(if has_dirs { RESOURCES_MAX_WITH_DIRS } else { RESOURCES_MAX });
        dirs::give(&mut wasi, &offer.grants)?;
        let wasi = wasi.build();
        let children = offer.grants.enqueue.as_ref().map(|_| Box::new(Children::of(job)));
        Ok(Self {
            wasi,
            resources,
            memory,
            deadline,
            sliced: Sliced::default(),
            stop,
            log,
            panic: None,
            offer,
            http,
            cancelled_until: None,
            denial: None,
            calls: 0,
            children,
            remembered: None,
            module: module.clone(),
            command,
        })
    }

    /// The file that says what it may reach.
    pub(super) fn manifest(&self) -> String {
        format!("{}.toml", self.module.name())
    }

    /// What was denied it last, in words; an HTTP request after everything else.
    pub(super) fn denied(&self) -> Option<String> {
        self.http.denied().or_else(|| self.denial.clone())
    }

    /// What is to be written with its completion; `None` when there is nothing.
    pub(super) fn take_effects(&mut self) -> Option<Box<Effects>> {
        let (children, remembered) = (self.children.take(), self.remembered.take());
        let effects = Effects {
            children: children.map(|children| children.into_jobs()).unwrap_or_default(),
            state: remembered.map(|remembered| remembered.into_effects()),
        };
        (!effects.is_empty()).then(|| Box::new(effects))
    }
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.resources }
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let http = &mut self.http;
        WasiHttpCtxView { ctx: &mut http.context, table: &mut self.resources, hooks: &mut http.hooks }
    }
}
