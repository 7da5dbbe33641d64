//! HTTP requests of a real guest against real servers: what is allowed comes through, and what is not reaches nobody, however it is
//! written.

#[allow(unreachable_pub, reason = "the end-to-end tests share it")]
#[path = "../../../tests/harness/guests.rs"]
mod guests;
#[allow(unreachable_pub, reason = "the end-to-end tests share it")]
#[path = "../../../tests/harness/waiting.rs"]
mod waiting;
#[allow(unreachable_pub, dead_code, reason = "the end-to-end tests share it")]
#[path = "../../../tests/harness/web.rs"]
mod web;

mod caps;
mod denied;
mod ends;
mod kit;
mod reached;
