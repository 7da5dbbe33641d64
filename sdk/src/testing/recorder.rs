//! The thread's host while a handler runs natively: serves what the test has set, and keeps what the handler did.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::SystemTime;

use super::http::Answers;
use super::{EnqueuedJob, LogLine, Progress, SentRequest};
use crate::enqueue::NewJob;
use crate::http::{HttpError, Response, Sent};
use crate::{Level, Refused, host};

// As a runner has them.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const META_BYTES_MAX: usize = 4 << 10;
const NAME_BYTES_MAX: usize = 128;
const ID_BYTES_MAX: usize = 200;
const ATTEMPTS_MAX: u32 = 1_000;
const KEY_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 64 << 10;

pub(super) struct Recorder {
    now: Option<SystemTime>,
    secrets: BTreeMap<String, String>,
    cancelled_after: Option<u32>,
    asked: Cell<u32>,
    answers: Answers,
    pub(super) logs: RefCell<Vec<LogLine>>,
    pub(super) progress: RefCell<Vec<Progress>>,
    pub(super) enqueued: RefCell<Vec<EnqueuedJob>>,
    pub(super) requests: RefCell<Vec<SentRequest>>,
    pub(super) state: RefCell<BTreeMap<String, Vec<u8>>>,
}

impl Recorder {
    pub(super) fn new(
        now: Option<SystemTime>,
        state: BTreeMap<String, Vec<u8>>,
        secrets: BTreeMap<String, String>,
        cancelled_after: Option<u32>,
        answers: Answers,
    ) -> Self {
        Self {
            now,
            secrets,
            cancelled_after,
            asked: Cell::new(0),
            answers,
            logs: RefCell::default(),
            progress: RefCell::default(),
            enqueued: RefCell::default(),
            requests: RefCell::default(),
            state: RefCell::new(state),
        }
    }

    /// Whether the handler has heard that it is cancelled.
    pub(super) fn has_told_cancelled(&self) -> bool {
        self.cancelled_after.is_some_and(|after| self.asked.get() > after)
    }
}

impl host::Host for Recorder {
    fn log(&self, level: Level, message: &str) {
        self.logs.borrow_mut().push(LogLine { level, message: message.to_owned() });
    }

    fn now(&self) -> SystemTime {
        #[allow(clippy::disallowed_methods, reason = "a test host without a set time has the system's")]
        self.now.unwrap_or_else(SystemTime::now)
    }

    fn progress(&self, percent: u8, message: &str) {
        self.progress.borrow_mut().push(Progress { percent, message: message.to_owned() });
    }

    fn is_cancelled(&self) -> bool {
        self.asked.set(self.asked.get().saturating_add(1));
        self.has_told_cancelled()
    }

    fn secret(&self, name: &str) -> Result<String, Refused> {
        let denied =
            || Refused::Denied(format!("secret {name:?}: the test grants none, see TestHost::secret"));
        self.secrets.get(name).cloned().ok_or_else(denied)
    }

    fn enqueue(&self, job: NewJob) -> Result<String, Refused> {
        check(&job)?;
        let mut enqueued = self.enqueued.borrow_mut();
        let id = job.id.unwrap_or_else(|| format!("child-{}", enqueued.len()));
        enqueued.push(EnqueuedJob {
            id: id.clone(),
            queue: job.queue.unwrap_or_else(|| job.kind.clone()),
            kind: job.kind,
            priority: job.priority,
            due: job.due,
            max_attempts: job.max_attempts,
            timeout: job.timeout,
            meta: job.meta,
            payload: job.payload,
        });
        Ok(id)
    }

    fn http(&self, sent: &Sent) -> Result<Response, HttpError> {
        let request = SentRequest::of(sent);
        self.requests.borrow_mut().push(request.clone());
        self.answers.answer(sent, &request)
    }

    fn state_get(&self, key: &str) -> Result<Option<Vec<u8>>, Refused> {
        check_key(key)?;
        Ok(self.state.borrow().get(key).cloned())
    }

    fn state_put(&self, key: &str, value: Option<&[u8]>) -> Result<(), Refused> {
        check_key(key)?;
        match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => {
                return Err(Refused::Limit(format!(
                    "state entry {key:?} of {} bytes: expected at most {VALUE_BYTES_MAX}",
                    value.len()
                )));
            }
            Some(value) => self.state.borrow_mut().insert(key.to_owned(), value.to_vec()),
            None => self.state.borrow_mut().remove(key),
        };
        Ok(())
    }

    fn state_increment(&self, key: &str, by: i64) -> Result<i64, Refused> {
        check_key(key)?;
        let mut state = self.state.borrow_mut();
        let old = match state.get(key) {
            None => 0,
            Some(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or_else(|| invalid(format!("state entry {key:?} is no whole number of 64 bits")))?,
        };
        let new = old
            .checked_add(by)
            .ok_or_else(|| invalid(format!("state entry {key:?}: {old} + {by} does not fit into 64 bits")))?;
        state.insert(key.to_owned(), new.to_string().into_bytes());
        Ok(new)
    }
}

fn invalid(text: String) -> Refused {
    Refused::Invalid(text)
}

fn check(job: &NewJob) -> Result<(), Refused> {
    for name in [Some(&job.kind), job.queue.as_ref()].into_iter().flatten() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || !name.chars().all(plain)
            || name.starts_with(['.', '-'])
        {
            return Err(invalid(format!(
                "invalid name {name:?}: expected 1 to {NAME_BYTES_MAX} characters of A-Z a-z 0-9 _ . -, the first a letter, a digit or _"
            )));
        }
    }
    if let Some(id) = &job.id
        && (id.is_empty() || id.len() > ID_BYTES_MAX || id.trim() != id || id.chars().any(char::is_control))
    {
        return Err(invalid(format!(
            "invalid id {id:?}: expected 1 to {ID_BYTES_MAX} bytes of UTF-8, no control characters, no white space at either end"
        )));
    }
    if let Some(attempts) = job.max_attempts
        && !(1..=ATTEMPTS_MAX).contains(&attempts)
    {
        return Err(invalid(format!("max_attempts of {attempts}: expected 1 to {ATTEMPTS_MAX}")));
    }
    let (payload, meta) = (job.payload.len(), job.meta.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>());
    for (what, got, max) in [("payload", payload, PAYLOAD_BYTES_MAX), ("meta", meta, META_BYTES_MAX)] {
        if got > max {
            return Err(invalid(format!("{what} of {got} bytes: expected at most {max}")));
        }
    }
    Ok(())
}

fn check_key(key: &str) -> Result<(), Refused> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        return Err(invalid(format!(
            "invalid state key {key:?}: expected 1 to {KEY_BYTES_MAX} bytes of UTF-8 without control characters"
        )));
    }
    Ok(())
}
