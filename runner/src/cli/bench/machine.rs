//! What figures depend on, beside the store: the machine, and this build.

use std::fs;

use serde::Serialize;

use crate::sandbox::{self, Sandbox, SandboxConfig};

/// The machine as the figures' reader should know it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MachineOut {
    cores: usize,
    cpu: Option<String>,
    memory_bytes: Option<u64>,
    kernel: Option<String>,
    hourhand: &'static str,
    /// `release`, or `debug`, of which figures say nothing.
    pub(super) build: &'static str,
    /// Whether sandboxes come from a pool; `null` when there can be none at all.
    sandbox_pool: Option<bool>,
    /// Whether the kernel tells which pages a guest has touched.
    pagemap_scan: bool,
}

impl MachineOut {
    pub(super) fn read(concurrency: u32) -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let config = SandboxConfig { concurrency, ..SandboxConfig::default() };
        let field = |path: &str, name: &str| {
            let all = text(path)?;
            let line = all.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim_start_matches([':', ' ', '\t']).trim().to_owned())
        };
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field("/proc/cpuinfo", "model name"),
            memory_bytes: field("/proc/meminfo", "MemTotal").as_deref().and_then(kib),
            kernel: text("/proc/sys/kernel/osrelease").map(|release| release.trim().to_owned()),
            hourhand: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            sandbox_pool: Sandbox::new(config).ok().map(|sandbox| sandbox.pooled()),
            pagemap_scan: sandbox::has_pagemap_scan(),
        }
    }
}

/// The resident memory of a process.
pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kib(status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?)
}

/// `1234 kB`, in bytes.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_of_itself() {
        let machine = MachineOut::read(1);
        assert!(machine.cores > 0 && machine.memory_bytes > Some(1 << 20), "{machine:?}");
        assert!(machine.kernel.is_some_and(|kernel| kernel.contains('.')));
        assert!(resident_bytes(std::process::id()) > Some(1 << 20));
        assert_eq!(resident_bytes(u32::MAX), None);
    }
}
