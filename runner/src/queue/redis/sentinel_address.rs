//! Where sentinels are: reads a URL that names them and the primary that they watch, and says what is wrong with one
//! without showing a password.

use redis::ConnectionInfo;

use super::address::{Address, ESCAPES};

/// The port of a sentinel when nobody names one.
const PORT_DEFAULT: u16 = 26_379;
/// What the hosts are followed by.
const PATH_FORM: &str = "behind the sentinels stands /master-name, and then /database if it is not 0";
const NAME_FORM: &str = "the name of the master has other characters than A-Z a-z 0-9 . _ and -";
const QUERY_FORM: &str = "behind the ? only sentinel_user and sentinel_password are known";
const USER_ALONE: &str = "sentinel_user needs a sentinel_password";

/// A URL of sentinels that was understood.
pub(super) struct SentinelAddress {
    /// In the order of the URL.
    pub(super) sentinels: Vec<Address>,
    /// What the sentinels call the primary and its replicas.
    pub(super) master: String,
    /// How to speak with the primary; its address is to be asked for.
    pub(super) server: ConnectionInfo,
    pub(super) tls: bool,
    /// Scheme, sentinels, name and database, for people.
    pub(super) place: String,
}

/// Whether a URL is one of sentinels.
pub(super) fn is_sentinel(url: &str) -> bool {
    scheme_of(url).is_some()
}

/// The scheme of the single servers, and what is behind the `://`.
fn scheme_of(url: &str) -> Option<(&'static str, &str)> {
    match url.split_once("://")? {
        ("redis+sentinel", rest) => Some(("redis", rest)),
        ("rediss+sentinel", rest) => Some(("rediss", rest)),
        _ => None,
    }
}

impl SentinelAddress {
    /// Reads `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master-name[/database][?sentinel_password=…]`.
    /// User and password are the servers'; `rediss+sentinel://` is TLS with sentinels and servers.
    ///
    /// # Errors
    /// What is wrong with it; nothing of the URL is in the message.
    pub(super) fn read(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = scheme_of(url).ok_or("it is no URL of sentinels")?;
        if rest.contains('#') {
            return Err(ESCAPES);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // What ends the hosts has ended them within the password.
        if [path, query].iter().any(|part| part.contains('@')) {
            return Err(ESCAPES);
        }
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        // A query without its `?` is no host, and would be shown as one.
        if hosts.contains(['&', ';', '=']) {
            return Err(QUERY_FORM);
        }
        let (master, db) = path.split_once('/').unwrap_or((path, ""));
        let own = credentials(query)?;
        let mut sentinels = Vec::new();
        for host in hosts.split(',') {
            sentinels.push(Address::read(&format!("{scheme}://{own}{}", with_port(host)))?);
        }
        let name_fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        match master {
            "" => return Err(PATH_FORM),
            name if !name.chars().all(name_fits) => return Err(NAME_FORM),
            _ => {}
        }
        let user = if user.is_empty() { String::new() } else { format!("{user}@") };
        let server = Address::read(&format!("{scheme}://{user}host/{db}"))?;
        let listed: Vec<&str> = sentinels.iter().map(Address::host_and_port).collect();
        let db = server.info.redis_settings().db();
        let place = format!("{scheme}+sentinel://{}/{master}/{db}", listed.join(","));
        Ok(Self { sentinels, master: master.to_owned(), server: server.info, tls: server.tls, place })
    }
}

impl Address {
    /// Host and port as they stand in a URL.
    pub(super) fn host_and_port(&self) -> &str {
        let rest = self.place.split_once("://").map_or(&*self.place, |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }
}

fn with_port(host: &str) -> String {
    // Colons of an IPv6 address stand in brackets, and what is wrong with others is said by whoever reads it.
    let tail = host.rsplit_once(']').map_or(host, |(_, tail)| tail);
    if host.is_empty() || tail.contains(':') { host.to_owned() } else { format!("{host}:{PORT_DEFAULT}") }
}

/// The sentinels' own user and password as they stand before a host, from what is behind the `?`.
fn credentials(query: &str) -> Result<String, &'static str> {
    let (mut user, mut password) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let slot = match pair.split_once('=') {
            Some(("sentinel_user", value)) => (&mut user, value),
            Some(("sentinel_password", value)) => (&mut password, value),
            _ => return Err(QUERY_FORM),
        };
        if slot.1.contains(['/', '?']) {
            return Err(ESCAPES);
        }
        *slot.0 = Some(slot.1.replace(':', "%3A"));
    }
    match (user, password) {
        (Some(user), Some(password)) => Ok(format!("{user}:{password}@")),
        (None, Some(password)) => Ok(format!(":{password}@")),
        (Some(_), None) => Err(USER_ALONE),
        (None, None) => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> SentinelAddress {
        SentinelAddress::read(url).unwrap_or_else(|problem| panic!("{url}: {problem}"))
    }

    #[test]
    fn sentinels_name_and_database_are_read_and_shown() {
        for (url, place) in [
            ("redis+sentinel://a/mymaster", "redis+sentinel://a:26379/mymaster/0"),
            (
                "redis+sentinel://a:1,b,[::1]:3,[::2]/m-1/7",
                "redis+sentinel://a:1,b:26379,[::1]:3,[::2]:26379/m-1/7",
            ),
            ("rediss+sentinel://u:p%2F@a/m/", "rediss+sentinel://a:26379/m/0"),
            ("redis+sentinel://:s@a/m?sentinel_user=u&sentinel_password=x", "redis+sentinel://a:26379/m/0"),
        ] {
            assert_eq!(read(url).place, place, "{url}");
        }
    }

    #[test]
    fn servers_and_sentinels_have_credentials_of_their_own() {
        let read = read("redis+sentinel://u:p%40@a,b/m/3?sentinel_user=w&sentinel_password=s:%26");
        let of = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            (settings.username().map(str::to_owned), settings.password().map(str::to_owned), settings.db())
        };
        assert_eq!(of(&read.server), (Some("u".to_owned()), Some("p@".to_owned()), 3));
        for sentinel in &read.sentinels {
            assert_eq!(of(&sentinel.info), (Some("w".to_owned()), Some("s:&".to_owned()), 0));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (url, part) in [
            ("redis+sentinel://", "no host"),
            ("redis+sentinel:///m", "no host"),
            ("redis+sentinel://a,,b/m", "no host"),
            ("redis+sentinel://a,/m", "no host"),
            ("redis+sentinel://a:x/m", "the port"),
            ("redis+sentinel://a,b:99999/m", "the port"),
            ("redis+sentinel://::1/m", "in brackets"),
            ("redis+sentinel://0.0.0.0/m", "name the machine"),
            ("redis+sentinel://a", "/master-name"),
            ("redis+sentinel://a/", "/master-name"),
            ("redis+sentinel://a//0", "/master-name"),
            ("redis+sentinel://a/my master", "the name of the master"),
            ("redis+sentinel://a/m/x", "the database"),
            ("redis+sentinel://a/m/-1", "the database"),
            ("redis+sentinel://a/m/0/1", "the database"),
            ("redis+sentinel://:S3cr3t/x@a/m", "%2F"),
            ("redis+sentinel://:S3cr3t#x@a/m", "%23"),
            ("redis+sentinel://:S3cr3t?x@a/m", "%3F"),
            ("redis+sentinel://a/m?sentinel_password=S3cr3t@x", "%40"),
            ("redis+sentinel://a/m?sentinel_password=S3cr3t/x", "%2F"),
            ("redis+sentinel://a/m?password=S3cr3t", "sentinel_password"),
            ("redis+sentinel://a/m?sentinel_user=u", "needs a sentinel_password"),
        ] {
            let problem = SentinelAddress::read(url).map(|a| a.place).expect_err(url);
            assert!(problem.contains(part) && !problem.contains("S3cr3t"), "{url}: {problem}");
        }
    }
}
