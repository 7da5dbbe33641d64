//! Why a request has no answer: for the guest as an error code, for people in words.

use std::error::Error as _;
use std::io;

use wasmtime_wasi_http::Error;

/// What went wrong with a request or a response.
pub(super) struct Fault {
    /// What the guest gets.
    pub(super) code: Error,
    /// What the job's log says.
    pub(super) why: String,
    /// It may not, rather than it cannot.
    pub(super) denied: bool,
}

impl Fault {
    pub(super) fn new(code: Error, why: &str) -> Self {
        Self { code, why: why.to_owned(), denied: false }
    }

    pub(super) fn denied(why: String) -> Self {
        Self { code: Error::HttpRequestDenied, why, denied: true }
    }

    /// One of the job's limits. WASI's codes have no better place for it than a text.
    pub(super) fn limit(why: String) -> Self {
        Self { code: Error::InternalError(Some(why.clone())), why, denied: false }
    }

    /// The runner has lost touch with its store: somebody else may have the job by now.
    pub(super) fn out_of_touch() -> Self {
        let why = "the runner is out of touch with its store: its jobs' calls are stopped";
        Self::new(Error::DestinationUnavailable, why)
    }

    /// No connection came about.
    pub(super) fn connect(error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
            io::ErrorKind::TimedOut => Error::ConnectionTimeout,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                Error::DestinationIpUnroutable
            }
            _ => Error::DestinationUnavailable,
        };
        Self::new(code, &error.to_string())
    }

    /// What hyper found before the response's head was there.
    pub(super) fn exchange(error: &hyper::Error) -> Self {
        let code = if error.is_parse_too_large() {
            Error::HttpResponseHeaderSectionSize(None)
        } else if error.is_parse() {
            Error::HttpProtocolError
        } else {
            Error::ConnectionTerminated
        };
        Self::new(code, &text(error))
    }

    /// What hyper found within the response's body.
    pub(super) fn body(error: &hyper::Error) -> Self {
        Self::new(Error::HttpResponseIncomplete, &format!("the response ends in the middle: {}", text(error)))
    }
}

/// The error's text with those of its causes.
fn text(error: &hyper::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
