//! The way to the file: the calls for the thread that writes, and the connections that read.
//!
//! A call is a closure over a [`Tx`]. The writer puts all calls that wait together into one transaction (see `writer`); a
//! read has a connection and a snapshot of its own, and waits for nobody.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::errors::{is_broken, store_error};
use super::files::{FileId, beside, file_of};
use super::time::StoreTime;
use super::tx::{Known, Tx};
use super::writer::{Call, Ran, Writer};
use super::{SqliteOptions, open};
use crate::clock::monotonic;
use crate::names::Name;
use crate::queue::StoreError;

/// Readers that are kept open.
const READERS_KEPT: usize = 4;
/// How long whoever finds the file replaced waits for the connections to the old one to end.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// How long it sleeps between two looks.
const CLOSING_NAP: Duration = Duration::from_millis(1);

/// Whether the answer to a call promises that its work survives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// It does, if the store's durability says so.
    Kept,
    /// It does not: what is lost would be done again.
    Loose,
}

/// What the writer, the readers and the listeners share.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) namespace: Name,
    pub(super) options: SqliteOptions,
    pub(super) time: StoreTime,
    /// Held by whoever reads, and by the writer while it cuts the log back: SQLite can do that only without readers, and
    /// those of this process can be kept waiting for it.
    pub(super) reading: RwLock<()>,
    /// Connections for the next reads, and for the next transaction that writes.
    readers: Mutex<Vec<Opened>>,
    writer: Mutex<Option<Opened>>,
    /// The file that was opened last.
    current: Mutex<Option<Current>>,
    /// Whoever listens to signals, to be poked when there are some.
    listeners: Mutex<Vec<mpsc::SyncSender<()>>>,
}

/// The way to the file.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    calls: Mutex<Option<mpsc::Sender<Call>>>,
}

/// A connection, and which file it is to: the path may lead to another one later.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) known: RefCell<Known>,
    /// Where its log is.
    pub(super) log: PathBuf,
    /// Whether a commit waits for the disk.
    pub(super) full: bool,
    file: FileId,
    _user: Arc<()>,
}

/// A file, its log, and a handle for each connection to it.
struct Current {
    file: FileId,
    log: Option<FileId>,
    users: Arc<()>,
}

impl Link {
    pub(super) fn new(path: PathBuf, namespace: Name, options: SqliteOptions) -> Self {
        let time = StoreTime::new(Arc::clone(&options.clock));
        let shared = Shared {
            path,
            namespace,
            options,
            time,
            reading: RwLock::new(()),
            readers: Mutex::default(),
            writer: Mutex::default(),
            current: Mutex::default(),
            listeners: Mutex::default(),
        };
        Self { shared: Arc::new(shared), calls: Mutex::new(None) }
    }

    /// Does a call's work in a transaction that writes.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        promise: Promise,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let run = move |tx: Result<&Tx<'_>, StoreError>| {
            if answer.is_closed() {
                return Ran::Gone;
            }
            match tx.and_then(|tx| guarded(|| work(tx))) {
                Ok(done) => Ran::Done(Box::new(move |committed| drop(answer.send(committed.map(|()| done))))),
                Err(error) => Ran::Failed(error.clone(), Box::new(move |_| drop(answer.send(Err(error))))),
            }
        };
        self.send(Call { promise, run: Box::new(run) })?;
        self.wait(answered).await
    }

    /// Does a call's work on one state of the store, without writing.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let (answer, answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || drop(answer.send(shared.read(work))));
        self.wait(answered).await
    }

    async fn wait<T>(&self, answered: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
        let place = self.shared.path.display();
        match timeout(self.shared.options.call_timeout, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(StoreError::Unreachable(format!("{place}: the call was given up"))),
            Err(_) => Err(StoreError::Unreachable(format!(
                "{place}: no answer within {} s; another program may hold the file",
                self.shared.options.call_timeout.as_secs_f32()
            ))),
        }
    }

    /// Starts the writer with the first call.
    fn send(&self, call: Call) -> Result<(), StoreError> {
        let mut calls = self.calls.lock();
        let call = match &*calls {
            None => call,
            Some(sender) => match sender.send(call) {
                Ok(()) => return Ok(()),
                // The writer is gone, which nothing should do: another takes its place.
                Err(mpsc::SendError(call)) => call,
            },
        };
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("sqlite".to_owned())
            .spawn(move || Writer::new(shared).serve(&receiver))
            .map_err(|error| StoreError::NotReady(format!("cannot start the store's writer: {error}")))?;
        let sent = sender.send(call);
        *calls = Some(sender);
        sent.map_err(|_| StoreError::Unreachable("the store's writer ended; try again".to_owned()))
    }
}

/// A fault of ours in a call's work fails that call and nothing else.
fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(StoreError::Refused(
            "a fault within the store; the log has its message, please report it".to_owned(),
        ))
    })
}

impl Shared {
    /// Listens: a message in the returned channel says that there may be signals.
    pub(super) fn listen(&self) -> (mpsc::SyncSender<()>, mpsc::Receiver<()>) {
        let (poke, poked) = mpsc::sync_channel(1);
        self.listeners.lock().push(poke.clone());
        (poke, poked)
    }

    pub(super) fn poke_listeners(&self) {
        self.listeners
            .lock()
            .retain(|listener| !matches!(listener.try_send(()), Err(mpsc::TrySendError::Disconnected(()))));
    }

    /// How long a connection waits for another program: less than a call may take, so that its caller is told that
    /// nothing was done.
    pub(super) fn patience(&self) -> Duration {
        self.options.call_timeout * 9 / 10
    }

    /// The connection that the last transaction has left, if it is there.
    pub(super) fn take_writer(&self) -> Option<Opened> {
        self.writer.lock().take()
    }

    pub(super) fn keep_writer(&self, opened: Opened) {
        *self.writer.lock() = Some(opened);
    }

    /// True when the path leads elsewhere than when this was opened.
    pub(super) fn is_replaced(&self, opened: &Opened) -> bool {
        file_of(&self.path) != Some(opened.file)
    }

    /// Opens the file. The caller has no connection to it.
    pub(super) fn open(&self) -> Result<Opened, StoreError> {
        let mut current = self.current.lock();
        if let Some(old) = current.as_ref().filter(|old| file_of(&self.path) != Some(old.file)) {
            self.leave(old)?;
        }
        let connection = open::open(&self.path, self.patience())?;
        let log = beside(&self.path, "-wal");
        let file = file_of(&self.path).unwrap_or_default();
        let users = match current.take().filter(|current| current.file == file) {
            Some(current) => current.users,
            None => Arc::default(),
        };
        let user = Arc::clone(&users);
        *current = Some(Current { file, log: file_of(&log), users });
        Ok(Opened { connection, known: RefCell::default(), log, full: false, file, _user: user })
    }

    /// Takes leave of a file that was replaced or deleted.
    ///
    /// All connections to it end before there is one to the next: a process has its locks by file, not by connection, and
    /// the end of one would free those of the others on a file that the two have in common.
    fn leave(&self, old: &Current) -> Result<(), StoreError> {
        let place = self.path.display();
        let log = beside(&self.path, "-wal");
        let newcomer = std::fs::metadata(&self.path).is_ok_and(|file| file.len() > 0);
        let same_log = old.log.is_some() && file_of(&log) == old.log;
        if newcomer && same_log && std::fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Err(StoreError::Refused(format!(
                "{place} was replaced, and the log of the old file is still beside it, which would spoil the new one: \
                 end all programs that use it, and move {place}-wal and {place}-shm away"
            )));
        }
        let until = monotonic() + CLOSING_MAX;
        loop {
            self.readers.lock().clear();
            self.writer.lock().take();
            if Arc::strong_count(&old.users) == 1 {
                tracing::warn!(file = %place, "the store's file was replaced or deleted: opening it anew");
                return Ok(());
            }
            if monotonic() > until {
                return Err(StoreError::NotReady(format!(
                    "{place} was replaced or deleted, and a call still works on the old file; try again"
                )));
            }
            std::thread::sleep(CLOSING_NAP);
        }
    }

    /// As [`Link::read`], here and now.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let kept = self.readers.lock().pop().filter(|opened| !self.is_replaced(opened));
        let opened = match kept {
            Some(opened) => opened,
            None => self.open()?,
        };
        let done = self.read_with(&opened, |tx| guarded(|| work(tx)));
        let whole = !done.as_ref().is_err_and(is_broken) && opened.connection.is_autocommit();
        if whole && !self.is_replaced(&opened) {
            let mut readers = self.readers.lock();
            if readers.len() < READERS_KEPT {
                readers.push(opened);
            }
        }
        done
    }

    fn read_with<T>(
        &self,
        opened: &Opened,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let fail = |error: rusqlite::Error| store_error(&error, &self.path);
        let _reads = self.reading.read();
        let snapshot = opened.connection.unchecked_transaction().map_err(fail)?;
        let now_us = self.time.now_us(&opened.connection, false).map_err(fail)?;
        let mut tx = self.tx(opened, now_us);
        tx.enter(&self.namespace, false)?;
        let done = work(&tx)?;
        snapshot.commit().map_err(fail)?;
        Ok(done)
    }

    pub(super) fn tx<'a>(&'a self, opened: &'a Opened, now_us: u64) -> Tx<'a> {
        Tx::new(&opened.connection, &self.path, &self.options.sql_edits, &opened.known, now_us)
    }
}
