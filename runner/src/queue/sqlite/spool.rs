//! The spool: a bounded file of jobs that wait until their store answers.
//!
//! Every process of the machine may put jobs in, and one at a time takes those for a store out ([`Drainer`]). A job leaves the
//! file only after the store has answered for it, so that a crash at any moment repeats it under the same id. The file is
//! opened for each step: it may come, go and be replaced at any time.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use sha2::{Digest, Sha256};

pub use self::errors::SpoolError;
use self::errors::sql;
pub use self::list::{SpoolDeleted, SpoolEntry, SpoolRest};
use self::rows::IS_ROW;
pub(crate) use self::rows::{RowKey, Waiting};
use crate::clock::{HostClock, SystemClock};
use crate::job::NewJob;

mod errors;
mod file;
mod list;
mod rows;
#[cfg(test)]
mod tests;

/// So many failures in a row, and a store is not asked for a while.
const FAILURES_MAX: u64 = 5;
/// How long it is not asked.
const REST: Duration = Duration::from_secs(30);

/// How much a [`Spool`] takes.
#[derive(Clone)]
pub struct SpoolOptions {
    /// Most jobs that the file holds, those that are set aside among them.
    pub jobs: u64,
    /// Most bytes that they count for: payload and texts of each, and 256 for the rest.
    pub bytes: u64,
    /// The machine's clocks.
    #[doc(hidden)]
    pub clock: Arc<dyn HostClock>,
}

impl Default for SpoolOptions {
    /// 100,000 jobs, 256 MiB.
    fn default() -> Self {
        Self { jobs: 100_000, bytes: 256 << 20, clock: Arc::new(SystemClock) }
    }
}

/// The spool in a folder. Cheap to clone; making one touches nothing.
#[derive(Clone)]
pub struct Spool {
    dir: PathBuf,
    options: SpoolOptions,
}

/// What is known of one store in the spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// Whether jobs for it wait.
    pub(crate) waiting: bool,
    /// How often in a row it did not answer.
    pub(crate) failures: u64,
    /// Whether it is not to be asked now.
    pub(crate) resting: bool,
}

/// The right to take the jobs for some stores out of the spool: one process has it, until it drops this or ends.
#[derive(Debug)]
pub(crate) struct Drainer {
    stores: Vec<String>,
    #[allow(dead_code, reason = "they hold the locks")]
    locks: Vec<File>,
}

impl Spool {
    /// The spool in this folder. Folder and file are made when the first job comes.
    pub fn new(dir: &Path, options: SpoolOptions) -> Self {
        Self { dir: dir.to_owned(), options }
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.dir.join("spool.db")
    }

    /// Whether there is a file. Costs a look at the folder.
    pub fn exists(&self) -> bool {
        // One that cannot be looked at counts as there: whoever opens it finds out why.
        self.path().try_exists().unwrap_or(true)
    }

    /// Puts jobs with ids in, all or none, behind all others. `unsure` says that the store may have them; `failed`, that
    /// it was asked in vain. How many jobs for this store wait then.
    pub(crate) fn append(
        &self,
        store: &str,
        jobs: &[NewJob],
        unsure: bool,
        failed: bool,
    ) -> Result<u64, SpoolError> {
        self.write(true, |tx| {
            let (held, bytes): (u64, u64) = tx
                .query_row("SELECT jobs, bytes FROM totals", [], |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(sql(self))?;
            let more: u64 = jobs.iter().map(rows::cost).sum();
            let options = &self.options;
            if held + jobs.len() as u64 > options.jobs || bytes + more > options.bytes {
                return Err(self.full(held, bytes));
            }
            for job in jobs {
                rows::insert(tx, store, job, unsure, &*options.clock).map_err(sql(self))?;
            }
            if failed {
                self.count_failure(tx, store).map_err(sql(self))?;
            }
            tx.query_row("SELECT count(*) FROM jobs WHERE store = ?1 AND aside IS NULL", [store], |row| {
                row.get(0)
            })
            .map_err(sql(self))
        })
        .map(Option::unwrap_or_default)
    }

    /// What is known of a store.
    pub(crate) fn outlook(&self, store: &str) -> Result<Outlook, SpoolError> {
        let found = self.read(|tx| {
            let waiting = tx
                .query_row(
                    "SELECT EXISTS (SELECT 1 FROM jobs WHERE store = ?1 AND aside IS NULL)",
                    [store],
                    |row| row.get(0),
                )
                .map_err(sql(self))?;
            let failures = tx
                .query_row("SELECT count, boot, boot_us FROM failures WHERE store = ?1", [store], |row| {
                    Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?, row.get::<_, u64>(2)?))
                })
                .optional()
                .map_err(sql(self))?;
            let clock = &self.options.clock;
            let (failures, resting) = match failures {
                Some((count, boot, at_us)) => {
                    let since_us = clock.boot_us().checked_sub(at_us).filter(|_| boot == clock.boot_id());
                    let recent = since_us.is_some_and(|us| Duration::from_micros(us) < REST);
                    (count, recent && count >= FAILURES_MAX)
                }
                None => (0, false),
            };
            Ok(Outlook { waiting, failures, resting })
        });
        found.map(Option::unwrap_or_default)
    }

    /// Notes that a store has answered.
    pub(crate) fn answered(&self, store: &str) -> Result<(), SpoolError> {
        let forget = |tx: &Transaction<'_>| {
            tx.execute("DELETE FROM failures WHERE store = ?1", [store]).map_err(sql(self)).map(drop)
        };
        self.write(false, forget).map(drop)
    }

    fn count_failure(&self, tx: &Transaction<'_>, store: &str) -> rusqlite::Result<()> {
        let clock = &self.options.clock;
        tx.execute(
            "INSERT INTO failures VALUES (?1, 1, ?2, ?3) ON CONFLICT (store) DO UPDATE SET \
             count = iif(boot = excluded.boot, count + 1, 1), boot = excluded.boot, boot_us = excluded.boot_us",
            (store, clock.boot_id(), clock.boot_us()),
        )
        .map(drop)
    }

    /// The right to take jobs for a store out; `None` while another process has it.
    pub(crate) fn drainer(&self, store: &str) -> Result<Option<Drainer>, SpoolError> {
        self.drainer_of(vec![store.to_owned()])
    }

    /// The same for this store and all for which jobs wait now; `None` while another process has it for one of them.
    pub(crate) fn drainer_of_all(&self, store: &str) -> Result<Option<Drainer>, SpoolError> {
        let mut stores: BTreeSet<String> = self.rest(store)?.others.into_iter().map(|(of, _)| of).collect();
        stores.insert(store.to_owned());
        self.drainer_of(stores.into_iter().collect())
    }

    fn drainer_of(&self, stores: Vec<String>) -> Result<Option<Drainer>, SpoolError> {
        let mut locks = Vec::with_capacity(stores.len());
        for store in &stores {
            match self.lock(store)? {
                Some(lock) => locks.push(lock),
                None => return Ok(None),
            }
        }
        Ok(Some(Drainer { stores, locks }))
    }

    fn lock(&self, store: &str) -> Result<Option<File>, SpoolError> {
        let name: String = Sha256::digest(store)[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = self.dir.join(format!("spool-{name}.lock"));
        let failed = |error: io::Error| SpoolError::Unusable(format!("{}: {error}", path.display()));
        // A lock asks for no right to write, so that another user's file will do.
        let file = match OpenOptions::new().read(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o660)
                .open(&path)
                .map_err(failed)?,
            opened => opened.map_err(failed)?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The next jobs, in order, at most `most` and no more than one call of a store takes.
    pub(crate) fn next(&self, drainer: &Drainer, most: usize) -> Result<Vec<Waiting>, SpoolError> {
        let clock = &*self.options.clock;
        let found = self.read(|tx| rows::next(tx, &drainer.stores, most, clock).map_err(sql(self)));
        found.map(Option::unwrap_or_default)
    }

    /// Notes that a store may have these from now on, or, without `unsure`, that it has not.
    pub(crate) fn unsure(&self, _: &Drainer, keys: &[RowKey], unsure: bool) -> Result<(), SpoolError> {
        let note = |tx: &Transaction<'_>| {
            for key in keys {
                let note = format!("UPDATE jobs SET unsure = {unsure} WHERE {IS_ROW}");
                tx.prepare_cached(&note)
                    .and_then(|mut note| note.execute(key.params()))
                    .map_err(sql(self))?;
            }
            Ok(())
        };
        self.write(false, note).map(drop)
    }

    /// Takes out what the store has answered for, and sets aside what it has refused, with the reason.
    pub(crate) fn settle(
        &self,
        _: &Drainer,
        done: &[RowKey],
        refused: &[(RowKey, String)],
    ) -> Result<(), SpoolError> {
        let settle = |tx: &Transaction<'_>| {
            for key in done {
                let take = format!("DELETE FROM jobs WHERE {IS_ROW}");
                tx.prepare_cached(&take)
                    .and_then(|mut take| take.execute(key.params()))
                    .map_err(sql(self))?;
            }
            for (key, why) in refused {
                let (place, store, queue, id, source) = key.params();
                tx.execute(
                    &format!("UPDATE jobs SET aside = ?6 WHERE {IS_ROW}"),
                    (place, store, queue, id, source, why),
                )
                .map_err(sql(self))?;
            }
            Ok(())
        };
        self.write(false, settle).map(drop)
    }

    fn full(&self, jobs: u64, bytes: u64) -> SpoolError {
        let SpoolOptions { jobs: jobs_max, bytes: bytes_max, .. } = self.options;
        SpoolError::Full(format!(
            "{} has no room: it holds {jobs} jobs of at most {jobs_max}, and {bytes} bytes of at most {bytes_max}; try again \
             when the store is back, or raise spool_jobs or spool_bytes",
            self.path().display()
        ))
    }

    /// Reads one state of the file. `None` when there is none.
    fn read<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SpoolError>,
    ) -> Result<Option<T>, SpoolError> {
        self.step(false, TransactionBehavior::Deferred, work)
    }

    /// Changes the file in one transaction; what it answers is on the disk. `None` when there is none, unless it is to be made.
    fn write<T>(
        &self,
        make: bool,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SpoolError>,
    ) -> Result<Option<T>, SpoolError> {
        self.step(make, TransactionBehavior::Immediate, work)
    }

    fn step<T>(
        &self,
        make: bool,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, SpoolError>,
    ) -> Result<Option<T>, SpoolError> {
        if make {
            self.make_dir()?;
        } else if !self.exists() {
            return Ok(None);
        }
        let mut connection: Connection = file::open(&self.path())?;
        let tx = connection.transaction_with_behavior(behavior).map_err(sql(self))?;
        let done = work(&tx)?;
        tx.commit().map_err(sql(self))?;
        Ok(Some(done))
    }

    /// A folder that nobody else may enter, unless it is there.
    fn make_dir(&self) -> Result<(), SpoolError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(|error| {
            let text = format!("cannot make the folder {}: {error}", self.dir.display());
            match error.kind() {
                io::ErrorKind::StorageFull => SpoolError::Full(text),
                _ => SpoolError::Unusable(text),
            }
        })
    }
}
