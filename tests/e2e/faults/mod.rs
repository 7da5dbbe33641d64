//! Faults of every kind under load. Each scenario is decided by a seed, and ends with the ledger, what was acknowledged against what
//! ran, and with the doctor.
//!
//! Small by default; `make faults` runs all of them at full size.

mod clocks;
mod disk;
mod kills;
mod network;
mod restarts;
mod scene;
mod server;
