//! Runs one job in a fresh instance, within its limits, whatever the guest does.
//!
//! Three things stop a guest that does not stop by itself: the epoch (it computes), the outer
//! time-out (it sleeps in a host call), and the memory limiter. After any of them the store is dropped and
//! never entered again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use wasmtime::{Engine, Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi::I32Exit;

use crate::clock;
use crate::outcome::{Reason, RunEnd};

use super::bindings::hourhand::job::types::{Failure, Job};
use super::classify::{self, Ended};
use super::command::Command;
use super::guest::{Bounds, GuestState};
use super::http::{Client, GuestHttp};
use super::limiter::{Guest, JobMemory, MemoryMeter};
use super::load::{Entry, Module};
use super::log::JobLog;
use super::stop::{Stop, StopSignal};
use super::ticker::Ticker;
use super::turns::{Slice, Turns};
use super::{GuestJob, Limits, Offer, RunReport};

/// How long after the deadline the epoch may take to stop a computing guest before its future is dropped.
const GRACE: Duration = Duration::from_millis(20);
/// How long a guest that asks whether it is cancelled has to end in good order once it is.
const CANCEL_GRACE: Duration = Duration::from_secs(1);
/// What one host call or the result may carry from the guest to the host, in bytes, at least.
const CALL_BYTES_MIN: usize = 16 << 20;
/// Live handles of a guest.
const HANDLES_MAX: usize = 10_000;

/// The result of the guest's function, or why there is none.
type Called = wasmtime::Result<Result<Vec<u8>, Failure>>;

/// What all runs of a process share.
pub(super) struct Ground {
    pub(super) engine: Engine,
    pub(super) meter: Arc<MemoryMeter>,
    pub(super) turns: Turns,
    pub(super) ticker: Ticker,
    pub(super) http: Arc<Client>,
}

/// Runs `job` and says what it ended in. Never panics.
pub(super) async fn run(
    ground: &Ground,
    module: &Module,
    job: GuestJob,
    limits: &Limits,
    offer: Offer,
    stop: StopSignal,
    log: Arc<JobLog>,
) -> RunReport {
    if let Some(why) = stop.get() {
        return RunReport { end: classify::stopped(why), memory_bytes_peak: 0, effects: None };
    }
    let timeout = Duration::from_millis(limits.timeout_ms.max(1));
    let deadline = clock::monotonic() + timeout;
    // Before the store, to be dropped after it: whoever waits for room finds its memory and slot free.
    let _guest = Guest::new(&ground.meter);
    let _ticking = ground.ticker.guest();
    let memory = JobMemory::new(Arc::clone(&ground.meter), limits.memory_bytes);
    let http = GuestHttp::new(&ground.http, offer, module, deadline, &log);
    let command = match module.entry() {
        Entry::Handler(_) => None,
        Entry::Command(_) => Some(Command::new(module.name(), &job, ends_at(timeout), limits.output_bytes)),
    };
    let bounds = Bounds { memory, deadline, stop: stop.clone(), log };
    let state = match GuestState::new(module, &job, bounds, http, command) {
        Ok(state) => state,
        Err(message) => {
            let end = RunEnd::Failed { reason: Reason::Denied, message, after_ms: None };
            return RunReport { end, memory_bytes_peak: 0, effects: None };
        }
    };
    let sliced = state.sliced.clone();
    let mut store = new_store(&ground.engine, state, limits);

    let outer = tokio::time::Instant::from_std(deadline + GRACE);
    let in_turns = ground.turns.take(sliced, call(&mut store, module, &job, timeout));
    let ended = until_end(AssertUnwindSafe(in_turns).catch_unwind(), outer, &stop).await;
    let memory_bytes_peak = store.data().memory.peak();
    let mut end = classify::run_end(ended, store.data(), limits);
    let completed = matches!(end, RunEnd::Completed(_));
    // Whoever was cancelled and has not completed is cancelled, and whoever knew of it in any case.
    if stop.is_known_to_the_guest() || (stop.get() == Some(Stop::Cancel) && !completed) {
        end = RunEnd::Cancelled;
    }
    let effects = match end {
        RunEnd::Completed(_) => store.data_mut().take_effects(),
        _ => None,
    };
    // Tearing down an instance is wasmtime's code: a fault there must not take the worker along.
    if catch_unwind(AssertUnwindSafe(move || drop(store))).is_err() {
        tracing::error!(handler = module.name(), "panic while dropping a sandbox");
    }
    RunReport { end, memory_bytes_peak, effects }
}

/// The guest's call until it returns, or somebody or its time-out ends it.
async fn until_end<F>(called: F, outer: tokio::time::Instant, stop: &StopSignal) -> Ended
where
    F: Future<Output = Result<Called, Box<dyn std::any::Any + Send>>>,
{
    let mut called = std::pin::pin!(called);
    let why = tokio::select! {
        biased;
        called = tokio::time::timeout_at(outer, &mut called) => {
            return called.map_or(Ended::TimedOut, returned);
        }
        why = stop.stopped() => why,
    };
    if !stop.may_end_itself() {
        return Ended::Stopped(why);
    }
    let until = outer.min(tokio::time::Instant::from_std(clock::monotonic() + CANCEL_GRACE + GRACE));
    tokio::time::timeout_at(until, called).await.map_or(Ended::Stopped(why), returned)
}

fn returned(called: Result<Called, Box<dyn std::any::Any + Send>>) -> Ended {
    match called {
        Ok(called) => Ended::Called(called),
        Err(panic) => Ended::HostPanic(panic_text(panic.as_ref())),
    }
}

fn new_store(engine: &Engine, state: GuestState, limits: &Limits) -> Store<GuestState> {
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(CALL_BYTES_MIN.max(limits.output_bytes.saturating_add(64 << 10)));
    store.set_max_component_handles(HANDLES_MAX);
    // Before instantiation: start functions are the guest's code too.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(at_tick);
    store
}

/// Each tick while a guest computes: stop it, or let others have the thread for a moment.
fn at_tick(mut store: StoreContextMut<'_, GuestState>) -> wasmtime::Result<UpdateDeadline> {
    let state = store.data_mut();
    let now = clock::monotonic();
    let mut until = state.deadline;
    if state.stop.get().is_some() {
        if !state.stop.may_end_itself() {
            return Ok(UpdateDeadline::Interrupt);
        }
        until = until.min(*state.cancelled_until.get_or_insert(now + CANCEL_GRACE));
    }
    if now >= until {
        return Ok(UpdateDeadline::Interrupt);
    }
    state.sliced.mark();
    Ok(UpdateDeadline::YieldCustom(1, Box::pin(Slice::over())))
}

async fn call(store: &mut Store<GuestState>, module: &Module, job: &GuestJob, timeout: Duration) -> Called {
    let handler = match module.entry() {
        Entry::Handler(handler) => handler,
        Entry::Command(command) => {
            let command = command.instantiate_async(&mut *store).await?;
            let ended = command.wasi_cli_run().call_run(store).await?;
            // A return is an exit like any other.
            return Err(I32Exit(i32::from(ended.is_err())).into());
        }
    };
    let instance = handler.instantiate_async(&mut *store).await?;
    let meta = borrowed(&job.meta);
    let facts = borrowed(&job.facts);
    let job = Job {
        id: &job.id,
        kind: &job.kind,
        queue: &job.queue,
        attempt: job.attempt,
        max_attempts: job.max_attempts,
        enqueued_at: job.enqueued_ms,
        due_at: job.due_ms,
        deadline: ends_at(timeout),
        meta: &meta,
        facts: &facts,
        payload: &job.payload,
    };
    instance.hourhand_job_handler().call_handle(store, job).await
}

/// When an attempt that begins now is stopped, in milliseconds since 1970.
fn ends_at(timeout: Duration) -> u64 {
    clock::wall_ms().saturating_add(timeout.as_millis() as u64)
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
