//! What a doctor finds: one thing that is not as a store keeps it ([`Store::doctor`](super::Store::doctor)), or that is
//! unwise about where it is kept ([`Store::examine`](super::Store::examine)).

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Jobs work; somebody should know of it.
    Warning,
    /// Jobs are damaged, or will not work as promised.
    Error,
}

/// One thing that is wrong inside a store, or around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked for: one of [`CHECKS`] or [`SERVER_CHECKS`], stable, for programs.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Where it is, for people: a job, an entry of an index, a counter, a server.
    pub place: String,
    /// What is wrong there.
    pub message: String,
    /// What to do about it, with the command where there is one; `None` when it was done.
    pub fix: Option<String>,
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

/// Every word that the `check` of a finding about the server, or about the file and its disk, may have.
pub const SERVER_CHECKS: [&str; 18] = [
    "access",        // what this user may not do
    "aof-rewrite",   // the append-only file is never rewritten, or all the time
    "claim-latency", // claims take long
    "clients",       // hardly a connection is left
    "clock",         // the store's clock is not this machine's
    "disk",          // the disk failed, or is nearly full
    "eviction",      // the server deletes jobs when its memory is full
    "file-mode",     // others may read or write the file
    "file-system",   // SQLite is not safe there
    "lateness",      // a job that was to show it came late
    "log-size",      // the log of the embedded store does not get shorter
    "memory",        // hardly any memory is left
    "not-looked-at", // what would have taken too long to look at
    "persistence",   // what a fault of the server or of the power takes with it
    "replica",       // it is a copy of another server
    "replication",   // its own copies are not what it waits for
    "round-trip",    // calls take long
    "smoke",         // a job that was to show that jobs run did not
];

/// What most damage inside a store is mended by.
pub const REPAIR: &str = "hourhand doctor --repair";
/// What to do about a file that SQLite finds damaged.
pub const DAMAGED_FILE: &str = "keep a copy of the damaged file, move what can be read with `hourhand store copy`, or bring back a backup";

impl Finding {
    /// An error inside the store, of one of [`CHECKS`]; `None` when `check` is none.
    pub fn new(check: &str, place: String, message: String, repaired: Option<String>) -> Option<Self> {
        let check = CHECKS.into_iter().find(|known| *known == check)?;
        let advice = if check == "integrity" { DAMAGED_FILE } else { REPAIR };
        let fix = repaired.is_none().then(|| advice.to_owned());
        Some(Self { check, severity: Severity::Error, place, message, fix, repaired })
    }

    /// Something about the server or the file: of one of [`SERVER_CHECKS`], with what to do about it.
    pub fn around(
        check: &'static str,
        severity: Severity,
        place: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        debug_assert!(SERVER_CHECKS.contains(&check), "{check} is not listed");
        let (place, message, fix) = (place.into(), message.into(), Some(fix.into()));
        Self { check, severity, place, message, fix, repaired: None }
    }

    /// True for what is wrong and was not mended; a warning is not.
    pub fn is_open_error(&self) -> bool {
        self.severity == Severity::Error && self.repaired.is_none()
    }
}
