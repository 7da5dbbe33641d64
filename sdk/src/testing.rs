//! Run handlers natively, under plain `cargo test`.
//!
//! A [`TestHost`] stands in for the runner: it says what the handler sees of its job and what time it
//! is, serves its state and its secrets, and keeps what it logged, enqueued and remembered. What a runner adds around it (the
//! manifest, time-outs, memory limits, retries) is not there.
//!
//! ```
//! use hourhand_sdk::prelude::*;
//!
//! #[handler]
//! fn greet(ctx: &Context, name: String) -> Result<String, Failure> {
//!     match ctx.meta("language") {
//!         Some("de") => Ok(format!("Guten Tag, {name}!")),
//!         Some(other) => Err(Failure::permanent(format_args!("no greeting in {other}"))),
//!         None => Ok(format!("Hello, {name}!")),
//!     }
//! }
//!
//! // From bytes to bytes, as the runner does it:
//! let run = TestHost::new().meta("language", "de").run::<greet>(r#""Ada""#);
//! assert_eq!(run.result::<String>(), "Guten Tag, Ada!");
//!
//! // What happens to a payload of another shape:
//! let run = TestHost::new().run::<greet>("17");
//! assert!(matches!(run.outcome, Outcome::Failed(Failure::Decode(_))));
//!
//! // Or just the function, with values:
//! let greeting = TestHost::new().enter(|ctx| greet(ctx, "Bob".to_owned()));
//! assert_eq!(greeting, Ok("Hello, Bob!".to_owned()));
//! ```

mod http;
mod recorder;
mod run;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::{Context, Handler, host};

pub use http::{Answer, SentRequest};
pub use run::{EnqueuedJob, LogLine, Outcome, Progress, TestRun};

use recorder::Recorder;
use run::read;

/// What the job's time-out is until [`TestHost::timeout`] says otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Stands in for a runner. Every setting has a default: the first of 5 attempts of a job `test` that
/// was enqueued at its due time, which is now.
#[derive(Debug, Clone)]
pub struct TestHost {
    ctx: Context,
    kind: Option<String>,
    now: Option<SystemTime>,
    due_at: Option<SystemTime>,
    timeout: Duration,
    state: BTreeMap<String, Vec<u8>>,
    secrets: BTreeMap<String, String>,
    cancelled_after: Option<u32>,
    answers: http::Answers,
}

impl Default for TestHost {
    fn default() -> Self {
        Self::new()
    }
}

impl TestHost {
    /// A host with the defaults.
    pub fn new() -> Self {
        let ctx = Context {
            id: "test".to_owned(),
            kind: String::new(),
            queue: String::new(),
            attempt: 1,
            max_attempts: 5,
            enqueued_at: SystemTime::UNIX_EPOCH,
            due_at: SystemTime::UNIX_EPOCH,
            deadline: SystemTime::UNIX_EPOCH,
            meta: Vec::new(),
            facts: Vec::new(),
        };
        Self {
            ctx,
            kind: None,
            now: None,
            due_at: None,
            timeout: TIMEOUT_DEFAULT,
            state: BTreeMap::new(),
            secrets: BTreeMap::new(),
            cancelled_after: None,
            answers: http::Answers::default(),
        }
    }

    /// Sets the job's id.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.ctx.id = id.into();
        self
    }

    /// Sets the job's kind; by default that of the handler that runs.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Sets the job's queue; by default its kind's name.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.ctx.queue = queue.into();
        self
    }

    /// Sets which attempt it is, counted from 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.ctx.attempt = attempt;
        self
    }

    /// Sets how many attempts the job has.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.ctx.max_attempts = max_attempts;
        self
    }

    /// Attaches a piece of meta data.
    #[must_use]
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.ctx.meta.push((key.into(), value.into()));
        self
    }

    /// Sets the trace context.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.ctx.facts.push(("traceparent".to_owned(), traceparent.into()));
        self
    }

    /// Stops the handler's clock ([`Context::now`]) at `now`; by default it is the system's.
    #[must_use]
    pub fn now(mut self, now: SystemTime) -> Self {
        self.now = Some(now);
        self
    }

    /// Sets when the job was to start, which is also when it was enqueued; by default now.
    #[must_use]
    pub fn due_at(mut self, due_at: SystemTime) -> Self {
        self.due_at = Some(due_at);
        self
    }

    /// Sets how far away the deadline is. Nothing stops a handler that takes longer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Puts a value, written as JSON, into the state that the handler finds.
    ///
    /// # Panics
    /// When it cannot be written as JSON: the test has failed.
    #[must_use]
    pub fn state<T: Serialize + ?Sized>(self, key: impl Into<String>, value: &T) -> Self {
        let key = key.into();
        let bytes = serde_json::to_vec(value).unwrap_or_else(|error| panic!("state {key:?}: {error}"));
        self.state_bytes(key, bytes)
    }

    /// Puts bytes into the state that the handler finds.
    #[must_use]
    pub fn state_bytes(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// Lets the handler read a secret. All others are denied.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// Answers the handler's HTTP requests. Without this, all are denied.
    ///
    /// ```
    /// use hourhand_sdk::prelude::*;
    ///
    /// #[handler]
    /// fn notify(ctx: &Context, url: String) -> Result<u16, Failure> {
    ///     Ok(ctx.http().post(&url).json("hello").send()?.error_for_status()?.status())
    /// }
    ///
    /// let up = TestHost::new().http(|request| match request.method.as_str() {
    ///     "POST" => Answer::new(202),
    ///     _ => Answer::new(405),
    /// });
    /// let run = up.run::<notify>(r#""https://example.com/in""#);
    /// assert_eq!(run.requests[0].read::<String>(), "hello");
    ///
    /// let away = TestHost::new().http(|_| Answer::failed(HttpError::TimedOut("no answer".into())));
    /// let run = away.run::<notify>(r#""https://example.com/in""#);
    /// assert_eq!(run.outcome, Outcome::Failed(Failure::retry("no answer")));
    /// ```
    #[must_use]
    pub fn http(mut self, answers: impl Fn(&SentRequest) -> Answer + 'static) -> Self {
        self.answers = http::Answers::new(answers);
        self
    }

    /// Cancels the job: [`Context::is_cancelled`] says no so many times, and then yes.
    #[must_use]
    pub fn cancelled_after(mut self, asked: u32) -> Self {
        self.cancelled_after = Some(asked);
        self
    }
}

impl TestHost {
    /// Runs the handler `H` as a runner does: from the payload's bytes to the result's.
    pub fn run<H: Handler>(&self, payload: impl Into<Vec<u8>>) -> TestRun {
        let ctx = self.context(H::KIND);
        let recorder = self.recorder();
        let caught = host::entered(recorder.clone(), || {
            catch_unwind(AssertUnwindSafe(|| H::run(&ctx, payload.into())))
        });
        let outcome = match caught {
            _ if recorder.has_told_cancelled() => Outcome::Cancelled,
            Ok(Ok(result)) => Outcome::Completed(result),
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(panic) => Outcome::Panicked(text(panic.as_ref())),
        };
        let completed = matches!(outcome, Outcome::Completed(_));
        TestRun {
            logs: recorder.logs.take(),
            progress: recorder.progress.take(),
            requests: recorder.requests.take(),
            enqueued: if completed { recorder.enqueued.take() } else { Vec::new() },
            state: if completed { recorder.state.take() } else { self.state.clone() },
            outcome,
        }
    }

    /// Calls `work` with a context, and with this host behind it.
    pub fn enter<T>(&self, work: impl FnOnce(&Context) -> T) -> T {
        let ctx = self.context("test");
        host::entered(self.recorder(), || work(&ctx))
    }

    fn recorder(&self) -> Rc<Recorder> {
        Rc::new(Recorder::new(
            self.now,
            self.state.clone(),
            self.secrets.clone(),
            self.cancelled_after,
            self.answers.clone(),
        ))
    }

    fn context(&self, kind: &str) -> Context {
        let mut ctx = self.ctx.clone();
        ctx.kind = self.kind.clone().unwrap_or_else(|| kind.to_owned());
        if ctx.queue.is_empty() {
            ctx.queue.clone_from(&ctx.kind);
        }
        #[allow(clippy::disallowed_methods, reason = "a test host without a set time has the system's")]
        let now = self.now.unwrap_or_else(SystemTime::now);
        ctx.due_at = self.due_at.unwrap_or(now);
        ctx.enqueued_at = ctx.due_at;
        ctx.deadline = now + self.timeout;
        ctx
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}
