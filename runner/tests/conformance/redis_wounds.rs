//! Wounds that Redis can be dealt behind the store's back: the doctor finds each, and mends it so that the audit, which
//! knows nothing of the doctor, finds nothing wrong any more.

use hourhand::job::State;
use hourhand::queue::Store;
use redis::{Commands, Connection};

use crate::bed::*;
use crate::doctor::{findings, populate, remember};
use crate::redis_audit::audit_mended;
use crate::redis_bed::{RedisBed, key};

/// Commands to be sent; `$name` stands for the record id of the job `name`, `@name` for its record.
type Wound = (&'static str, &'static [&'static [&'static str]]);

const LOST: [Wound; 6] = [
    ("lost-job", &[&["ZREM", "due:a:a:n", "$waits"]]),
    ("lost-job", &[&["ZREM", "due:a:a:h", "$urgent"]]),
    ("lost-job", &[&["DEL", "due:a:a:n"]]),
    ("lost-job", &[&["DEL", "done:a:c"]]),
    ("lost-job", &[&["DEL", "done:a:d", "done:a:x"]]),
    ("lost-job", &[&["HDEL", "running", "$runs"]]),
];

const ORPHANS: [Wound; 9] = [
    ("orphan-entry", &[&["HDEL", "jobs", "$waits"]]),
    ("orphan-entry", &[&["HDEL", "jobs", "$done", "$dead"]]),
    ("orphan-entry", &[&["HSET", "jobs", "$waits", "no record"]]),
    ("orphan-lease", &[&["HDEL", "jobs", "$runs"]]),
    ("orphan-past", &[&["HDEL", "jobs", "$retried"]]),
    ("orphan-past", &[&["HSET", "past", "00000000004444", "w 0"]]),
    ("orphan-log", &[&["HSET", "logs", "00000000004444:1", "text"]]),
    ("orphan-log", &[&["HSET", "logs", "$runs:7", "text"], &["HSET", "logs", "odd", "text"]]),
    ("orphan-recall", &[&["HSET", "recalls", "$waits", "s1 1 c"]]),
];

const ENTRIES: [Wound; 8] = [
    ("wrong-entry", &[&["ZADD", "due:a:a:l", "1", "$waits"]]),
    ("wrong-entry", &[&["ZADD", "due:b:b:n", "1", "$waits"]]),
    ("wrong-entry", &[&["ZADD", "due:a:a:n", "1", "$waits"]]),
    ("wrong-entry", &[&["ZADD", "due:a:a:n", "-1", "$waits"]]),
    (
        "wrong-entry",
        &[&["ZADD", "due:a:a:n", "5", "not one of ours"], &["ZADD", "done:a:c", "5", "nor this"]],
    ),
    ("wrong-entry", &[&["ZADD", "due:a:a:n", "1", "$runs"]]),
    ("wrong-entry", &[&["ZREM", "due:a:a:n", "$waits"], &["ZADD", "due:a:a:s", "1", "$waits"]]),
    ("wrong-entry", &[&["ZADD", "due:a:a:n", "1", "$done"], &["ZADD", "done:a:d", "1", "$waits:9:9"]]),
];

const IDS: [Wound; 8] = [
    ("wrong-id", &[&["HSET", "ids", "a/ghost", "00000000004444"]]),
    ("wrong-id", &[&["HSET", "ids", "a/alias", "$waits", "a/odd", "~c"]]),
    ("lost-id", &[&["HDEL", "ids", "a/waits", "a/runs"]]),
    ("lost-id", &[&["HSET", "ids", "a/waits", "$dead"]]),
    ("double-id", &[&["HSET", "jobs", "$urgent", "@waits"], &["ZADD", "due:a:a:n", "1", "$urgent"]]),
    ("double-id", &[&["HSET", "jobs", "00000000004444", "@urgent"], &["SET", "seq", "9999"]]),
    ("unlisted-id", &[&["ZREM", "memory", "a/forgotten"], &["HSET", "meta", "id_bytes", "0"]]),
    ("unlisted-id", &[&["HDEL", "meta", "lookalikes"]]),
];

const UNREADABLE: [Wound; 8] = [
    ("bad-record", &[&["HSET", "jobs", "00000000004444", "no record"]]),
    ("bad-record", &[&["HSET", "jobs", "$waits", "no record"]]),
    ("bad-record", &[&["HSET", "jobs", "odd", "@waits"]]),
    ("bad-past", &[&["HSET", "past", "$retried", "no past"]]),
    ("bad-past", &[&["HSET", "past", "$done", "no past", "$waits", "z 0 0 0 1 2 0 0 0 - 0 0\n0:,"]]),
    ("bad-lease", &[&["HSET", "running", "$runs", "no lease"]]),
    ("bad-lease", &[&["HSET", "running", "$waits", "s1 1 1 5 0 1 1 1 00000000000001 b b n 10 waits"]]),
    ("bad-lane", &[&["SADD", "lanes", "no lane", "a:b:c"]]),
];

const NUMBERS: [Wound; 12] = [
    ("unlisted-lane", &[&["DEL", "lanes"]]),
    ("counter", &[&["HSET", "totals", "a:running", "77", "x:running", "1"]]),
    ("counter", &[&["HSET", "totals", "a:enqueued", "many"]]),
    ("counter", &[&["HDEL", "holders", "s1"], &["HSET", "holders", "s9", "2"]]),
    ("counter", &[&["HSET", "sizes", "a:c", "1", "b:d", "7"]]),
    ("counter", &[&["HSET", "sizes", "a:c:at", "x", "a:c:age", "y"]]),
    ("counter", &[&["HSET", "meta", "id_bytes", "3"]]),
    ("counter", &[&["HSET", "meta", "stale", "some", "id_bytes", "few"]]),
    ("counter", &[&["HSET", "meta", "record_max", "1"]]),
    ("sequence", &[&["SET", "seq", "2"]]),
    ("sequence", &[&["DEL", "seq"]]),
    ("sequence", &[&["SET", "seq", "none"]]),
];

const NAMES: [Wound; 8] = [
    ("unknown-name", &[&["SET", "odd", "x"], &["HSET", "due:a:a", "f", "v"]]),
    ("unknown-name", &[&["SET", "once:0123456789", "x"]]),
    ("unknown-name", &[&["SET", "odd", "x"], &["SET", "quarantine:odd", "taken"]]),
    ("wrong-type", &[&["DEL", "totals"], &["SET", "totals", "foreign"]]),
    ("wrong-type", &[&["DEL", "due:a:a:n"], &["SET", "due:a:a:n", "foreign"]]),
    ("wrong-type", &[&["DEL", "paused"], &["SET", "paused", "foreign"]]),
    ("wrong-type", &[&["DEL", "jobs"], &["SET", "jobs", "foreign"]]),
    ("wrong-type", &[&["SET", "quarantine", "foreign"]]),
];

const STATE: [Wound; 11] = [
    ("bad-state", &[&["HSET", "state:seen", "k", "no version"]]),
    ("bad-state", &[&["HSET", "state:seen", "odd", "x"], &["HSET", "state:alone", "odd", ""]]),
    ("counter", &[&["HSET", "holdings", "seen", "7 7"]]),
    ("counter", &[&["HSET", "holdings", "seen", "some", "ghost", "1 1"]]),
    ("counter", &[&["DEL", "holdings"]]),
    ("counter", &[&["DEL", "buckets"]]),
    ("counter", &[&["ZADD", "buckets", "0", "ghost"]]),
    ("counter", &[&["HDEL", "state:seen", "k"]]),
    ("counter", &[&["HSET", "state:new", "k", "1 by hand"]]),
    ("wrong-type", &[&["DEL", "state:seen"], &["SET", "state:seen", "foreign"]]),
    ("orphan-log", &[&["HSET", "logs", "00000000004444", "1\n- 0 1 5 50 x"]]),
];

/// The record id of a job of the populated queue.
fn record_of(client: &mut Connection, name: &str) -> String {
    client.hget(key("ids"), format!("a/{name}")).expect("the job has an id")
}

fn deal(client: &mut Connection, commands: &[&[&str]]) {
    for words in commands {
        let mut command = redis::cmd(words[0]);
        let keys = if words[0] == "DEL" { words.len() - 1 } else { 1 };
        for (at, word) in words[1..].iter().enumerate() {
            if at < keys {
                command.arg(key(word));
            } else if let Some(name) = word.strip_prefix('$') {
                let (name, rest) =
                    name.split_once(':').map_or((name, String::new()), |(n, r)| (n, format!(":{r}")));
                command.arg(record_of(client, name) + &rest);
            } else if let Some(name) = word.strip_prefix('@') {
                let record = record_of(client, name);
                command.arg(client.hget::<_, _, Vec<u8>>(key("jobs"), record).expect("a record"));
            } else {
                command.arg(*word);
            }
        }
        let _: redis::Value = command.query(client).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}

/// Keys that count or list, and hold nothing of their own.
const COUNTERS: [&str; 8] = ["seq", "totals", "sizes", "meta", "holders", "lanes", "holdings", "buckets"];

/// Everything that is there but counters, the quarantine included: nothing is ever deleted.
fn values(client: &mut Connection) -> usize {
    let keys: Vec<String> = client.keys("*").expect("keys of a small test");
    let mut all = 0;
    for key in keys.iter().filter(|name| !COUNTERS.iter().any(|counter| **name == key(counter))) {
        let kind: String = redis::cmd("TYPE").arg(key).query(client).expect("a type");
        let size = match kind.as_str() {
            "hash" => redis::cmd("HLEN").arg(key).query(client),
            "zset" => redis::cmd("ZCARD").arg(key).query(client),
            "set" => redis::cmd("SCARD").arg(key).query(client),
            _ => Ok(1),
        };
        all += size.expect("a size");
    }
    all
}

async fn each_is_found_and_mended(wounds: &[Wound]) {
    let bed = RedisBed::start().await;
    let store = bed.store();
    let mut client = bed.client();
    for (check, commands) in wounds {
        let _: () = redis::cmd("FLUSHALL").query(&mut client).expect("flushed");
        populate(store).await;
        remember(store).await;
        deal(&mut client, commands);
        let before = (bed.contents().await, values(&mut client));
        let found = findings(store).await;
        assert!(found.iter().any(|f| f.check == *check), "{check} {commands:?}: {found:#?}");
        assert!(found.iter().all(|f| f.repaired.is_none()), "{commands:?}: {found:#?}");
        let after = bed.contents().await;
        let text = String::from_utf8_lossy;
        assert!(after == before.0, "{commands:?}: changed\n{}\n{}", text(&before.0), text(&after));
        let mended = store.doctor(true).await.expect("the doctor mends");
        assert!(mended.iter().all(|f| f.repaired.is_some()), "{commands:?}: {mended:#?}");
        // What follows from another damage may be mended with it.
        assert!(mended.iter().any(|f| f.check == *check), "{check} {commands:?}: {mended:#?}");
        assert_eq!(findings(store).await, [], "{commands:?}: mended {mended:#?}");
        assert_eq!(audit_mended(&mut client, "bed"), [""; 0], "{commands:?}: mended {mended:#?}");
        assert!(values(&mut client) >= before.1, "{commands:?}: something was deleted: {mended:#?}");
        let listed = list_all(store, &hourhand::queue::ListQuery { limit: 100, ..Default::default() }).await;
        let records: usize = client.hlen(key("jobs")).expect("the records");
        assert_eq!(listed.len(), records, "{commands:?}: mended {mended:#?}");
        enqueue_one(store, &job("a")).await;
        assert_eq!(Hand::new(store, "s2").claim(&["a"], 1).await.len(), 1, "{commands:?}: the store works");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_are_nowhere() {
    each_is_found_and_mended(&LOST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_job() {
    each_is_found_and_mended(&ORPHANS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_in_the_wrong_place() {
    each_is_found_and_mended(&ENTRIES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_that_lead_astray() {
    each_is_found_and_mended(&IDS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read() {
    each_is_found_and_mended(&UNREADABLE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_and_numbers() {
    each_is_found_and_mended(&NUMBERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_types() {
    each_is_found_and_mended(&NAMES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_and_what_it_is_told_to_be() {
    each_is_found_and_mended(&STATE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_was_nowhere_goes_on_as_it_was() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    populate(store).await;
    let query = hourhand::queue::ListQuery { limit: 100, ..Default::default() };
    let before = list_all(store, &query).await;
    for index in ["due:a:a:n", "due:a:a:h", "due:b:b:n", "done:a:c", "done:a:d", "done:a:x"] {
        let gone: u32 = bed.client().del(key(index)).expect("removed");
        assert_eq!(gone, 1, "{index} was there");
    }
    store.doctor(true).await.expect("the doctor mends");
    let after = list_all(store, &query).await;
    assert_eq!(after.len(), before.len());
    assert!(before.iter().all(|view| after.contains(view)), "{before:#?}\n{after:#?}");
    assert_eq!(state(store, &id("dead")).await, State::Dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_which_nobody_knows_whether_it_has_ended_is_not_run() {
    let bed = RedisBed::start().await;
    let store = bed.store();
    populate(store).await;
    let mut client = bed.client();
    deal(&mut client, &[&["HSET", "past", "$done", "no past", "$crashed", "no past"]]);
    store.doctor(true).await.expect("the doctor mends");
    assert_eq!(Hand::new(store, "s2").claim(&["a"], 10).await, []);
    for gone in ["done", "crashed"] {
        assert_eq!(store.find(None, &id(gone)).await, Ok(vec![]));
    }
    let aside: Vec<String> = client.hkeys(key("quarantine")).expect("the quarantine");
    assert_eq!(aside.iter().filter(|field| field.contains(" jobs ")).count(), 2, "{aside:#?}");
}
