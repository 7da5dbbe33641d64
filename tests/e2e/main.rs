//! End to end: the real binary, a real store, real modules built from `guest-examples`.
//!
//! What ran is counted by what the guests returned, never by the product's own counters.

#[path = "../harness/mod.rs"]
mod harness;

mod architecture;
mod exactly_once;
mod first_job;
mod limits;
mod on_time;
mod outages;
mod recovery;
mod reload;
mod stopping;
