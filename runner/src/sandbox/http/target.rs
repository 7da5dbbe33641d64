//! Where a request is to go, read from its URI and from nothing else.
//!
//! Names and addresses are brought to one form first (as browsers do it: case, percent signs, other scripts, decimal,
//! octal and hexadecimal addresses), so that what is compared with the grants is what is resolved, connected to, and
//! named in TLS and in the Host header.

use std::net::IpAddr;

use http::Uri;

use crate::grants::{HttpGrant, Origin, Scheme};

use super::address;

/// Longest name in DNS, and longest part of one, in bytes.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// Longest host and port as a guest may write them (a name may have percent signs), in bytes.
pub(super) const AUTHORITY_BYTES_MAX: usize = 512;

/// Scheme, host and port of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) host: Host,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// In lower case and ASCII, without a dot at its end.
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// Reads the target of an absolute URI.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of(uri: &Uri) -> Result<Self, String> {
        let authority = uri.authority().map_or("", http::uri::Authority::as_str);
        if authority.len() > AUTHORITY_BYTES_MAX {
            let length = authority.len();
            return Err(format!("its host and port have {length} bytes; {AUTHORITY_BYTES_MAX} are the most"));
        }
        let scheme = match uri.scheme_str() {
            Some("http") => Scheme::Http,
            Some("https") => Scheme::Https,
            _ => return Err("the scheme is http or https".to_owned()),
        };
        if authority.contains('@') {
            return Err("a URL has no user name and no password: put credentials into a header".to_owned());
        }
        let (host, port) = split(authority)?;
        let host = match url::Host::parse(host) {
            Ok(url::Host::Domain(name)) => Host::Name(checked_name(name)?),
            Ok(url::Host::Ipv4(address)) => Host::Address(address.into()),
            Ok(url::Host::Ipv6(address)) => Host::Address(address::plain(address.into())),
            Err(error) => return Err(format!("its host is none: {error}")),
        };
        Ok(Self { scheme, host, port: port.unwrap_or(scheme.port()) })
    }

    /// As the grants name it.
    pub(super) fn origin(&self) -> Origin {
        Origin { scheme: self.scheme, host: self.host_text(), port: self.port }
    }

    /// Whether the grants allow it.
    pub(super) fn is_allowed(&self, grant: &HttpGrant) -> bool {
        grant.allow.iter().any(|origin| self.is(origin))
    }

    /// Whether this is what `origin` means.
    pub(super) fn is(&self, origin: &Origin) -> bool {
        origin.allows(self.scheme, &self.host_text(), self.port)
    }

    /// What the Host header says.
    pub(super) fn host_header(&self) -> String {
        let host = match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(IpAddr::V6(v6)) => format!("[{v6}]"),
            Host::Address(address) => address.to_string(),
        };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    fn host_text(&self) -> String {
        match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        }
    }
}

/// Host (with its brackets) and port of an authority without user information.
fn split(authority: &str) -> Result<(&str, Option<u16>), String> {
    let end = if authority.starts_with('[') {
        authority.find(']').map(|at| at + 1).ok_or("its host lacks a ]")?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(end);
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => match digits.parse() {
            Ok(0) | Err(_) => return Err(format!("the port {digits:?} is none: from 1 to 65535")),
            Ok(port) => Some(port),
        },
        _ => return Err(format!("what follows the host is no port: {rest:?}")),
    };
    Ok((host, port))
}

fn checked_name(mut name: String) -> Result<String, String> {
    if name.ends_with('.') {
        name.pop();
    }
    let labels_fit = name.split('.').all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()));
    if labels_fit && name.len() <= NAME_BYTES_MAX { Ok(name) } else { Err("its host is no name".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Result<Target, String> {
        Target::of(&uri.parse().map_err(|e| format!("no URI: {e}"))?)
    }

    fn grant(allow: &[(Scheme, &str, u16)]) -> HttpGrant {
        let origin =
            |&(scheme, host, port): &(Scheme, &str, u16)| Origin { scheme, host: host.to_owned(), port };
        HttpGrant { allow: allow.iter().map(origin).collect(), ..HttpGrant::default() }
    }

    fn allowed(grant: &HttpGrant, uri: &str) -> bool {
        target(uri).is_ok_and(|target| target.is_allowed(grant))
    }

    const API: (Scheme, &str, u16) = (Scheme::Https, "api.example.com", 443);

    /// Each of these is the target that is allowed, written in another way.
    #[test]
    fn one_host_in_many_notations() {
        let grant = grant(&[API]);
        for uri in [
            "https://api.example.com/",
            "https://api.example.com:443/x?y=z",
            "https://api.example.com:/",
            "https://API.Example.COM/",
            "HTTPS://api.example.com/",
            "https://api.example.com./",
            "https://api.example.com.:443/",
        ] {
            assert!(allowed(&grant, uri), "{uri}");
        }
    }

    /// One named case a URL that is not the one allowed target.
    macro_rules! elsewhere {
        ($($name:ident: $uri:literal,)+) => {
            $(#[test]
            fn $name() {
                assert!(!allowed(&grant(&[API]), $uri), $uri);
            })+
        };
    }

    elsewhere! {
        another_scheme: "http://api.example.com/",
        another_scheme_at_the_port: "http://api.example.com:443/",
        another_port: "https://api.example.com:8443/",
        another_port_that_begins_alike: "https://api.example.com:4430/",
        a_suffix_of_somebody_else: "https://api.example.com.evil.test/",
        a_prefix_of_somebody_else: "https://evilapi.example.com/",
        a_name_below: "https://x.api.example.com/",
        a_name_above: "https://example.com/",
        its_name_as_user: "https://api.example.com@evil.test/",
        its_name_as_user_with_password: "https://api.example.com:443@evil.test/",
        a_user_at_the_right_host: "https://user:password@api.example.com/",
        an_empty_user: "https://@api.example.com/",
        its_name_in_the_path: "https://evil.test/api.example.com",
        its_name_in_the_query: "https://evil.test/?https://api.example.com",
        a_look_alike: "https://xn--pi-7kc.example.com/",
        two_dots: "https://api.example.com../",
        a_percent_sign_that_ends_the_host: "https://evil.test%2f.api.example.com/",
        port_zero: "https://api.example.com:0/",
        a_port_that_wraps_around: "https://api.example.com:65979/",
        a_port_with_a_sign: "https://api.example.com:+443/",
        no_host: "https://:443/",
    }

    #[test]
    fn an_address_is_what_it_is_in_every_notation() {
        let grant = grant(&[(Scheme::Http, "127.0.0.1", 80)]);
        for uri in [
            "http://127.0.0.1/",
            "http://127.0.0.1./",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.1/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
        ] {
            let target = target(uri).unwrap();
            assert_eq!(target.host, Host::Address("127.0.0.1".parse().unwrap()), "{uri}");
            assert!(target.is_allowed(&grant), "{uri}");
            assert_eq!(target.host_header(), "127.0.0.1", "{uri}");
        }
        assert!(!allowed(&grant, "http://[::1]/") && !allowed(&grant, "http://[::127.0.0.1]/"));
    }

    #[test]
    fn an_ipv6_address_has_one_text() {
        let grant = grant(&[(Scheme::Http, "2001:db8::1", 8080)]);
        for uri in ["http://[2001:db8::1]:8080/", "http://[2001:DB8:0:0:0::1]:8080/"] {
            assert!(allowed(&grant, uri), "{uri}");
            assert_eq!(target(uri).unwrap().host_header(), "[2001:db8::1]:8080");
        }
        let other_text = super::tests::grant(&[(Scheme::Http, "2001:DB8:0::1", 8080)]);
        assert!(allowed(&other_text, "http://[2001:db8::1]:8080/"), "also where the grant has another");
        assert!(target("http://[fe80::1%25eth0]/").is_err(), "no zones");
        assert!(target("http://[::1/").is_err());
        assert!(target("http://[::1]x:80/").is_err());
    }

    #[test]
    fn a_star_stands_for_names_below_and_for_no_address() {
        let grant = grant(&[(Scheme::Https, "*.example.com", 443), (Scheme::Http, "*.0.0.1", 80)]);
        assert!(allowed(&grant, "https://a.example.com/") && allowed(&grant, "https://a.b.example.com/"));
        for uri in
            ["https://example.com/", "https://.example.com/", "https://evilexample.com/", "http://127.0.0.1/"]
        {
            assert!(!allowed(&grant, uri), "{uri}");
        }
    }

    #[test]
    fn names_in_other_scripts_are_compared_in_punycode() {
        let grant = grant(&[(Scheme::Https, "xn--bcher-kva.example", 443)]);
        assert!(allowed(&grant, "https://xn--bcher-kva.example/"));
        assert!(allowed(&grant, "https://XN--BCHER-KVA.Example/"));
        for uri in ["https://bucher.example/", "https://bücher.example/", "https://b%C3%BCcher.example/"] {
            assert!(!allowed(&grant, uri), "{uri}: no URI has other characters in its host");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |uri: &str| target(uri).unwrap_err();
        assert!(said("ftp://example.com/").contains("http or https"));
        assert!(said("https://a:b@example.com/").contains("put credentials into a header"));
        assert!(said("https://example.com:70000/").contains("65535"));
        let long = said(&format!("https://{}/", "a".repeat(513)));
        assert_eq!(long, "its host and port have 513 bytes; 512 are the most");
        assert!(!said(&format!("https://{}/", "a".repeat(512))).contains("are the most"));
    }
}
