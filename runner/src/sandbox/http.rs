//! HTTP requests of guests (`wasi:http`), to what their grants allow and to nothing else.
//!
//! A request runs on the threads for input and output, not on the guests' own: a guest that computes holds up nobody's call. It
//! ends with the job, whatever ends that.

mod address;
mod answers;
mod body;
mod client;
mod fault;
mod job;
mod link;
mod resolve;
mod send;
mod target;
mod tls;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_bounds;

use std::future::Future;
use std::sync::Arc;

use http::Request;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks};

use crate::clock::Monotonic;

use super::load::Module;
use super::log::JobLog;
use super::services::Offer;

pub(super) use client::Client;
use job::JobCalls;
pub(super) use link::link;
pub use resolve::Resolver;

/// What a set of header fields may take, in bytes of the host's memory.
const FIELDS_BYTES_MAX: usize = 32 << 10;
/// What a guest may write of a body at once, in bytes: also what each body that it makes may take of the host's memory, twice.
const WRITE_BYTES_MAX: usize = 16 << 10;

/// The HTTP side of one running job.
pub(super) struct GuestHttp {
    pub(super) context: WasiHttpCtx,
    pub(super) hooks: Hooks,
}

/// What the host does for a guest's requests.
pub(super) struct Hooks {
    client: Arc<Client>,
    offer: Offer,
    module: Module,
    deadline: Monotonic,
    log: Arc<JobLog>,
    /// Made at the first request: most jobs send none.
    calls: Option<(Arc<JobCalls>, JoinSet<()>)>,
}

impl GuestHttp {
    pub(super) fn new(
        client: &Arc<Client>,
        offer: Offer,
        module: &Module,
        deadline: Monotonic,
        log: &Arc<JobLog>,
    ) -> Self {
        let mut context = WasiHttpCtx::new();
        context.set_field_size_limit(FIELDS_BYTES_MAX);
        let hooks = Hooks {
            client: Arc::clone(client),
            offer,
            module: module.clone(),
            deadline,
            log: Arc::clone(log),
            calls: None,
        };
        Self { context, hooks }
    }

    /// What the job may reach.
    pub(super) fn offer(&self) -> &Offer {
        &self.hooks.offer
    }

    /// What was denied last, for people: names the line that is missing.
    pub(super) fn denied(&self) -> Option<String> {
        self.hooks.calls.as_ref().and_then(|(calls, _)| calls.denied())
    }
}

impl Hooks {
    fn calls(&mut self) -> &mut (Arc<JobCalls>, JoinSet<()>) {
        self.calls.get_or_insert_with(|| {
            let (client, log) = (Arc::clone(&self.client), Arc::clone(&self.log));
            let manifest = format!("{}.toml", self.module.name());
            let calls = JobCalls::new(client, self.offer.clone(), manifest, self.deadline, log);
            (Arc::new(calls), JoinSet::new())
        })
    }
}

/// What the guest's side waits for: the response, and (nothing of ours) what goes on beside its body.
type Sent = dyn Future<Output = Result<(http::Response<WasiBody>, Box<Beside>), Error>> + Send;
type Beside = dyn Future<Output = Result<(), Error>> + Send;

impl WasiHttpHooks for Hooks {
    /// The host names the target itself.
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        WRITE_BYTES_MAX
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<Beside>,
    ) -> Box<Sent> {
        let io = self.client.io();
        let (answered, answer) = oneshot::channel();
        let (calls, running) = self.calls();
        // Those that have ended.
        while running.try_join_next().is_some() {}
        if let Some(code) = calls.refused_unseen(request.method(), running.len()) {
            return Box::new(async { Err(code) });
        }
        let request = request.map(|body| body::Outgoing::new(body, io.clone()));
        running.spawn_on(send::send(Arc::clone(calls), request, options, answered), &io);
        Box::new(async move {
            let response = answer.await.unwrap_or(Err(Error::ConnectionTerminated))?;
            let nothing: Box<Beside> = Box::new(async { Ok(()) });
            Ok((response, nothing))
        })
    }
}
