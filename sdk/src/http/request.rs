//! A request that is being described, and sent.

use std::time::Duration;

use serde::Serialize;

use super::{HttpError, Response, Url, redirect};

/// A request that is being described; [`send`](Self::send) sends it.
#[derive(Debug, Clone)]
#[must_use = "nothing is sent until `.send()`"]
pub struct Request {
    sent: Result<Sent, HttpError>,
    redirects_max: u32,
}

/// One request as it goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) method: String,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
    /// From here to the last byte of the response.
    pub(crate) timeout: Option<Duration>,
}

impl Request {
    pub(super) fn new(method: String, url: &str) -> Self {
        let sent = Url::parse(url).and_then(|url| {
            let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if method.is_empty() || !method.bytes().all(is_token) {
                return Err(HttpError::Invalid(format!("{method:?} is no method, as GET or POST are")));
            }
            Ok(Sent { method, url, headers: Vec::new(), body: None, timeout: None })
        });
        Self { sent, redirects_max: 0 }
    }

    fn with(mut self, change: impl FnOnce(&mut Sent)) -> Self {
        if let Ok(sent) = &mut self.sent {
            change(sent);
        }
        self
    }

    /// Adds a header field. The runner itself says `Host`, `Connection` and how the body is framed.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|sent| sent.headers.push((name.into(), value.into())))
    }

    /// Adds a pair to the URL's query, encoded as it must be.
    pub fn query(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.with(|sent| sent.url.add_query(name.as_ref(), value.as_ref()))
    }

    /// Sets the body to a value, written as JSON, and says so in `Content-Type` unless that is there already.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => self.with(|sent| {
                if header(&sent.headers, "content-type").is_none() {
                    sent.headers.push(("content-type".to_owned(), "application/json".to_owned()));
                }
                sent.body = Some(body);
            }),
            Err(error) => {
                let why = format!("the body cannot be written as JSON: {error}");
                self.sent = self.sent.and(Err(HttpError::Invalid(why)));
                self
            }
        }
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        self.with(|sent| sent.body = Some(body.into()))
    }

    /// Sets how long all of it may take, from the connection to the response's last byte. The manifest's time-out for each step counts as
    /// well, and the job's own.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if timeout.is_zero() {
            let why = "a time-out of 0 leaves time for nothing".to_owned();
            self.sent = self.sent.and(Err(HttpError::Invalid(why)));
        }
        self.with(|sent| sent.timeout = Some(timeout))
    }

    /// Follows so many redirects at most; none unless somebody says. Each must be allowed like the first. Where one leads to another
    /// scheme, host or port, `Authorization` and `Cookie` are not sent along.
    pub fn follow_redirects(mut self, max: u32) -> Self {
        self.redirects_max = max;
        self
    }

    /// Sends it, and waits for all of the response. A response of any status is one.
    ///
    /// # Errors
    /// [`HttpError`]: it is not allowed, makes no sense, or did not come about.
    pub fn send(self) -> Result<Response, HttpError> {
        redirect::send(self.sent?, self.redirects_max)
    }
}

/// The first field of this name, which is in lower case.
pub(super) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}
