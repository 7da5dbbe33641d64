//! The host's side of `wit/job.wit`, generated.
//!
//! Borrowed, so that a job's payload is copied once: into the guest. Only
//! `exit` may end a guest: a log line and a panic report never do.

#![allow(unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "job-handler",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: { "hourhand:job/host.exit": trappable },
    exports: { default: async },
    require_store_data_send: true,
});
