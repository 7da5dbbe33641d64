//! `[allow] secrets`: which of the operator's secrets a handler may read, and where the host puts them for it.

use crate::grants::{Injection, Origin};

use super::SecretAsk;
use super::document::Item;
use super::origin::{common_of, origin};

/// Longest name of a header, and longest format of its value, in bytes.
const HEADER_BYTES_MAX: usize = 256;
/// Headers that say how a message is sent, and where: nobody but the client sets them.
const RESERVED: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads them; `http` are the targets that the manifest allows.
pub(super) fn read(item: Item<'_>, http: &[Origin]) -> Option<Vec<SecretAsk>> {
    if item.is_list() {
        return item.list("a list of names", |entry| {
            let name = name(&entry, entry.text("the name of a secret in quotes")?)?;
            Some(SecretAsk { name, readable: true, injections: Vec::new(), origin: entry.origin() })
        });
    }
    let keys = item.keys("a list of names, or a table of names with what each is for")?;
    Some(keys.each(|key, entry| {
        let name = name(&entry, key)?;
        ask(name, entry, http)
    }))
}

/// A secret's name: what a variable's may be, and `-` and `.`.
pub(super) fn name(item: &Item<'_>, text: &str) -> Option<String> {
    let good = crate::names::Name::new(text).is_ok();
    if good {
        return Some(text.to_owned());
    }
    // Not quoted: somebody may have put the secret itself here.
    item.wrong("expected the name of a secret: 1 to 128 characters of A-Z a-z 0-9 _ . -, the first a letter, a digit or _")
}

fn ask(name: String, item: Item<'_>, http: &[Origin]) -> Option<SecretAsk> {
    const WHAT: &str = "\"read\", or a table such as { to = \"https://api.example.com\", header = \"authorization\", \
                        format = \"Bearer {}\" }";
    let readable =
        |readable| SecretAsk { name: name.clone(), readable, injections: Vec::new(), origin: item.origin() };
    if item.is_text() {
        return match item.text(WHAT)? {
            "read" => Some(readable(true)),
            _ => item.wrong(&format!("expected {WHAT}, got another text")),
        };
    }
    if item.is_list() {
        let injections = item.list(WHAT, |entry| injection(entry, http))?;
        return Some(SecretAsk { injections, ..readable(false) });
    }
    if !item.is_table() {
        item.text(WHAT)?;
    }
    let injection = injection(item, http)?;
    Some(SecretAsk { injections: vec![injection], ..readable(false) })
}

fn injection(item: Item<'_>, http: &[Origin]) -> Option<Injection> {
    let keys =
        item.keys("a table such as { to = \"https://api.example.com\", header = \"authorization\" }")?;
    let to = keys.take("to", |item| {
        let to = item.parsed("a target such as \"https://api.example.com\"", origin)?;
        if common_of(http, std::slice::from_ref(&to)) == [to.clone()] {
            return Some(to);
        }
        item.wrong(&format!("expected a target that allow.http has, got {to}: add it there"))
    });
    let header = keys.take("header", |item| item.parsed("the name of a header", header));
    let format = keys.take("format", |item| {
        let text = item.text("a text with {} for the secret")?;
        let printable = text.bytes().all(|b| (b' '..=b'~').contains(&b)) && text.len() <= HEADER_BYTES_MAX;
        if !printable || text.matches("{}").count() != 1 || text.trim() != text {
            return item.wrong("expected printable ASCII with {} once, for the secret, as in \"Bearer {}\"");
        }
        Some(text.to_owned())
    });
    let said = |key| keys.item(key).is_some();
    let missing: Vec<&str> = ["to", "header"].into_iter().filter(|key| !said(key)).collect();
    let has_format = said("format");
    keys.end();
    if !missing.is_empty() {
        return item.wrong(&format!("expected to and header, got no {}", missing.join(" and no ")));
    }
    let format = if has_format { format? } else { "{}".to_owned() };
    Some(Injection { to: to?, header: header?, format })
}

fn header(text: &str) -> Result<String, String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let lower = text.to_ascii_lowercase();
    if text.is_empty() || text.len() > HEADER_BYTES_MAX || !text.bytes().all(token) {
        return Err("expected the name of a header, such as \"authorization\", got something else".to_owned());
    }
    if RESERVED.contains(&lower.as_str()) {
        return Err(format!(
            "expected a header that a handler may set, got {lower:?}, which the client sets itself"
        ));
    }
    Ok(lower)
}
