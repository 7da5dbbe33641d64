//! Foreign data under one of our names: Redis does not say which of a call's keys it means, so it is asked.

use redis::{Arg, Cmd};
use tokio::time::timeout;

use super::{Link, left};
use crate::clock::Monotonic;
use crate::queue::StoreError;
use crate::queue::redis::errors::FOREIGN_FIX;

/// The words of a command, its keys among them.
pub(super) fn words(cmd: &Cmd) -> impl Iterator<Item = &[u8]> {
    cmd.args_iter().filter_map(|arg| match arg {
        Arg::Simple(word) => Some(word),
        _ => None,
    })
}

impl Link {
    /// The error for foreign data under one of our names, with the name. `error` itself when that cannot be told, or is
    /// mended meanwhile.
    pub(super) async fn named<'a>(
        &self,
        words: impl Iterator<Item = &'a [u8]>,
        error: StoreError,
        deadline: Monotonic,
    ) -> StoreError {
        let ours: Vec<(&[u8], &str)> =
            words.filter_map(|word| Some((word, self.keys.read(word).expected_type()?))).collect();
        let mut pipe = redis::pipe();
        for (key, _) in &ours {
            pipe.cmd("TYPE").arg(*key);
        }
        let types = timeout(left(deadline), async {
            let (_, mut connection) = self.connection(deadline).await.ok()?;
            pipe.query_async::<Vec<String>>(&mut connection).await.ok()
        });
        let types = types.await.ok().flatten().unwrap_or_default();
        let foreign =
            ours.iter().zip(&types).find(|((_, wanted), found)| *found != "none" && found != wanted);
        foreign.map_or(error, |((key, wanted), found)| {
            let key = String::from_utf8_lossy(key);
            StoreError::Refused(format!(
                "{}: key {key} is not ours: it holds a {found}, expected a {wanted}; {FOREIGN_FIX}",
                self.place
            ))
        })
    }
}
