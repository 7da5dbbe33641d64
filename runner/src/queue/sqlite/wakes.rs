//! Wake-ups: signals are rows that a call writes with its work; whoever listens reads those that it has not seen.
//!
//! A listener looks when the store in this process has signalled, when the system says that the log file has been touched, and,
//! because not every file system does, every [`LOOK_EVERY`]: a look is a read of a counter in shared memory, and only a
//! counter that has changed leads to a query. Where the system has been heard it looks by itself less often, so that an idle runner is idle.
//!
//! Whoever has committed a signal touches the log. That it was written is told by the system too, but before anybody can see what was, and
//! for each heartbeat.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use notify::event::ModifyKind;
use notify::{EventKind, RecursiveMode, Watcher};
use rusqlite::Connection;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::SqliteStore;
use super::errors::store_error;
use super::link::Shared;
use crate::names::Name;
use crate::queue::{Lane, SessionId, StoreError, Wake};

/// Wake-ups that may wait for the receiver; beyond that it looks at everything anyway.
const WAITING_MAX: usize = 1_024;
/// How long a signal of another process may wait where the file system tells nothing.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// The same where it does, as often as heartbeats look for lost signals.
const LOOK_EVERY_HEARD: Duration = Duration::from_secs(1);
/// Signals that are kept for those that have not looked yet.
const SIGNALS_KEPT: u64 = 4_096;
/// The pause before another attempt to open the file.
const PAUSE: Duration = Duration::from_millis(500);

impl SqliteStore {
    pub(super) fn listen(&self) -> mpsc::Receiver<Wake> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let shared = Arc::clone(&self.link.shared);
        let spawned = std::thread::Builder::new()
            .name("sqlite-wakes".to_owned())
            .spawn(move || Listener { shared, sender }.listen());
        if let Err(error) = spawned {
            tracing::warn!("cannot listen to wake-ups, so jobs may start up to a second late: {error}");
        }
        receiver
    }
}

struct Listener {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Wake>,
}

impl Listener {
    /// Until the receiver is gone.
    fn listen(self) {
        let (poke, poked) = self.shared.listen();
        while !self.sender.is_closed() {
            // A file that cannot be opened keeps the runner's own calls away, which tell of it.
            let _ = self.relay(&poke, &poked);
            if poked.recv_timeout(PAUSE) == Err(RecvTimeoutError::Disconnected) {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Hands signals on until the receiver is gone, or the file.
    fn relay(&self, poke: &SyncSender<()>, poked: &Receiver<()>) -> Result<(), StoreError> {
        let opened = self.shared.open()?;
        let heard = Arc::new(AtomicBool::new(false));
        let _watcher = watch(&opened.log, poke.clone(), Arc::clone(&heard));
        // Is it heard?
        touch(&opened.log);
        let connection = &opened.connection;
        let fail = |error: rusqlite::Error| store_error(&error, &self.shared.path);
        let mut last = last_signal(connection).map_err(fail)?;
        let mut version = None;
        // Until the receiver has heard this, nothing else matters.
        if self.sender.blocking_send(Wake::Missed).is_err() {
            return Ok(());
        }
        // The path may lead to another file later, and nobody writes to this one any more.
        while !self.sender.is_closed() && !self.shared.is_replaced(&opened) {
            let now = data_version(connection).map_err(fail)?;
            if version != Some(now) {
                version = Some(now);
                let missed = self.hand_on(connection, &mut last).map_err(fail)?;
                if missed && self.sender.blocking_send(Wake::Missed).is_err() {
                    return Ok(());
                }
            }
            let every = if heard.load(Ordering::Relaxed) { LOOK_EVERY_HEARD } else { LOOK_EVERY };
            match poked.recv_timeout(every) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_EVERY),
            }
        }
        Ok(())
    }

    /// Hands on what is new. True when something was not, for want of room or because it is gone already.
    fn hand_on(&self, connection: &Connection, last: &mut i64) -> rusqlite::Result<bool> {
        // Most of what is written is no signal.
        if last_signal(connection)? == *last {
            return Ok(false);
        }
        // In one snapshot: what comes between the two queries would be taken for seen.
        let _snapshot = connection.unchecked_transaction()?;
        let mut statement = connection.prepare_cached(
            "SELECT wake, queues.name, kind, due_ms, session FROM wakes \
             JOIN namespaces ON namespaces.ns = wakes.ns \
             LEFT JOIN lanes ON lanes.lane = wakes.lane LEFT JOIN queues ON queues.queue = lanes.queue \
             WHERE wake > ?1 AND namespaces.name = ?2 ORDER BY wake",
        )?;
        let mut missed = false;
        let mut rows = statement.query((*last, self.shared.namespace.as_str()))?;
        while let Some(row) = rows.next()? {
            let wake: i64 = row.get(0)?;
            *last = wake;
            let Some(wake) = read_wake(row)? else { continue };
            missed |= matches!(self.sender.try_send(wake), Err(TrySendError::Full(_)));
        }
        drop(rows);
        // The signals of other namespaces count too: what is behind the last is new.
        let (first, newest): (Option<i64>, Option<i64>) = connection
            .prepare_cached("SELECT min(wake), max(wake) FROM wakes")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        missed |= first.is_some_and(|first| first > *last + 1 && newest > Some(*last));
        *last = newest.unwrap_or(*last).max(*last);
        Ok(missed)
    }
}

fn read_wake(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Wake>> {
    if let Some(session) = row.get::<_, Option<String>>(4)? {
        return Ok(Some(Wake::Recall(SessionId(session.into()))));
    }
    let (queue, kind): (Option<String>, Option<String>) = (row.get(1)?, row.get(2)?);
    let name = |text: Option<String>| text.and_then(|text| Name::new(&text).ok());
    let Some((queue, kind)) = name(queue).zip(name(kind)) else { return Ok(None) };
    Ok(Some(Wake::Due { lane: Lane { queue, kind }, due_ms: row.get(3)? }))
}

/// Changes whenever another connection has written.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn last_signal(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("SELECT ifnull(max(wake), 0) FROM wakes")?.query_row([], |row| row.get(0))
}

/// Pokes when the system says that the log was touched, and notes that it does. Without that, the listener looks by itself.
fn watch(log: &Path, poke: SyncSender<()>, heard: Arc<AtomicBool>) -> Option<notify::RecommendedWatcher> {
    let (folder, log) = (log.parent()?.to_owned(), log.file_name()?.to_owned());
    let changed = move |event: notify::Result<notify::Event>| {
        let touched = |kind| matches!(kind, EventKind::Modify(ModifyKind::Metadata(_)));
        let ours = |event: &notify::Event| event.paths.iter().any(|path| path.file_name() == Some(&log));
        if event.is_ok_and(|event| touched(event.kind) && ours(&event)) {
            heard.store(true, Ordering::Relaxed);
            // One poke that waits is enough.
            let _ = poke.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(changed).ok()?;
    watcher.watch(&folder, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}

/// Tells whoever watches the log that a signal is there to be seen. One that is not told looks a little later.
pub(super) fn touch(log: &Path) {
    let Ok(path) = CString::new(log.as_os_str().as_bytes()) else { return };
    // SAFETY: the path lives during the call, and no times are read where there is no pointer to them.
    unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) };
}

/// Removes signals that everybody has had time to see.
pub(super) fn trim_signals(tx: &super::tx::Tx<'_>) -> Result<(), StoreError> {
    tx.exec("DELETE FROM wakes WHERE wake < (SELECT max(wake) FROM wakes) - ?1", [SIGNALS_KEPT]).map(drop)
}
