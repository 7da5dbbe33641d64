//! The one thread that writes: one transaction for all calls that wait together (group commit).
//!
//! The writer takes the file's write lock once, gives each call a savepoint, so that one that fails takes nothing with it,
//! commits, and answers. A call whose caller has gone before it was begun is left out. Whatever happens to a call, the
//! writer lives on: a runner without one would stand still.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::Durability;
use super::errors::{is_broken, store_error};
use super::files::bytes_of;
use super::link::{Opened, Promise, Shared};
use super::open::wait_for_locks;
use super::tx::Tx;
use super::wakes::touch;
use crate::clock::{Monotonic, monotonic};
use crate::queue::StoreError;

/// Most calls in one transaction.
const CALLS_MAX: usize = 128;
/// After so long a transaction takes no further call: other programs wait for the lock, and the log holds all of it.
const TAKING_CALLS: Duration = Duration::from_millis(10);
/// A log that is longer is cut back, in bytes. SQLite does that by itself only at a moment without any reader.
const LOG_BYTES_MAX: u64 = 32 << 20;
/// How long that waits for readers to end: the writers of all programs wait with it.
const LOG_PATIENCE: Duration = Duration::from_millis(20);
/// The pause before another attempt.
const LOG_PAUSE: Duration = Duration::from_secs(1);
/// From here on the log is worth a longer wait each time that it has grown by a quarter.
const LOG_BYTES_URGENT: u64 = 44 << 20;
const LOG_PATIENCE_URGENT: Duration = Duration::from_millis(500);

/// Tells the caller how the commit went.
pub(super) type Deliver = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What became of a call within its transaction.
pub(super) enum Ran {
    /// To be told after the commit.
    Done(Deliver),
    /// To be told once its savepoint was undone.
    Failed(StoreError, Deliver),
    /// Nobody waits for it any more, and nothing was done.
    Gone,
}

/// Does a call's work, or fails it.
type Run = Box<dyn FnOnce(Result<&Tx<'_>, StoreError>) -> Ran + Send>;

/// A call that waits for the writer.
pub(super) struct Call {
    pub(super) promise: Promise,
    pub(super) run: Run,
}

impl Call {
    fn fail(self, error: &StoreError) {
        if let Ran::Done(deliver) | Ran::Failed(_, deliver) = (self.run)(Err(error.clone())) {
            deliver(Err(error.clone()));
        }
    }
}

/// The calls of a transaction: the first, and those that come while it takes more.
struct Batch<'a> {
    first: Option<Call>,
    calls: &'a mpsc::Receiver<Call>,
    /// False when the commit keeps no promise, and a call that wants one has to wait for the next.
    takes_all: bool,
    taken: usize,
    until: Monotonic,
    left_over: Option<Call>,
}

impl Iterator for Batch<'_> {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        self.taken += 1;
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if self.taken > CALLS_MAX || self.left_over.is_some() || monotonic() > self.until {
            return None;
        }
        let call = self.calls.try_recv().ok()?;
        if self.takes_all || call.promise == Promise::Loose {
            return Some(call);
        }
        self.left_over = Some(call);
        None
    }
}

/// The one thread that writes.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// When the log may be cut back, if it has not grown to so many bytes before.
    log_after: Monotonic,
    log_grown: u64,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, log_after: monotonic(), log_grown: LOG_BYTES_URGENT }
    }

    /// Until all who may call are gone.
    pub(super) fn serve(mut self, calls: &mpsc::Receiver<Call>) {
        let mut next = calls.recv().ok();
        while let Some(first) = next.take() {
            // A fault of ours drops the connection, which undoes the transaction, and the callers are told that it was given up.
            let transacted = catch_unwind(AssertUnwindSafe(|| self.transact(first, calls)));
            next = transacted.unwrap_or(None).or_else(|| calls.recv().ok());
        }
    }

    /// One transaction. Returns a call that must wait for the next one.
    fn transact(&mut self, first: Call, calls: &mpsc::Receiver<Call>) -> Option<Call> {
        let by_power = self.shared.options.durability == Durability::Full;
        let full = by_power && first.promise == Promise::Kept;
        let mut opened = match self.begin(full) {
            Ok(opened) => opened,
            Err(error) => {
                first.fail(&error);
                return None;
            }
        };
        let until = monotonic() + TAKING_CALLS;
        let takes_all = full || !by_power;
        let mut batch = Batch { first: Some(first), calls, takes_all, taken: 0, until, left_over: None };
        let mut deliveries = Vec::new();
        let worked = work(&self.shared, &opened, &mut batch, &mut deliveries);
        let committed =
            worked.and_then(|signalled| run(&opened, &self.shared.path, "COMMIT").map(|()| signalled));
        let mut whole = true;
        if let Err(error) = &committed {
            // What this connection believes may have been undone.
            opened.known.take();
            whole = !is_broken(error)
                && (opened.connection.is_autocommit() || run(&opened, &self.shared.path, "ROLLBACK").is_ok());
        }
        let answer = committed.clone().map(drop);
        for deliver in deliveries {
            deliver(answer.clone());
        }
        if committed == Ok(true) {
            self.shared.poke_listeners();
            touch(&opened.log);
        }
        if whole {
            self.keep_log_short(&mut opened);
            self.shared.keep_writer(opened);
        }
        batch.left_over
    }

    /// Takes the file's write lock.
    fn begin(&mut self, full: bool) -> Result<Opened, StoreError> {
        let shared = &self.shared;
        let mut kept = shared.take_writer();
        if kept.as_ref().is_some_and(|opened| shared.is_replaced(opened)) {
            kept = None;
        }
        let mut opened = match kept {
            Some(opened) => opened,
            None => shared.open()?,
        };
        if opened.full != full {
            let level = if full { "FULL" } else { "NORMAL" };
            let set = opened.connection.pragma_update(None, "synchronous", level);
            set.map_err(|error| store_error(&error, &shared.path))?;
            opened.full = full;
        }
        match run(&opened, &shared.path, "BEGIN IMMEDIATE") {
            Ok(()) => Ok(opened),
            Err(error) => {
                if !is_broken(&error) {
                    shared.keep_writer(opened);
                }
                Err(error)
            }
        }
    }

    /// Cuts the log back when it is long. What that cannot do now, a later attempt does.
    fn keep_log_short(&mut self, opened: &mut Opened) {
        let bytes = bytes_of(&opened.log);
        if bytes <= LOG_BYTES_MAX {
            self.log_grown = LOG_BYTES_URGENT;
            return;
        }
        let urgent = bytes >= self.log_grown;
        if !urgent && monotonic() < self.log_after {
            return;
        }
        let connection = &mut opened.connection;
        let patience = if urgent { LOG_PATIENCE_URGENT } else { LOG_PATIENCE };
        // Whether or not the readers of this process end in time: those of others may have.
        let _alone = self.shared.reading.try_write_for(patience);
        let cut = wait_for_locks(connection, patience).and_then(|()| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        if cut != Ok(false) {
            tracing::debug!(file = %self.shared.path.display(), ?cut, "the store's log cannot be cut back yet");
        }
        let restored = wait_for_locks(connection, self.shared.patience());
        if let Err(error) = restored {
            tracing::debug!("the store's patience could not be restored: {error}");
        }
        self.log_after = monotonic() + LOG_PAUSE;
        if urgent {
            self.log_grown = bytes + bytes / 4;
        }
    }
}

fn run(opened: &Opened, path: &Path, sql: &str) -> Result<(), StoreError> {
    let run = || opened.connection.prepare_cached(sql)?.execute([]);
    run().map(drop).map_err(|error| store_error(&error, path))
}

/// Does the calls' work within the transaction that has begun; whether there are signals. Adds who is to be told after the
/// commit. An error is one after which nothing of the transaction can be kept.
fn work(
    shared: &Shared,
    opened: &Opened,
    batch: &mut Batch<'_>,
    deliveries: &mut Vec<Deliver>,
) -> Result<bool, StoreError> {
    let entered = shared
        .time
        .now_us(&opened.connection, true)
        .map_err(|error| store_error(&error, &shared.path))
        .and_then(|now_us| {
            let mut tx = shared.tx(opened, now_us);
            tx.enter(&shared.namespace, true).map(|()| tx)
        });
    let mut tx = match entered {
        Ok(tx) => tx,
        Err(error) => {
            if let Some(first) = batch.first.take() {
                first.fail(&error);
            }
            return Err(error);
        }
    };
    for (place, call) in batch.enumerate() {
        // A call may have come in since the transaction began: its delays count from a reading of its own.
        let read = match place {
            0 => Ok(tx.now_us),
            _ => shared.time.now_us(&opened.connection, true).map_err(|e| store_error(&e, &shared.path)),
        };
        let begun = read.map(|now_us| tx.tell_time(now_us));
        if let Err(error) = begun.and_then(|()| run(opened, &shared.path, "SAVEPOINT call")) {
            call.fail(&error);
            return Err(error);
        }
        match (call.run)(Ok(&tx)) {
            Ran::Done(deliver) => deliveries.push(deliver),
            Ran::Failed(error, deliver) => {
                // What the call believed to have made is gone.
                opened.known.take();
                // A full disk, among others, ends the whole transaction.
                let undone = match opened.connection.is_autocommit() {
                    true => Err(error),
                    false => run(opened, &shared.path, "ROLLBACK TO call"),
                };
                deliver(Ok(()));
                undone?;
            }
            Ran::Gone => {}
        }
        run(opened, &shared.path, "RELEASE call")?;
    }
    Ok(tx.has_signalled())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::super::SqliteOptions;
    use super::super::link::Link;
    use super::*;
    use crate::clock::{HostClock, SystemClock};
    use crate::names::Name;

    fn link(options: SqliteOptions) -> (TempDir, Link) {
        let folder = tempfile::tempdir().expect("a folder");
        let link = Link::new(folder.path().join("jobs.db"), Name::new("n").expect("a name"), options);
        (folder, link)
    }

    async fn keep(link: &Link, word: &'static str) -> Result<usize, StoreError> {
        link.write(Promise::Kept, move |tx| tx.exec("INSERT INTO queues (ns, name) VALUES (1, ?1)", [word]))
            .await
    }

    async fn kept(link: &Link) -> Vec<String> {
        link.read(|tx| tx.rows("SELECT name FROM queues ORDER BY queue", [], |row| row.get(0)))
            .await
            .expect("read")
    }

    /// Another program takes the write lock, so that the calls that come now wait for it together.
    fn hold(link: &Link) -> Connection {
        let client = Connection::open(&link.shared.path).expect("opened");
        client.execute_batch("BEGIN IMMEDIATE").expect("held");
        client
    }

    #[tokio::test]
    async fn a_fault_in_a_call_fails_that_call_alone() {
        let (_folder, link) = link(SqliteOptions::default());
        assert_eq!(keep(&link, "a").await, Ok(1));
        let client = hold(&link);
        let faulty = link.write::<()>(Promise::Kept, |tx| {
            tx.exec("DELETE FROM queues", [])?;
            panic!("on purpose");
        });
        let (before, failed, after, _) = tokio::join!(keep(&link, "b"), faulty, keep(&link, "c"), async {
            client.execute_batch("ROLLBACK")
        });
        assert_eq!((before, after), (Ok(1), Ok(1)));
        assert!(matches!(&failed, Err(StoreError::Refused(_))), "{failed:?}");
        let read = link.read::<()>(|_| panic!("on purpose")).await;
        assert!(matches!(&read, Err(StoreError::Refused(_))), "{read:?}");
        assert_eq!(kept(&link).await, ["a", "b", "c"]);
    }

    /// A clock that fails when it is told to.
    #[derive(Default)]
    struct Faulty(AtomicBool);

    impl HostClock for Faulty {
        fn wall_us(&self) -> u64 {
            assert!(!self.0.load(Relaxed), "on purpose");
            SystemClock.wall_us()
        }
        fn boot_us(&self) -> u64 {
            SystemClock.boot_us()
        }
        fn boot_id(&self) -> &str {
            SystemClock.boot_id()
        }
    }

    #[tokio::test]
    async fn a_fault_outside_of_the_calls_does_not_end_the_writer() {
        let clock = Arc::<Faulty>::default();
        let (_folder, link) = link(SqliteOptions { clock: clock.clone(), ..SqliteOptions::default() });
        assert_eq!(keep(&link, "a").await, Ok(1));
        clock.0.store(true, Relaxed);
        for _ in 0..2 {
            let failed = keep(&link, "b").await;
            assert!(matches!(&failed, Err(StoreError::Unreachable(_))), "{failed:?}");
        }
        clock.0.store(false, Relaxed);
        assert_eq!(keep(&link, "c").await, Ok(1));
        assert_eq!(kept(&link).await, ["a", "c"]);
    }

    #[tokio::test]
    async fn calls_that_share_a_transaction_with_one_that_finds_no_room_are_told_so() {
        let (_folder, link) = link(SqliteOptions::default());
        assert_eq!(keep(&link, "a").await, Ok(1));
        let limit = |pages: u32| {
            link.write(Promise::Loose, move |tx| tx.number(&format!("PRAGMA max_page_count = {pages}"), []))
        };
        limit(40).await.expect("set");
        let client = hold(&link);
        let large = link
            .write(Promise::Kept, |tx| tx.exec("INSERT INTO logs VALUES (1, 1, hex(zeroblob(1000000)))", []));
        let (before, failed, after, _) = tokio::join!(keep(&link, "b"), large, keep(&link, "c"), async {
            client.execute_batch("ROLLBACK")
        });
        for answer in [before, failed] {
            assert!(matches!(&answer, Err(StoreError::Full(_))), "{answer:?}");
        }
        assert_eq!(after, Ok(1), "it comes in the next transaction");
        assert_eq!(kept(&link).await, ["a", "c"]);
        limit(1_000_000).await.expect("set");
        assert_eq!(keep(&link, "d").await, Ok(1));
    }
}
