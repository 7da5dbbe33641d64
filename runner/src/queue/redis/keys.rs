//! The name of every Redis key of a shard, and nothing else names one.
//!
//! Keys are `<namespace>:{<shard>}:<name>`: the hash tag keeps a shard's keys in one slot (rule 9), and
//! names hold no `:` or `{`, so that two namespaces never meet (rule 10).

use crate::names::Name;
use crate::queue::Lane;

/// What the keys of a shard hold. The scripts know the globals by their place in this list
/// (lua/includes/globals.lua).
const GLOBALS: [&str; 17] = [
    "seq",      // STRING: the last order given
    "jobs",     // HASH: record id -> record, written once
    "past",     // HASH: record id -> what has happened, absent before the first settle
    "running",  // HASH: record id -> lease
    "recalls",  // HASH: record id -> session, token, what an operator wants
    "ids",      // HASH: queue/id -> record id, or what is remembered of a finished job
    "memory",   // ZSET: queue/id by the time at which it is forgotten
    "lanes",    // SET: queue:kind, every one that a job was ever enqueued to
    "paused",   // SET: queues that claims leave alone
    "totals",   // HASH: queue:enqueued, :completed, :failed for ever, and :running now
    "sizes",    // HASH: queue:state -> bytes of its finished jobs; :age -> their retention
    "sessions", // HASH: session -> beat and what its runner says of itself
    "holders",  // HASH: session -> how many leases it has
    "logs",     // HASH: record id:attempt -> text; record id -> its attempts
    "orphans",  // ZSET: index entries without a record, set aside
    "dirt",     // ZSET: index entries that are no job's, set aside
    "meta",     // HASH: store_id, stale, record_max, id_bytes, lookalikes
];

/// The four due indexes of a lane: by priority, and suspects.
const DUE_PARTS: [char; 4] = ['h', 'n', 'l', 's'];
/// The three finished indexes of a queue: completed, cancelled, dead.
const DONE_STATES: [char; 3] = ['c', 'x', 'd'];

/// The keys of one shard of one namespace.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    namespace: Name,
    prefix: String,
    globals: Vec<String>,
}

impl Keys {
    pub(super) fn new(namespace: &Name) -> Self {
        let prefix = format!("{namespace}:{{0}}:");
        let globals = GLOBALS.iter().map(|name| format!("{prefix}{name}")).collect();
        Self { namespace: namespace.clone(), prefix, globals }
    }

    /// What the keys begin with, for people.
    pub(super) fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// One of the globals, by name.
    pub(super) fn global(&self, name: &str) -> &str {
        let place = GLOBALS.iter().position(|g| *g == name);
        debug_assert!(place.is_some(), "no key is called {name}");
        place.map_or("", |i| &self.globals[i])
    }

    /// All globals, in the order in which the scripts expect them.
    pub(super) fn globals(&self) -> &[String] {
        &self.globals
    }

    /// The globals that lua/enqueue.lua takes, and the key of its once token.
    pub(super) fn for_enqueue(&self, once: &str) -> Vec<String> {
        let names = ["seq", "jobs", "past", "running", "ids", "lanes", "totals", "meta", "logs"];
        let mut keys: Vec<String> = names.iter().map(|name| self.global(name).to_owned()).collect();
        keys.push(self.once(once));
        keys
    }

    /// A lane's due indexes: high, normal, low, suspects.
    pub(super) fn due(&self, lane: &Lane) -> [String; 4] {
        DUE_PARTS.map(|part| format!("{}due:{}:{}:{part}", self.prefix, lane.queue, lane.kind))
    }

    /// A queue's finished indexes: completed, cancelled, dead.
    pub(super) fn done(&self, queue: &Name) -> [String; 3] {
        DONE_STATES.map(|state| format!("{}done:{queue}:{state}", self.prefix))
    }

    /// Where the answer to a call is kept for a while, for the case that it gets lost.
    pub(super) fn once(&self, token: &str) -> String {
        format!("{}once:{token}", self.prefix)
    }

    /// The channel of wake-ups.
    pub(super) fn wake_channel(&self) -> String {
        format!("{}wake", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_namespaces_never_meet() {
        let name = |text: &str| Name::new(text).expect("a name");
        let lane = Lane { queue: name("b.c"), kind: name("d") };
        let one = Keys::new(&name("a"));
        let two = Keys::new(&name("a.b"));
        assert_eq!(one.due(&lane)[0], "a:{0}:due:b.c:d:h");
        assert_eq!(two.due(&lane)[3], "a.b:{0}:due:b.c:d:s");
        assert_eq!(one.global("seq"), "a:{0}:seq");
    }
}
