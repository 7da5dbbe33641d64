//! Deleting keys of a namespace by name: for one that was made for a measurement, and that nobody else works in.

use super::RedisStore;
use super::link::Repeat;
use super::walk::step_of;
use crate::queue::StoreError;

/// Keys that one step of the iteration looks at: it passes those of others too.
const SCAN_COUNT: usize = 1_000;

impl RedisStore {
    /// Deletes everything of this namespace, jobs that wait among it. How many keys that were.
    ///
    /// # Errors
    /// When the store is away or refuses; what was deleted until then is gone.
    pub async fn erase(&self) -> Result<u64, StoreError> {
        self.unlink(self.keys.pattern()).await
    }

    /// Deletes the answers that are kept for a while for the repeats of calls, of which there may be none under way.
    ///
    /// # Errors
    /// As [`erase`](Self::erase).
    pub async fn forget_answers(&self) -> Result<u64, StoreError> {
        self.unlink(self.keys.once("*")).await
    }

    async fn unlink(&self, pattern: String) -> Result<u64, StoreError> {
        let (mut cursor, mut gone) = (Some("0".to_owned()), 0);
        while let Some(from) = cursor {
            let mut scan = redis::cmd("SCAN");
            scan.arg(from).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, mut items) = step_of(self.link.command(&scan, Repeat::Once).await?)?;
            if !items.is_empty() {
                // The memory of large ones is given back beside other work.
                let mut unlink = redis::cmd("UNLINK");
                while !items.is_empty() {
                    unlink.arg(&items.bytes()?[..]);
                    gone += 1;
                }
                self.link.command(&unlink, Repeat::Once).await?;
            }
            cursor = next;
        }
        Ok(gone)
    }
}
