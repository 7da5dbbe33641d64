//! Whether, and where, jobs wait on this machine while the store does not answer.

use std::path::{Path, PathBuf};

use super::machine::Machine;
use super::reader::Reader;
use super::values::{dir, on_or_off, whole};
use super::{Layers, Problems};
use crate::wire::units;

/// Most jobs that a spool may be allowed.
const JOBS_MAX: u64 = 100_000_000;
/// Least and most bytes that a spool may be allowed.
const BYTES: (u64, u64) = (1 << 10, 1 << 40);

/// The spool's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Whether an enqueue goes there while the store does not answer.
    pub on: bool,
    /// Whether a runner drains it: when it is on, or its folder was named and nobody said `off`.
    pub drained: bool,
    /// Its folder.
    pub dir: PathBuf,
    /// Most jobs in it.
    pub jobs: u64,
    /// Most bytes that they count for.
    pub bytes: u64,
}

impl SpoolSettings {
    /// Reads the settings of the spool.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn resolve(layers: &Layers, machine: &Machine) -> Result<Self, Problems> {
        let mut reader = Reader::new(layers);
        let state_dir = reader.take("state_dir", dir).unwrap_or_else(|| machine.state_dir.clone());
        let settings = read(&mut reader, &state_dir);
        reader.problems.or(settings)
    }
}

pub(super) fn read(reader: &mut Reader<'_>, state_dir: &Path) -> SpoolSettings {
    let defaults = crate::client::SpoolOptions::default();
    let said = reader.take("spool", on_or_off);
    let named = reader.take("spool_dir", dir);
    SpoolSettings {
        on: said.unwrap_or(false),
        drained: said.unwrap_or(named.is_some()),
        dir: named.unwrap_or_else(|| state_dir.join("spool")),
        jobs: reader.take("spool_jobs", jobs).unwrap_or(defaults.jobs),
        bytes: reader.take("spool_bytes", bytes).unwrap_or(defaults.bytes),
    }
}

fn jobs(text: &str) -> Result<u64, String> {
    let number = whole(text).ok().filter(|jobs| (1..=JOBS_MAX).contains(jobs));
    number.ok_or_else(|| format!("expected a number of jobs from 1 to {JOBS_MAX}, got {text:?}"))
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = units::size_bytes(text)?;
    if !(BYTES.0..=BYTES.1).contains(&bytes) {
        return Err(format!("expected 1KiB to 1TiB, got {text:?}"));
    }
    Ok(bytes)
}
