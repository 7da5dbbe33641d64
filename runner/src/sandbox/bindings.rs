//! The host's side of `wit/job.wit`, generated.
//!
//! Borrowed, so that a job's payload is copied once: into the guest. Nothing here may fail: what
//! the host offers (a log line, a panic report) never stops a guest.

#![allow(unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "job-handler",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: {
        "hourhand:job/state.get": async,
        "hourhand:job/state.set": async,
        "hourhand:job/state.delete": async,
        "hourhand:job/state.increment": async,
    },
    exports: { default: async },
    require_store_data_send: true,
});
