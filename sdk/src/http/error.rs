//! Why a request has no answer, or none that helps.

use std::error::Error;
use std::fmt;

/// Why a request has no answer, or none that helps. With `?` it is a retry, like any error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpError {
    /// The manifest does not allow it, or its address is a private one. Which line is missing stands in the job's log,
    /// and in the job's record when the attempt fails.
    Denied(String),
    /// The request makes no sense. The text says what was expected and what came.
    Invalid(String),
    /// It is over one of the job's limits: requests, connections, or bytes.
    Limit(String),
    /// It took too long.
    TimedOut(String),
    /// No connection, or one that broke.
    Connection(String),
    /// The response is none: not HTTP, cut in the middle, or too many redirects.
    Response(String),
    /// The response's status says that it failed: [`Response::error_for_status`](super::Response::error_for_status).
    Status {
        /// The status.
        status: u16,
        /// What was asked, and the beginning of what the server said.
        message: String,
    },
    /// The body is not what the handler reads it as.
    Decode(String),
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(text)
            | Self::Invalid(text)
            | Self::Limit(text)
            | Self::TimedOut(text)
            | Self::Connection(text)
            | Self::Response(text)
            | Self::Decode(text)
            | Self::Status { message: text, .. } => f.write_str(text),
        }
    }
}

impl Error for HttpError {}
