//! What [`Store::doctor`](super::Store::doctor) finds: one thing that is not as a store keeps it.

use serde::Serialize;

/// One thing that is wrong inside a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked for: one of [`CHECKS`], stable, for programs.
    pub check: &'static str,
    /// Where it is, for people: a job, an entry of an index, a counter.
    pub place: String,
    /// What is wrong there.
    pub message: String,
    /// What was done about it; `None` when it is as it was.
    pub repaired: Option<String>,
}

/// Every word that a finding's `check` may have.
pub const CHECKS: [&str; 25] = [
    "bad-lane",        // a lane that cannot be read
    "bad-lease",       // a lease that cannot be read, or that is of another lane than its job
    "bad-past",        // a history that cannot be read
    "bad-record",      // a job that cannot be read
    "bad-state",       // an entry of state that cannot be read
    "count",           // the jobs in all states together are not the jobs
    "counter",         // a counter that is not what it counts
    "double-id",       // two jobs with one id
    "integrity",       // the file is damaged
    "lost-id",         // a job's own id does not lead to it
    "lost-job",        // a job that neither waits, nor is in a hand, nor has ended
    "old-sqlite",      // the file was written by an SQLite with a known fault
    "orphan-entry",    // an entry of an index without a job
    "orphan-lease",    // a lease without a job
    "orphan-log",      // a log without a job, or that its job does not list
    "orphan-past",     // a history without a job
    "orphan-progress", // progress without a job
    "orphan-recall",   // an operator's wish for a lease that is gone
    "sequence",        // numbers that were given may be given again
    "unknown-name",    // something under our names that is nothing of ours
    "unlisted-id",     // an id that nothing will ever forget, or that a new one may collide with
    "unlisted-lane",   // jobs where no runner looks
    "wrong-entry",     // an entry of an index that is not its job's place
    "wrong-id",        // an id that leads nowhere, or to another job
    "wrong-type",      // foreign data under one of our names
];

impl Finding {
    /// A finding of one of [`CHECKS`]; `None` when `check` is none.
    pub fn new(check: &str, place: String, message: String, repaired: Option<String>) -> Option<Self> {
        let check = CHECKS.into_iter().find(|known| *known == check)?;
        Some(Self { check, place, message, repaired })
    }
}
