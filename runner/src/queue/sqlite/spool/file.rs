//! Opening the spool's file, and making it.
//!
//! It keeps a rollback journal: one file, no shared memory, and nobody reads while somebody writes for long.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::errors::{SpoolError, of};
use crate::queue::sqlite::files::bytes_of;
use crate::queue::sqlite::open::{make, version_of, wait_for_locks};

/// Marks the file as ours, in its header: "HoSp".
const APPLICATION_ID: i32 = 0x486f_5370;
/// The version of the tables.
const VERSION: usize = 1;
/// How long other programs are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the file, and makes it when there is none or an empty one.
pub(super) fn open(path: &Path) -> Result<Connection, SpoolError> {
    let fail = |error: rusqlite::Error| of(&error, path);
    let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // SQLite takes a single byte for an empty file.
    if path.is_dir() || bytes_of(path) == 1 {
        return Err(SpoolError::Unusable(format!(
            "{} is no SQLite database: move it away, or name another folder with --spool-dir",
            path.display()
        )));
    }
    make(&file);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&file, flags).map_err(fail)?;
    wait_for_locks(&mut connection, PATIENCE).map_err(fail)?;
    // With EXTRA the end of the journal is on the disk too: what was acknowledged survives a loss of power.
    connection.pragma_update(None, "synchronous", "EXTRA").map_err(fail)?;
    // In one snapshot: another program may make the tables right now.
    let snapshot = connection.unchecked_transaction().map_err(fail)?;
    let version = version_of(&snapshot, path, APPLICATION_ID, VERSION)?;
    drop(snapshot);
    if version == 0 {
        // Counts only in an empty file: what was taken out is given back to the disk.
        connection.pragma_update(None, "auto_vacuum", "FULL").map_err(fail)?;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        // Another program may have been here first.
        if version_of(&tx, path, APPLICATION_ID, VERSION)? == 0 {
            tx.execute_batch(include_str!("../spool.sql")).map_err(fail)?;
            tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(fail)?;
            tx.pragma_update(None, "user_version", VERSION as u32).map_err(fail)?;
        }
        tx.commit().map_err(fail)?;
    }
    Ok(connection)
}
