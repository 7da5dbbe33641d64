//! The host's side of `wit/job.wit`, generated.
//!
//! Borrowed, so that a job's payload is copied once: into the guest. Nothing here may fail: what
//! the host offers (a log line, a panic report) never stops a guest.

#![allow(unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "job-handler",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
    require_store_data_send: true,
});
