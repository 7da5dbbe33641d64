#![doc = "Hourhand runs delayed and scheduled jobs on time, each in a fresh WebAssembly sandbox."]
#![doc = ""]
#![doc = "The way of one job: `cli -> app -> worker -> queue (claim) -> registry (which handler) ->"]
#![doc = "sandbox (run) -> outcome -> worker/settle -> queue`. See ARCHITECTURE.md."]

pub mod backoff;
pub mod client;
pub mod clock;
pub mod effects;
pub mod grants;
pub mod job;
pub mod manifest;
pub mod names;
pub mod outcome;
mod own_dir;
pub mod wire;

pub mod queue;

pub mod sandbox;

pub mod registry;

pub mod worker;

pub mod upkeep;

pub mod app;
pub mod cli;
pub mod config;
mod service;
pub mod telemetry;
pub mod vitals;
