//! What the kernel can do for the sandbox.

/// Whether the kernel tells which pages a guest has touched, so that only those are given back after a job.
pub fn has_pagemap_scan() -> bool {
    wasmtime::PoolingAllocationConfig::is_pagemap_scan_available()
}
