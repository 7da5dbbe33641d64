//! What belongs to the calls of one job: what it may, what it has used up, and what was denied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::Method;
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

/// The calls of one job.
pub(super) struct JobCalls {
    pub(super) client: Arc<Client>,
    pub(super) offer: Offer,
    /// The file that says what it may reach.
    manifest: String,
    deadline: Monotonic,
    log: Arc<JobLog>,
    requests: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    connections: Arc<Semaphore>,
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
        Self {
            client,
            offer,
            manifest,
            deadline,
            log,
            requests: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            connections,
            denied: Mutex::new(None),
        }
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
        Err(Fault::limit(format!("an attempt may send {max} requests, and this one has")))
    }

    /// What is denied when the target is not among the allowed ones: names the line that is missing.
    pub(super) fn not_allowed(&self, target: &Target) -> Fault {
        let allowed = self.grant().allow.iter().cloned().chain([target.origin()]);
        let line: Vec<String> = allowed.map(|origin| format!("\"{origin}\"")).collect();
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

    pub(super) fn sent_too_much(&self) -> Fault {
        let max = self.grant().sent_bytes_max;
        let why = format!("the bodies of an attempt's requests may have {max} bytes together");
        Fault::new(Error::HttpRequestBodySize(Some(max)), &why)
    }

    pub(super) fn received_too_much(&self) -> Fault {
        let max = self.grant().received_bytes_max;
        let why = format!("the bodies of an attempt's responses may have {max} bytes together");
        Fault::new(Error::HttpResponseBodySize(Some(max)), &why)
    }

    /// Waits for its turn among the connections of the job.
    pub(super) async fn connection(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let turn = Arc::clone(&self.connections).acquire_owned();
        match tokio::time::timeout(self.remaining(), turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => {
                let max = self.grant().connections_max.max(1);
                let why = format!("an attempt may have {max} connections, and none was closed in time");
                Err(Fault::new(Error::ConnectionLimitReached, &why))
            }
        }
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
