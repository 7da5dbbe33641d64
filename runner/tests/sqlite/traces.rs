//! What SQLite says of each statement that the store runs: its text, its steps, and the pages that it touched.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, Once};

use rusqlite::ffi;

/// What one text has cost, all its runs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Instructions of SQLite's machine.
    pub(crate) steps: u64,
    /// Rows that it passed in a scan of a table.
    pub(crate) scanned: u64,
    /// Pages that it asked for, in the cache or not.
    pub(crate) pages: u64,
}

/// By file: what was run on it since it was traced.
static TRACED: LazyLock<Mutex<BTreeMap<PathBuf, BTreeMap<String, Cost>>>> = LazyLock::new(Mutex::default);

/// From here on, traces what is run on the file by connections that are opened after this. The file must exist.
pub(crate) fn trace(file: &Path) {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        // SAFETY: the function lives as long as the program.
        assert_eq!(unsafe { ffi::sqlite3_auto_extension(Some(hook)) }, ffi::SQLITE_OK);
    });
    let file = file.canonicalize().expect("a file");
    TRACED.lock().expect("not poisoned").insert(file, BTreeMap::new());
}

/// What was run on the file since it was traced or last asked about, by text.
pub(crate) fn costs(file: &Path) -> BTreeMap<String, Cost> {
    let file = file.canonicalize().expect("a file");
    TRACED.lock().expect("not poisoned").get_mut(&file).map(std::mem::take).expect("it is traced")
}

/// Everything that was run on the file, together.
pub(crate) fn total(file: &Path) -> Cost {
    costs(file).into_values().fold(Cost::default(), |sum, cost| Cost {
        steps: sum.steps + cost.steps,
        scanned: sum.scanned + cost.scanned,
        pages: sum.pages + cost.pages,
    })
}

unsafe extern "C" fn hook(
    db: *mut ffi::sqlite3,
    _: *mut *mut c_char,
    _: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: the connection is being opened, and the function lives as long as the program.
    unsafe { ffi::sqlite3_trace_v2(db, ffi::SQLITE_TRACE_PROFILE, Some(ended), std::ptr::null_mut()) }
}

/// A statement has ended.
unsafe extern "C" fn ended(_: c_uint, _: *mut c_void, statement: *mut c_void, _: *mut c_void) -> c_int {
    let statement = statement.cast::<ffi::sqlite3_stmt>();
    // SAFETY: SQLite gives a statement of a connection that lives; its texts are terminated and live as long.
    unsafe {
        let db = ffi::sqlite3_db_handle(statement);
        let (file, sql) = (ffi::sqlite3_db_filename(db, c"main".as_ptr()), ffi::sqlite3_sql(statement));
        if file.is_null() || sql.is_null() {
            return 0;
        }
        let file = Path::new(CStr::from_ptr(file).to_str().unwrap_or_default());
        let status = |what| u64::from(ffi::sqlite3_stmt_status(statement, what, 1).unsigned_abs());
        let pages = |what| {
            let (mut now, mut highest) = (0, 0);
            ffi::sqlite3_db_status(db, what, &raw mut now, &raw mut highest, 1);
            u64::from(now.unsigned_abs())
        };
        let Ok(mut traced) = TRACED.lock() else { return 0 };
        if let Some(costs) = traced.get_mut(file) {
            let cost = costs.entry(CStr::from_ptr(sql).to_string_lossy().into_owned()).or_default();
            cost.steps += status(ffi::SQLITE_STMTSTATUS_VM_STEP);
            cost.scanned += status(ffi::SQLITE_STMTSTATUS_FULLSCAN_STEP);
            cost.pages += pages(ffi::SQLITE_DBSTATUS_CACHE_HIT) + pages(ffi::SQLITE_DBSTATUS_CACHE_MISS);
        }
    }
    0
}
