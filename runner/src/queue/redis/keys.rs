//! The name of every Redis key of a shard, and nothing else names one.
//!
//! Keys are `<namespace>:{<shard>}:<name>`: the hash tag keeps a shard's keys in one slot (rule 9), and
//! names hold no `:` or `{`, so that two namespaces never meet (rule 10).

use crate::names::Name;
use crate::queue::Lane;

/// What the keys of a shard hold, with their types. The scripts know the globals by their place in this list
/// (lua/includes/globals.lua).
const GLOBALS: [(&str, &str); 19] = [
    ("seq", "string"),    // the last order given
    ("jobs", "hash"),     // record id -> record, written once
    ("past", "hash"),     // record id -> what has happened, absent before the first settle
    ("running", "hash"),  // record id -> lease
    ("recalls", "hash"),  // record id -> session, token, what an operator wants
    ("ids", "hash"),      // queue/id -> record id, or what is remembered of a finished job
    ("memory", "zset"),   // queue/id by the time at which it is forgotten
    ("lanes", "set"),     // queue:kind, every one that a job was ever enqueued to
    ("paused", "set"),    // queues that claims leave alone
    ("totals", "hash"),   // queue:enqueued, :completed, :failed, :dropped for ever, and :running now
    ("sizes", "hash"),    // queue:state -> bytes of its finished jobs; :age -> their retention
    ("sessions", "hash"), // session -> beat and what its runner says of itself
    ("holders", "hash"),  // session -> how many leases it has
    ("logs", "hash"),     // record id:attempt -> text; record id -> its attempts and its progress
    ("orphans", "zset"),  // index entries without a record, set aside
    ("dirt", "zset"),     // index entries that are no job's, set aside
    ("meta", "hash"),     // store_id, stale, record_max, id_bytes, lookalikes
    ("buckets", "zset"),  // buckets of state that hold anything, all with the score 0
    ("holdings", "hash"), // bucket -> its entries, bytes of their keys and values
];

/// What the doctor has set aside, a hash; whole keys are beside it, with their name behind a colon.
const QUARANTINE: &str = "quarantine";

/// The four due indexes of a lane: by priority, and suspects.
const DUE_PARTS: [char; 4] = ['h', 'n', 'l', 's'];
/// The three finished indexes of a queue: completed, cancelled, dead.
const DONE_STATES: [char; 3] = ['c', 'x', 'd'];

/// What a key is, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyName {
    /// One of the keys that every shard has, or the quarantine; with its type.
    Global(&'static str),
    /// One of a lane's due indexes: its place among them, from 1.
    Due(Lane, usize),
    /// One of a queue's finished indexes: its place behind the due indexes, from 5.
    Done(Name, usize),
    /// The entries of a bucket of state.
    State(Name),
    /// The answer to a call, kept for a while.
    Once,
    /// A key that the doctor has moved aside.
    Aside,
    /// Nothing of ours.
    Unknown,
}

impl KeyName {
    /// The type of Redis that it must have, where one is asked for.
    pub(super) fn expected_type(&self) -> Option<&'static str> {
        match self {
            Self::Global(kind) => Some(kind),
            Self::Due(..) | Self::Done(..) => Some("zset"),
            Self::State(_) => Some("hash"),
            Self::Once => Some("string"),
            Self::Aside | Self::Unknown => None,
        }
    }
}

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
        let globals = GLOBALS.iter().map(|(name, _)| format!("{prefix}{name}")).collect();
        Self { namespace: namespace.clone(), prefix, globals }
    }

    /// What the keys begin with, for people.
    pub(super) fn namespace(&self) -> &Name {
        &self.namespace
    }

    /// One of the globals, by name.
    pub(super) fn global(&self, name: &str) -> &str {
        let place = GLOBALS.iter().position(|(known, _)| *known == name);
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

    /// A finished index by the counter of its bytes, `queue:state`.
    pub(super) fn done_counted_by(&self, counter: &str) -> String {
        format!("{}done:{counter}", self.prefix)
    }

    /// A bucket's entries: key -> version, value.
    pub(super) fn state(&self, bucket: &Name) -> String {
        self.state_named(bucket.as_str())
    }

    /// As [`state`](Self::state), for a name that may be none.
    pub(super) fn state_named(&self, bucket: &str) -> String {
        format!("{}state:{bucket}", self.prefix)
    }

    /// Where the answer to a call is kept for a while, for the case that it gets lost.
    pub(super) fn once(&self, token: &str) -> String {
        format!("{}once:{token}", self.prefix)
    }

    /// Where the doctor sets aside what is in the way.
    pub(super) fn quarantine(&self) -> String {
        format!("{}{QUARANTINE}", self.prefix)
    }

    /// Where the doctor moves a whole key; `again` counts up while there is one.
    pub(super) fn aside(&self, key: &[u8], again: usize) -> Vec<u8> {
        let mut aside = format!("{}{QUARANTINE}:", self.prefix).into_bytes();
        aside.extend_from_slice(self.rest(key).unwrap_or(key));
        if again > 0 {
            aside.extend_from_slice(format!(":{again}").as_bytes());
        }
        aside
    }

    /// A key without what all keys of the shard begin with; `None` for another's.
    pub(super) fn rest<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.prefix.as_bytes())
    }

    /// A pattern that all keys of the shard fit, and no other's: names hold nothing that patterns give a meaning to.
    pub(super) fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// What a key is.
    pub(super) fn read(&self, key: &[u8]) -> KeyName {
        self.rest(key)
            .and_then(|rest| std::str::from_utf8(rest).ok())
            .and_then(read_rest)
            .unwrap_or(KeyName::Unknown)
    }

    /// The channel of wake-ups.
    pub(super) fn wake_channel(&self) -> String {
        format!("{}wake", self.prefix)
    }
}

fn read_rest(rest: &str) -> Option<KeyName> {
    if let Some((_, kind)) = GLOBALS.iter().find(|(known, _)| *known == rest) {
        return Some(KeyName::Global(kind));
    }
    let place = |letter: &str, letters: &[char]| letters.iter().position(|l| l.to_string() == letter);
    let parts: Vec<&str> = rest.split(':').collect();
    Some(match parts[..] {
        [QUARANTINE] => KeyName::Global("hash"),
        [QUARANTINE, ..] => KeyName::Aside,
        ["once", _] => KeyName::Once,
        ["state", bucket] => KeyName::State(Name::new(bucket).ok()?),
        ["due", queue, kind, part] => {
            let lane = Lane { queue: Name::new(queue).ok()?, kind: Name::new(kind).ok()? };
            KeyName::Due(lane, place(part, &DUE_PARTS)? + 1)
        }
        ["done", queue, state] => {
            KeyName::Done(Name::new(queue).ok()?, DUE_PARTS.len() + place(state, &DONE_STATES)? + 1)
        }
        _ => return None,
    })
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

    #[test]
    fn a_name_reads_back_as_what_it_is() {
        let name = |text: &str| Name::new(text).expect("a name");
        let lane = Lane { queue: name("q.1"), kind: name("k-2") };
        let keys = Keys::new(&name("a"));
        for (key, kind) in keys.globals().iter().zip(GLOBALS) {
            assert_eq!(keys.read(key.as_bytes()), KeyName::Global(kind.1));
        }
        for (i, key) in keys.due(&lane).iter().enumerate() {
            assert_eq!(keys.read(key.as_bytes()), KeyName::Due(lane.clone(), i + 1));
        }
        for (i, key) in keys.done(&lane.queue).iter().enumerate() {
            assert_eq!(keys.read(key.as_bytes()), KeyName::Done(lane.queue.clone(), i + 5));
        }
        assert_eq!(keys.read(keys.once("t0").as_bytes()), KeyName::Once);
        assert_eq!(keys.read(keys.state(&lane.queue).as_bytes()), KeyName::State(lane.queue.clone()));
        assert_eq!(keys.read(keys.quarantine().as_bytes()), KeyName::Global("hash"));
        assert_eq!(keys.read(&keys.aside(b"a:{0}:odd", 2)), KeyName::Aside);
        for odd in [
            "a:{0}:",
            "a:{0}:state:a b",
            "a:{0}:due:q:k:x",
            "a:{0}:due:q:k",
            "a:{0}:done:q q:c",
            "a:{0}:job",
            "b:{0}:jobs",
        ] {
            assert_eq!(keys.read(odd.as_bytes()), KeyName::Unknown, "{odd}");
        }
    }
}
