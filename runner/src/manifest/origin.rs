//! Targets of HTTP requests as people write them, and what two of them have in common.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::grants::{Origin, Scheme};

const EXPECTED: &str = "expected scheme, host and port, as in \"https://api.example.com\", \"http://127.0.0.1:8080\" or \
                        \"https://*.example.com\"";

/// Reads a target. What is beside scheme, host and port is refused, and so is each way of writing a host that another
/// program might read as another host.
///
/// # Errors
/// What was expected, what came, and what to write.
pub fn origin(text: &str) -> Result<Origin, String> {
    let wrong = |why: &str| format!("{EXPECTED}, got {}: {why}", shown(text));
    let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
    let scheme = match scheme.to_ascii_lowercase().as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(wrong("the scheme is http or https")),
    };
    if rest.contains('@') {
        return Err(wrong("no user and password"));
    }
    if let Some(at) = rest.find(['/', '?', '#', '\\']) {
        let short = &rest[..at];
        return Err(wrong(&format!("no path and no query: write {}://{short}", scheme.as_str())));
    }
    let (host, port) = split_port(rest).ok_or_else(|| wrong("the port is a number from 1 to 65535"))?;
    let host = host_of(host).map_err(|why| wrong(&why))?;
    Ok(Origin { scheme, host, port: port.unwrap_or(scheme.port()) })
}

/// Not longer than it has to be, and without what might be a password.
fn shown(text: &str) -> String {
    let text = match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://***{}", &text[..scheme], &text[at..]),
        _ => text.to_owned(),
    };
    format!("{:?}", crate::outcome::capped(text, 200))
}

fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    // An address in brackets has colons of its own.
    let from = match text.rfind(']') {
        Some(end) => end + 1,
        None if text.starts_with('[') => return Some((text, None)),
        None => 0,
    };
    let Some(colon) = text[from..].find(':').map(|at| from + at) else { return Some((text, None)) };
    let digits = &text[colon + 1..];
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u16>().ok()).flatten();
    number.filter(|port| *port > 0).map(|port| (&text[..colon], Some(port)))
}

fn host_of(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it has no host".to_owned());
    }
    if let Some(inner) = text.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return address
            .map(|ip| ip.to_string())
            .ok_or_else(|| "what is in brackets is no address".to_owned());
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(address.to_string());
    }
    if !text.is_ascii() {
        return Err("a host with other letters is written in its xn-- form".to_owned());
    }
    let lower = text.to_ascii_lowercase();
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    if name.contains('*') {
        return Err("a star stands for the first part alone, as in *.example.com".to_owned());
    }
    if name.ends_with('.') {
        return Err("no dot at the end".to_owned());
    }
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let label = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(letter)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        return Err("that is no host name".to_owned());
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = |part: &str| {
        let hex = part.strip_prefix("0x").unwrap_or("g");
        part.bytes().all(|b| b.is_ascii_digit()) || hex.bytes().all(|b| b.is_ascii_hexdigit())
    };
    if number(last) {
        return Err("an address is written as four decimal numbers, as in 127.0.0.1".to_owned());
    }
    Ok(lower)
}

/// What both allow.
pub(super) fn common(a: &Origin, b: &Origin) -> Option<Origin> {
    if (a.scheme, a.port) != (b.scheme, b.port) {
        return None;
    }
    if a.host == b.host || covers(&b.host, &a.host) {
        return Some(a.clone());
    }
    covers(&a.host, &b.host).then(|| b.clone())
}

/// Whether a pattern allows all that a host or another pattern does.
fn covers(pattern: &str, other: &str) -> bool {
    let Some(suffix) = pattern.strip_prefix('*') else { return false };
    let other = other.strip_prefix('*').unwrap_or(other);
    other.len() > suffix.len() && other.ends_with(suffix)
}

/// What two lists allow together.
pub(super) fn common_of(a: &[Origin], b: &[Origin]) -> Vec<Origin> {
    let mut all: Vec<Origin> = Vec::new();
    for origin in a.iter().flat_map(|a| b.iter().filter_map(|b| common(a, b))) {
        if !all.contains(&origin) {
            all.push(origin);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_scheme_host_and_port() {
        for (text, said) in [
            ("https://api.example.com", "https://api.example.com"),
            ("HTTPS://API.example.COM:443", "https://api.example.com"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
            ("https://*.example.com", "https://*.example.com"),
            ("http://localhost:443", "http://localhost:443"),
            ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
            ("http://my_host", "http://my_host"),
        ] {
            assert_eq!(origin(text).map(|origin| origin.to_string()), Ok(said.to_owned()), "{text}");
        }
    }

    #[test]
    fn whatever_else_a_url_has_is_refused_with_the_reason() {
        for (text, why) in [
            ("api.example.com", "no scheme"),
            ("ftp://api.example.com", "http or https"),
            ("https://api.example.com/", "write https://api.example.com"),
            ("https://api.example.com/v1", "no path"),
            ("https://api.example.com?x=1", "no path and no query"),
            ("https://a\\b", "no path"),
            ("https://user:hunter2@api.example.com", "no user and password"),
            ("https://", "no host"),
            ("https://:80", "no host"),
            ("https://a:0", "port is a number"),
            ("https://a:65536", "port is a number"),
            ("https://a:", "port is a number"),
            ("https://a:+80", "port is a number"),
            ("https://a:80:80", "port is a number"),
            ("https://[::1", "no address"),
            ("https://[::1%eth0]", "no address"),
            ("https://bücher.example", "xn--"),
            ("https://a.*.example.com", "the first part alone"),
            ("https://*", "the first part alone"),
            ("https://*.", "no host name"),
            ("https://example.com.", "no dot at the end"),
            ("https://a..b", "no host name"),
            ("https://-a.b", "no host name"),
            ("https://a b", "no host name"),
            ("http://2130706433", "four decimal numbers"),
            ("http://0x7f000001", "four decimal numbers"),
            ("http://0177.0.0.1", "four decimal numbers"),
            ("http://127.1", "four decimal numbers"),
            ("http://*.0.0.1", "four decimal numbers"),
        ] {
            let message = origin(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn the_narrower_of_two_is_what_they_have_in_common() {
        let read = |text: &str| origin(text).unwrap();
        let narrow = |a: &str, b: &str| common(&read(a), &read(b)).map(|origin| origin.to_string());
        for (a, b, both) in [
            ("https://a.b", "https://a.b", Some("https://a.b")),
            ("https://*.b.c", "https://a.b.c", Some("https://a.b.c")),
            ("https://a.b.c", "https://*.b.c", Some("https://a.b.c")),
            ("https://*.b.c", "https://*.a.b.c", Some("https://*.a.b.c")),
            ("https://*.b.c", "https://b.c", None),
            ("https://*.b.c", "https://ab.c", None),
            ("https://*.b.c", "https://xb.c", None),
            ("https://a.b", "http://a.b", None),
            ("https://a.b", "https://a.b:444", None),
        ] {
            assert_eq!(narrow(a, b).as_deref(), both, "{a} and {b}");
            assert_eq!(narrow(b, a).as_deref(), both, "{b} and {a}");
        }
    }
}
