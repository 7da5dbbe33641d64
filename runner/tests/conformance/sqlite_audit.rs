//! The invariants of the tables, checked from outside: every job is in exactly one place, every entry has a record, and
//! every counter is what it counts.

use rusqlite::Connection;

/// What is wrong, with the query that finds it: each row is one finding.
const CHECKS: [(&str, &str); 20] = [
    (
        "a record that is not in exactly one place",
        "SELECT record FROM jobs WHERE (SELECT count(*) FROM waiting WHERE waiting.record = jobs.record) \
         + (SELECT count(*) FROM leases WHERE leases.record = jobs.record) \
         + (SELECT count(*) FROM past WHERE past.record = jobs.record AND queue IS NOT NULL) <> 1",
    ),
    ("an entry without a record", "SELECT record FROM waiting WHERE record NOT IN (SELECT record FROM jobs)"),
    ("a lease without a record", "SELECT record FROM leases WHERE record NOT IN (SELECT record FROM jobs)"),
    ("a past without a record", "SELECT record FROM past WHERE record NOT IN (SELECT record FROM jobs)"),
    ("a log without a record", "SELECT record FROM logs WHERE record NOT IN (SELECT record FROM jobs)"),
    (
        "an entry that its past does not fit",
        "SELECT record FROM waiting JOIN past USING (record) WHERE past.state <> 'w' OR past.due_ms <> waiting.due_ms \
         OR past.place <> waiting.place OR past.attempt <> waiting.attempt OR past.crashes <> waiting.crashes",
    ),
    (
        "an entry that its record does not fit",
        "SELECT record FROM waiting JOIN jobs USING (record) WHERE waiting.lane <> jobs.lane OR waiting.part <> \
         iif(waiting.crashes >= 2, 4, jobs.priority) OR NOT EXISTS (SELECT 1 FROM past WHERE past.record = jobs.record) \
         AND (waiting.due_ms <> jobs.due_ms OR waiting.place <> jobs.record OR waiting.attempt + waiting.crashes <> 0)",
    ),
    (
        "a state that its end does not fit",
        "SELECT record FROM past WHERE (state IN ('c', 'x', 'd')) <> (queue IS NOT NULL) \
         OR (queue IS NULL) <> (ended_ms IS NULL) OR (queue IS NULL) <> (bytes IS NULL)",
    ),
    (
        "a finished job of another queue",
        "SELECT record FROM past JOIN jobs USING (record) JOIN lanes USING (lane) WHERE past.queue <> lanes.queue",
    ),
    (
        "a count of what is kept that is not right",
        "SELECT kept.queue FROM kept WHERE (jobs, bytes) <> (SELECT count(*), ifnull(sum(past.bytes), 0) FROM past \
         WHERE past.queue = kept.queue AND past.state = kept.state)",
    ),
    (
        "finished jobs that are not counted",
        "SELECT record FROM past WHERE queue IS NOT NULL AND (queue, state) NOT IN (SELECT queue, state FROM kept)",
    ),
    (
        "an id without a record",
        "SELECT id FROM ids WHERE record IS NOT NULL AND record NOT IN (SELECT record FROM jobs WHERE given = 1)",
    ),
    (
        "an id that does not lead to its record",
        "SELECT jobs.record FROM jobs JOIN lanes USING (lane) LEFT JOIN ids \
         ON ids.queue = lanes.queue AND ids.id = jobs.id WHERE given = 1 AND ids.record IS NOT jobs.record",
    ),
    (
        "a weight of remembered ids that is not right",
        "SELECT ns FROM namespaces WHERE id_bytes <> (SELECT ifnull(sum(2 * length(CAST(id AS BLOB)) + 200), 0) \
         FROM ids WHERE ids.ns = namespaces.ns AND record IS NULL)",
    ),
    (
        "a number above the sequence",
        "SELECT place FROM waiting WHERE place > (SELECT last FROM sequence) AND place < 901",
    ),
    (
        "progress without a record",
        "SELECT record FROM progress WHERE record NOT IN (SELECT record FROM jobs)",
    ),
    (
        "a bucket that does not hold what it says",
        "SELECT bucket FROM buckets WHERE entries < 1 OR (entries, bytes) <> (SELECT count(*), ifnull(sum(length(CAST(key AS BLOB)) \
         + length(value)), 0) FROM state WHERE state.ns = buckets.ns AND state.bucket = buckets.bucket)",
    ),
    (
        "an entry of state whose bucket is not listed",
        "SELECT key FROM state WHERE (ns, bucket) NOT IN (SELECT ns, bucket FROM buckets)",
    ),
    (
        "a version that was never given",
        "SELECT key FROM state WHERE version < 1 OR version > (SELECT last FROM sequence)",
    ),
    ("an entry that was set aside", "SELECT record FROM aside"),
];

/// What is wrong; empty when all is well, and was never otherwise.
pub(crate) fn audit(client: &Connection) -> Vec<String> {
    run(client, &CHECKS)
}

/// What is wrong; empty when all is well, whatever was set aside.
pub(crate) fn audit_mended(client: &Connection) -> Vec<String> {
    run(client, &CHECKS[..CHECKS.len() - 1])
}

fn run(client: &Connection, checks: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (what, sql) in checks {
        let mut statement = client.prepare(sql).expect("a query");
        let mut rows = statement.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            wrong.push(format!("{what}: {:?}", row.get_ref(0).expect("a value")));
        }
    }
    wrong
}
