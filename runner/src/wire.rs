//! What people and programs write and read at every door: units, times, and the JSON of jobs.
//!
//! The command line uses it now; the HTTP API speaks the same JSON. No IO here, and no clock: callers
//! pass the time.

pub mod job_in;
pub mod job_out;
pub mod stats_out;
pub mod units;
