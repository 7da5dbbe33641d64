//! Files of earlier versions: they are brought to this one when they are opened, and work goes on.

use hourhand::effects::{Effects, Progress, StateChange, StateEffects};
use hourhand::job::State;
use hourhand::outcome::Outcome;
use hourhand::queue::{Disposition, LogWrite, Settled, Settlement, Store};
use rusqlite::Connection;

use crate::bed::{Hand, id, job_ref, job_with_id, name, settlement, view};
use crate::kit::{assert_whole, close, store, stranger};

/// The tables as version 1 made them, which no later version changes.
const VERSION_1: &str = include_str!("../../src/queue/sqlite/schema.sql");

/// What version 1 had in its tables: one job that waits, one that has failed once and has a log, one that has ended.
const CONTENT: &str = "
    INSERT INTO namespaces (ns, name) VALUES (1, 'faults');
    INSERT INTO queues (queue, ns, name, enqueued, completed, failed) VALUES (1, 1, 'a', 3, 1, 1);
    INSERT INTO lanes VALUES (1, 1, 'a');
    UPDATE sequence SET last = 3;
    INSERT INTO jobs (record, lane, id, given, priority, enqueued_ms, due_ms, source, payload) VALUES
      (1, 1, 'waits', 1, 2, 1700000000000, 1700000000000, '', x'00ff'),
      (2, 1, 'retried', 1, 2, 1700000000000, 1700000000000, '', x''),
      (3, 1, 'done', 1, 2, 1700000000000, 1700000000000, '', x'');
    INSERT INTO ids (queue, id, record, ns) VALUES (1, 'waits', 1, 1), (1, 'retried', 2, 1), (1, 'done', 3, 1);
    INSERT INTO waiting VALUES (1, 2, 1700000000000, 1, 1, 0, 0), (1, 2, 1700000000001, 2, 2, 1, 0);
    INSERT INTO past (record, state, attempt, max_attempts, crashes, due_ms, place, events, history) VALUES
      (2, 'w', 1, 5, 0, 1700000000001, 2, 0, x'');
    INSERT INTO past (record, state, attempt, max_attempts, crashes, due_ms, place, session, token, queue, ended_ms, bytes,
      forget_ms, events, history) VALUES (3, 'c', 1, 5, 0, 1700000000000, 3, 's', 1, 1, 1700000000002, 200, 1, 0, x'');
    INSERT INTO kept VALUES (1, 'c', 1, 200);
    INSERT INTO logs VALUES (2, 1, 'the first attempt');
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_version_1_is_opened_and_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let client = Connection::open(&file).expect("opened");
    client
        .execute_batch(&format!(
            "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; {VERSION_1} {CONTENT} \
             PRAGMA application_id = 0x486f7572; PRAGMA user_version = 1;"
        ))
        .expect("a file of version 1");
    // Whoever has it open meanwhile works on.
    let old = stranger(&file);
    let store_now = store(&file);
    assert_eq!(store_now.doctor(false).await, Ok(vec![]), "before anything has made it a new one");
    let kept = store_now.enqueue(&[job_with_id("a", "done")]).await.expect("taken");
    assert_eq!(kept[0].disposition, Disposition::Kept);
    let version: u32 = client.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("a version");
    assert_eq!(version, 3);
    assert_eq!(view(&store_now, &id("waits")).await.job.payload, &b"\x00\xff"[..]);
    assert_eq!(store_now.logs(&job_ref("a", "retried")).await.expect("logs")[0].text, "the first attempt");
    let moved = old.execute("UPDATE queues SET enqueued = enqueued + 0", []).expect("written");
    assert_eq!(moved, 1);
    drop((old, client));

    let mut hand = Hand::new(&store_now, "s");
    let claimed = hand.claim(&["a"], 5).await;
    let got: Vec<&str> = claimed.iter().map(|c| c.job.id.as_str()).collect();
    assert_eq!(got, ["waits", "retried"]);
    let progress = Some(Progress { percent: 50, message: "half".to_owned() });
    let lease = claimed[1].lease.clone();
    let write = LogWrite { lease, attempt: claimed[1].attempt, text: String::new(), progress };
    assert_eq!(store_now.write_logs(&[write]).await, Ok(vec![Settled::Done]));
    assert_eq!(view(&store_now, &id("retried")).await.progress.expect("progress").percent, 50);
    let state = StateEffects {
        bucket: name("b"),
        reads: vec![("k".to_owned(), 0)],
        changes: vec![("k".to_owned(), StateChange::Add(1))],
    };
    let effects = Effects { children: vec![job_with_id("a", "child")], state: Some(state) };
    let committing = Settlement {
        effects: Some(Box::new(effects)),
        ..settlement(&claimed[0], Outcome::Completed { result: None })
    };
    assert_eq!(store_now.settle(&[committing]).await, Ok(vec![Settled::Done]));
    assert_eq!(view(&store_now, &id("child")).await.state, State::Ready);
    assert_eq!(store_now.doctor(false).await, Ok(vec![]));
    drop(hand);
    close(store_now, &file);
    let again = store(&file);
    let found = again.read_state(&name("b"), &["k".to_owned()]).await.expect("read");
    assert_eq!(found.values[0].as_ref().expect("an entry").value, &b"1"[..]);
    drop(again);
    assert_whole(&file);
}
