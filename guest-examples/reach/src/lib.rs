//! Does through its host what its payload says, step by step, for tests of everything that a handler may reach.
//!
//! ```json
//! {"steps": [{"do": "increment", "key": "n", "by": 2}, {"do": "enqueue", "kind": "nonce"}, {"do": "fail", "message": "no"}]}
//! ```
//!
//! The result is a list of answers, one a step. A step that was refused answers with what was said; with `"strict": true` the
//! job fails for it.

use std::thread;

use hourhand_sdk::prelude::*;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Script {
    steps: Vec<Step>,
    #[serde(default)]
    strict: bool,
}

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Step {
    Enqueue(Box<Child>),
    Get {
        key: String,
        of: Option<String>,
    },
    Set {
        key: String,
        value: Value,
    },
    Delete {
        key: String,
    },
    Increment {
        key: String,
        by: i64,
    },
    Secret {
        name: String,
    },
    Progress {
        percent: u8,
        message: String,
    },
    /// Asks so often whether it is cancelled; whether it ever was.
    AskCancelled {
        times: u64,
    },
    /// Asks until it is cancelled, at once again or after a nap. It says `told` in its log, and goes on with the next step.
    UntilCancelled {
        nap_ms: Option<u64>,
    },
    Sleep {
        ms: u64,
    },
    Spin,
    Fail {
        message: String,
    },
    FailForGood {
        message: String,
    },
    Panic,
}

#[derive(Deserialize)]
struct Child {
    kind: String,
    #[serde(default)]
    payload: Value,
    /// Bytes of these characters instead.
    text: Option<String>,
    /// So many jobs, alike.
    #[serde(default = "one")]
    times: u32,
    delay_ms: Option<u64>,
    id: Option<String>,
    queue: Option<String>,
    max_attempts: Option<u32>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    high: bool,
    #[serde(default)]
    meta: Vec<(String, String)>,
}

fn one() -> u32 {
    1
}

#[handler(timeout = "1h", max_attempts = 3, backoff = "fixed(200ms)", keep_results = true)]
fn reach(ctx: &Context, script: Script) -> Result<Vec<Value>, Failure> {
    let mut answers = Vec::new();
    for step in script.steps {
        let answer = match step {
            Step::Fail { message } => return Err(Failure::retry(message)),
            Step::FailForGood { message } => return Err(Failure::permanent(message)),
            Step::Panic => panic!("as it was told"),
            other => take(ctx, other),
        };
        answers.push(match answer {
            Ok(answer) => answer,
            Err(refused) if script.strict => return Err(refused.into()),
            Err(refused) => json!(format!("{refused:?}")),
        });
    }
    Ok(answers)
}

fn take(ctx: &Context, step: Step) -> Result<Value, Refused> {
    Ok(match step {
        Step::Enqueue(child) => enqueue(ctx, &child)?,
        Step::Get { key, of: Some(scope) } => json!(ctx.state().of(scope).get::<Value>(key)?),
        Step::Get { key, of: None } => json!(ctx.state().get::<Value>(key)?),
        Step::Set { key, value } => json!(ctx.state().set(key, &value)?),
        Step::Delete { key } => json!(ctx.state().delete(key)?),
        Step::Increment { key, by } => json!(ctx.state().increment(key, by)?),
        Step::Secret { name } => json!(ctx.secret(name)?),
        Step::Progress { percent, message } => json!(ctx.progress(percent, message)),
        Step::AskCancelled { times } => json!((0..times).any(|_| ctx.is_cancelled())),
        Step::UntilCancelled { nap_ms } => {
            while !ctx.is_cancelled() {
                nap_ms.map(milliseconds).into_iter().for_each(thread::sleep);
            }
            ctx.info("told");
            json!(true)
        }
        Step::Sleep { ms } => json!(thread::sleep(milliseconds(ms))),
        Step::Spin => loop {
            std::hint::spin_loop();
        },
        Step::Fail { .. } | Step::FailForGood { .. } | Step::Panic => json!(null),
    })
}

fn enqueue(ctx: &Context, child: &Child) -> Result<Value, Refused> {
    let mut ids = Vec::new();
    for _ in 0..child.times {
        let mut job = match &child.text {
            Some(text) => ctx.enqueue(&*child.kind, Raw(text.clone().into_bytes())),
            None => ctx.enqueue(&*child.kind, &child.payload),
        };
        job = child.delay_ms.map(milliseconds).into_iter().fold(job, |job, delay| job.delay(delay));
        job = child.id.iter().fold(job, |job, id| job.id(id));
        job = child.queue.iter().fold(job, |job, queue| job.queue(queue));
        job = child.max_attempts.into_iter().fold(job, |job, attempts| job.max_attempts(attempts));
        job = child.timeout_ms.map(milliseconds).into_iter().fold(job, |job, timeout| job.timeout(timeout));
        job = child.meta.iter().fold(job, |job, (key, value)| job.meta(key, value));
        if child.high {
            job = job.priority(Priority::High);
        }
        ids.push(job.send()?);
    }
    Ok(json!(ids))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(host: &TestHost, steps: &str) -> (Vec<Value>, hourhand_sdk::testing::TestRun) {
        let run = host.run::<reach>(format!(r#"{{"steps":{steps}}}"#));
        (run.result(), run)
    }

    #[test]
    fn every_step_answers_and_leaves_its_trace() {
        let host = TestHost::new().secret("s", "hush").state("n", &4);
        let (answers, run) = run(
            &host,
            r#"[{"do":"enqueue","kind":"a","text":"x","delay_ms":5,"id":"i","queue":"q","high":true,"meta":[["k","v"]]},
                {"do":"increment","key":"n","by":2},{"do":"get","key":"n"},{"do":"secret","name":"s"},
                {"do":"secret","name":"t"},{"do":"progress","percent":200,"message":"half"},{"do":"delete","key":"n"}]"#,
        );
        assert_eq!(answers[..4], [json!(["i"]), json!(6), json!(6), json!("hush")]);
        assert!(answers[4].as_str().unwrap().starts_with("Denied("), "{answers:?}");
        let child = &run.enqueued[0];
        assert_eq!((child.payload.as_slice(), child.due), (b"x".as_slice(), Due::In(milliseconds(5))));
        assert_eq!((child.queue.as_str(), child.priority), ("q", Priority::High));
        assert_eq!((run.progress[0].percent, run.state.len()), (100, 0));
    }

    #[test]
    fn what_failed_left_nothing() {
        let host = TestHost::new().state("n", &4);
        let run = host.run::<reach>(
            r#"{"steps":[{"do":"set","key":"n","value":5},{"do":"enqueue","kind":"a"},{"do":"fail","message":"no"}]}"#,
        );
        assert_eq!(run.outcome, Outcome::Failed(Failure::retry("no")));
        assert_eq!((run.state_value::<u64>("n"), run.enqueued.len()), (Some(4), 0));
    }

    #[test]
    fn who_was_told_is_cancelled() {
        let run = TestHost::new()
            .cancelled_after(3)
            .run::<reach>(r#"{"steps":[{"do":"until_cancelled"},{"do":"enqueue","kind":"a"}]}"#);
        assert_eq!((run.outcome, run.enqueued.len(), run.logs.len()), (Outcome::Cancelled, 0, 1));
    }
}
