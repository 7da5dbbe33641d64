//! What a guest does through its host: what is granted is buffered and handed over with its completion, what is not is refused with the
//! line that is missing, and a cancel reaches it.

#[allow(unreachable_pub, reason = "the end-to-end tests share it")]
#[path = "../../tests/harness/guests.rs"]
mod guests;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use hourhand::effects::{Effects, META_DEPTH, META_PARENT, Progress, StateChange, StateFound, StateValue};
use hourhand::grants::{EnqueueGrant, Grants, SecretGrant, SecretText, StateGrant};
use hourhand::job::{Due, Priority};
use hourhand::names::Name;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{
    GuestJob, HOST_CALLS_MAX, Incarnation, JobLog, Limits, Module, Offer, RunReport, Sandbox, SandboxConfig,
    Services, Stop, StopSignal,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// One pool for all tests of this file.
fn sandbox() -> Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let config = SandboxConfig { concurrency: 8, ..SandboxConfig::default() };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

fn module() -> Module {
    let bytes = fs::read(guests::guest("reach")).expect("read the module");
    sandbox().load("reach", &bytes).expect("loads")
}

/// A runner in place of the real one: a bucket of state, and a note of what it was told.
#[derive(Default)]
struct Runner {
    entries: BTreeMap<String, &'static str>,
    told: Mutex<Vec<Progress>>,
    asked: Mutex<u32>,
    /// Answers no question.
    silent: bool,
    heard: Notify,
}

#[async_trait]
impl Services for Runner {
    async fn read_state(&self, bucket: &Name, keys: &[String]) -> Result<StateFound, String> {
        assert_eq!(bucket.as_str(), "shop");
        *self.asked.lock() += 1;
        if self.silent {
            std::future::pending::<()>().await;
        }
        let value =
            |key: &String| Some(StateValue { value: self.entries.get(key)?.as_bytes().into(), version: 7 });
        Ok(StateFound {
            values: keys.iter().map(value).collect(),
            entries: self.entries.len() as u64,
            bytes: 100,
        })
    }

    fn progress(&self, progress: Progress) {
        self.told.lock().push(progress);
        self.heard.notify_one();
    }
}

fn granted() -> Grants {
    Grants {
        enqueue: Some(EnqueueGrant {
            kinds: vec!["part".to_owned(), "mail.*".to_owned()],
            jobs_max: 10,
            depth_max: 3,
        }),
        state: Some(StateGrant { bucket: Name::new("shop").unwrap(), entries_max: 10, bytes_max: 1_000 }),
        secrets: vec![
            SecretGrant {
                name: "readable".to_owned(),
                value: SecretText("hush".to_owned()),
                readable: true,
                injections: Vec::new(),
            },
            SecretGrant {
                name: "injected".to_owned(),
                value: SecretText("never seen".to_owned()),
                readable: false,
                injections: Vec::new(),
            },
        ],
        ..Grants::default()
    }
}

struct Bed {
    runner: Arc<Runner>,
    grants: Grants,
    stop: StopSignal,
    meta: Vec<(String, String)>,
    timeout_ms: u64,
    log: Arc<JobLog>,
}

fn bed(entries: &[(&str, &'static str)]) -> Bed {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    Bed {
        runner: Arc::new(Runner { entries, ..Runner::default() }),
        grants: granted(),
        stop: StopSignal::new(),
        meta: Vec::new(),
        timeout_ms: 20_000,
        log: Arc::new(JobLog::new(1_000)),
    }
}

impl Bed {
    fn run(&self, script: &Value) -> RunReport {
        in_a_guest_runtime(self.start(script))
    }

    async fn start(&self, script: &Value) -> RunReport {
        let job = GuestJob {
            id: "j1".to_owned(),
            kind: "reach".to_owned(),
            queue: "q1".to_owned(),
            attempt: 1,
            max_attempts: 5,
            meta: self.meta.clone(),
            facts: vec![("traceparent".to_owned(), "00-1".to_owned())],
            payload: script.to_string().into(),
            incarnation: Incarnation { record: 9, session: Arc::from("s"), token: 4 },
            ..GuestJob::default()
        };
        let limits = Limits { timeout_ms: self.timeout_ms, ..Limits::default() };
        let services: Arc<dyn Services> = Arc::<Runner>::clone(&self.runner);
        let offer =
            Offer { grants: Arc::new(self.grants.clone()), services: Some(services), ..Offer::default() };
        sandbox().run_with(&module(), job, &limits, offer, self.stop.clone(), Arc::clone(&self.log)).await
    }
}

fn in_a_guest_runtime<F: Future>(body: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(body)
}

/// The answers of a job that completed, and its effects.
#[track_caller]
fn completed(report: RunReport) -> (Vec<Value>, Option<Effects>) {
    match report.end {
        RunEnd::Completed(result) => {
            (serde_json::from_slice(&result).unwrap(), report.effects.map(|effects| *effects))
        }
        other => panic!("it did not complete: {other:?}"),
    }
}

#[track_caller]
fn failed(report: &RunReport) -> (Reason, &str) {
    assert_eq!(report.effects, None, "what failed leaves nothing");
    match &report.end {
        RunEnd::Failed { reason, message, .. } | RunEnd::Permanent { reason, message } => (*reason, message),
        other => panic!("it did not fail: {other:?}"),
    }
}

#[test]
fn children_come_as_they_were_asked_for_and_know_where_they_come_from() {
    let mut bed = bed(&[]);
    bed.meta = vec![(META_DEPTH.to_owned(), "1".to_owned())];
    let script = json!({"strict": true, "steps": [
        {"do": "enqueue", "kind": "part", "payload": {"a": 1}, "delay_ms": 300, "id": "mine", "queue": "other", "high": true,
         "max_attempts": 2, "timeout_ms": 700, "meta": [["k", "v"]]},
        {"do": "enqueue", "kind": "mail.now", "text": "raw", "times": 2},
    ]});
    let (answers, effects) = completed(bed.run(&script));
    let children = effects.unwrap().children;
    let first = &children[0];
    assert_eq!(answers[0], json!(["mine"]));
    assert_eq!((first.id.as_ref().unwrap().as_str(), first.queue.as_str()), ("mine", "other"));
    assert_eq!((first.due, first.priority), (Due::In(300), Priority::High));
    assert_eq!(
        (first.max_attempts, first.timeout_ms, &first.payload[..]),
        (Some(2), Some(700), &b"{\"a\":1}"[..])
    );
    let meta = [("k", "v"), (META_DEPTH, "2"), (META_PARENT, "q1/j1")];
    assert_eq!(first.meta, meta.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!((first.traceparent.as_deref(), first.source.as_str()), (Some("00-1"), "job:reach/j1"));
    assert_eq!((children[1].queue.as_str(), &children[1].payload[..]), ("mail.now", &b"raw"[..]));
    let made: Vec<&str> = children[1..].iter().map(|child| child.id.as_ref().unwrap().as_str()).collect();
    assert_eq!(answers[1], json!(made));
    assert_ne!(made[0], made[1]);
    let (_, again) = completed(bed.run(&script));
    assert_eq!(again.unwrap().children, children, "the same run makes the same");
}

#[test]
fn state_is_read_once_changed_in_the_hand_and_checked_by_what_was_read() {
    let bed = bed(&[("n", "40"), ("name", "\"Ada\"")]);
    let script = json!({"strict": true, "steps": [
        {"do": "increment", "key": "n", "by": 1}, {"do": "increment", "key": "n", "by": 1},
        {"do": "get", "key": "name"}, {"do": "get", "key": "name"},
        {"do": "set", "key": "name", "value": "Bob"}, {"do": "get", "key": "name"},
        {"do": "delete", "key": "gone"}, {"do": "get", "key": "visits", "of": "a/b"},
    ]});
    let (answers, effects) = completed(bed.run(&script));
    assert_eq!(json!(answers), json!([41, 42, "Ada", "Ada", null, "Bob", null, null]));
    let state = effects.unwrap().state.unwrap();
    assert_eq!(state.bucket.as_str(), "shop");
    assert_eq!(state.reads, [("a%2Fb/visits".to_owned(), 0), ("name".to_owned(), 7)]);
    let changes = [
        ("gone", StateChange::Delete),
        ("n", StateChange::Add(2)),
        ("name", StateChange::Set("\"Bob\"".into())),
    ];
    assert_eq!(state.changes, changes.map(|(key, change)| (key.to_owned(), change)));
    assert_eq!(*bed.runner.asked.lock(), 4);
}

#[test]
fn a_job_without_effects_hands_over_none_and_one_that_only_read_its_reads() {
    let bed = bed(&[]);
    assert_eq!(completed(bed.run(&json!({"steps": []}))).1, None);
    let (_, effects) = completed(bed.run(&json!({"steps": [{"do": "get", "key": "a"}]})));
    assert_eq!(effects.unwrap().state.unwrap().reads, [("a".to_owned(), 0)]);
}

#[test]
fn what_fails_leaves_nothing() {
    let bed = bed(&[]);
    let doing = [json!({"do": "enqueue", "kind": "part"}), json!({"do": "set", "key": "a", "value": 1})];
    for (last, reason) in [
        (json!({"do": "fail", "message": "no"}), Reason::Error),
        (json!({"do": "fail_for_good", "message": "no"}), Reason::Permanent),
        (json!({"do": "panic"}), Reason::Panic),
    ] {
        let steps = [doing.as_slice(), &[last]].concat();
        assert_eq!(failed(&bed.run(&json!({"steps": steps}))).0, reason);
    }
}

#[test]
fn what_is_not_granted_is_refused_with_the_line_that_is_missing() {
    let mut bed = bed(&[]);
    bed.grants = Grants::default();
    for (step, line) in [
        (json!({"do": "enqueue", "kind": "part"}), r#"reach.toml: [allow] enqueue = ["part"]"#),
        (json!({"do": "get", "key": "a"}), "reach.toml: [allow] state = true"),
        (json!({"do": "increment", "key": "a", "by": 1}), "reach.toml: [allow] state = true"),
        (json!({"do": "secret", "name": "pin"}), r#"reach.toml: [allow] secrets = ["pin"]"#),
    ] {
        // A guest that can do without may.
        let (answers, effects) = completed(bed.run(&json!({"steps": [step]})));
        let answer = answers[0].as_str().unwrap().replace(r#"\""#, "\"");
        assert!(answer.starts_with("Denied(") && answer.contains(line), "{answer}");
        assert_eq!(effects, None);
        // One that cannot fails for that.
        let report = bed.run(&json!({"strict": true, "steps": [step]}));
        let (reason, message) = failed(&report);
        assert_eq!(reason, Reason::Denied);
        assert!(message.contains(line), "{message}");
        for end in [json!({"do": "fail_for_good", "message": "so be it"}), json!({"do": "panic"})] {
            let report = bed.run(&json!({"steps": [step, end]}));
            let (reason, message) = failed(&report);
            assert_eq!(reason, Reason::Denied);
            assert!(message.contains(line), "{message}");
        }
    }
}

#[test]
fn a_secret_is_read_only_where_the_manifest_says_so() {
    let bed = bed(&[]);
    let steps = json!([{"do": "secret", "name": "readable"}, {"do": "secret", "name": "injected"}]);
    let (answers, _) = completed(bed.run(&json!({"steps": steps})));
    assert_eq!(answers[0], "hush");
    let refusal = answers[1].as_str().unwrap();
    assert!(refusal.starts_with("Denied(") && !refusal.contains("never seen"), "{refusal}");
}

#[test]
fn bounds_are_told_and_are_the_reason_of_a_failure() {
    let mut bed = bed(&[]);
    let many = json!({"do": "enqueue", "kind": "part", "times": 11});
    let report = bed.run(&json!({"strict": true, "steps": [many]}));
    let (reason, message) = failed(&report);
    assert_eq!(reason, Reason::Denied);
    assert!(message.contains("at most 10 jobs"), "{message}");
    bed.meta = vec![(META_DEPTH.to_owned(), "3".to_owned())];
    let report = bed.run(&json!({"strict": true, "steps": [{"do": "enqueue", "kind": "part"}]}));
    let (reason, message) = failed(&report);
    assert_eq!(reason, Reason::Denied);
    assert!(message.contains("3 jobs away"), "{message}");
    // What is wrong of itself is no denial.
    let steps = json!([{"do": "enqueue", "kind": "mail.x", "id": " "}]);
    assert_eq!(
        failed(&bed.run(&json!({"strict": true, "steps": steps}))).0,
        Reason::Denied,
        "the depth comes first"
    );
    bed.meta.clear();
    let report = bed.run(&json!({"strict": true, "steps": steps}));
    let (reason, message) = failed(&report);
    assert_eq!(reason, Reason::Error);
    assert!(message.contains("invalid id"), "{message}");
}

#[test]
fn progress_is_told_at_once_and_fit_to_be_shown() {
    let bed = bed(&[]);
    let long = "é".repeat(5_000);
    let steps = json!([
        {"do": "progress", "percent": 7, "message": "line\u{1b}[31m\nline"},
        {"do": "progress", "percent": 250, "message": long},
        {"do": "fail", "message": "no"},
    ]);
    failed(&bed.run(&json!({"steps": steps})));
    let told = bed.runner.told.lock();
    assert_eq!((told[0].percent, told[0].message.as_str()), (7, "line [31m line"));
    assert_eq!(told[1].percent, 100);
    assert!(told[1].message.len() <= 500 && told[1].message.ends_with("(cut)"), "{}", told[1].message);
}

#[test]
fn calls_of_the_host_are_bounded() {
    let bed = bed(&[]);
    let ask = |times: u64| json!({"steps": [{"do": "ask_cancelled", "times": times}]});
    assert_eq!(completed(bed.run(&ask(HOST_CALLS_MAX))).0, [json!(false)]);
    let report = bed.run(&ask(HOST_CALLS_MAX + 1));
    let (reason, message) = failed(&report);
    assert_eq!(reason, Reason::Denied);
    assert!(message.contains("10000000 host calls"), "{message}");
}

#[test]
fn a_store_that_does_not_answer_holds_nobody_beyond_its_time_out() {
    let mut bed = bed(&[]);
    bed.runner = Arc::new(Runner { silent: true, ..Runner::default() });
    bed.timeout_ms = 300;
    let report = bed.run(&json!({"steps": [{"do": "get", "key": "a"}]}));
    assert_eq!(failed(&report).0, Reason::Timeout);
}

/// Runs a script that tells its progress first, and gives the signal then.
fn stopped_once_it_runs(bed: &Bed, steps: &[Value], why: Stop) -> RunReport {
    let first = json!({"do": "progress", "percent": 1, "message": "runs"});
    let steps = [&[first], steps].concat();
    in_a_guest_runtime(async {
        let script = json!({"steps": steps});
        let cancel = async {
            bed.runner.heard.notified().await;
            bed.stop.stop(why);
        };
        // Far below its time-out of 20 s.
        let both = async { tokio::join!(bed.start(&script), cancel).0 };
        tokio::time::timeout(Duration::from_secs(10), both).await.expect("it ends")
    })
}

#[test]
fn a_guest_that_asks_ends_itself_and_is_cancelled_whatever_it_returns() {
    for nap_ms in [None, Some(20)] {
        for end in
            [json!({"do": "set", "key": "a", "value": 1}), json!({"do": "fail", "message": "tidied up"})]
        {
            let bed = bed(&[]);
            let asks = json!({"do": "until_cancelled", "nap_ms": nap_ms});
            let report = stopped_once_it_runs(&bed, &[asks, end], Stop::Cancel);
            assert_eq!((report.end, report.effects), (RunEnd::Cancelled, None));
            assert_eq!(bed.log.text(), "INFO told\n", "it ended by itself");
        }
    }
}

#[test]
fn a_guest_that_asked_and_does_not_end_is_stopped_all_the_same() {
    for rest in [json!({"do": "spin"}), json!({"do": "sleep", "ms": 19_000})] {
        let bed = bed(&[]);
        let steps = [json!({"do": "until_cancelled", "nap_ms": 5}), rest];
        let report = stopped_once_it_runs(&bed, &steps, Stop::Cancel);
        assert_eq!(report.end, RunEnd::Cancelled);
        assert_eq!(bed.log.text(), "INFO told\n");
    }
}

#[test]
fn a_guest_that_never_asks_is_stopped_in_whatever_it_does() {
    for rest in [json!({"do": "spin"}), json!({"do": "sleep", "ms": 19_000})] {
        let report = stopped_once_it_runs(&bed(&[]), &[rest], Stop::Cancel);
        assert_eq!(report.end, RunEnd::Cancelled);
    }
}

#[test]
fn a_runner_that_stops_waits_for_nobody_who_asks() {
    let asks = json!({"do": "until_cancelled", "nap_ms": 5});
    let report = stopped_once_it_runs(&bed(&[]), &[asks], Stop::Release);
    assert!(matches!(report.end, RunEnd::Released(_)), "{:?}", report.end);
}
