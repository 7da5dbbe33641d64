//! End to end: the real binary, a real store, real modules built from `guest-examples`.
//!
//! What ran is counted by what the guests returned, never by the product's own counters.

#![allow(unreachable_pub, reason = "the harness is shared between test binaries by path")]
#![allow(clippy::print_stdout, reason = "seeds and figures of a test")]

#[path = "../harness/mod.rs"]
mod harness;

#[path = "../../runner/tests/guests/mod.rs"]
mod guests;

mod architecture;
mod bench;
mod cancelling;
mod cli;
mod cli_input;
mod cli_jobs;
mod contention;
mod copying;
mod cost;
mod data_lost;
mod demo;
mod dev;
mod doctor;
mod doctor_server;
mod doctor_smoke;
mod effects;
mod embedded;
mod exactly_once;
mod faults;
mod first_job;
mod half_dead;
mod half_open;
mod handler_check;
mod handler_new;
mod handler_run;
mod http;
mod languages;
mod limits;
mod lost_replies;
mod manifest;
mod manifest_reach;
mod on_time;
mod order_service;
mod outages;
mod outcomes;
mod packaging;
mod pictures;
mod pills;
mod readme;
mod recovery;
mod reload;
mod reload_files;
mod reports;
mod sentinel;
mod service;
mod soak_handlers;
mod spooling;
mod spooling_runner;
mod stopping;
mod stopping_early;
mod tls;
mod twins;
mod unsettled;
mod webhook;
