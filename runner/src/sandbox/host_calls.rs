//! What a running job may call of its host: the functions of `wit/job.wit`.
//!
//! Every call is counted, but for those of the log; every argument is bounded. What the guest does to the world is kept until it
//! completes.

use wasmtime::Result as Trapping;

use crate::effects::{PROGRESS_BYTES_MAX, Progress};
use crate::names::Name;
use crate::outcome::{MESSAGE_BYTES_MAX, capped};

use super::HOST_CALLS_MAX;
use super::bindings::hourhand::job::types::Refusal;
use super::bindings::hourhand::job::{host, jobs, state, types};
use super::children::not_granted;
use super::guest::{GuestState, PanicReport};
use super::remembered::{Asked, Remembered};

/// Longest path in a panic report, in bytes.
const FILE_BYTES_MAX: usize = 512;
/// Longest name that a message repeats, in bytes.
const NAME_SHOWN_BYTES: usize = 100;

/// The guest has called its host more often than it may.
#[derive(Debug, thiserror::Error)]
#[error("more than {HOST_CALLS_MAX} host calls in one attempt")]
pub(super) struct TooManyCalls;

impl types::Host for GuestState {}

impl host::Host for GuestState {
    fn log(&mut self, level: host::Level, message: String) {
        let level = match level {
            host::Level::Error => "ERROR",
            host::Level::Warn => "WARN",
            host::Level::Info => "INFO",
            host::Level::Debug => "DEBUG",
            host::Level::Trace => "TRACE",
        };
        self.log.line(level, &message);
    }

    fn report_panic(&mut self, message: String, file: String, line: u32) {
        let message = capped(message, MESSAGE_BYTES_MAX);
        self.panic = Some(PanicReport { message, file: capped(file, FILE_BYTES_MAX), line });
    }

    fn progress(&mut self, percent: u8, message: String) -> Trapping<()> {
        self.count_call()?;
        if let Some(services) = &self.offer.services {
            // It goes to terminals.
            let message = message.chars().map(|c| if c.is_control() { ' ' } else { c });
            let message = capped(message.take(PROGRESS_BYTES_MAX + 1).collect(), PROGRESS_BYTES_MAX);
            services.progress(Progress { percent: percent.min(100), message });
        }
        Ok(())
    }

    fn is_cancelled(&mut self) -> Trapping<bool> {
        self.count_call()?;
        Ok(self.stop.is_cancelled_asks_the_guest())
    }

    fn secret(&mut self, name: String) -> Trapping<Result<String, Refusal>> {
        self.count_call()?;
        let granted = self.offer.grants.secrets.iter().find(|secret| secret.name == name && secret.readable);
        let answer = match granted {
            Some(secret) => Ok(secret.value.0.clone()),
            None => Err(Refusal::Denied(format!(
                "reading the secret {0:?} needs {1}: [allow] secrets = [{0:?}]",
                capped(name, NAME_SHOWN_BYTES),
                self.manifest()
            ))),
        };
        Ok(self.noted(answer))
    }
}

impl jobs::Host for GuestState {
    fn enqueue(&mut self, job: jobs::NewJob) -> Trapping<Result<String, Refusal>> {
        self.count_call()?;
        let manifest = self.manifest();
        let answer = match (&mut self.children, &self.offer.grants.enqueue) {
            (Some(children), Some(grant)) => children.add(job, grant, &manifest),
            _ => Err(Name::new(&job.kind).map_or_else(
                |error| Refusal::Invalid(error.to_string()),
                |kind| not_granted(&kind, None, &manifest),
            )),
        };
        Ok(self.noted(answer))
    }
}

impl state::Host for GuestState {
    async fn get(&mut self, key: String) -> Trapping<Result<Option<Vec<u8>>, Refusal>> {
        self.count_call()?;
        let answer = match self.bucket() {
            Ok((bucket, services)) => bucket.get(&key, services).await,
            Err(refusal) => Err(refusal),
        };
        Ok(self.noted(answer))
    }

    async fn set(&mut self, key: String, value: Vec<u8>) -> Trapping<Result<(), Refusal>> {
        self.count_call()?;
        let answer = match self.bucket() {
            Ok((bucket, services)) => bucket.set(&key, value, services).await,
            Err(refusal) => Err(refusal),
        };
        Ok(self.noted(answer))
    }

    async fn delete(&mut self, key: String) -> Trapping<Result<(), Refusal>> {
        self.count_call()?;
        let answer = match self.bucket() {
            Ok((bucket, services)) => bucket.delete(&key, services).await,
            Err(refusal) => Err(refusal),
        };
        Ok(self.noted(answer))
    }

    async fn increment(&mut self, key: String, by: i64) -> Trapping<Result<i64, Refusal>> {
        self.count_call()?;
        let answer = match self.bucket() {
            Ok((bucket, services)) => bucket.increment(&key, by, services).await,
            Err(refusal) => Err(refusal),
        };
        Ok(self.noted(answer))
    }
}

impl GuestState {
    fn count_call(&mut self) -> Trapping<()> {
        self.calls += 1;
        if self.calls > HOST_CALLS_MAX { Err(TooManyCalls.into()) } else { Ok(()) }
    }

    /// Keeps what was refused for want of a grant: it explains why the attempt fails, should it.
    fn noted<T>(&mut self, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(Refusal::Denied(text) | Refusal::Limit(text)) = &answer {
            self.denial = Some(text.clone());
        }
        answer
    }

    fn bucket(&mut self) -> Result<(&mut Remembered, Asked<'_>), Refusal> {
        let Some(grant) = &self.offer.grants.state else {
            return Err(Refusal::Denied(format!("state needs {}: [allow] state = true", self.manifest())));
        };
        let bucket = self.remembered.get_or_insert_with(|| Box::new(Remembered::new(grant.clone())));
        Ok((bucket, self.offer.services.as_ref()))
    }
}
