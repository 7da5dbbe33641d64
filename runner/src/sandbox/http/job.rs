//! What belongs to the calls of one job: what it may, what it has used up, and what was denied.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi_http::{Error, RequestOptions};

use crate::clock::{self, Monotonic};
use crate::grants::HttpGrant;
use crate::sandbox::Offer;
use crate::sandbox::log::JobLog;

use super::client::Client;
use super::fault::Fault;
use super::target::Target;

/// Requests of one job that are under way at once, waiting for a connection or having one.
const RUNNING_MAX: usize = 256;
/// Requests refused for their number that the job's log tells of, and that are taken in like others: what comes after them costs nothing.
const REFUSED_MAX: u32 = 16;
/// Allowed targets that a denial names.
const SHOWN_MAX: usize = 10;
/// What a header field counts beside its name and its value, in bytes.
const FIELD_BYTES: usize = 64;

/// The calls of one job.
pub(super) struct JobCalls {
    pub(super) client: Arc<Client>,
    pub(super) offer: Offer,
    /// The file that says what it may reach.
    manifest: String,
    deadline: Monotonic,
    log: Arc<JobLog>,
    requests: AtomicU32,
    /// Refused for their number.
    refused: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    connections: Arc<Semaphore>,
    /// Shared by all jobs of the handler.
    lookups: Arc<Semaphore>,
    denied: Mutex<Option<String>>,
}

/// How long each step of a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// From the look-up to the end of TLS's greetings.
    pub(super) connect: Duration,
    /// From the request's last byte to the end of the response's head.
    pub(super) first_byte: Duration,
    /// Between two pieces of the response.
    pub(super) between_bytes: Duration,
}

impl JobCalls {
    pub(super) fn new(
        client: Arc<Client>,
        offer: Offer,
        manifest: String,
        deadline: Monotonic,
        log: Arc<JobLog>,
    ) -> Self {
        let connections = Arc::new(Semaphore::new(offer.grants.http.connections_max.max(1) as usize));
        let lookups = client.lookups_of(&manifest);
        Self {
            client,
            offer,
            manifest,
            deadline,
            log,
            requests: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            connections,
            lookups,
            denied: Mutex::new(None),
        }
    }

    #[cfg(test)]
    pub(super) fn log(&self) -> &JobLog {
        &self.log
    }

    pub(super) fn grant(&self) -> &HttpGrant {
        &self.offer.grants.http
    }

    /// What was denied last.
    pub(super) fn denied(&self) -> Option<String> {
        self.denied.lock().clone()
    }

    /// Tells the job's log why a request has no answer, and remembers a denial.
    pub(super) fn note(&self, method: &Method, target: Option<&Target>, fault: &Fault) {
        let to = target.map_or_else(|| "a request".to_owned(), |target| target.origin().to_string());
        let line = format!("http: {method} {to}: {}", fault.why);
        self.log.line("WARN", &line);
        if fault.denied {
            *self.denied.lock() = Some(line);
        }
    }

    /// Counts a request.
    pub(super) fn count_request(&self) -> Result<(), Fault> {
        let max = self.grant().requests_max;
        if self.requests.fetch_add(1, Relaxed) < max {
            return Ok(());
        }
        self.requests.fetch_sub(1, Relaxed);
        if self.refused.fetch_add(1, Relaxed) + 1 == REFUSED_MAX {
            self.log
                .line("WARN", "http: the next refusal for the number of requests is the last that is told");
        }
        Err(self.too_many_requests())
    }

    fn too_many_requests(&self) -> Fault {
        let max = self.grant().requests_max;
        Fault::limit(format!("an attempt may send {max} requests, and this one has"))
    }

    /// Why another request is refused unseen, where `running` are under way: without a task, and after the first ones without a line.
    pub(super) fn refused_unseen(&self, method: &Method, running: usize) -> Option<Error> {
        let refused = self.refused.load(Relaxed);
        if running >= RUNNING_MAX {
            let why = format!("an attempt may have {RUNNING_MAX} requests under way, and this one has");
            let fault = Fault::new(Error::ConnectionLimitReached, &why);
            if refused < REFUSED_MAX {
                self.refused.fetch_add(1, Relaxed);
                self.note(method, None, &fault);
            }
            return Some(fault.code);
        }
        let spent = self.requests.load(Relaxed) >= self.grant().requests_max;
        (spent && refused >= REFUSED_MAX).then(|| self.too_many_requests().code)
    }

    /// What is denied when the target is not among the allowed ones: names the line that is missing.
    pub(super) fn not_allowed(&self, target: &Target) -> Fault {
        let allowed = &self.grant().allow;
        let mut line: Vec<String> =
            allowed.iter().take(SHOWN_MAX).map(|origin| format!("\"{origin}\"")).collect();
        if allowed.len() > SHOWN_MAX {
            line.push("...".to_owned());
        }
        line.push(format!("\"{}\"", target.origin()));
        let (file, line) = (&self.manifest, line.join(", "));
        Fault::denied(format!("not allowed; to allow it, write {file}: [allow] http = [{line}]"))
    }

    /// Counts bytes of a request's body that are about to be sent; false when they are too many.
    pub(super) fn count_sent(&self, bytes: usize) -> bool {
        count(&self.sent, bytes, self.grant().sent_bytes_max)
    }

    /// Counts bytes of a response's body that have come; false when they are too many.
    pub(super) fn count_received(&self, bytes: usize) -> bool {
        count(&self.received, bytes, self.grant().received_bytes_max)
    }

    /// Counts header fields that have come as bytes of a response; false when they are too many.
    pub(super) fn count_fields(&self, fields: &HeaderMap) -> bool {
        let bytes = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len() + FIELD_BYTES
        };
        self.count_received(fields.iter().map(bytes).sum())
    }

    pub(super) fn sent_too_much(&self) -> Fault {
        let max = self.grant().sent_bytes_max;
        let why = format!("the bodies of an attempt's requests may have {max} bytes together");
        Fault::new(Error::HttpRequestBodySize(Some(max)), &why)
    }

    pub(super) fn received_too_much(&self) -> Fault {
        let max = self.grant().received_bytes_max;
        let why = format!("an attempt's responses may have {max} bytes together");
        Fault::new(Error::HttpResponseBodySize(Some(max)), &why)
    }

    /// Waits for its turn among the connections of the job.
    pub(super) async fn connection(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let turn = Arc::clone(&self.connections).acquire_owned();
        match tokio::time::timeout(self.remaining(), turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => {
                let max = self.grant().connections_max.max(1);
                let why = format!(
                    "an attempt may have {max} connections, and none was closed in time: a response has its own until it is read to its \
                     end or dropped"
                );
                Err(Fault::new(Error::ConnectionLimitReached, &why))
            }
        }
    }

    /// The addresses of a name.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let turn = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
        let (resolver, name) = (Arc::clone(&self.client.resolver), name.to_owned());
        // A look-up cannot be stopped: it goes on without whom it was for, and has its turn until it has ended.
        let looked_up = tokio::spawn(async move {
            let found = resolver.resolve(&name).await;
            drop(turn);
            found
        });
        looked_up.await.map_err(io::Error::other)?
    }

    /// What is left of the job's time.
    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(clock::monotonic())
    }

    /// The guest's time-outs within the grant's.
    pub(super) fn times(&self, options: Option<RequestOptions>) -> Result<Times, Fault> {
        let options = options.unwrap_or_default();
        let max = Duration::from_millis(self.grant().timeout_ms.max(1));
        let within = |asked: Option<Duration>| match asked {
            Some(Duration::ZERO) => {
                Err(Fault::new(Error::ConfigurationError, "a time-out of 0 leaves time for nothing"))
            }
            Some(asked) => Ok(asked.min(max)),
            None => Ok(max),
        };
        Ok(Times {
            connect: within(options.connect_timeout)?,
            first_byte: within(options.first_byte_timeout)?,
            between_bytes: within(options.between_bytes_timeout)?,
        })
    }
}

fn count(counter: &AtomicU64, bytes: usize, max: u64) -> bool {
    let bytes = bytes as u64;
    counter.fetch_add(bytes, Relaxed).saturating_add(bytes) <= max
}
