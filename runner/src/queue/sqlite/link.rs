//! The way to the file: one thread that writes, connections that read, and one transaction for all calls that wait
//! together (group commit).
//!
//! A call is a closure over a [`Tx`]. The writer takes the file's write lock once for all that wait, gives each call a
//! savepoint, so that one that fails takes nothing with it, commits, and answers. A call whose caller has gone before it
//! was begun is left out.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::errors::{is_broken, store_error};
use super::time::StoreTime;
use super::tx::{Known, Tx};
use super::{Durability, SqliteOptions, open};
use crate::names::Name;
use crate::queue::StoreError;

/// Most calls in one transaction.
const CALLS_MAX: usize = 128;
/// Readers that are kept open.
const READERS_KEPT: usize = 4;

/// Whether the answer to a call promises that its work survives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// It does, if the store's durability says so.
    Kept,
    /// It does not: what is lost would be done again.
    Loose,
}

/// Tells the caller how the commit went.
type Deliver = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
/// Does a call's work, or fails it. `Ok` is to be delivered after the commit; `Err` after its savepoint was undone.
type Run = Box<dyn FnOnce(Result<&Tx<'_>, StoreError>) -> Result<Deliver, Deliver> + Send>;

struct Call {
    promise: Promise,
    run: Run,
}

/// What the writer and the readers share.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) namespace: Name,
    pub(super) options: SqliteOptions,
    time: StoreTime,
    readers: Mutex<Vec<Opened>>,
    /// Whoever listens to signals, to be poked when there are some.
    listeners: Mutex<Vec<mpsc::SyncSender<()>>>,
}

/// The way to the file.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    calls: Mutex<Option<mpsc::Sender<Call>>>,
}

/// A connection, and which file it is to: the path may lead to another one later.
struct Opened {
    connection: Connection,
    known: RefCell<Known>,
    file: (u64, u64),
    /// Whether a commit waits for the disk.
    full: bool,
}

impl Link {
    pub(super) fn new(path: PathBuf, namespace: Name, options: SqliteOptions) -> Self {
        let time = StoreTime::new(Arc::clone(&options.clock));
        let shared =
            Shared { path, namespace, options, time, readers: Mutex::default(), listeners: Mutex::default() };
        Self { shared: Arc::new(shared), calls: Mutex::new(None) }
    }

    /// Does a call's work in a transaction that writes.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        promise: Promise,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let run = move |tx: Result<&Tx<'_>, StoreError>| -> Result<Deliver, Deliver> {
            if answer.is_closed() {
                return Err(Box::new(|_| {}));
            }
            match tx.and_then(work) {
                Ok(done) => Ok(Box::new(move |committed| drop(answer.send(committed.map(|()| done))))),
                Err(error) => Err(Box::new(move |_| drop(answer.send(Err(error))))),
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
        if let Some(sender) = &*calls {
            match sender.send(call) {
                Ok(()) => return Ok(()),
                // The writer is gone, which only a panic does: the next call starts another.
                Err(_) => {
                    *calls = None;
                    return Err(StoreError::Unreachable("the store's writer ended; try again".to_owned()));
                }
            }
        }
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::clone(&self.shared);
        std::thread::Builder::new()
            .name("sqlite".to_owned())
            .spawn(move || Writer { shared, opened: None }.serve(&receiver))
            .map_err(|error| StoreError::NotReady(format!("cannot start the store's writer: {error}")))?;
        let sent = sender.send(call);
        *calls = Some(sender);
        sent.map_err(|_| StoreError::Unreachable("the store's writer ended; try again".to_owned()))
    }
}

impl Shared {
    /// Listens: a message in the returned channel says that there may be signals.
    pub(super) fn listen(&self) -> (mpsc::SyncSender<()>, mpsc::Receiver<()>) {
        let (poke, poked) = mpsc::sync_channel(1);
        self.listeners.lock().push(poke.clone());
        (poke, poked)
    }

    fn poke_listeners(&self) {
        self.listeners
            .lock()
            .retain(|listener| !matches!(listener.try_send(()), Err(mpsc::TrySendError::Disconnected(()))));
    }

    fn open(&self) -> Result<Opened, StoreError> {
        let connection = open::open(&self.path, self.options.call_timeout)?;
        let file = file_of(&self.path).unwrap_or_default();
        Ok(Opened { connection, known: RefCell::default(), file, full: false })
    }

    /// As [`Link::read`], here and now.
    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let kept = self.readers.lock().pop().filter(|opened| file_of(&self.path) == Some(opened.file));
        let opened = match kept {
            Some(opened) => opened,
            None => self.open()?,
        };
        let done = self.read_with(&opened, work);
        if !done.as_ref().is_err_and(is_broken) && opened.connection.is_autocommit() {
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
        let snapshot = opened.connection.unchecked_transaction().map_err(fail)?;
        let now_us = self.time.now_us(&opened.connection, false).map_err(fail)?;
        let mut tx = Tx::new(&opened.connection, &self.path, &self.options.sql_edits, &opened.known, now_us);
        tx.enter(&self.namespace, false)?;
        let done = work(&tx)?;
        snapshot.commit().map_err(fail)?;
        Ok(done)
    }
}

/// Which file a path leads to.
pub(super) fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The one thread that writes.
struct Writer {
    shared: Arc<Shared>,
    opened: Option<Opened>,
}

impl Writer {
    fn serve(mut self, calls: &mpsc::Receiver<Call>) {
        let mut next = calls.recv().ok();
        while let Some(first) = next.take() {
            next = self.transact(first, calls).or_else(|| calls.recv().ok());
        }
    }

    /// One transaction: the first call and all that have come by the time that it has the lock. Returns a call that
    /// must wait for the next one.
    fn transact(&mut self, first: Call, calls: &mpsc::Receiver<Call>) -> Option<Call> {
        let full = self.promises(&first);
        if let Err(error) = self.begin(full) {
            fail(first, &error);
            return None;
        }
        let opened = self.opened.as_ref()?;
        let mut left_over = None;
        let mut batch = vec![first];
        while batch.len() < CALLS_MAX {
            match calls.try_recv() {
                Ok(call) if full || !self.promises(&call) => batch.push(call),
                Ok(call) => {
                    left_over = Some(call);
                    break;
                }
                Err(_) => break,
            }
        }
        let (done, signalled) = work(&self.shared, opened, batch);
        let committed = match &done {
            Ok(_) => end(opened, &self.shared.path, "COMMIT"),
            Err((_, error)) => Err(error.clone()),
        };
        if let Err(error) = &committed {
            // What this connection believes may have been undone.
            let undone = end(opened, &self.shared.path, "ROLLBACK");
            opened.known.take();
            if is_broken(error) || undone.is_err() && !opened.connection.is_autocommit() {
                self.opened = None;
            }
        }
        let (Ok(deliveries) | Err((deliveries, _))) = done;
        for deliver in deliveries {
            deliver(committed.clone());
        }
        if signalled && committed.is_ok() {
            self.shared.poke_listeners();
        }
        left_over
    }

    fn promises(&self, call: &Call) -> bool {
        call.promise == Promise::Kept && self.shared.options.durability == Durability::Full
    }

    /// Takes the file's write lock.
    fn begin(&mut self, full: bool) -> Result<(), StoreError> {
        if self.opened.as_ref().is_some_and(|opened| file_of(&self.shared.path) != Some(opened.file)) {
            tracing::warn!(file = %self.shared.path.display(), "the store's file was replaced or deleted: opening it anew");
            self.opened = None;
        }
        if self.opened.is_none() {
            self.opened = Some(self.shared.open()?);
        }
        let Some(opened) = self.opened.as_mut() else { return Ok(()) };
        let fail = |error: rusqlite::Error| store_error(&error, &self.shared.path);
        if opened.full != full {
            let level = if full { "FULL" } else { "NORMAL" };
            opened.connection.pragma_update(None, "synchronous", level).map_err(fail)?;
            opened.full = full;
        }
        let begun = end(opened, &self.shared.path, "BEGIN IMMEDIATE");
        if begun.as_ref().is_err_and(is_broken) {
            self.opened = None;
        }
        begun
    }
}

fn fail(call: Call, error: &StoreError) {
    let (Ok(deliver) | Err(deliver)) = (call.run)(Err(error.clone()));
    deliver(Err(error.clone()));
}

fn end(opened: &Opened, path: &Path, sql: &str) -> Result<(), StoreError> {
    let run = || opened.connection.prepare_cached(sql)?.execute([]);
    run().map(drop).map_err(|error| store_error(&error, path))
}

type Worked = Result<Vec<Deliver>, (Vec<Deliver>, StoreError)>;

/// Does the work of a batch within the transaction that has begun: who is to be told after the commit, and whether there
/// are signals. An error is one after which nothing of it can be kept.
fn work(shared: &Shared, opened: &Opened, batch: Vec<Call>) -> (Worked, bool) {
    let mut deliveries = Vec::with_capacity(batch.len());
    let now_us =
        shared.time.now_us(&opened.connection, true).map_err(|error| store_error(&error, &shared.path));
    let entered = now_us.and_then(|now_us| {
        let mut tx =
            Tx::new(&opened.connection, &shared.path, &shared.options.sql_edits, &opened.known, now_us);
        tx.enter(&shared.namespace, true).map(|()| tx)
    });
    let tx = match entered {
        Ok(tx) => tx,
        Err(error) => {
            batch.into_iter().for_each(|call| fail(call, &error));
            return (Err((deliveries, error)), false);
        }
    };
    let mut calls = batch.into_iter();
    while let Some(call) = calls.next() {
        let begun = end(opened, &shared.path, "SAVEPOINT call");
        if let Err(error) = begun {
            fail(call, &error);
            calls.for_each(|call| fail(call, &error));
            return (Err((deliveries, error)), false);
        }
        match (call.run)(Ok(&tx)) {
            Ok(deliver) => deliveries.push(deliver),
            Err(deliver) => {
                let undone = end(opened, &shared.path, "ROLLBACK TO call");
                // What the call believed to have made is gone.
                opened.known.take();
                deliver(Ok(()));
                if let Err(error) = undone {
                    // A full disk may have ended the whole transaction.
                    calls.for_each(|call| fail(call, &error));
                    return (Err((deliveries, error)), false);
                }
            }
        }
        if let Err(error) = end(opened, &shared.path, "RELEASE call") {
            calls.for_each(|call| fail(call, &error));
            return (Err((deliveries, error)), false);
        }
    }
    let signalled = tx.has_signalled();
    (Ok(deliveries), signalled)
}
