//! The embedded store when programs, files, disks and clocks fail: what no other store has to go through.
//!
//! Each test has a folder of its own. Where several processes are needed, the others are this program again, in a role
//! (see `child`).

#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "../conformance/bed.rs"]
mod bed;
#[path = "../../../tests/harness/disk.rs"]
mod disk;
#[allow(dead_code, reason = "the suite uses the rest")]
#[path = "../conformance/sqlite_audit.rs"]
mod sqlite_audit;

mod child;
mod clocks;
mod crashes;
mod files;
mod full_disk;
mod kit;
mod log_size;
mod plans;
mod replaced;
mod sharing;
mod strangers;
mod traces;
mod vacuum;
mod versions;
mod waking;
