//! A case: a file of TOML that says what a job gets, and what must come of it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::local::answers::{self, AnswerSaid, Answers};
use crate::cli::local::content;
use crate::cli::local::state;
use crate::cli::local::trial::TrialJob;
use crate::job::PAYLOAD_BYTES_MAX;
use crate::names::{JobId, Name};
use crate::outcome::Reason;
use crate::wire::units;

/// Largest file of a case, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A case as it was read.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The file's name without `.toml`.
    pub(super) name: String,
    /// Its file.
    pub(super) file: PathBuf,
    /// The file's text.
    pub(super) text: String,
    /// The handler; the only one when none.
    pub(super) kind: Option<Name>,
    /// What it gets.
    pub(super) job: TrialJob,
    /// What must come of it.
    pub(super) expect: Option<Expect>,
}

/// What the file may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    kind: Option<Name>,
    id: Option<JobId>,
    queue: Option<Name>,
    attempt: Option<u32>,
    max_attempts: Option<u32>,
    timeout: Option<String>,
    due: Option<String>,
    #[serde(default)]
    meta: Map<String, Value>,
    payload: Option<Value>,
    payload_text: Option<String>,
    payload_base64: Option<String>,
    payload_file: Option<PathBuf>,
    #[serde(default)]
    state: Map<String, Value>,
    http: Option<Value>,
    expect: Option<Expect>,
}

/// What must come of a case. What is not said is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    /// The word for what becomes of the job.
    pub(super) outcome: Option<String>,
    /// The result as a value of JSON.
    pub(super) result: Option<Value>,
    /// The result as text; where both are JSON, they are compared as values.
    pub(super) result_text: Option<String>,
    /// The result in base64.
    pub(super) result_base64: Option<String>,
    /// Why it failed.
    pub(super) reason: Option<String>,
    /// What the message contains.
    pub(super) message: Option<String>,
    /// How long it waits, its jitter aside.
    pub(super) delay: Option<String>,
    /// What is enqueued with its completion, in order: kinds, or what is to be so of each job.
    pub(super) enqueued: Option<Vec<Value>>,
    /// The HTTP requests that it makes, in order: method and URL.
    pub(super) requests: Option<Vec<String>>,
    /// What the log contains.
    #[serde(default)]
    pub(super) logs: Vec<String>,
    /// The whole state after it.
    pub(super) state: Option<Map<String, Value>>,
}

/// The words of outcomes that a run can have.
const OUTCOMES: [&str; 5] = ["completed", "retry", "dead", "snoozed", "released"];

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// The file, what is wrong in it, and where.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let wrong = |message: String| format!("{}: {}", file.display(), message.trim_end());
        let facts = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if facts.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes, got {}", facts.len())));
        }
        let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
        Self::parse(file, text).map_err(wrong)
    }

    /// The case that this text is.
    ///
    /// # Errors
    /// What is wrong in it, and where.
    pub(super) fn parse(file: &Path, text: String) -> Result<Self, String> {
        let said: CaseFile = toml::from_str(&text).map_err(|error| error.to_string())?;
        if let Some(expect) = &said.expect {
            expect.check()?;
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let timeout_ms = said.timeout.as_deref().map(units::duration_ms).transpose();
        let due_ms = said.due.as_deref().map(units::instant_ms).transpose();
        let job = TrialJob {
            id: said.id.clone().map_or_else(|| JobId::new("test-1"), Ok).map_err(|e| e.to_string())?,
            queue: said.queue.clone(),
            attempt: said.attempt.unwrap_or(1),
            max_attempts: said.max_attempts,
            timeout_ms: timeout_ms.map_err(|e| format!("timeout: {e}"))?,
            due_ms: due_ms.map_err(|e| format!("due: {e}"))?,
            meta: said.meta()?,
            payload: said.payload(file.parent().unwrap_or(Path::new("")))?,
            state: state::entries(&said.state)?,
            http: Some(said.answers(file.parent().unwrap_or(Path::new("")))?),
        };
        Ok(Self { name, file: file.to_owned(), text, kind: said.kind, job, expect: said.expect })
    }
}

impl CaseFile {
    fn meta(&self) -> Result<Vec<(String, String)>, String> {
        let text = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(format!("meta: expected a text for {key:?}, got {other}")),
        };
        self.meta.iter().map(text).collect()
    }

    /// A case reaches no network: what nothing answers fails.
    fn answers(&self, folder: &Path) -> Result<Vec<AnswerSaid>, String> {
        match &self.http {
            None => Ok(Vec::new()),
            Some(Value::String(file)) => answers::read(&folder.join(file)),
            Some(Value::Array(tables)) => {
                let read =
                    |table: &Value| AnswerSaid::deserialize(table).map_err(|error| format!("http: {error}"));
                let said = tables.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                Answers::new(&said).map(|_| said)
            }
            Some(other) => Err(format!("http: expected a file's name, or tables [[http]], got {other}")),
        }
    }

    fn payload(&self, folder: &Path) -> Result<Bytes, String> {
        let payloads: Vec<Result<Bytes, String>> = [
            self.payload.as_ref().map(|value| Ok(Bytes::from(value.to_string()))),
            self.payload_text.clone().map(|text| Ok(Bytes::from(text))),
            self.payload_base64
                .as_ref()
                .map(|text| content::from_base64(text).map_err(|e| format!("payload_base64: {e}"))),
            self.payload_file.as_ref().map(|file| read_payload(&folder.join(file))),
        ]
        .into_iter()
        .flatten()
        .collect();
        match payloads.len() {
            0 => Ok(Bytes::new()),
            1 => payloads.into_iter().next().expect("there is one"),
            _ => Err("expected one of payload, payload_text, payload_base64 and payload_file, got several"
                .to_owned()),
        }
    }
}

fn read_payload(file: &Path) -> Result<Bytes, String> {
    let wrong = |message: String| format!("payload_file: {}: {message}", file.display());
    let facts = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
    if facts.len() > PAYLOAD_BYTES_MAX as u64 {
        return Err(wrong(format!(
            "expected at most {PAYLOAD_BYTES_MAX} bytes (1 MiB), got {}",
            facts.len()
        )));
    }
    std::fs::read(file).map(Bytes::from).map_err(|error| wrong(error.to_string()))
}

impl Expect {
    /// Refuses what could never be, so that a slip of the pen is not taken for a failure of the handler.
    fn check(&self) -> Result<(), String> {
        let Some(outcome) = &self.outcome else {
            return Err(format!("expect: outcome is missing: expected one of {}", OUTCOMES.join(", ")));
        };
        if !OUTCOMES.contains(&outcome.as_str()) {
            return Err(format!("expect.outcome: expected one of {}, got {outcome:?}", OUTCOMES.join(", ")));
        }
        if let Some(reason) = &self.reason {
            Reason::from_str(reason).map_err(|_| {
                let all: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
                format!("expect.reason: expected one of {}, got {reason:?}", all.join(", "))
            })?;
        }
        if let Some(delay) = &self.delay {
            units::duration_ms(delay).map_err(|error| format!("expect.delay: {error}"))?;
        }
        if let Some(text) = &self.result_base64 {
            content::from_base64(text).map_err(|error| format!("expect.result_base64: {error}"))?;
        }
        if let Some(state) = &self.state {
            state::entries(state).map_err(|error| format!("expect.state: {error}"))?;
        }
        let results = [self.result.is_some(), self.result_text.is_some(), self.result_base64.is_some()];
        if results.iter().filter(|given| **given).count() > 1 {
            return Err(
                "expect: expected one of result, result_text and result_base64, got several".to_owned()
            );
        }
        for job in self.enqueued.iter().flatten() {
            if !job.is_string() && !job.is_object() {
                return Err(format!("expect.enqueued: expected kinds or tables, got {job}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Case, String> {
        Case::parse(Path::new("fixtures/hello.toml"), text.to_owned())
    }

    #[test]
    fn a_case_is_read() {
        let case = parsed(
            "payload = { name = \"Ada\" }\nattempt = 2\ntimeout = \"1s\"\n[meta]\na = \"b\"\n[state]\nvisits = 3\n\
             [expect]\noutcome = \"retry\"\nreason = \"error\"\ndelay = \"15s\"\n",
        )
        .expect("a case");
        assert_eq!((case.name.as_str(), &case.job.payload[..]), ("hello", &b"{\"name\":\"Ada\"}"[..]));
        assert_eq!((case.job.attempt, case.job.timeout_ms), (2, Some(1_000)));
        assert_eq!(case.job.meta, [("a".to_owned(), "b".to_owned())]);
        assert_eq!(&case.job.state["visits"][..], b"3");
        let expect = case.expect.expect("expectations");
        assert_eq!((expect.outcome.as_deref(), expect.reason.as_deref()), (Some("retry"), Some("error")));
        assert_eq!(&parsed("payload_text = ' x'").expect("a case").job.payload[..], b" x");
        assert_eq!(&parsed("payload_base64 = '/w=='").expect("a case").job.payload[..], b"\xff");
        assert!(parsed("").expect("a case").job.payload.is_empty());
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, part) in [
            ("pay = 1", "unknown field `pay`"),
            ("payload = 1\npayload_text = ''", "got several"),
            ("payload_base64 = '%'", "payload_base64: expected base64"),
            ("payload_file = 'none'", "payload_file: fixtures/none"),
            ("timeout = 'soon'", "timeout: expected"),
            ("due = 'soon'", "due: expected"),
            ("meta = { a = 1 }", "expected a text for \"a\""),
            ("kind = 'a b'", "invalid name"),
            ("http = 'none'", "fixtures/none"),
            ("http = 1", "http: expected a file's name"),
            ("[[http]]\nrequest = { uri = '/' }", "http: unknown field `uri`"),
            ("[expect]", "outcome is missing"),
            ("[expect]\noutcome = 'done'", "expected one of completed, retry"),
            ("[expect]\noutcome = 'dead'\nreason = 'bad'", "expected one of error, permanent"),
            ("[expect]\noutcome = 'dead'\nnotes = 'bad'", "unknown field `notes`"),
            ("[expect]\noutcome = 'completed'\nresult = 1\nresult_text = ''", "got several"),
            ("[expect]\noutcome = 'completed'\nenqueued = [1]", "expected kinds or tables"),
        ] {
            let message = parsed(text).expect_err(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
