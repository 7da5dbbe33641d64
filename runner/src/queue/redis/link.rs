//! The connection to Redis: opened when first needed, dropped and opened again when it fails, and every
//! call on it under one deadline. Scripts are called by digest and sent whole when Redis does not
//! know them.
//!
//! It decides nothing about jobs. What may be sent again after a lost reply is said by the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisError, Value};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::dial::dial;
use super::errors::{Consequence, consequence, is_foreign_data, store_error};
use super::keys::Keys;
use super::scripts::Script;
use super::sentinel::Sentinels;
use crate::clock::{Monotonic, monotonic};
use crate::queue::StoreError;

mod foreign;

/// Whether a call may be sent once more when its connection was lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A second run does no harm.
    Once,
    /// Only the caller can find out whether it was done.
    Never,
}

/// Where the server is.
#[derive(Clone)]
pub(super) enum Target {
    /// At an address.
    One(Arc<Client>),
    /// Wherever the sentinels say that the primary is.
    Sentinels(Arc<Sentinels>),
}

/// A connection that was just opened.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    /// For more connections to the same server.
    pub(super) client: Arc<Client>,
    /// Host and port that the sentinels told.
    pub(super) server: Option<String>,
}

/// A reply, and the connection that it came on.
pub(super) struct Sent {
    pub(super) value: Value,
    pub(super) connection: MultiplexedConnection,
    /// The connection's number, for [`Link::forget`].
    pub(super) number: u64,
}

/// One connection, shared by all callers.
pub(super) struct Link {
    target: Target,
    place: String,
    keys: Arc<Keys>,
    call_timeout: Duration,
    connect_timeout: Duration,
    live: Arc<Mutex<Live>>,
    /// How often the connection was opened anew.
    renewals: watch::Sender<u64>,
    /// Connections up to this number may be dead: a caller gave up waiting on one.
    doubted: AtomicU64,
}

/// The live connection and its number: a caller that saw an old one fail must not drop a newer one.
#[derive(Default)]
struct Live {
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// The primary that the sentinels told last.
    server: Option<String>,
    /// When they told it, or were asked whether it still is.
    asked: Option<Monotonic>,
}

/// While there are calls, a sentinel is asked so often whether the primary still is the same: one that was replaced while it
/// was well takes writes for seconds more, and forgets them when it becomes a replica.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl Link {
    /// Does not connect yet. `place` is host, port and database (with sentinels: theirs, and the primary's name), for people.
    /// `keys` are what calls work on.
    pub(super) fn new(
        target: Target,
        place: String,
        keys: Arc<Keys>,
        call_timeout: Duration,
        connect_timeout: Duration,
    ) -> Self {
        let (live, renewals) = (Arc::default(), watch::Sender::new(0));
        Self {
            target,
            place,
            keys,
            call_timeout,
            connect_timeout,
            live,
            renewals,
            doubted: AtomicU64::new(0),
        }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Changes whenever the connection has been opened anew. The server behind it may be another one since, so that
    /// whoever has a connection apart should open it anew too.
    pub(super) fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    /// The same, with a connection of its own.
    pub(super) fn beside(&self) -> Self {
        let (target, place, keys) = (self.target.clone(), self.place.clone(), Arc::clone(&self.keys));
        Self::new(target, place, keys, self.call_timeout, self.connect_timeout)
    }

    /// By when a call that begins now has ended.
    pub(super) fn deadline(&self) -> Monotonic {
        monotonic() + self.call_timeout
    }

    /// What opens connections to the server as it is now: with sentinels, the primary.
    pub(super) async fn server(&self) -> Result<Arc<Client>, StoreError> {
        match &self.target {
            Target::One(client) => Ok(Arc::clone(client)),
            Target::Sentinels(_) => {
                self.within(self.connect_timeout, self.open(self.connect_timeout)).await.map(|o| o.client)
            }
        }
    }

    /// To be held while a call is on its way on the connection with this number.
    pub(super) fn unanswered(&self, number: u64) -> Unanswered<'_> {
        Unanswered { doubted: &self.doubted, number }
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Makes sure that there is a connection to a server that lets us in and is one of ours.
    pub(super) async fn reach(&self) -> Result<(), StoreError> {
        self.connection(self.deadline()).await.map(drop)
    }

    /// Runs a script.
    pub(super) async fn script(
        &self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        repeat: Repeat,
    ) -> Result<Value, StoreError> {
        self.script_by(script, keys, args, repeat, self.deadline()).await.map(|sent| sent.value)
    }

    /// Runs a script by a deadline; the reply comes with the connection that it came on.
    pub(super) async fn script_by(
        &self,
        script: &Script,
        keys: &[impl AsRef<[u8]>],
        args: &[impl AsRef<[u8]>],
        repeat: Repeat,
        deadline: Monotonic,
    ) -> Result<Sent, StoreError> {
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
        let mut lost = false;
        let mut done = self.send(&build("EVALSHA", &script.sha), repeat, deadline, &mut lost).await;
        if matches!(done, Err(Failed::NoScript)) {
            tracing::debug!(script = script.name, "the store does not know the script yet");
            done = self.send(&build("EVAL", &script.body), repeat, deadline, &mut lost).await;
        }
        match done {
            Ok(sent) => Ok(sent),
            Err(Failed::Foreign(error)) => {
                let error = self.named(keys.iter().map(AsRef::as_ref), error, deadline).await;
                Err(after_loss(error, lost))
            }
            Err(failed) => Err(failed.into_store(lost)),
        }
    }

    /// Runs a plain command.
    pub(super) async fn command(&self, cmd: &Cmd, repeat: Repeat) -> Result<Value, StoreError> {
        let (deadline, mut lost) = (self.deadline(), false);
        match self.send(cmd, repeat, deadline, &mut lost).await {
            Ok(sent) => Ok(sent.value),
            Err(Failed::Foreign(error)) => {
                Err(after_loss(self.named(foreign::words(cmd), error, deadline).await, lost))
            }
            Err(failed) => Err(failed.into_store(lost)),
        }
    }

    /// Sets `lost` when a connection ended with an answer under way: the call may have been done.
    async fn send(
        &self,
        cmd: &Cmd,
        mut repeat: Repeat,
        deadline: Monotonic,
        lost: &mut bool,
    ) -> Result<Sent, Failed> {
        loop {
            let (number, mut connection) = self.connection(deadline).await.map_err(Failed::Store)?;
            let unanswered = self.unanswered(number);
            let reply = timeout(left(deadline), cmd.query_async::<Value>(&mut connection)).await;
            unanswered.over();
            let Ok(reply) = reply else {
                self.forget(number).await;
                return Err(Failed::Store(self.no_answer()));
            };
            let error = match reply {
                Ok(value) => return Ok(Sent { value, connection, number }),
                Err(error) => error,
            };
            match consequence(&error) {
                Consequence::SendWhole => return Err(Failed::NoScript),
                Consequence::Keep if is_foreign_data(&error) => {
                    return Err(Failed::Foreign(store_error(&error, &self.place)));
                }
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
        let opening = async {
            let mut live = self.live.lock().await;
            if live.number > self.doubted.load(Relaxed)
                && let Some(connection) = live.connection.clone()
            {
                self.look_around(&mut live);
                return Ok((live.number, connection));
            }
            let opened = self.open(patience).await?;
            live.take(&opened, &self.place);
            if live.number > 1 {
                self.renewals.send_replace(live.number);
            }
            Ok((live.number, opened.connection))
        };
        self.within(patience, opening).await
    }

    /// A connection of the caller's own, for what needs one: it is not opened again.
    pub(super) async fn apart(&self) -> Result<MultiplexedConnection, StoreError> {
        let opening = self.open(self.connect_timeout);
        self.within(self.connect_timeout, opening).await.map(|opened| opened.connection)
    }

    async fn within<T>(
        &self,
        patience: Duration,
        opening: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout(patience, opening).await.unwrap_or_else(|_| Err(self.no_answer()))
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

    /// Sees to it, every now and then, that a connection to a server that is not the primary any more is dropped, for the next
    /// call to find the new one. Nobody waits for the answer.
    fn look_around(&self, live: &mut Live) {
        let (Target::Sentinels(sentinels), Some(server)) = (&self.target, &live.server) else { return };
        let now = monotonic();
        if live.asked.is_some_and(|asked| now.duration_since(asked) < ASK_EVERY) {
            return;
        }
        live.asked = Some(now);
        let (number, server) = (live.number, server.clone());
        let (sentinels, live) = (Arc::clone(sentinels), Arc::clone(&self.live));
        tokio::spawn(async move {
            if sentinels.name_another_than(&server).await {
                live.lock().await.forget(number);
            }
        });
    }

    async fn open(&self, patience: Duration) -> Result<Opened, StoreError> {
        match &self.target {
            Target::One(client) => {
                let connection = dial(client, &self.place).await?;
                Ok(Opened { connection, client: Arc::clone(client), server: None })
            }
            Target::Sentinels(sentinels) => sentinels.open(&self.place, patience).await,
        }
    }

    /// Drops the live connection, if it is still the one of this number.
    pub(super) async fn forget(&self, number: u64) {
        self.live.lock().await.forget(number);
    }

    fn no_answer(&self) -> StoreError {
        StoreError::Unreachable(format!("no answer from {} in time", self.place))
    }
}

/// A call on its way. Dropping it says that its caller has given up, with a deadline of its own: the connection may be
/// dead, and nobody else would find out.
pub(super) struct Unanswered<'a> {
    doubted: &'a AtomicU64,
    number: u64,
}

impl Unanswered<'_> {
    /// It has come to its end, whatever that was.
    pub(super) fn over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.doubted.fetch_max(self.number, Relaxed);
    }
}

impl Live {
    /// Keeps what was opened; says so when it leads to another primary than before.
    fn take(&mut self, opened: &Opened, place: &str) {
        self.number += 1;
        self.connection = Some(opened.connection.clone());
        if let (Some(from), Some(to)) = (&self.server, &opened.server)
            && from != to
        {
            tracing::info!(store = place, from, to, "the primary has changed");
        }
        self.server.clone_from(&opened.server);
        self.asked = Some(monotonic());
    }

    fn forget(&mut self, number: u64) {
        if self.number == number {
            self.connection = None;
        }
    }
}

/// Why a call brought no value.
enum Failed {
    NoScript,
    /// Foreign data under one of our names, of which the server does not say which.
    Foreign(StoreError),
    Store(StoreError),
}

impl Failed {
    /// See [`after_loss`].
    fn into_store(self, lost: bool) -> StoreError {
        let error = match self {
            Self::Store(error) | Self::Foreign(error) => error,
            Self::NoScript => {
                StoreError::NotReady("the store forgets scripts as fast as it gets them".to_owned())
            }
        };
        after_loss(error, lost)
    }
}

/// What an error means when an answer to the same call was `lost` before: it is of the repeat alone, and says nothing of whether
/// the first was done.
fn after_loss(error: StoreError, lost: bool) -> StoreError {
    match error {
        StoreError::NotReady(_) | StoreError::Full(_) | StoreError::Refused(_) if lost => {
            StoreError::Unreachable(format!("an answer was lost, and now: {error}"))
        }
        _ => error,
    }
}

/// The time until a deadline.
pub(super) fn left(deadline: Monotonic) -> Duration {
    deadline.saturating_duration_since(monotonic())
}
