//! A sandbox whose names resolve as the test says, and runs of the example `fetch` in it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};

use async_trait::async_trait;
use hourhand::grants::{Grants, HttpGrant, Origin, Scheme};
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{
    GuestJob, JobLog, Limits, Module, Offer, Resolver, Sandbox, SandboxConfig, StopSignal,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The names of a test: what each look-up gives, the last for ever.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashMap<String, Answers>>);

/// The answers that a name has one after the other, and how often it was asked for.
type Answers = (Vec<Vec<IpAddr>>, u32);

static NAMES: LazyLock<Arc<Names>> = LazyLock::new(Arc::default);

/// Lets `name` resolve to these addresses, one list a look-up.
pub(crate) fn name(name: &str, lookups: &[&[&str]]) {
    let lookups = lookups.iter().map(|list| list.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
    NAMES.0.lock().insert(name.to_owned(), (lookups, 0));
}

/// How often `name` was looked up.
pub(crate) fn lookups(name: &str) -> u32 {
    NAMES.0.lock().get(name).map_or(0, |(_, count)| *count)
}

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut names = self.0.lock();
        let Some((lists, count)) = names.get_mut(host) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such name in this test"));
        };
        let list = lists[(*count as usize).min(lists.len() - 1)].clone();
        *count += 1;
        Ok(list)
    }
}

/// One pool for all tests of this file, with threads of its own for input and output.
pub(crate) fn sandbox() -> Arc<Sandbox> {
    static IO: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    });
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let resolver: Arc<dyn Resolver> = NAMES.clone();
    let config = SandboxConfig {
        concurrency: 8,
        io: Some(IO.handle().clone()),
        resolver: Some(resolver),
        ..SandboxConfig::default()
    };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

pub(crate) fn module() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load = || {
        let bytes = fs::read(guests_fetch()).expect("read the module");
        sandbox().load("fetch", &bytes).expect("loads")
    };
    MODULE.get_or_init(load).clone()
}

fn guests_fetch() -> std::path::PathBuf {
    super::guests::guest("fetch")
}

/// An origin, as a manifest would say it.
pub(crate) fn origin(text: &str) -> Origin {
    let (scheme, rest) = text.split_once("://").expect("a scheme");
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().expect("a port")),
        _ => (rest, scheme.port()),
    };
    Origin { scheme, host: host.trim_matches(['[', ']']).to_owned(), port }
}

/// Grants for these origins; the private networks are the operator's.
pub(crate) fn grants(allow: &[&str], private: &[&str]) -> Grants {
    let http = HttpGrant {
        allow: allow.iter().map(|text| origin(text)).collect(),
        private: private.iter().map(|net| net.parse().expect("a network")).collect(),
        ..HttpGrant::default()
    };
    Grants { http, ..Grants::default() }
}

/// What a run was.
pub(crate) struct Ran {
    pub(crate) end: RunEnd,
    pub(crate) log: String,
}

impl Ran {
    /// What became of its requests.
    #[track_caller]
    pub(crate) fn got(&self) -> Value {
        match &self.end {
            RunEnd::Completed(result) => serde_json::from_slice(result).expect("JSON"),
            other => panic!("{other:?}, log:\n{}", self.log),
        }
    }

    /// The kind of error of its only request.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        let got = self.got();
        got[0]["error"].as_str().unwrap_or_else(|| panic!("no error: {got:#}")).to_owned()
    }
}

/// A run under way.
pub(crate) struct Running {
    pub(crate) stop: StopSignal,
    task: tokio::task::JoinHandle<RunEnd>,
    log: Arc<JobLog>,
}

impl Running {
    pub(crate) async fn end(self) -> Ran {
        let end = self.task.await.expect("a run does not panic");
        Ran { end, log: self.log.text() }
    }
}

/// Starts a run that sends these requests.
pub(crate) fn start(grants: &Grants, asks: &Value, timeout_ms: u64) -> Running {
    start_with(Offer { grants: Arc::new(grants.clone()), ..Offer::default() }, asks, timeout_ms)
}

pub(crate) fn start_with(offer: Offer, asks: &Value, timeout_ms: u64) -> Running {
    let job = GuestJob { kind: "fetch".to_owned(), payload: asks.to_string().into(), ..GuestJob::default() };
    let limits = Limits { timeout_ms, ..Limits::default() };
    let (stop, log) = (StopSignal::new(), Arc::new(JobLog::new(limits.log_bytes)));
    let (until, kept, module) = (stop.clone(), Arc::clone(&log), module());
    let task =
        tokio::spawn(async move { sandbox().run_with(&module, job, &limits, offer, until, kept).await.end });
    Running { stop, task, log }
}

/// Sends these requests and waits for the end.
pub(crate) async fn run(grants: &Grants, asks: Value) -> Ran {
    start(grants, &asks, 20_000).end().await
}

/// Sends one GET.
pub(crate) async fn get(grants: &Grants, url: &str) -> Ran {
    run(grants, json!([{"url": url}])).await
}
