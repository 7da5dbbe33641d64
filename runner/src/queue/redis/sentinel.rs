//! Finding the primary by its sentinels: they are asked in turn, and whom they name is taken only if it is a primary in
//! its own eyes too, since a sentinel may not have heard yet.
//!
//! No address is remembered, so that whoever connects anew is led to where the primary is then. A connection attempt goes through the list once: its caller tries again, at its own pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, Cmd, ConnectionAddr, ConnectionInfo, RedisError};
use tokio::time::timeout;

use super::dial::{connect, dial_primary};
use super::errors::store_error;
use super::link::Opened;
use super::sentinel_address::SentinelAddress;
use super::tls;
use crate::clock::monotonic;
use crate::queue::StoreError;

/// The sentinels of one primary.
pub(super) struct Sentinels {
    sentinels: Vec<Sentinel>,
    master: String,
    server: ConnectionInfo,
    tls: bool,
    /// Who answered last, and is asked first.
    first: AtomicUsize,
}

struct Sentinel {
    client: Client,
    place: String,
    /// A connection that has answered: taken for each question, and put back with its answer.
    kept: Mutex<Option<MultiplexedConnection>>,
}

/// When the kernel asks the other end of a quiet connection whether it is there, and how often and at which pace it asks before it ends
/// it: within ten seconds.
const ALIVE_AFTER: Duration = Duration::from_secs(5);
const ALIVE_EVERY: Duration = Duration::from_secs(1);
const ALIVE_TRIES: u32 = 5;
/// How long a sentinel may take to say whether the primary still is the same.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

impl Sentinels {
    /// Does not connect.
    ///
    /// # Errors
    /// When an address is none that TLS can be spoken with.
    pub(super) fn new(address: SentinelAddress) -> Result<Self, RedisError> {
        let SentinelAddress { sentinels, master, server, tls, place: _ } = address;
        let sentinels = sentinels
            .into_iter()
            .map(|address| {
                let place = format!("sentinel {}", address.host_and_port());
                Ok(Sentinel { client: client(address.info, tls)?, place, kept: Mutex::default() })
            })
            .collect::<Result<_, RedisError>>()?;
        Ok(Self { sentinels, master, server, tls, first: AtomicUsize::new(0) })
    }

    /// A connection to the primary. Each sentinel has a share of `patience`, so that silent ones leave time for others.
    ///
    /// # Errors
    /// What each sentinel, or the server that it named, has said: [`StoreError::Refused`] when waiting mends none of it.
    pub(super) async fn open(&self, place: &str, patience: Duration) -> Result<Opened, StoreError> {
        let until = monotonic() + patience;
        let count = self.sentinels.len();
        let share = patience / (count as u32 + 1);
        let first = self.first.load(Relaxed);
        let mut tried: Vec<String> = Vec::new();
        let mut faults: Vec<StoreError> = Vec::new();
        for index in (0..count).map(|i| (first + i) % count) {
            let sentinel = &self.sentinels[index];
            let named = in_time(share, &sentinel.place, self.ask(sentinel)).await;
            let (host, port) = match named {
                Ok(named) => named,
                Err(fault) => {
                    faults.push(fault);
                    continue;
                }
            };
            let server = format!("{host}:{port}");
            if tried.contains(&server) {
                continue;
            }
            // A server that is gone without a word must not take all the time: the next sentinel may know better.
            let left = until.saturating_duration_since(monotonic());
            match in_time(left / 2, &server, self.dial(host, port, &server)).await {
                Ok((client, connection)) => {
                    self.first.store(index, Relaxed);
                    return Ok(Opened { connection, client: Arc::new(client), server: Some(server) });
                }
                Err(fault) => faults.push(fault),
            }
            tried.push(server);
        }
        Err(no_primary(place, &faults))
    }

    /// Whether the sentinel that answered last names another primary now. One that is silent names nobody, and the next one
    /// is asked the next time.
    pub(super) async fn name_another_than(&self, server: &str) -> bool {
        let index = self.first.load(Relaxed);
        let sentinel = &self.sentinels[index];
        match in_time(ANSWERS_WITHIN, &sentinel.place, self.ask(sentinel)).await {
            Ok((host, port)) => format!("{host}:{port}") != server,
            Err(_) => {
                self.first.store((index + 1) % self.sentinels.len(), Relaxed);
                false
            }
        }
    }

    /// Where a sentinel thinks that the primary is.
    async fn ask(&self, sentinel: &Sentinel) -> Result<(String, u16), StoreError> {
        let place = &sentinel.place;
        let kept = sentinel.kept.lock().take();
        let mut answer = None;
        if let Some(mut kept) = kept {
            // It may have been closed meanwhile: then a new one is asked.
            answer = self.question().query_async(&mut kept).await.ok().map(|named| (named, kept));
        }
        let named: Result<Option<(String, u16)>, RedisError> = match answer {
            Some((named, kept)) => {
                *sentinel.kept.lock() = Some(kept);
                Ok(named)
            }
            None => {
                let mut fresh = connect(&sentinel.client, place).await?;
                let named = self.question().query_async(&mut fresh).await;
                *sentinel.kept.lock() = named.is_ok().then_some(fresh);
                named
            }
        };
        match named {
            Ok(Some(named)) => Ok(named),
            Ok(None) => Err(StoreError::Refused(format!("{place} knows no master named {}", self.master))),
            Err(error) if error.code() == Some("ERR") => {
                Err(StoreError::Refused(format!("{place} is no sentinel (the usual port is 26379)")))
            }
            Err(error) => Err(store_error(&error, place)),
        }
    }

    fn question(&self) -> Cmd {
        let mut question = redis::cmd("SENTINEL");
        question.arg("get-master-addr-by-name").arg(&self.master);
        question
    }

    async fn dial(
        &self,
        host: String,
        port: u16,
        place: &str,
    ) -> Result<(Client, MultiplexedConnection), StoreError> {
        let addr = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let client = client(self.server.clone().set_addr(addr), self.tls)
            .map_err(|error| store_error(&error, place))?;
        let connection = dial_primary(&client, place).await?;
        Ok((client, connection))
    }
}

/// A client for a server or a sentinel. Does not connect.
pub(super) fn client(info: ConnectionInfo, tls: bool) -> Result<Client, RedisError> {
    let alive =
        TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(ALIVE_TRIES);
    let tcp = info.tcp_settings().clone().set_nodelay(true).set_keepalive(alive);
    let info = info.set_tcp_settings(tcp);
    if tls { tls::client(info) } else { Client::open(info) }
}

async fn in_time<T>(
    patience: Duration,
    place: &str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let silent = || StoreError::Unreachable(format!("no answer from {place} in time"));
    timeout(patience, call).await.unwrap_or_else(|_| Err(silent()))
}

fn no_primary(place: &str, faults: &[StoreError]) -> StoreError {
    let said: Vec<&str> = faults.iter().map(StoreError::text).collect();
    let text = format!("{place}: no primary found: {}", said.join("; "));
    if faults.iter().any(StoreError::is_passing) {
        StoreError::Unreachable(text)
    } else {
        StoreError::Refused(text)
    }
}
