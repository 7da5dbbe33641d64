//! Answers to a handler's HTTP requests, in place of the network.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{HttpError, Response, Sent};

/// An HTTP request that a handler sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRequest {
    /// As in `POST`.
    pub method: String,
    /// All of it, encoded.
    pub url: String,
    /// Names as the handler wrote them. What a runner adds (`Host`, secrets of the manifest) is not there.
    pub headers: Vec<(String, String)>,
    /// The body; empty when there is none.
    pub body: Vec<u8>,
    /// Where the handler set one.
    pub timeout: Option<Duration>,
}

impl SentRequest {
    pub(super) fn of(sent: &Sent) -> Self {
        Self {
            method: sent.method.clone(),
            url: sent.url.to_string(),
            headers: sent.headers.clone(),
            body: sent.body.clone().unwrap_or_default(),
            timeout: sent.timeout,
        }
    }

    /// The first header field of this name, in whatever case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body, read as JSON.
    ///
    /// # Panics
    /// When it is something else: the test has failed.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        super::read(&self.body, "request's body")
    }
}

/// What a server answers in a test.
#[derive(Debug, Clone)]
pub struct Answer(Result<Parts, HttpError>);

/// Status, headers and body.
type Parts = (u16, Vec<(String, String)>, Vec<u8>);

impl Answer {
    /// A response with this status and nothing else.
    pub fn new(status: u16) -> Self {
        Self(Ok((status, Vec::new(), Vec::new())))
    }

    /// No response: the request failed.
    pub fn failed(error: HttpError) -> Self {
        Self(Err(error))
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Ok((_, headers, _)) = &mut self.0 {
            headers.push((name.into().to_ascii_lowercase(), value.into()));
        }
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        if let Ok((_, _, body)) = &mut self.0 {
            *body = bytes.into();
        }
        self
    }

    /// Sets the body to a value, written as JSON.
    ///
    /// # Panics
    /// When it cannot be written as JSON: the test has failed.
    #[must_use]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        let body = serde_json::to_vec(value).unwrap_or_else(|error| panic!("an answer's body: {error}"));
        self.header("content-type", "application/json").body(body)
    }
}

/// Who answers.
#[derive(Clone, Default)]
pub(super) struct Answers(Option<Rc<Answering>>);

type Answering = dyn Fn(&SentRequest) -> Answer;

impl Answers {
    pub(super) fn new(answers: impl Fn(&SentRequest) -> Answer + 'static) -> Self {
        Self(Some(Rc::new(answers)))
    }

    pub(super) fn answer(&self, sent: &Sent, request: &SentRequest) -> Result<Response, HttpError> {
        let Some(answers) = &self.0 else {
            let what = format!(
                "{} {}: the test answers nothing, see TestHost::http",
                sent.method,
                sent.url.origin()
            );
            return Err(HttpError::Denied(what));
        };
        let (status, headers, body) = answers(request).0?;
        Ok(Response::new(sent, status, headers, body))
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Answers" } else { "no answers" })
    }
}
