//! Where a Redis is: reads a URL as the client library does, and says what is wrong with one without showing
//! a password.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// Highest number of a database: what Redis can be configured for.
const DATABASE_MAX: i64 = i32::MAX as i64;

/// A URL that was understood.
pub(super) struct Address {
    pub(super) info: ConnectionInfo,
    /// Scheme, host, port and database, for people.
    pub(super) place: String,
    pub(super) tls: bool,
}

impl Address {
    /// Reads `redis://` or `rediss://[user][:password@]host[:port][/database]`.
    ///
    /// # Errors
    /// What is wrong with it; nothing of the URL is in the message.
    pub(super) fn read(url: &str) -> Result<Self, &'static str> {
        let info = url.into_connection_info().map_err(|_| problem(url))?;
        let db = info.redis_settings().db();
        if !(0..=DATABASE_MAX).contains(&db) {
            return Err("the database after the / is not a number from 0 on");
        }
        let (place, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } if host.contains(',') => {
                return Err(SEVERAL);
            }
            ConnectionAddr::Tcp(host, port) => (format!("redis://{}:{port}/{db}", bracketed(host)), false),
            ConnectionAddr::TcpTls { host, port, .. } => {
                (format!("rediss://{}:{port}/{db}", bracketed(host)), true)
            }
            ConnectionAddr::Unix(path) => (format!("redis+unix://{}", path.display()), false),
            _ => return Err("it is an unknown kind of address"),
        };
        if matches!(info.addr(), ConnectionAddr::Tcp(_, 0) | ConnectionAddr::TcpTls { port: 0, .. }) {
            return Err("the port is not a number from 1 to 65535");
        }
        if !tls && url.contains('#') {
            return Err(ESCAPES);
        }
        Ok(Self { info, place, tls })
    }
}

pub(super) const ESCAPES: &str =
    "a # / ? @ or % in a user name or password is written %23 %2F %3F %40 or %25";

const SEVERAL: &str =
    "several hosts are those of sentinels: redis+sentinel://host:port,host:port/master-name";

/// A host as it stands in a URL.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// What is wrong with a URL that the library does not take: it says only that something is.
fn problem(url: &str) -> &'static str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // What ends the host has ended it within the password.
    if rest.contains('@') && !authority.contains('@') {
        return ESCAPES;
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.contains(',') {
        return SEVERAL;
    }
    let (name, port) = match host.rsplit_once(']') {
        Some((name, port)) => (name, port.trim_start_matches(':')),
        None => host.split_once(':').unwrap_or((host, "")),
    };
    if !host.starts_with('[') && port.contains(':') {
        return "an IPv6 address stands in brackets, as in redis://[::1]:6379";
    }
    if name.is_empty() {
        return "there is no host";
    }
    if !port.is_empty() && port.parse::<u16>().is_err() {
        return "the port is not a number from 1 to 65535";
    }
    if matches!(name, "0.0.0.0" | "[::") {
        return "0.0.0.0 and [::] are no address of a server: name the machine";
    }
    let path = rest[authority.len()..].split(['?', '#']).next().unwrap_or_default();
    if !path.trim_matches('/').is_empty() && path.trim_matches('/').parse::<i64>().is_err() {
        return "the database after the / is not a number from 0 on";
    }
    if url.contains('#') {
        return ESCAPES;
    }
    "it is no URL that a Redis client understands"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for (url, place) in [
            ("redis://h", "redis://h:6379/0"),
            ("rediss://u:p%23%2F@h:7/3", "rediss://h:7/3"),
            ("redis://[::1]:7", "redis://[::1]:7/0"),
        ] {
            assert_eq!(Address::read(url).map(|a| a.place).as_deref(), Ok(place), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, part) in [
            ("redis://h:x", "the port"),
            ("redis://h:99999", "the port"),
            ("redis://h:0", "the port"),
            ("redis://:S3cr3t@h:x", "the port"),
            ("redis://h/abc", "the database"),
            ("redis://h/-1", "the database"),
            ("redis://h/99999999999", "the database"),
            ("redis://:p#S3cr3t@h", "%23"),
            ("redis://:p/S3cr3t@h", "%2F"),
            ("redis://h#x", "%23"),
            ("redis://::1:6379", "in brackets"),
            ("redis://fe80::1", "in brackets"),
            ("redis://0.0.0.0", "name the machine"),
            ("redis://:6379", "no host"),
            ("redis:///1", "no host"),
            ("redis://a,b/0", "redis+sentinel://"),
            ("redis://:S3cr3t@a:1,b:2/0", "redis+sentinel://"),
        ] {
            let problem = Address::read(url).map(|a| a.place).expect_err(url);
            assert!(problem.contains(part), "{url}: {problem}");
        }
    }
}
