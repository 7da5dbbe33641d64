//! What a server has answered.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::request::header;
use super::{HttpError, Sent, date};
use crate::host;

/// What of a failed response's body goes into an error, in bytes.
const EXCERPT_BYTES: usize = 200;

/// What a server has answered, all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// What was asked, without what may be secret in it.
    asked: String,
}

impl Response {
    pub(crate) fn new(sent: &Sent, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        Self { status, headers, body, asked: format!("{} {}", sent.method, sent.url.origin()) }
    }

    /// Its status, such as 200.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the status says that it went well: 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first header field of this name, in whatever case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// All header fields, names in lower case. Bytes that are no UTF-8 are replaced.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The body.
    pub fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// The body, to keep.
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`HttpError::Decode`] when it is not UTF-8.
    pub fn text(&self) -> Result<&str, HttpError> {
        std::str::from_utf8(&self.body)
            .map_err(|error| HttpError::Decode(format!("{}: the response is no text: {error}", self.asked)))
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// [`HttpError::Decode`] when it is something else.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            HttpError::Decode(format!("{}: the response is not what is expected: {error}", self.asked))
        })
    }

    /// How long the server asks to wait (`Retry-After`, seconds or a date); `None` when it does not say.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.header("retry-after")?.trim();
        if let Ok(seconds) = value.parse::<u32>() {
            return Some(Duration::from_secs(seconds.into()));
        }
        Some(date::parse(value)?.duration_since(host::now()).unwrap_or(Duration::ZERO))
    }

    /// Itself, unless its status is 400 or above.
    ///
    /// # Errors
    /// [`HttpError::Status`], with the beginning of what the server said.
    pub fn error_for_status(self) -> Result<Self, HttpError> {
        if self.status < 400 {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        let text = text.trim();
        let said = if text.is_empty() {
            String::new()
        } else {
            format!(": {}", &text[..text.floor_char_boundary(EXCERPT_BYTES)])
        };
        let message = format!("{}: status {}{said}", self.asked, self.status);
        Err(HttpError::Status { status: self.status, message })
    }
}
