//! The parts of a URL, and how one leads to another. What a host name means is the runner's to judge.

use super::HttpError;

/// An `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) https: bool,
    /// Host and port, as written.
    pub(crate) authority: String,
    /// Begins with a slash; only characters that may stand there.
    pub(crate) path_and_query: String,
}

impl Url {
    /// Reads an absolute URL. What follows a `#` is not sent to anybody.
    pub(crate) fn parse(text: &str) -> Result<Self, HttpError> {
        let wrong = |what: &str| HttpError::Invalid(format!("{text:?} is no URL that can be asked: {what}"));
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| wrong("it begins with https:// or http://"))?;
        let https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(wrong("it begins with https:// or http://")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() {
            return Err(wrong("it names no host"));
        }
        if authority.contains('@') {
            // Never the URL: it has a password in it.
            return Err(HttpError::Invalid(
                "a URL has no user name and no password: put credentials into a header".to_owned(),
            ));
        }
        if !authority.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(wrong("a host is written in ASCII, other scripts as in xn--bcher-kva.example"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path_and_query = format!("{slash}{}", encoded(path));
        Ok(Self { https, authority: authority.to_owned(), path_and_query })
    }

    /// Adds a pair to the query.
    pub(crate) fn add_query(&mut self, name: &str, value: &str) {
        let sign = if self.path_and_query.contains('?') { '&' } else { '?' };
        self.path_and_query.push_str(&format!("{sign}{}={}", component(name), component(value)));
    }

    /// Where a redirect to `location` leads.
    pub(crate) fn join(&self, location: &str) -> Result<Self, HttpError> {
        let location = location.trim();
        let has_scheme = location.split_once(':').is_some_and(|(scheme, _)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        });
        if has_scheme {
            return Self::parse(location);
        }
        if location.starts_with("//") {
            return Self::parse(&format!("{}:{location}", self.scheme()));
        }
        let location = location.split('#').next().unwrap_or_default();
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        let joined = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') {
            format!("{path}{location}")
        } else if location.is_empty() {
            self.path_and_query.clone()
        } else {
            let folder = path.rfind('/').map_or("/", |end| &path[..=end]);
            format!("{folder}{location}")
        };
        let (path, query) = joined.split_at(joined.find('?').unwrap_or(joined.len()));
        Ok(Self { path_and_query: encoded(&format!("{}{query}", without_dots(path))), ..self.clone() })
    }

    /// Whether both name the same scheme, host and port.
    pub(crate) fn is_same_origin(&self, other: &Self) -> bool {
        self.https == other.https && self.authority.eq_ignore_ascii_case(&other.authority)
    }

    fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.authority)
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority, self.path_and_query)
    }
}

/// A path and query with percent signs for what may not stand there. What is encoded already stays.
fn encoded(path: &str) -> String {
    encode(path, |b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b))
}

/// A name or value of a query.
fn component(text: &str) -> String {
    encode(text, |b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
}

fn encode(text: &str, keep: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if keep(byte) { encoded.push(char::from(byte)) } else { encoded.push_str(&format!("%{byte:02X}")) }
    }
    encoded
}

/// `/a/./b/../c` is `/a/c`.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (n, segment) in segments.iter().enumerate() {
        let is_last = n + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_url_is_read_and_what_may_not_stand_there_is_encoded() {
        for (text, read) in [
            ("https://a.example", "https://a.example/"),
            ("HTTP://A.example:80?x", "http://A.example:80/?x"),
            ("https://a.example/b c?d=\u{fc}&e=%20#part", "https://a.example/b%20c?d=%C3%BC&e=%20"),
            ("https://[::1]:8080/x", "https://[::1]:8080/x"),
            ("https://a.example\\@evil.example/", "https://a.example/%5C@evil.example/"),
        ] {
            assert_eq!(url(text).to_string(), read);
        }
        let mut with_query = url("https://a.example/x?y=1");
        with_query.add_query("a&b", "c d=\u{20ac}");
        assert_eq!(with_query.to_string(), "https://a.example/x?y=1&a%26b=c%20d%3D%E2%82%AC");
    }

    #[test]
    fn what_is_none_is_refused_with_what_was_expected() {
        for (text, words) in [
            ("a.example/x", "begins with https://"),
            ("ftp://a.example/", "begins with https://"),
            ("https:///x", "names no host"),
            ("https://b\u{fc}cher.example/", "xn--bcher-kva"),
            ("https://a b.example/", "ASCII"),
            ("https://user:secret@a.example/", "put credentials into a header"),
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_redirect_leads_where_the_rules_say() {
        let from = url("https://a.example/b/c?d");
        for (location, to) in [
            ("https://x.example/y", "https://x.example/y"),
            ("//x.example/y", "https://x.example/y"),
            ("/y?z#f", "https://a.example/y?z"),
            ("y", "https://a.example/b/y"),
            ("../y/./z/..", "https://a.example/y/"),
            ("/../../y", "https://a.example/y"),
            ("?e", "https://a.example/b/c?e"),
            ("", "https://a.example/b/c?d"),
            ("y:z", "error"),
            ("./y:z", "https://a.example/b/y:z"),
        ] {
            let joined = from.join(location).map_or_else(|_| "error".to_owned(), |url| url.to_string());
            assert_eq!(joined, to, "{location}");
        }
        assert!(from.join("javascript:alert(1)").is_err());
    }
}
