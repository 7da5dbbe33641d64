//! The connection to Redis: opened when first needed, dropped and opened again when it fails, and every
//! call on it under one deadline. Scripts are called by digest and sent whole when Redis does not
//! know them.
//!
//! It decides nothing about jobs. What may be sent again after a lost reply is said by the caller.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::errors::{Consequence, consequence, store_error};
use super::scripts::Script;
use crate::clock::{Monotonic, monotonic};
use crate::queue::StoreError;

/// The oldest major version of Redis that runs our scripts (script flags, errors as tables).
const VERSION_MIN: u32 = 7;

/// Whether a call may be sent once more when its connection was lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A second run does no harm.
    Once,
    /// Only the caller can find out whether it was done.
    Never,
}

/// One connection, shared by all callers.
pub(super) struct Link {
    client: Client,
    place: String,
    call_timeout: Duration,
    connect_timeout: Duration,
    live: Mutex<Live>,
}

/// The live connection and its number: a caller that saw an old one fail must not drop a newer one.
#[derive(Default)]
struct Live {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

impl Link {
    /// Does not connect yet. `place` is host, port and database, for people.
    pub(super) fn new(
        client: Client,
        place: String,
        call_timeout: Duration,
        connect_timeout: Duration,
    ) -> Self {
        Self { client, place, call_timeout, connect_timeout, live: Mutex::default() }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Runs a script.
    pub(super) async fn script(
        &self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        repeat: Repeat,
    ) -> Result<Value, StoreError> {
        let build = |command: &str, script: &str| {
            let mut cmd = redis::cmd(command);
            cmd.arg(script).arg(keys.len());
            for key in keys {
                cmd.arg(key.as_ref());
            }
            for arg in args {
                cmd.arg(arg.as_ref());
            }
            cmd
        };
        let deadline = monotonic() + self.call_timeout;
        let mut lost = false;
        let done = match self.send(&build("EVALSHA", &script.sha), repeat, deadline, &mut lost).await {
            Err(Failed::NoScript) => {
                tracing::debug!(script = script.name, "the store does not know the script yet");
                self.send(&build("EVAL", &script.body), repeat, deadline, &mut lost).await
            }
            other => other,
        };
        done.map_err(|failed| failed.into_store(lost))
    }

    /// Runs a plain command.
    pub(super) async fn command(&self, cmd: &Cmd, repeat: Repeat) -> Result<Value, StoreError> {
        let mut lost = false;
        let done = self.send(cmd, repeat, monotonic() + self.call_timeout, &mut lost).await;
        done.map_err(|failed| failed.into_store(lost))
    }

    /// Sets `lost` when a connection ended with an answer under way: the call may have been done.
    async fn send(
        &self,
        cmd: &Cmd,
        mut repeat: Repeat,
        deadline: Monotonic,
        lost: &mut bool,
    ) -> Result<Value, Failed> {
        loop {
            let (number, mut connection) = self.connection(deadline).await.map_err(Failed::Store)?;
            let reply = timeout(left(deadline), cmd.query_async::<Value>(&mut connection)).await;
            let Ok(reply) = reply else {
                self.forget(number).await;
                return Err(Failed::Store(self.no_answer()));
            };
            let error = match reply {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match consequence(&error) {
                Consequence::SendWhole => return Err(Failed::NoScript),
                Consequence::Keep => return Err(Failed::Store(store_error(&error, &self.place))),
                Consequence::Reconnect => {
                    self.forget(number).await;
                    return Err(Failed::Store(store_error(&error, &self.place)));
                }
                Consequence::Lost => {
                    *lost = true;
                    self.forget(number).await;
                    if repeat == Repeat::Never {
                        return Err(Failed::Store(store_error(&error, &self.place)));
                    }
                    repeat = Repeat::Never;
                }
            }
        }
    }

    async fn connection(&self, deadline: Monotonic) -> Result<(u64, MultiplexedConnection), StoreError> {
        let patience = left(deadline).min(self.connect_timeout);
        let opened = timeout(patience, async {
            let mut live = self.live.lock().await;
            if let Some(connection) = &live.connection {
                return Ok((live.number, connection.clone()));
            }
            let connection = self.open().await?;
            live.number += 1;
            live.connection = Some(connection.clone());
            Ok((live.number, connection))
        });
        opened.await.unwrap_or_else(|_| Err(self.no_answer()))
    }

    /// A connection of the caller's own, for what needs one: it is not opened again.
    pub(super) async fn apart(&self) -> Result<MultiplexedConnection, StoreError> {
        timeout(self.connect_timeout, self.open()).await.unwrap_or_else(|_| Err(self.no_answer()))
    }

    /// What a call on a connection of the caller's own brought, within the time of a call.
    pub(super) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, StoreError> {
        match timeout(self.call_timeout, call).await {
            Ok(done) => done.map_err(|error| store_error(&error, &self.place)),
            Err(_) => Err(self.no_answer()),
        }
    }

    async fn open(&self) -> Result<MultiplexedConnection, StoreError> {
        // Deadlines are ours: the client's own would fail single calls and keep the connection.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let failed = |error: RedisError| store_error(&error, &self.place);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
        self.check_server(&mut connection).await?;
        Ok(connection)
    }

    /// Refuses a server on which the scripts cannot work, with the reason, before they fail one by one.
    async fn check_server(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let info: String = match redis::cmd("INFO").arg("server").query_async(connection).await {
            Ok(info) => info,
            // A user that may not look still may work.
            Err(error) if error.code() == Some("NOPERM") => return Ok(()),
            Err(error) => return Err(store_error(&error, &self.place)),
        };
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let version = field("redis_version:").unwrap_or_default().trim();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < VERSION_MIN) {
            return Err(StoreError::Refused(format!(
                "{} runs Redis {version:?}: expected {VERSION_MIN}.0 or newer",
                self.place
            )));
        }
        if field("redis_mode:").is_some_and(|mode| mode.trim() == "cluster") {
            return Err(StoreError::Refused(format!(
                "{} is a node of a Redis Cluster: expected a single Redis, clusters are not supported",
                self.place
            )));
        }
        Ok(())
    }

    async fn forget(&self, number: u64) {
        let mut live = self.live.lock().await;
        if live.number == number {
            live.connection = None;
        }
    }

    fn no_answer(&self) -> StoreError {
        StoreError::Unreachable(format!("no answer from {} in time", self.place))
    }
}

/// Why a call brought no value.
enum Failed {
    NoScript,
    Store(StoreError),
}

impl Failed {
    /// `lost`: an answer to the same call was lost before. What is said now is of its repeat alone, and says nothing of whether the first
    /// was done.
    fn into_store(self, lost: bool) -> StoreError {
        match self {
            Self::Store(error @ (StoreError::NotReady(_) | StoreError::Full(_) | StoreError::Refused(_)))
                if lost =>
            {
                StoreError::Unreachable(format!("an answer was lost, and now: {error}"))
            }
            Self::Store(error) => error,
            Self::NoScript => {
                StoreError::NotReady("the store forgets scripts as fast as it gets them".to_owned())
            }
        }
    }
}

fn left(deadline: Monotonic) -> Duration {
    deadline.saturating_duration_since(monotonic())
}
