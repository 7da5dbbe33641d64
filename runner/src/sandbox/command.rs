//! A plain WASI command, in any language, as a handler: the payload on stdin, the result on stdout, the log on
//! stderr, and an exit code for the outcome. The job's facts are in `HOURHAND_*` variables.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

use crate::outcome::{MESSAGE_BYTES_MAX, Reason, RunEnd, capped};
use crate::wire::units::rfc3339;

use super::GuestJob;
use super::log::JobLog;

/// Trying again may help, says the handler: `EX_TEMPFAIL` of sysexits.h.
const EXIT_RETRY: i32 = 75;
/// Trying again cannot help: `EX_DATAERR` of sysexits.h.
const EXIT_PERMANENT: i32 = 65;
/// What a command may write at once, in bytes: also what the host allocates for it.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Lines of stderr that stand for what the command says of its failure.
const LAST_WORDS_LINES: usize = 4;

/// What one command is started with, and what it wrote to stdout.
pub(super) struct Command {
    name: String,
    variables: Vec<(String, String)>,
    payload: Bytes,
    stdout: Stdout,
}

impl Command {
    /// The command of the file stem `name` for `job`, which is stopped at `deadline_ms` (since 1970).
    pub(super) fn new(name: &str, job: &GuestJob, deadline_ms: u64, output_bytes_max: usize) -> Self {
        Self {
            name: name.to_owned(),
            variables: variables(job, deadline_ms),
            payload: job.payload.clone(),
            stdout: Stdout { kept: Arc::default(), bytes_max: output_bytes_max },
        }
    }

    /// Its arguments, variables, stdin and stdout; stderr stays with the log.
    pub(super) fn set_up(&self, wasi: &mut WasiCtxBuilder) {
        wasi.arg(&self.name)
            .envs(&self.variables)
            .stdin(MemoryInputPipe::new(self.payload.clone()))
            .stdout(self.stdout.clone());
    }

    /// What a command that ended with this exit code ended in.
    pub(super) fn ended(&self, code: i32, log: &JobLog) -> RunEnd {
        let said = |otherwise: String| capped(last_words(log).unwrap_or(otherwise), MESSAGE_BYTES_MAX);
        match code {
            0 => RunEnd::Completed(Bytes::from(std::mem::take(&mut *self.stdout.kept.lock()))),
            EXIT_RETRY => RunEnd::Failed {
                reason: Reason::Error,
                message: said(format!("exit code {code}: try again later")),
                after_ms: None,
            },
            EXIT_PERMANENT => RunEnd::Permanent {
                reason: Reason::Permanent,
                message: said(format!("exit code {code}: trying again cannot help")),
            },
            code => {
                let words = last_words(log).map(|words| format!(": {words}")).unwrap_or_default();
                let message = capped(format!("exit code {code}{words}"), MESSAGE_BYTES_MAX);
                RunEnd::Failed { reason: Reason::Exit, message, after_ms: None }
            }
        }
    }
}

/// What a command wrote to stderr last, if it wrote anything: all that it has to say of its failure.
pub(super) fn last_words(log: &JobLog) -> Option<String> {
    let text = log.text();
    let mut lines: Vec<&str> =
        text.lines().rev().filter(|line| !line.trim().is_empty()).take(LAST_WORDS_LINES).collect();
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join("\n").trim_start().to_owned())
}

/// The job's facts, each name once.
fn variables(job: &GuestJob, deadline_ms: u64) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = [
        ("ID", job.id.clone()),
        ("KIND", job.kind.clone()),
        ("QUEUE", job.queue.clone()),
        ("ATTEMPT", job.attempt.to_string()),
        ("MAX_ATTEMPTS", job.max_attempts.to_string()),
        ("ENQUEUED_AT", rfc3339(job.enqueued_ms)),
        ("DUE_AT", rfc3339(job.due_ms)),
        ("DEADLINE", rfc3339(deadline_ms)),
        ("META", meta_as_json(&job.meta)),
    ]
    .into_iter()
    .map(|(name, value)| (format!("HOURHAND_{name}"), value))
    .collect();
    let facts = job.facts.iter().map(|(key, value)| (format!("HOURHAND_{}", shouted(key)), value.clone()));
    let meta = job.meta.iter().map(|(key, value)| (format!("HOURHAND_META_{}", shouted(key)), value.clone()));
    variables.extend(facts.chain(meta));
    // Two keys may come to one name; `HOURHAND_META` has both.
    let mut seen = BTreeSet::new();
    variables.retain(|(name, _)| seen.insert(name.clone()));
    variables
}

/// A key as part of a variable's name.
fn shouted(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn meta_as_json(meta: &[(String, String)]) -> String {
    let object: serde_json::Map<String, serde_json::Value> =
        meta.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    serde_json::Value::Object(object).to_string()
}

/// A command wrote more to stdout than a result may have.
#[derive(Debug, thiserror::Error)]
#[error("more on stdout than a result may have")]
pub(super) struct OutputFull;

/// A command's stdout: kept as its result. What goes over the limit ends the command, for nothing that it could still do
/// would make the result smaller.
#[derive(Clone)]
struct Stdout {
    kept: Arc<Mutex<Vec<u8>>>,
    bytes_max: usize,
}

impl Stdout {
    fn keep(&self, bytes: &[u8]) -> Result<(), OutputFull> {
        let mut kept = self.kept.lock();
        if bytes.len() > self.bytes_max.saturating_sub(kept.len()) {
            return Err(OutputFull);
        }
        kept.extend_from_slice(bytes);
        Ok(())
    }
}

impl IsTerminal for Stdout {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stdout {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Stdout {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.keep(&bytes).map_err(|full| StreamError::Trap(full.into()))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[async_trait::async_trait]
impl Pollable for Stdout {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Stdout {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(self.keep(bytes).map(|()| bytes.len()).map_err(std::io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(meta: &[(&str, &str)]) -> GuestJob {
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        GuestJob {
            id: "order-7".to_owned(),
            kind: "k".to_owned(),
            queue: "q".to_owned(),
            attempt: 2,
            max_attempts: 5,
            enqueued_ms: 0,
            due_ms: 1_500,
            meta: pairs(meta),
            facts: pairs(&[("traceparent", "00-a-b-01"), ("id", "of another")]),
            payload: Bytes::new(),
            incarnation: super::super::Incarnation {
                record: 1,
                session: std::sync::Arc::from("s"),
                token: 1,
            },
        }
    }

    #[test]
    fn facts_and_meta_are_variables_and_each_name_comes_once() {
        let job = job(&[("tenant", "t1"), ("ten.ant", "a"), ("TEN-ANT", "b"), ("q\"", "\n")]);
        let variables = variables(&job, 61_000);
        let of = |name: &str| {
            let found: Vec<&str> = variables.iter().filter(|v| v.0 == name).map(|v| v.1.as_str()).collect();
            assert!(found.len() <= 1, "{name}: {found:?}");
            found.first().copied()
        };
        for (name, value) in [
            ("HOURHAND_ID", "order-7"),
            ("HOURHAND_KIND", "k"),
            ("HOURHAND_QUEUE", "q"),
            ("HOURHAND_ATTEMPT", "2"),
            ("HOURHAND_MAX_ATTEMPTS", "5"),
            ("HOURHAND_ENQUEUED_AT", "1970-01-01T00:00:00.000Z"),
            ("HOURHAND_DUE_AT", "1970-01-01T00:00:01.500Z"),
            ("HOURHAND_DEADLINE", "1970-01-01T00:01:01.000Z"),
            ("HOURHAND_TRACEPARENT", "00-a-b-01"),
            ("HOURHAND_META_TENANT", "t1"),
            ("HOURHAND_META_TEN_ANT", "a"),
            ("HOURHAND_META_Q_", "\n"),
        ] {
            assert_eq!(of(name), Some(value), "{name}");
        }
        let meta: serde_json::Value = serde_json::from_str(of("HOURHAND_META").unwrap()).unwrap();
        assert_eq!(meta["TEN-ANT"], "b");
        assert_eq!(meta["q\""], "\n");
    }

    #[test]
    fn the_last_words_are_the_last_lines_with_something_on_them() {
        let log = JobLog::new(1_000);
        assert_eq!(last_words(&log), None);
        log.print(b"\n \n");
        assert_eq!(last_words(&log), None);
        log.print(b"one\ntwo\nthree\n\nfour\n  five\n\n");
        assert_eq!(last_words(&log).as_deref(), Some("two\nthree\nfour\n  five"));
    }

    #[test]
    fn stdout_is_kept_up_to_its_limit() {
        let stdout = Stdout { kept: Arc::default(), bytes_max: 5 };
        assert!(stdout.keep(b"abc").is_ok() && stdout.keep(b"de").is_ok() && stdout.keep(b"").is_ok());
        assert!(stdout.keep(b"f").is_err());
        assert_eq!(*stdout.kept.lock(), b"abcde");
    }
}
