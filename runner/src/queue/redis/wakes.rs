//! Wake-ups: a connection of its own that listens to what the scripts publish.
//!
//! Signals may be lost, and the receiver is told so with [`Wake::Missed`]: after every (re)connect, and
//! when it did not keep up. Whether a connection that says nothing lives is the kernel's to find out (see
//! `sentinel::client`), which costs the server nothing; that something on the way answers in the server's place is found by asking it
//! now and then. One to a server that is not the primary any more may live for ever and say nothing: so it is left whenever the
//! store's own had to be opened anew, for that may lead elsewhere now.
//! A user without the channel is told of once and tried again: the permission may come, and until then the runner
//! looks by itself.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::{Msg, RedisError};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::time::{sleep, timeout};

use super::RedisStore;
use crate::queue::{Lane, SessionId, Wake};

/// Wake-ups that may wait for the receiver; beyond that it looks at everything anyway.
const WAITING_MAX: usize = 1_024;
/// A quiet connection is asked so often whether it lives, and has so long to answer.
const PING_AFTER: Duration = Duration::from_secs(60);
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// The pause before another attempt to connect grows from the first to the second.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(3);

impl RedisStore {
    pub(super) fn listen(&self) -> mpsc::Receiver<Wake> {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(listen(self.clone(), sender));
        receiver
    }
}

async fn listen(store: RedisStore, sender: mpsc::Sender<Wake>) {
    let (mut pause, mut refused) = (PAUSE_MIN, false);
    let mut renewals = store.link.renewals();
    loop {
        // Before the connection is opened, so that no renewal after it is missed.
        renewals.mark_unchanged();
        let connected = tokio::select! {
            () = sender.closed() => return,
            connected = timeout(store.link.connect_timeout(), subscribe(&store)) => connected,
        };
        match connected {
            Ok(Ok((sink, stream))) => {
                (pause, refused) = (PAUSE_MIN, false);
                tokio::select! {
                    () = relay(sink, stream, &sender) => {}
                    Ok(()) = renewals.changed() => {}
                }
            }
            Ok(Err(Some(error))) if error.code() == Some("NOPERM") => {
                if !std::mem::replace(&mut refused, true) {
                    warn_of_refusal(&store, &error);
                }
            }
            // Whatever else keeps us away keeps the runner's own calls away, which tell of it.
            Ok(Err(_)) | Err(_) => {}
        }
        if sender.is_closed() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
        }
    }
}

/// The error is Redis's own; `None` when no server was found.
async fn subscribe(store: &RedisStore) -> Result<(PubSubSink, PubSubStream), Option<RedisError>> {
    let server = store.link.server().await.map_err(|_| None)?;
    let (mut sink, stream) = server.get_async_pubsub().await?.split();
    sink.subscribe(store.keys.wake_channel()).await?;
    Ok((sink, stream))
}

fn warn_of_refusal(store: &RedisStore, error: &RedisError) {
    tracing::warn!(
        store = store.link.place(),
        channel = store.keys.wake_channel(),
        "the Redis user may not subscribe to wake-ups, so jobs may start up to a second late ({error}): \
         grant it the channel with ACL SETUSER <user> &{}:*",
        store.keys.namespace(),
    );
}

/// Hands signals on until the connection or the receiver is gone.
async fn relay(mut sink: PubSubSink, mut stream: PubSubStream, sender: &mpsc::Sender<Wake>) {
    let mut missed = true;
    loop {
        if missed {
            // Waits for room: until the receiver has heard this, nothing else matters.
            if sender.send(Wake::Missed).await.is_err() {
                return;
            }
            missed = false;
        }
        let message = tokio::select! {
            () = sender.closed() => return,
            message = timeout(PING_AFTER, stream.next()) => message,
        };
        match message {
            Ok(Some(message)) => missed = !hand_on(&message, sender),
            Ok(None) => return,
            Err(_) => match timeout(PING_PATIENCE, sink.ping::<redis::Value>()).await {
                Ok(Ok(_)) => {}
                _ => return,
            },
        }
    }
}

/// False when there was no room.
fn hand_on(message: &Msg, sender: &mpsc::Sender<Wake>) -> bool {
    let Some(wake) = read_wake(message.get_payload_bytes()) else { return true };
    !matches!(sender.try_send(wake), Err(TrySendError::Full(_)))
}

/// `due <queue>:<kind> <due_ms>` or `recall <session>`; what it does not know it leaves out.
fn read_wake(payload: &[u8]) -> Option<Wake> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut words = text.split(' ');
    match (words.next()?, words.next()?) {
        ("due", lane) => {
            let (queue, kind) = lane.split_once(':')?;
            let lane = Lane { queue: queue.parse().ok()?, kind: kind.parse().ok()? };
            Some(Wake::Due { lane, due_ms: words.next()?.parse().ok()? })
        }
        ("recall", session) => Some(Wake::Recall(SessionId(session.into()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_others_are_left_out() {
        assert!(matches!(read_wake(b"due q:k 17"), Some(Wake::Due { due_ms: 17, .. })));
        assert_eq!(read_wake(b"recall s1"), Some(Wake::Recall(SessionId("s1".into()))));
        for odd in [&b"due q 17"[..], b"due q:k", b"due q:k x", b"", b"hello", b"\xff x"] {
            assert_eq!(read_wake(odd), None);
        }
    }
}
