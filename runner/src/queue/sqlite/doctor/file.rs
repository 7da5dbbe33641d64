//! The file itself: that SQLite finds it sound, that its tables are ours, and which SQLite wrote it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, ffi};

use crate::queue::finding::DAMAGED_FILE;
use crate::queue::sqlite::SqliteOptions;
use crate::queue::sqlite::errors::store_error;
use crate::queue::sqlite::open::MIGRATIONS;
use crate::queue::{Finding, Severity, StoreError};

/// Older ones have a fault with a write-ahead log that several processes share.
const SQLITE_MIN: u32 = 3_051_003;
/// Where the header of the file names the SQLite that wrote it, 4 bytes.
const WRITTEN_BY_AT: i64 = 96;
/// SQLite may look at a file for so long: it reads all of it.
const LOOK_MAX: Duration = Duration::from_secs(120);
/// Faults of a file that are told.
const FAULTS_MAX: u32 = 100;
/// What tables are called that were moved aside.
const ASIDE: &str = "quarantine_";

/// Looks at the file; what was found, and whether its tables can be looked at.
pub(super) fn look(
    path: &Path,
    options: &SqliteOptions,
    repair: bool,
) -> Result<(Vec<Finding>, bool), StoreError> {
    if !path.exists() {
        return Ok((Vec::new(), true));
    }
    let mut found = Vec::new();
    match examine(path, options.call_timeout, repair, &mut found) {
        Ok(sound) => Ok((found, sound)),
        Err(error) if is_damage(&error) => {
            found.extend(finding("integrity", path, format!("{error}: {DAMAGED_FILE}"), None));
            Ok((found, false))
        }
        Err(error) => Err(store_error(&error, path)),
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn finding(check: &str, path: &Path, message: String, repaired: Option<String>) -> Option<Finding> {
    Finding::new(check, format!("file {}", path.display()), message, repaired)
}

fn examine(
    path: &Path,
    patience: Duration,
    repair: bool,
    found: &mut Vec<Finding>,
) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(patience)?;
    // Before anything is written by this one.
    let written_by = written_by(&connection);
    let faults = within(LOOK_MAX, &connection, |connection| {
        connection
            .prepare(&format!("PRAGMA integrity_check({FAULTS_MAX})"))?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<String>>>()
    })?;
    let faults = faults.unwrap_or_else(|| {
        found.push(Finding::around(
            "not-looked-at",
            Severity::Warning,
            format!("file {}", path.display()),
            format!("SQLite did not come to the end of the file within {} s", LOOK_MAX.as_secs()),
            "let `PRAGMA integrity_check` look at a copy of it (docs/deploy.md: backups)",
        ));
        vec!["ok".to_owned()]
    });
    if faults != ["ok"] {
        let all = faults.into_iter().map(|fault| {
            let place = format!("file {}: {fault}", path.display());
            Finding::new("integrity", place, DAMAGED_FILE.to_owned(), None)
        });
        found.extend(all.flatten());
        return Ok(false);
    }
    if let Some(version) = written_by.filter(|version| *version < SQLITE_MIN) {
        let message = format!(
            "SQLite {} wrote it: before {} several processes on one file may damage it; let no such program use it",
            shown(version),
            shown(SQLITE_MIN)
        );
        let repaired = if repair { write_anew(&connection)? } else { None };
        found.extend(finding("old-sqlite", path, message, repaired));
    }
    look_at_tables(&mut connection, repair, found)
}

/// What `work` brings, or `None` when it was stopped because it took longer than `limit`.
fn within<T>(
    limit: Duration,
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let interrupt = connection.get_interrupt_handle();
    let (done, waits) = mpsc::channel::<()>();
    let worked = std::thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let worked = work(connection);
        drop(done);
        worked
    });
    match worked {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Ok(None),
        worked => worked.map(Some),
    }
}

/// The version number of the SQLite that wrote the file last, as far as it has left the log.
///
/// Read by the connection's own handle: closing another one on the same file would give up this process's locks.
fn written_by(connection: &Connection) -> Option<u32> {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    let mut bytes = [0u8; 4];
    // SAFETY: the handle is that of an open connection, which outlives the call; SQLite writes a pointer to its own file object
    // there, whose methods stay valid as long as the connection; xRead fills at most the four bytes that it is given.
    #[allow(unsafe_code, reason = "SQLite tells this by its C interface alone")]
    let read = unsafe {
        let asked = ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast(),
        );
        if asked != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
            return None;
        }
        let xread = (*(*file).pMethods).xRead?;
        xread(file, bytes.as_mut_ptr().cast(), 4, WRITTEN_BY_AT)
    };
    let version = u32::from_be_bytes(bytes);
    (read == ffi::SQLITE_OK && version > 0).then_some(version)
}

/// Lets this SQLite write the header; what was done, if it reached the file.
fn write_anew(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)?;
    connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))?;
    let now = written_by(connection).filter(|version| *version >= SQLITE_MIN);
    Ok(now.map(|version| format!("written by SQLite {} now", shown(version))))
}

fn shown(version: u32) -> String {
    format!("{}.{}.{}", version / 1_000_000, version / 1_000 % 1_000, version % 1_000)
}

/// Tables and indexes by name, with the SQL that makes them.
type Objects = BTreeMap<(String, String), String>;

fn objects(connection: &Connection) -> rusqlite::Result<Objects> {
    connection
        .prepare("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?
        .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?
        .collect()
}

/// Every table and index is as this version makes it, and there is no other. False when some is not and was left so.
fn look_at_tables(
    connection: &mut Connection,
    repair: bool,
    found: &mut Vec<Finding>,
) -> rusqlite::Result<bool> {
    let version: usize = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != MIGRATIONS.len() {
        // An empty file, or one of another version: whoever opens it says so.
        return Ok(true);
    }
    let ours = Connection::open_in_memory()?;
    for step in MIGRATIONS {
        ours.execute_batch(step)?;
    }
    let wanted = objects(&ours)?;
    let transaction = connection.transaction_with_behavior(match repair {
        true => TransactionBehavior::Immediate,
        false => TransactionBehavior::Deferred,
    })?;
    let there = objects(&transaction)?;
    let mut sound = true;
    let mut note = |check: &str, kind: &str, name: &str, message: &str, done: Option<String>| {
        sound &= done.is_some() || check == "unknown-name";
        found.extend(Finding::new(check, format!("{kind} {name}"), message.to_owned(), done));
    };
    // Tables are before indexes when they are moved aside and made: an index needs its table.
    for ((kind, name), _) in there.iter().rev().filter(|((kind, name), sql)| {
        !name.starts_with(ASIDE) && wanted.get(&(kind.clone(), name.clone())) != Some(*sql)
    }) {
        let known = wanted.contains_key(&(kind.clone(), name.clone()));
        let (check, message) = match known {
            true => ("wrong-type", "it is not as this version makes it"),
            false => ("unknown-name", "it is none of ours"),
        };
        let done = if repair { Some(aside(&transaction, kind, name)?) } else { None };
        note(check, kind, name, message, done);
    }
    let left = objects(&transaction)?;
    for ((kind, name), sql) in wanted.iter().rev() {
        if left.contains_key(&(kind.clone(), name.clone())) {
            continue;
        }
        if repair {
            transaction.execute_batch(sql)?;
        }
        if !there.contains_key(&(kind.clone(), name.clone())) {
            note("wrong-type", kind, name, "it is missing", repair.then(|| "made anew".to_owned()));
        }
    }
    if repair {
        transaction.execute_batch(SINGLES)?;
    }
    transaction.commit()?;
    Ok(sound)
}

/// What a table must hold that was made anew.
const SINGLES: &str = "INSERT OR IGNORE INTO sequence VALUES (1, 0);";

/// Moves a table aside; an index, a view or a trigger can be made again and goes.
fn aside(connection: &Connection, kind: &str, name: &str) -> rusqlite::Result<String> {
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    if kind != "table" {
        connection.execute_batch(&format!("DROP {kind} IF EXISTS {quoted}"))?;
        return Ok("removed: it holds no data".to_owned());
    }
    let indexes: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL AND tbl_name = ?1")?
        .query_map([name], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for index in indexes {
        connection.execute_batch(&format!("DROP INDEX \"{}\"", index.replace('"', "\"\"")))?;
    }
    let mut again = 0;
    loop {
        let new = format!("{ASIDE}{name}{}", if again > 0 { format!("_{again}") } else { String::new() });
        let taken: bool =
            connection
                .query_row("SELECT count(*) FROM sqlite_schema WHERE name = ?1", [&new], |row| row.get(0))?;
        if !taken {
            connection
                .execute_batch(&format!("ALTER TABLE {quoted} RENAME TO \"{}\"", new.replace('"', "\"\"")))?;
            return Ok(format!("moved to {new}"));
        }
        again += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_too_long_is_stopped() {
        let connection = Connection::open_in_memory().expect("a database");
        let endless =
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
        let look = |sql: &'static str| {
            move |connection: &Connection| connection.query_row(sql, [], |row| row.get::<_, u64>(0))
        };
        assert_eq!(within(Duration::from_millis(20), &connection, look(endless)), Ok(None));
        assert_eq!(within(Duration::from_secs(60), &connection, look("SELECT 7")), Ok(Some(7)));
    }
}
