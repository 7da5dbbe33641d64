//! What an error from Redis means: for the connection, and for the caller.

use std::error::Error;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};

use crate::queue::{NO_TLS, StoreError, WANTS_PASSWORD, WRONG_PASSWORD};

/// What an error means for the connection that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The script is not known there: send it whole.
    SendWhole,
    /// A plain answer.
    Keep,
    /// The server answered that it is not what we need (any more): the next call connects anew, which
    /// after a failover leads to the new primary.
    Reconnect,
    /// The connection broke: whether the call was done is unknown.
    Lost,
}

/// Answers of a server that is the wrong one now, or not up yet.
const RECONNECT: [&str; 10] = [
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "TRYAGAIN",
    "UNBLOCKED",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "NOMASTERLINK",
];
/// Answers of a server that cannot now, on a connection that is fine.
const BUSY: [&str; 3] = ["BUSY", "MISCONF", "EXECABORT"];
/// Answers that need a person.
const REFUSED: [&str; 5] = ["WRONGPASS", "NOAUTH", "NOPERM", "NOPROTO", "DENIED"];

/// What to do about foreign data under one of our names.
pub(super) const FOREIGN_FIX: &str =
    "`hourhand doctor --repair` moves it aside, and whoever wrote it needs another prefix";

/// True for what Redis answers to a command on a key of another type; it does not say which key.
pub(super) fn is_foreign_data(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

pub(super) fn consequence(error: &RedisError) -> Consequence {
    match error.code() {
        Some("NOSCRIPT") => Consequence::SendWhole,
        Some(code) if RECONNECT.contains(&code) || REFUSED.contains(&code) => Consequence::Reconnect,
        Some(_) => Consequence::Keep,
        None if error.kind() == ErrorKind::AuthenticationFailed => Consequence::Reconnect,
        None => Consequence::Lost,
    }
}

/// The error for the caller. `place` is host, port and database: never the password.
pub(super) fn store_error(error: &RedisError, place: &str) -> StoreError {
    let detail = without_script(error.detail().unwrap_or_default());
    match error.code() {
        Some("HOURHAND_INVALID") => StoreError::Invalid(invalid_text(detail)),
        Some("HOURHAND_WRONGTYPE") => StoreError::Refused(format!("{place}: key {detail}; {FOREIGN_FIX}")),
        Some("WRONGTYPE") => StoreError::Refused(format!(
            "{place}: a key of ours holds foreign data: {detail}; `hourhand doctor` tells which"
        )),
        Some("OOM") => StoreError::Full(format!("{place} is at its memory limit")),
        Some("NOAUTH") => StoreError::Refused(format!("{place}{WANTS_PASSWORD}")),
        Some("WRONGPASS") => StoreError::Refused(format!("{place}{WRONG_PASSWORD}: {detail}")),
        Some("READONLY") => StoreError::NotReady(format!(
            "{place} is a replica and takes no writes: expected the primary, or sentinels that know it \
             (redis+sentinel://host:port/master-name)"
        )),
        Some(code) if RECONNECT.contains(&code) || BUSY.contains(&code) => {
            StoreError::NotReady(format!("{place}: {code} {detail}"))
        }
        Some(code) => StoreError::Refused(format!("{place}: {code} {detail}")),
        None if error.kind() == ErrorKind::AuthenticationFailed => {
            StoreError::Refused(format!("{place}{WRONG_PASSWORD}"))
        }
        None if matches!(error.kind(), ErrorKind::InvalidClientConfig | ErrorKind::RESP3NotSupported) => {
            StoreError::Refused(format!("{place}: {}", one_line(error)))
        }
        None if is_tls(error) => StoreError::Refused(format!("{place}{NO_TLS}{}", one_line(error))),
        None if error.kind() == ErrorKind::Parse => {
            // Also a reply that broke off in its middle, so it may pass.
            StoreError::Unreachable(format!("{place} does not answer as Redis does: {}", one_line(error)))
        }
        None => StoreError::Unreachable(format!("{place}: {}", one_line(error))),
    }
}

/// True when the other side answered, but not with TLS that we accept: waiting does not mend a certificate.
fn is_tls(error: &RedisError) -> bool {
    // The library's source is a shared pointer to what it wraps, and that type is what it shows.
    let shared = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = shared.and_then(|inner| inner.downcast_ref::<std::io::Error>());
    io.and_then(std::io::Error::get_ref).is_some_and(|inner| inner.is::<rustls::Error>())
}

/// What a script raised, without where in it that was: ` script: <sha>, on @user_script:<line>.`
fn without_script(detail: &str) -> &str {
    detail.rsplit_once(" script: ").map_or(detail, |(text, _)| text)
}

/// The library's words in one line: what a server that is no Redis answers may have several.
fn one_line(error: &RedisError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `index message` of a script as `job index: message`, counted as the caller counts.
fn invalid_text(detail: &str) -> String {
    match detail.split_once(' ') {
        Some((index, message)) if index.parse::<usize>().is_ok() => format!("job {index}: {message}"),
        _ => detail.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> RedisError {
        let line = format!("-{text}\r\n");
        let value = redis::parse_redis_value(line.as_bytes()).expect("an answer");
        value.extract_error().expect_err("an error")
    }

    #[test]
    fn a_server_that_is_the_wrong_one_now_is_left_and_the_call_may_be_tried_again() {
        for text in [
            "READONLY You can't write against a read only replica.",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            "NOREPLICAS Not enough good replicas to write.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "LOADING Redis is loading the dataset in memory",
            "CLUSTERDOWN The cluster is down",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "MOVED 3999 127.0.0.1:6381",
            "NOMASTERLINK Can't SYNC while not connected with my master",
        ] {
            let error = answer(text);
            assert_eq!(consequence(&error), Consequence::Reconnect, "{text}");
            let told = store_error(&error, "redis://h:6379/0");
            assert!(
                matches!(&told, StoreError::NotReady(said) if said.contains("redis://h:6379/0")),
                "{told:?}"
            );
        }
    }

    #[test]
    fn a_server_that_cannot_now_is_kept() {
        for text in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "BUSY Redis is busy running a script.",
            "EXECABORT Transaction discarded because of previous errors.",
        ] {
            let error = answer(text);
            assert_eq!(consequence(&error), Consequence::Keep, "{text}");
            assert!(store_error(&error, "redis://h:6379/0").is_passing(), "{text}");
        }
        assert_eq!(consequence(&answer("NOSCRIPT No matching script.")), Consequence::SendWhole);
        assert_eq!(consequence(&answer("NOPERM this user has no permissions")), Consequence::Reconnect);
    }

    #[test]
    fn who_is_not_let_in_is_told_from_who_meets_foreign_data() {
        for text in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair"] {
            let told = store_error(&answer(text), "redis://h:6379/0");
            assert!(told.is_locked_out() && told.text().contains("password"), "{told:?}");
        }
        for text in [
            "HOURHAND_WRONGTYPE hourhand:{0}:q:password_reset:ready holds a string, expected a zset",
            "NOPERM this user has no permissions to access the channel certificate_password",
        ] {
            let told = store_error(&answer(text), "redis://h:6379/0");
            assert!(matches!(told, StoreError::Refused(_)) && !told.is_locked_out(), "{told:?}");
        }
        assert!(StoreError::Refused(format!("h{NO_TLS}invalid peer certificate: Expired")).is_locked_out());
        assert!(!StoreError::Refused(format!("h{NO_TLS}corrupt message")).is_locked_out());
    }

    #[test]
    fn where_in_a_script_it_was_is_cut() {
        let raised = "0 invalid id script: 1f2e, on @user_script:54.";
        assert_eq!(invalid_text(without_script(raised)), "job 0: invalid id");
        assert_eq!(without_script("a plain answer"), "a plain answer");
    }
}
