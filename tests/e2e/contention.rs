//! One file, many processes: runners, enqueuers, readers, and a shell that keeps the write lock.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::cli::text;
use crate::harness::backing::{SqliteFile, WriteLock};
use crate::harness::hourhand::Hourhand;

const RUNNERS: usize = 4;
const ENQUEUERS: usize = 4;
const JOBS_EACH: usize = 5_000;

/// The write lock in the hands of the `sqlite3` command line tool, which knows nothing of us; where there is none,
/// of SQLite in this process.
enum Stranger {
    Shell(Child, ChildStdin),
    Ours(#[allow(dead_code, reason = "it is held")] WriteLock),
}

impl Stranger {
    fn locks(file: &SqliteFile) -> Self {
        let shell = Command::new("sqlite3")
            .args(["-batch", "-bail"])
            .arg(file.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        let Ok(mut shell) = shell else {
            println!("there is no sqlite3: the lock is taken by this process");
            return Self::Ours(file.lock());
        };
        let mut stdin = shell.stdin.take().expect("a pipe");
        stdin.write_all(b".timeout 30000\nBEGIN IMMEDIATE;\nSELECT 'locked';\n").expect("the shell reads");
        let mut answer = String::new();
        BufReader::new(shell.stdout.take().expect("a pipe"))
            .read_line(&mut answer)
            .expect("the shell answers");
        assert_eq!(answer, "locked\n");
        Self::Shell(shell, stdin)
    }

    fn lets_go(self) {
        if let Self::Shell(mut shell, mut stdin) = self {
            stdin.write_all(b"COMMIT;\n.quit\n").expect("the shell reads");
            drop(stdin);
            assert!(shell.wait().expect("its end").success());
        }
    }
}

/// Looks at everything again and again until it is `over`; what it was told.
fn reader(here: &Hourhand, over: &AtomicBool) -> Vec<Output> {
    let mut answers = Vec::new();
    while !over.load(Ordering::Relaxed) {
        for args in [&["stats", "--json"][..], &["job", "list", "--limit", "500"]] {
            answers.push(here.run(args));
        }
    }
    answers
}

fn jobs_file(dir: &Path, number: usize) -> String {
    let name = format!("jobs-{number}.ndjson");
    let mut lines = String::new();
    for n in 0..JOBS_EACH {
        writeln!(lines, r#"{{"kind":"nonce","id":"{number}-{n}","payload":null}}"#).expect("text");
    }
    fs::write(dir.join(&name), lines).expect("a file");
    name
}

#[test]
fn many_processes_and_a_stranger_with_the_write_lock_get_along() {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &["nonce"]);
    let keep = ["--concurrency", "16", "--completed-count", "none", "--completed-bytes", "none"];
    let mut runners: Vec<_> = (0..RUNNERS).map(|_| here.runner(&keep)).collect();
    let files: Vec<String> = (0..ENQUEUERS).map(|n| jobs_file(here.dir.path(), n)).collect();
    let over = AtomicBool::new(false);
    let outputs = std::thread::scope(|scope| {
        let reader = scope.spawn(|| reader(&here, &over));
        let stranger = Stranger::locks(&file);
        // Their first job meets the lock.
        let enqueuers: Vec<_> =
            files.iter().map(|name| scope.spawn(|| here.run(&["enqueue", "--ndjson", name]))).collect();
        std::thread::sleep(Duration::from_secs(4));
        let meanwhile = enqueuers.iter().filter(|e| !e.is_finished()).count();
        assert_eq!(meanwhile, ENQUEUERS, "they waited for the lock");
        stranger.lets_go();
        let mut outputs: Vec<Output> = enqueuers.into_iter().map(|e| e.join().expect("its end")).collect();
        here.counts("nonce", "all jobs end", Duration::from_secs(300), |q| {
            q["completed"].as_u64() == Some((ENQUEUERS * JOBS_EACH) as u64)
        });
        over.store(true, Ordering::Relaxed);
        outputs.extend(reader.join().expect("its end"));
        outputs
    });
    for output in &outputs {
        assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
        quiet(&text(&output.stderr));
        quiet(&text(&output.stdout));
    }
    println!("{} answers for the reader", outputs.len() - ENQUEUERS);
    each_ran_once(&here.all_jobs(&["--queue", "nonce", "--state", "completed"]));
    for runner in &mut runners {
        assert_eq!(runner.stop().code(), Some(0));
        quiet(&runner.log());
    }
}

/// Fails when the lock shows.
#[track_caller]
fn quiet(shown: &str) {
    for word in ["is locked", "busy", "SQLITE"] {
        assert!(!shown.contains(word), "{word}: {shown}");
    }
}

/// By what the guests returned: each made a nonce of its own.
fn each_ran_once(jobs: &[Value]) {
    assert_eq!(jobs.len(), ENQUEUERS * JOBS_EACH);
    let (mut ids, mut nonces) = (BTreeSet::new(), BTreeSet::new());
    for job in jobs {
        let result: Value = serde_json::from_str(job["result"].as_str().expect("a result")).expect("JSON");
        assert_eq!((&result["id"], &job["attempt"]), (&job["id"], &1.into()), "{job:#}");
        assert!(ids.insert(job["id"].to_string()), "a job twice: {job:#}");
        assert!(nonces.insert(result["nonce"].to_string()), "a nonce twice: {job:#}");
    }
}
