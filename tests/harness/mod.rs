//! What the end-to-end tests stand on: real servers on free ports, the real binary, real modules.
//!
//! Each part ends what it started, by pid, when it is dropped. Nothing here reads `REDIS_URL` or any
//! other setting of the machine: every process gets an environment made for it.
#![allow(dead_code, reason = "each test binary uses some of it")]

pub mod at_redis;
pub mod backing;
pub mod balance;
pub mod chaos;
pub mod clerks;
pub mod dice;
pub mod disk;
pub mod doctor;
pub mod fake_clock;
pub mod faults;
pub mod fleet;
pub mod guests;
pub mod hourhand;
pub mod languages;
pub mod ledger;
pub mod links;
pub mod orders;
pub mod photographs;
pub mod proxy;
pub mod redis_server;
pub mod sentinel;
pub mod signing;
pub mod site;
pub mod stalls;
pub mod toolchain;
pub mod waiting;
pub mod web;
