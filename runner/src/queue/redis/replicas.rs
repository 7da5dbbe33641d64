//! Enqueues that are acknowledged by replicas too: once the script has answered, WAIT on the same connection says how many
//! replicas have got what that connection wrote.
//!
//! WAIT keeps everything waiting that comes behind it on its connection, so that such enqueues have one of their own.

use std::time::Duration;

use redis::Value;
use tokio::time::timeout;

use super::RedisStore;
use super::errors::store_error;
use super::link::{Link, Repeat, Sent, left};
use crate::queue::StoreError;

/// How long replicas may take, in milliseconds: beyond that something is wrong with them.
const PATIENCE_MS: u64 = 1_000;
/// The server's answer may take so long on its way beyond that.
const REPLY_PATIENCE: Duration = Duration::from_millis(500);

/// How many replicas must have an enqueue, and the connection for such.
pub(super) struct Replicas {
    wanted: u32,
    link: Link,
}

impl Replicas {
    /// Enqueues on a connection beside `link` wait for this many replicas; `None` when they wait for none.
    pub(super) fn new(wanted: u32, link: &Link) -> Option<Self> {
        (wanted > 0).then(|| Self { wanted, link: link.beside() })
    }

    /// How many.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }
}

impl RedisStore {
    /// Runs lua/enqueue.lua, and waits for replicas if it is to. `once` is the key that keeps the answer for a repeat.
    pub(super) async fn run_enqueue(
        &self,
        keys: &[String],
        args: &[&[u8]],
        once: &str,
    ) -> Result<Value, StoreError> {
        let script = &self.scripts.enqueue;
        let Some(replicas) = self.replicas.as_deref() else {
            return self.link.script(script, keys, args, Repeat::Once).await;
        };
        let deadline = replicas.link.deadline();
        let sent = replicas.link.script_by(script, keys, args, Repeat::Once, deadline).await?;
        replicas.wait(&sent, once, left(deadline)).await?;
        Ok(sent.value)
    }
}

impl Replicas {
    async fn wait(&self, sent: &Sent, once: &str, left: Duration) -> Result<(), StoreError> {
        let patience_ms = PATIENCE_MS.min(left.saturating_sub(REPLY_PATIENCE).as_millis() as u64).max(1);
        let mut pipe = redis::pipe();
        // WAIT counts from the last write of its connection, and the script may have written nothing: what it found there
        // already, an earlier connection wrote. So there is one write for sure, behind all of that.
        pipe.cmd("EXPIRE").arg(once).arg(super::enqueue::ONCE_SECONDS).ignore();
        pipe.cmd("WAIT").arg(self.wanted).arg(patience_ms);
        let mut connection = sent.connection.clone();
        let call = pipe.query_async::<(u32,)>(&mut connection);
        let unanswered = self.link.unanswered(sent.number);
        let waited = timeout(Duration::from_millis(patience_ms) + REPLY_PATIENCE, call).await;
        unanswered.over();
        let why = match waited {
            Ok(Ok((have,))) if have >= self.wanted => return Ok(()),
            Ok(Ok((have,))) => {
                return Err(self.too_few(&format!(
                    "only {have} of {} replicas have it after {patience_ms} ms",
                    self.wanted
                )));
            }
            Ok(Err(error)) => {
                let error = store_error(&error, self.link.place());
                if let StoreError::Refused(why) = &error {
                    self.link.forget(sent.number).await;
                    return Err(self.never_known(why));
                }
                error.text().to_owned()
            }
            Err(_) => "no answer in time".to_owned(),
        };
        self.link.forget(sent.number).await;
        Err(self.too_few(&format!("whether {} replicas have it is not known: {why}", self.wanted)))
    }

    /// Asking again does not help: a person has to grant what WAIT needs, or to ask for no replicas.
    fn never_known(&self, why: &str) -> StoreError {
        StoreError::Refused(format!(
            "{} has taken it, but cannot be asked whether {} replicas have it: {why}; waiting for replicas needs \
             the permissions +expire and +wait",
            self.link.place(),
            self.wanted
        ))
    }

    fn too_few(&self, how: &str) -> StoreError {
        StoreError::Unreplicated(format!(
            "{} has taken it, but {how}: a fail-over may lose it, and with an id it can be repeated safely",
            self.link.place()
        ))
    }
}
