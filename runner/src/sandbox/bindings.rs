//! The host's side of `wit/job.wit`, generated.
//!
//! Borrowed, so that a job's payload is copied once: into the guest. A log line and a panic report never stop a guest; everything else
//! does when it is asked for too often.

#![allow(unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "job-handler",
    ownership: Borrowing { duplicate_if_necessary: true },
    imports: {
        "hourhand:job/host.progress": trappable,
        "hourhand:job/host.is-cancelled": trappable,
        "hourhand:job/host.secret": trappable,
        "hourhand:job/jobs.enqueue": trappable,
        "hourhand:job/state.get": async | trappable,
        "hourhand:job/state.set": async | trappable,
        "hourhand:job/state.delete": async | trappable,
        "hourhand:job/state.increment": async | trappable,
    },
    exports: { default: async },
    require_store_data_send: true,
});
