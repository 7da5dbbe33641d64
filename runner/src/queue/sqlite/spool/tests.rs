use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::*;
use crate::job::{AGE_MS_MAX, Due, OnConflict, Priority};
use crate::names::{JobId, Name};
use crate::queue::BATCH_MAX;

/// A machine that is booted and set by hand: wall clock and time since the boot in milliseconds.
struct Hands {
    wall: AtomicU64,
    boot: AtomicU64,
    id: Mutex<&'static str>,
}

impl HostClock for Hands {
    fn wall_us(&self) -> u64 {
        self.wall.load(Relaxed) * 1_000
    }
    fn boot_us(&self) -> u64 {
        self.boot.load(Relaxed) * 1_000
    }
    fn boot_id(&self) -> &str {
        *self.id.lock()
    }
}

fn job(id: &str, payload: &[u8]) -> NewJob {
    NewJob {
        id: Some(JobId::new(id).expect("an id")),
        payload: payload.to_vec().into(),
        ..NewJob::new(Name::new("k").expect("a name"))
    }
}

fn ids(spool: &Spool, store: &str) -> Vec<String> {
    let drainer = spool.drainer(store).expect("a lock").expect("free");
    let next = spool.next(&drainer, BATCH_MAX).expect("jobs");
    next.into_iter().map(|w| w.job.expect("whole").id.expect("an id").to_string()).collect()
}

#[test]
fn a_job_comes_out_as_it_went_in() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    let full = NewJob {
        queue: Name::new("q").expect("a name"),
        priority: Priority::High,
        due: Due::At(7_000),
        max_attempts: Some(3),
        timeout_ms: Some(1_234),
        meta: vec![("b".to_owned(), "2\u{1}é".to_owned()), ("a".to_owned(), String::new())],
        traceparent: Some("00-ab".to_owned()),
        source: "test spool:x".to_owned(),
        on_conflict: OnConflict::Replace,
        ..job("Ünï/code 7", b"\xff\0{}")
    };
    let plain = NewJob { due: Due::In(5), ..job("p", b"") };
    assert_eq!(spool.append("s", &[full.clone(), plain.clone()], true, false), Ok(2));
    let drainer = spool.drainer("s").expect("a lock").expect("free");
    let mut out = spool.next(&drainer, BATCH_MAX).expect("jobs");
    for waiting in &mut out {
        assert!(waiting.unsure);
        waiting.job.as_mut().expect("whole").age_ms = 0;
    }
    assert_eq!(out.into_iter().map(|w| w.job.expect("whole")).collect::<Vec<_>>(), [full, plain]);
}

#[test]
fn nothing_is_taken_over_the_bounds_and_what_is_settled_makes_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = SpoolOptions { jobs: 3, bytes: 4_000, ..SpoolOptions::default() };
    let spool = Spool::new(dir.path(), options.clone());
    spool.append("s", &[job("1", b""), job("2", b"")], false, false).expect("room");
    let over = spool.append("s", &[job("3", b""), job("4", b"")], false, false).expect_err("no room");
    assert!(matches!(&over, SpoolError::Full(text) if text.contains("2 jobs of at most 3")), "{over}");
    let heavy = spool.append("s", &[job("3", &[0; 4_000])], false, false).expect_err("no room");
    assert!(matches!(heavy, SpoolError::Full(_)), "{heavy}");
    assert_eq!(
        spool.append("other", &[job("3", b"")], false, false),
        Ok(1),
        "counted by store, bounded together"
    );
    assert!(spool.append("s", &[job("4", b"")], false, false).is_err());
    assert_eq!(ids(&spool, "s"), ["1", "2"]);
    let drainer = spool.drainer("s").expect("a lock").expect("free");
    let first = spool.next(&drainer, BATCH_MAX).expect("jobs")[0].key.clone();
    spool.settle(&drainer, &[first], &[]).expect("settled");
    assert_eq!(spool.append("s", &[job("4", b"")], false, false), Ok(2));
    // Another process, with more room.
    let other = Spool::new(dir.path(), SpoolOptions::default());
    assert_eq!(other.append("s", &[job("5", b"")], false, false), Ok(3));
    drop(drainer);
    assert_eq!(ids(&spool, "s"), ["2", "4", "5"]);
}

#[test]
fn the_file_gives_its_room_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    let jobs: Vec<NewJob> = (0..20).map(|n| job(&n.to_string(), &[7; 100_000])).collect();
    spool.append("s", &jobs, false, false).expect("room");
    let size = || std::fs::metadata(spool.path()).expect("a file").len();
    assert!(size() > 2_000_000);
    let drainer = spool.drainer("s").expect("a lock").expect("free");
    loop {
        let batch = spool.next(&drainer, BATCH_MAX).expect("jobs");
        assert!(batch.len() <= 2, "256 KiB a batch");
        if batch.is_empty() {
            break;
        }
        let keys: Vec<RowKey> = batch.into_iter().map(|w| w.key).collect();
        spool.settle(&drainer, &keys, &[]).expect("settled");
    }
    assert!(size() < 100_000, "{}", size());
}

#[test]
fn ages_count_by_the_boot_and_after_another_by_the_wall_clock_never_below_zero() {
    let dir = tempfile::tempdir().expect("a folder");
    let hands =
        std::sync::Arc::new(Hands { wall: 1_000_000.into(), boot: 50_000.into(), id: Mutex::new("first") });
    let spool = Spool::new(dir.path(), SpoolOptions { clock: hands.clone(), ..SpoolOptions::default() });
    spool.append("s", &[job("1", b"")], false, false).expect("room");
    let age = || {
        let drainer = spool.drainer("s").expect("a lock").expect("free");
        spool.next(&drainer, BATCH_MAX).expect("jobs")[0].job.as_ref().expect("whole").age_ms
    };
    let set = |wall: u64, boot: u64, id| {
        hands.wall.store(wall, Relaxed);
        hands.boot.store(boot, Relaxed);
        *hands.id.lock() = id;
    };
    set(9_000_000, 53_000, "first");
    assert_eq!(age(), 3_000, "a step of the wall clock is none");
    set(1_060_000, 2_000, "second");
    assert_eq!(age(), 60_000);
    let older = NewJob { age_ms: 7_000, ..job("2", b"") };
    spool.append("t", &[older], false, false).expect("room");
    set(1_060_000, 3_000, "second");
    let drainer = spool.drainer("t").expect("a lock").expect("free");
    let ages = spool.next(&drainer, BATCH_MAX).expect("jobs")[0].job.as_ref().expect("whole").age_ms;
    assert_eq!(ages, 8_000, "it was old when it came");
    assert_eq!(spool.list(1, 1).expect("a list")[0].accepted_ms, 1_053_000);
    set(400_000, 2_000, "second");
    assert_eq!(age(), 0, "set back");
    set(1_000_000 + AGE_MS_MAX + 5, 2_000, "second");
    assert_eq!(age(), AGE_MS_MAX);
}

#[test]
fn a_reboot_ends_the_rest_of_a_store_that_did_not_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let hands = std::sync::Arc::new(Hands { wall: 0.into(), boot: 50_000.into(), id: Mutex::new("first") });
    let spool = Spool::new(dir.path(), SpoolOptions { clock: hands.clone(), ..SpoolOptions::default() });
    for n in 0..5 {
        spool.append("s", &[job(&n.to_string(), b"")], false, true).expect("room");
    }
    assert!(spool.outlook("s").expect("known").resting);
    assert_eq!(spool.outlook("other").expect("known"), Outlook::default());
    *hands.id.lock() = "second";
    assert!(!spool.outlook("s").expect("known").resting);
    spool.append("s", &[job("x", b"")], false, true).expect("room");
    assert_eq!(spool.outlook("s").expect("known").failures, 1);
    spool.answered("s").expect("noted");
    assert_eq!(spool.outlook("s").expect("known"), Outlook { waiting: true, ..Outlook::default() });
}

#[test]
fn a_file_that_is_no_spool_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    let path = spool.path();
    let refused = |what: &str| {
        let before = std::fs::read(&path).expect("a file");
        for error in [
            spool.append("s", &[job("1", b"")], false, false).expect_err(what),
            spool.outlook("s").expect_err(what),
            spool.list(0, 1).expect_err(what),
        ] {
            assert!(
                matches!(&error, SpoolError::Unusable(text) if text.contains("spool.db")),
                "{what}: {error}"
            );
        }
        assert!(std::fs::read(&path).expect("a file") == before, "{what}");
    };
    std::fs::write(&path, "x").expect("written");
    refused("one byte");
    std::fs::write(
        &path,
        "a text that is no database, and long enough to have a header of a hundred bytes. ".repeat(9),
    )
    .expect("written");
    refused("a text");
    std::fs::remove_file(&path).expect("gone");
    let foreign = Connection::open(&path).expect("a database");
    foreign.execute_batch("CREATE TABLE jobs (x); INSERT INTO jobs VALUES (1)").expect("a table");
    drop(foreign);
    refused("another program's");
    std::fs::remove_file(&path).expect("gone");
    spool.append("s", &[job("1", b"")], false, false).expect("a new one");
    Connection::open(&path).expect("ours").pragma_update(None, "user_version", 2).expect("newer");
    refused("a newer version");
    std::fs::remove_file(&path).expect("gone");
    std::fs::create_dir(&path).expect("a folder");
    let error = spool.append("s", &[job("1", b"")], false, false).expect_err("a folder");
    assert!(matches!(error, SpoolError::Unusable(_)), "{error}");
}

#[test]
fn a_row_that_somebody_has_spoilt_is_told_from_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    spool.append("s", &[job("1", b""), job("2", b"")], false, false).expect("room");
    let stranger = Connection::open(spool.path()).expect("a database");
    stranger.execute("UPDATE jobs SET kind = 'a b' WHERE id = '1'", []).expect("spoilt");
    let drainer = spool.drainer("s").expect("a lock").expect("free");
    let next = spool.next(&drainer, BATCH_MAX).expect("jobs");
    assert!(next[0].job.is_err() && next[1].job.is_ok());
}

#[test]
fn many_at_once_lose_nothing_and_stay_in_bounds() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = SpoolOptions { jobs: 60, ..SpoolOptions::default() };
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (spool, taken) = (Spool::new(dir.path(), options.clone()), &taken);
            scope.spawn(move || {
                for n in 0..20 {
                    match spool.append("s", &[job(&format!("{thread}-{n}"), b"x")], false, false) {
                        Ok(_) => _ = taken.fetch_add(1, Relaxed),
                        Err(error) => assert!(matches!(error, SpoolError::Full(_)), "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(taken.load(Relaxed), 60);
    let spool = Spool::new(dir.path(), options);
    let all = ids(&spool, "s");
    assert_eq!(all.len(), 60);
    for thread in 0..4 {
        let own: Vec<&String> = all.iter().filter(|id| id.starts_with(&format!("{thread}-"))).collect();
        let expected: Vec<String> = (0..own.len()).map(|n| format!("{thread}-{n}")).collect();
        assert!(own.into_iter().eq(&expected), "in the order of each");
    }
}

#[test]
fn what_is_settled_in_a_file_that_was_replaced_is_no_other_job() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    let sent = [job("1", b""), job("2", b""), job("3", b"")];
    spool.append("s", &sent, false, false).expect("room");
    let drainer = spool.drainer("s").expect("a lock").expect("free");
    let keys: Vec<RowKey> =
        spool.next(&drainer, BATCH_MAX).expect("jobs").into_iter().map(|w| w.key).collect();
    std::fs::remove_file(spool.path()).expect("gone");
    let marked = NewJob { source: "another".to_owned(), ..job("2", b"") };
    let elsewhere = NewJob { queue: Name::new("q").expect("a name"), ..job("3", b"") };
    spool.append("s", &[job("new", b""), marked, elsewhere], false, false).expect("room");
    spool.unsure(&drainer, &keys, true).expect("noted");
    spool.settle(&drainer, &keys[..2], &[(keys[2].clone(), "no".to_owned())]).expect("settled");
    let left = spool.next(&drainer, BATCH_MAX).expect("jobs");
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|waiting| !waiting.unsure));
}

#[test]
fn who_takes_all_out_keeps_others_from_it_and_leaves_what_came_for_a_new_store() {
    let dir = tempfile::tempdir().expect("a folder");
    let spool = Spool::new(dir.path(), SpoolOptions::default());
    spool.append("t", &[job("1", b"")], false, false).expect("room");
    spool.append("s", &[job("2", b"")], false, false).expect("room");
    let all = spool.drainer_of_all("s").expect("locks").expect("free");
    for store in ["s", "t"] {
        assert!(spool.drainer(store).expect("a lock").is_none(), "{store}");
    }
    spool.append("u", &[job("3", b"")], false, false).expect("room");
    spool.append("t", &[job("4", b"")], false, false).expect("room");
    let next = spool.next(&all, BATCH_MAX).expect("jobs");
    let next: Vec<_> =
        next.into_iter().map(|w| w.job.expect("whole").id.expect("an id").to_string()).collect();
    assert_eq!(next, ["1", "2", "4"]);
    drop(all);
    let one = spool.drainer("t").expect("a lock").expect("free");
    assert!(spool.drainer_of_all("s").expect("locks").is_none());
    drop(one);
    assert!(spool.drainer("s").expect("a lock").is_some(), "no lock is left behind");
}
