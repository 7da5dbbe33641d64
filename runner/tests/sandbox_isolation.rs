//! Nothing passes from one job to the next: by a guest that leaves marks in its statics, in a borrow, all over its memory and in a folder, and
//! looks for those of others, in slots that are used again and again.

#[allow(unreachable_pub, reason = "the end-to-end tests share it")]
#[path = "../../tests/harness/guests.rs"]
mod guests;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hourhand::grants::{DirGrant, Grants};
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{GuestJob, JobLog, Limits, Module, Offer, Sandbox, SandboxConfig, StopSignal};
use serde_json::{Value, json};

/// Jobs at once, each in a slot of the pool.
const SLOTS: u32 = 4;
const JOBS: u64 = 10_000;

fn sandbox() -> Arc<Sandbox> {
    Sandbox::new(SandboxConfig { concurrency: SLOTS, ..SandboxConfig::default() }).expect("a sandbox")
}

fn module(sandbox: &Sandbox, name: &str) -> Module {
    sandbox.load(name, &fs::read(guests::guest(name)).expect("read the module")).expect("loads")
}

async fn run(sandbox: &Sandbox, module: &Module, kind: &str, payload: &Value, grants: Grants) -> RunEnd {
    let job = GuestJob {
        id: format!("j{payload}").chars().take(50).collect(),
        kind: kind.to_owned(),
        queue: kind.to_owned(),
        attempt: 1,
        max_attempts: 1,
        payload: payload.to_string().into(),
        ..GuestJob::default()
    };
    let log = Arc::new(JobLog::new(1_000));
    let offer = Offer { grants: Arc::new(grants), ..Offer::default() };
    sandbox.run_with(module, job, &Limits::default(), offer, StopSignal::new(), log).await.end
}

fn found(end: RunEnd) -> Value {
    match end {
        RunEnd::Completed(result) => serde_json::from_slice(&result).expect("JSON"),
        other => panic!("it did not complete: {other:?}"),
    }
}

fn nothing() -> Value {
    json!({
        "statics": false, "borrowed": false, "in_memory": 0, "grown_dirty": 0, "environment": {}, "arguments": 0, "scratch": []
    })
}

fn in_a_guest_runtime<F: Future>(body: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(body)
}

#[test]
fn ten_thousand_jobs_in_four_slots_find_nothing_of_each_other() {
    in_a_guest_runtime(async {
        let sandbox = sandbox();
        let (residue, other) = (module(&sandbox, "residue"), module(&sandbox, "echo"));
        let (next, looked, panicked) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0), AtomicU64::new(0));
        let (looked, panicked) = (Arc::new(looked), Arc::new(panicked));
        let mut hands = tokio::task::JoinSet::new();
        for _ in 0..SLOTS {
            let (sandbox, residue, other) = (Arc::clone(&sandbox), residue.clone(), other.clone());
            let (next, looked, panicked) = (Arc::clone(&next), Arc::clone(&looked), Arc::clone(&panicked));
            hands.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= JOBS {
                        return;
                    }
                    // A slot that another module had is as clean as one of its own.
                    if number % 7 == 3 {
                        run(&sandbox, &other, "echo", &json!("other"), Grants::default()).await;
                    }
                    let panics = number % 5 == 0;
                    let payload = json!({"number": number + 1, "panics": panics});
                    match run(&sandbox, &residue, "residue", &payload, Grants::default()).await {
                        RunEnd::Failed { reason: Reason::Panic, message, .. } if panics => {
                            assert!(message.contains("with the borrow taken"), "{message}");
                            panicked.fetch_add(1, Relaxed);
                        }
                        end => {
                            assert_eq!(found(end), nothing(), "job {number}");
                            looked.fetch_add(1, Relaxed);
                        }
                    }
                }
            });
        }
        hands.join_all().await;
        assert_eq!((looked.load(Relaxed), panicked.load(Relaxed)), (JOBS / 5 * 4, JOBS / 5));
        assert!(sandbox.pooled(), "the slots are those of the pool");
    });
}

#[test]
fn what_the_host_lends_one_job_the_next_does_not_have() {
    in_a_guest_runtime(async {
        let sandbox = sandbox();
        let residue = module(&sandbox, "residue");
        let dir = tempfile::tempdir().unwrap();
        let lent = || Grants {
            env: vec![("TOKEN".to_owned(), "hush".to_owned())],
            dirs: vec![DirGrant {
                host: dir.path().canonicalize().unwrap(),
                guest: "/scratch".to_owned(),
                writable: true,
            }],
            ..Grants::default()
        };
        let with = json!({"number": 1, "scratch": "/scratch"});
        let first = found(run(&sandbox, &residue, "residue", &with, lent()).await);
        assert_eq!(first["environment"], json!({"TOKEN": "hush"}));
        assert_eq!(first["scratch"], json!([]));
        // What it wrote is the operator's folder's, and there for whoever is lent the same.
        let files: BTreeSet<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(files, BTreeSet::from(["1".to_owned()]));
        let second = json!({"number": 2, "scratch": "/scratch"});
        assert_eq!(found(run(&sandbox, &residue, "residue", &second, lent()).await)["scratch"], json!(["1"]));
        // Whoever is lent nothing has nothing.
        assert_eq!(
            found(run(&sandbox, &residue, "residue", &json!({"number": 3}), Grants::default()).await),
            nothing()
        );
        let end = run(&sandbox, &residue, "residue", &with, Grants::default()).await;
        assert!(matches!(end, RunEnd::Failed { reason: Reason::Error, .. }), "no such folder: {end:?}");
        // What may only be read is not written to, and a folder that is gone is named.
        let mut read = lent();
        read.dirs[0].writable = false;
        let end =
            run(&sandbox, &residue, "residue", &json!({"number": 4, "scratch": "/scratch"}), read).await;
        assert!(matches!(end, RunEnd::Failed { reason: Reason::Error, .. }), "read only: {end:?}");
        let gone = dir.path().join("gone");
        let mut grants = lent();
        grants.dirs[0].host = gone.clone();
        let end = run(&sandbox, &residue, "residue", &with, grants).await;
        let RunEnd::Failed { message, .. } = end else { panic!("{end:?}") };
        assert!(message.contains(gone.to_str().unwrap()), "{message}");
    });
}
