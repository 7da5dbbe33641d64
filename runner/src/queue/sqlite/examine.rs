//! How the file is set up and doing: what SQLite says of it, its disk, the clock, and what calls and claims take.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rusqlite::Connection;

use self::judge::{FileSeen, set_up};
use super::disk::{file_system, needed_bytes, room};
use super::files::{beside, bytes_of};
use super::link::{Promise, Shared};
use super::tx::Tx;
use super::{Durability, SqliteStore};
use crate::clock::{HostClock, monotonic};
use crate::queue::examination::{CALLS_TIMED, ClockSeen, Facts, Measures, Spread, time_claims};
use crate::queue::{Examination, StoreError};

mod judge;

/// A transaction that writes should be quicker than this, in milliseconds: with `full` durability it waits for the disk.
const WRITE_MS_MAX: (f64, f64) = (50.0, 10.0);
/// What to do when it is not.
const SLOW_DISK: &str = "put the file on a faster local disk, or choose --durability normal, which survives a crash but not a power cut";

impl SqliteStore {
    pub(super) async fn set_up_warnings(&self) -> Result<Vec<String>, StoreError> {
        let seen = self.look_at_file().await?.0;
        let told = set_up(&seen).into_iter().map(|finding| {
            let fix = finding.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
            format!("{}: {}{fix}", finding.place, finding.message)
        });
        Ok(told.collect())
    }

    pub(super) async fn examine_file(&self) -> Result<Examination, StoreError> {
        let shared = &self.link.shared;
        let (seen, inside) = self.look_at_file().await?;
        let mut examination = Examination::default();
        let facts = &mut examination.facts;
        facts.add("store", seen.place.as_str());
        facts.add("namespace", shared.namespace.as_str());
        inside.tell(facts);
        facts.add("durability", shared.options.durability.as_str());
        seen.tell(facts);
        examination.findings = set_up(&seen);
        let write_ms_max = match shared.options.durability {
            Durability::Full => WRITE_MS_MAX.0,
            Durability::Normal => WRITE_MS_MAX.1,
        };
        match self.measure(inside.clock).await {
            Ok(measures) => {
                measures.tell(&mut examination.facts);
                examination.findings.extend(measures.judge(&seen.place, write_ms_max, SLOW_DISK));
            }
            Err(error) => examination.explain(error, "writes are refused", &seen.place)?,
        }
        Ok(examination)
    }

    /// What can be seen without writing.
    async fn look_at_file(&self) -> Result<(FileSeen, Inside), StoreError> {
        let clock = Arc::clone(&self.link.shared.options.clock);
        let inside = self.link.read({
            let clock = Arc::clone(&clock);
            move |tx| Inside::look(tx, &*clock)
        });
        let inside = inside.await?;
        let ahead_us = inside.now_us as f64 - clock.wall_us() as f64;
        // The store's clock was read before; so much may have passed since.
        let since_us = clock.boot_us().saturating_sub(inside.boot_us) as f64;
        let seen =
            ClockSeen { ahead_ms: (ahead_us + since_us) / 1_000.0, uncertainty_ms: since_us / 1_000.0 };
        Ok((look(&self.link.shared), Inside { clock: seen, ..inside }))
    }

    /// The way there and back is a transaction that writes, and changes nothing.
    async fn measure(&self, clock: ClockSeen) -> Result<Measures, StoreError> {
        let mut took = Vec::with_capacity(CALLS_TIMED);
        for _ in 0..CALLS_TIMED {
            let asked = monotonic();
            let write = |tx: &Tx<'_>| tx.exec("UPDATE sequence SET last = last WHERE one = 1", []).map(drop);
            self.link.write(Promise::Kept, write).await?;
            took.push(monotonic().saturating_duration_since(asked));
        }
        Ok(Measures { clock, round_trip: Spread::of(took), claim: time_claims(self).await? })
    }
}

/// What SQLite says of the file.
struct Inside {
    version: String,
    schema: u64,
    journal: String,
    page_bytes: u64,
    pages: u64,
    free_pages: u64,
    now_us: u64,
    boot_us: u64,
    clock: ClockSeen,
}

impl Inside {
    fn look(tx: &Tx<'_>, clock: &dyn HostClock) -> Result<Self, StoreError> {
        let connection = tx.connection();
        let number = |name: &str| pragma::<u64>(connection, name).map_err(|error| tx.error(&error));
        Ok(Self {
            version: rusqlite::version().to_owned(),
            schema: number("user_version")?,
            journal: pragma(connection, "journal_mode").map_err(|error| tx.error(&error))?,
            page_bytes: number("page_size")?,
            pages: number("page_count")?,
            free_pages: number("freelist_count")?,
            now_us: tx.now_us,
            boot_us: clock.boot_us(),
            clock: ClockSeen::default(),
        })
    }

    fn tell(&self, facts: &mut Facts) {
        facts.add("version", format!("SQLite {}", self.version));
        facts.add("schema", self.schema);
        facts.add("journal", self.journal.as_str());
        facts.add("used_bytes", self.page_bytes * self.pages.saturating_sub(self.free_pages));
        facts.add("unused_bytes", self.page_bytes * self.free_pages);
    }
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, name: &str) -> rusqlite::Result<T> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// What the file system says of the file.
fn look(shared: &Shared) -> FileSeen {
    let path = &shared.path;
    let room = room(path);
    FileSeen {
        place: path.display().to_string(),
        bytes: bytes_of(path),
        log_bytes: bytes_of(&beside(path, "-wal")),
        needed_bytes: needed_bytes(path, 0),
        free_bytes: room.map(|room| room.free_bytes),
        disk_bytes: room.map(|room| room.all_bytes),
        file_system: file_system(path),
        mode: std::fs::metadata(path).ok().map(|file| file.permissions().mode() & 0o777),
    }
}
