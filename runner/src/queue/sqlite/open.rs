//! Opening the database: settings of a connection, and the numbered migrations.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::errors::{not_a_database, store_error};
use super::files::{beside, bytes_of};
use crate::clock::{Monotonic, monotonic};
use crate::queue::StoreError;

/// Marks the file as ours, in its header: "Hour".
const APPLICATION_ID: i32 = 0x486f_7572;
/// What takes a database from one version to the next, from 0, which is an empty file.
pub(super) const MIGRATIONS: [&str; 3] =
    [include_str!("schema.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// Prepared statements that a connection keeps.
const STATEMENTS_KEPT: usize = 160;
/// What the log is cut back to after a checkpoint, in bytes: it does not stay at its largest.
const LOG_BYTES_KEPT: u32 = 16 << 20;
/// How long a wait for another program's lock sleeps at a time, at first and later.
const NAP_SHORT: Duration = Duration::from_micros(300);
const NAP_LONG: Duration = Duration::from_millis(2);
/// Short naps before long ones.
const SHORT_NAPS: i32 = 40;

/// Opens the file, makes it if there is none, and brings it to this version. Waits for other programs up to `patience`.
///
/// # Errors
/// When it cannot be opened, is none of ours or of a newer version.
pub(super) fn open(path: &Path, patience: Duration) -> Result<Connection, StoreError> {
    let until = monotonic() + patience;
    loop {
        match attempt(path, until) {
            // Some steps do not wait where two could wait for each other: another program makes the file right now.
            Err(StoreError::NotReady(_)) if monotonic() < until => std::thread::sleep(NAP_LONG),
            Ok(mut connection) => {
                wait_for_locks(&mut connection, patience).map_err(|error| store_error(&error, path))?;
                return Ok(connection);
            }
            Err(error) => return Err(error),
        }
    }
}

fn attempt(path: &Path, until: Monotonic) -> Result<Connection, StoreError> {
    let fail = |error: rusqlite::Error| store_error(&error, path);
    // SQLite takes a single byte for an empty file, and some names for no files at all; absolute ones are none of those.
    if bytes_of(path) == 1 {
        return Err(not_a_database(path));
    }
    let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let foreign_log = bytes_of(&beside(path, "-wal")) > 0;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    make(&file);
    let mut connection = Connection::open_with_flags(&file, flags).map_err(fail)?;
    wait_for_locks(&mut connection, until.saturating_duration_since(monotonic())).map_err(fail)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // What another program has in its log stays there.
    let set_aside = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(set_aside, foreign_log).map_err(fail)?;
    // In one snapshot: another program may make the tables right now.
    let snapshot = connection.unchecked_transaction().map_err(fail)?;
    let version = version_of(&snapshot, path, APPLICATION_ID, MIGRATIONS.len())?;
    drop(snapshot);
    connection.set_db_config(set_aside, false).map_err(fail)?;
    prepare(&mut connection, path, version)?;
    Ok(connection)
}

/// Makes an empty file if there is none, without opening it (see `files`). SQLite would let nobody but the owner write it,
/// and the files beside it follow it: so the umask says whether the group may share the store. Others may not read what
/// jobs carry.
pub(super) fn make(path: &Path) {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
    // SAFETY: a terminated string that outlives the call. An error comes again when the file is opened, and is told there.
    unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o660, 0) };
}

/// Waits for other programs in naps, so that the lock is found soon after it is free.
pub(super) fn wait_for_locks(connection: &mut Connection, patience: Duration) -> rusqlite::Result<()> {
    let mut until = monotonic();
    connection.busy_handler(Some(move |times: i32| {
        if times == 0 {
            until = monotonic() + patience;
        }
        std::thread::sleep(if times < SHORT_NAPS { NAP_SHORT } else { NAP_LONG });
        monotonic() < until
    }))
}

fn prepare(connection: &mut Connection, path: &Path, version: usize) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| store_error(&error, path);
    if version == 0 {
        // Both only take effect in an empty file, outside a transaction.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(fail)?;
    }
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(fail)?;
    if mode != "wal" {
        return Err(StoreError::Refused(format!(
            "{}: its file system cannot share a write-ahead log ({mode}): put the file on a local disk",
            path.display()
        )));
    }
    for (name, value) in [("journal_size_limit", LOG_BYTES_KEPT), ("cache_size", 8_000), ("foreign_keys", 0)]
    {
        connection.pragma_update(None, name, value).map_err(fail)?;
    }
    connection.pragma_update(None, "temp_store", "MEMORY").map_err(fail)?;
    // Each transaction says what it needs.
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(fail)?;
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    migrate(connection, path)?;
    // The file says from its first moment whose it is, even if somebody takes the log away.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(fail)
}

/// The version of a database that bears this mark, up to the one that is `known`; 0 of an empty one. Within a transaction.
pub(super) fn version_of(
    connection: &Connection,
    path: &Path,
    mark: i32,
    known: usize,
) -> Result<usize, StoreError> {
    let number = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i32>(0))
            .map_err(|error| store_error(&error, path))
    };
    let (ours, version) = (number("application_id")?, number("user_version")?);
    let place = path.display();
    if ours != mark {
        let tables: u32 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(|error| store_error(&error, path))?;
        if ours != 0 || version != 0 || tables > 0 {
            return Err(StoreError::Refused(format!(
                "{place} is a database of another program: name another file"
            )));
        }
        return Ok(0);
    }
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(StoreError::Refused(format!(
            "{place} is of version {version}, and this Hourhand knows versions up to {known}: use a newer Hourhand"
        ))),
    }
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |error: rusqlite::Error| store_error(&error, path);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
    // Another program may have been here first.
    let version = version_of(&transaction, path, APPLICATION_ID, MIGRATIONS.len())?;
    for step in &MIGRATIONS[version..] {
        transaction.execute_batch(step).map_err(fail)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
    transaction.pragma_update(None, "user_version", MIGRATIONS.len() as u32).map_err(fail)?;
    transaction.commit().map_err(fail)
}
