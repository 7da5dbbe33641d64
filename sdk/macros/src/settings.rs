//! The settings in `#[handler(...)]`, checked, and the line that declares them to the runner.

use std::fmt::Write;

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, LitBool, LitInt, LitStr, Result, Token};

/// Longest kind, in bytes; the runner has the same rule.
const KIND_BYTES_MAX: usize = 128;
const MAX_ATTEMPTS_MAX: u32 = 1_000;
const TIMEOUT_MS_MAX: u64 = 24 * HOUR_MS;
const BACKOFF_MS_MAX: u64 = 366 * DAY_MS;
const JITTER_PERCENT_DEFAULT: u64 = 20;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// What the attribute says; nothing is filled in.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) kind: Option<String>,
    timeout_ms: Option<u64>,
    max_attempts: Option<u32>,
    backoff: Option<Backoff>,
    keep_results: Option<bool>,
    memory_bytes: Option<u64>,
    http: Option<Vec<String>>,
    env: Option<Vec<String>>,
    secrets: Option<Vec<String>>,
    state: Option<bool>,
    enqueue: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Backoff {
    base_ms: u64,
    max_ms: u64,
    jitter_percent: u64,
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut settings = Self::default();
        let mut wrong: Option<Error> = None;
        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            if input.parse::<Option<Token![=]>>()?.is_none() {
                return Err(Error::new(key.span(), format!("`{key}` wants a value: {key} = ...")));
            }
            if let Err(error) = settings.set(&key, input) {
                match &mut wrong {
                    Some(all) => all.combine(error),
                    None => wrong = Some(error),
                }
                skip_value(input)?;
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        wrong.map_or(Ok(settings), Err)
    }
}

impl Settings {
    /// Reads one value. May leave it behind when it is of the wrong type.
    fn set(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "kind" => {
                let kind: LitStr = input.parse()?;
                check_kind(&kind.value()).map_err(|message| Error::new(kind.span(), message))?;
                once(&mut self.kind, key, kind.value())
            }
            "timeout" => {
                let value = text(input, timeout_ms)?;
                once(&mut self.timeout_ms, key, value)
            }
            "max_attempts" => {
                let value: LitInt = input.parse()?;
                let attempts = value.base10_parse().ok().filter(|n| (1..=MAX_ATTEMPTS_MAX).contains(n));
                let attempts = attempts.ok_or_else(|| {
                    Error::new(value.span(), format!("max_attempts is a number from 1 to {MAX_ATTEMPTS_MAX}"))
                })?;
                once(&mut self.max_attempts, key, attempts)
            }
            "backoff" => {
                let value = text(input, backoff)?;
                once(&mut self.backoff, key, value)
            }
            "keep_results" => {
                let value = input.parse::<LitBool>()?.value;
                once(&mut self.keep_results, key, value)
            }
            "memory" => {
                let value = text(input, memory_bytes)?;
                once(&mut self.memory_bytes, key, value)
            }
            "http" => {
                let value = texts(input, check_target)?;
                once(&mut self.http, key, value)
            }
            "env" => {
                let value = texts(input, check_kind)?;
                once(&mut self.env, key, value)
            }
            "secrets" => {
                let value = texts(input, check_kind)?;
                once(&mut self.secrets, key, value)
            }
            "state" => {
                let value = input.parse::<LitBool>()?.value;
                once(&mut self.state, key, value)
            }
            "enqueue" => {
                let value = texts(input, check_kinds)?;
                once(&mut self.enqueue, key, value)
            }
            other => Err(Error::new(
                key.span(),
                format!(
                    "unknown setting `{other}`: there are kind, timeout, max_attempts, backoff, keep_results, memory, http, env, \
                     secrets, state and enqueue"
                ),
            )),
        }
    }

    /// The line of the custom section: JSON with what was said, and no more.
    pub(crate) fn declaration(&self, kind: &str) -> String {
        // A kind has no character that JSON would escape.
        let mut line = format!("{{\"kind\":\"{kind}\"");
        if let Some(ms) = self.timeout_ms {
            _ = write!(line, ",\"timeout_ms\":{ms}");
        }
        if let Some(attempts) = self.max_attempts {
            _ = write!(line, ",\"max_attempts\":{attempts}");
        }
        if let Some(Backoff { base_ms, max_ms, jitter_percent }) = self.backoff {
            let jitter = jitter_percent as f64 / 100.0;
            _ = write!(
                line,
                ",\"backoff\":{{\"base_ms\":{base_ms},\"max_ms\":{max_ms},\"jitter\":{jitter:?}}}"
            );
        }
        if self.keep_results == Some(true) {
            line.push_str(",\"keep_results\":true");
        }
        if let Some(bytes) = self.memory_bytes {
            _ = write!(line, ",\"memory_bytes\":{bytes}");
        }
        for (key, list) in
            [("http", &self.http), ("env", &self.env), ("secrets", &self.secrets), ("enqueue", &self.enqueue)]
        {
            let Some(list) = list else { continue };
            // What was checked has no character that JSON would escape.
            let quoted: Vec<String> = list.iter().map(|text| format!("\"{text}\"")).collect();
            _ = write!(line, ",\"{key}\":[{}]", quoted.join(","));
        }
        if let Some(state) = self.state {
            _ = write!(line, ",\"state\":{state}");
        }
        line.push_str("}\n");
        line
    }
}

/// Whether `kind` follows the one rule for names.
pub(crate) fn check_kind(kind: &str) -> std::result::Result<(), String> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let first_ok = kind.bytes().next().is_some_and(letter);
    let rest_ok = kind.bytes().all(|b| letter(b) || matches!(b, b'.' | b'-'));
    if first_ok && rest_ok && kind.len() <= KIND_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "invalid name {kind:?}: expected 1 to {KIND_BYTES_MAX} characters of A-Z a-z 0-9 _ . -, the first a letter, a digit or _"
    ))
}

fn once<T>(slot: &mut Option<T>, key: &Ident, value: T) -> Result<()> {
    if slot.replace(value).is_some() {
        return Err(Error::new(key.span(), format!("`{key}` is set twice")));
    }
    Ok(())
}

/// Goes on to the next setting after a wrong value.
fn skip_value(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

fn text<T>(input: ParseStream<'_>, read: fn(&str) -> std::result::Result<T, String>) -> Result<T> {
    let literal: LitStr = input.parse()?;
    read(&literal.value()).map_err(|message| Error::new(literal.span(), message))
}

/// A list of texts, each at its own place when it is wrong.
fn texts(input: ParseStream<'_>, check: fn(&str) -> std::result::Result<(), String>) -> Result<Vec<String>> {
    let content;
    syn::bracketed!(content in input);
    let literals = content.parse_terminated(|input: ParseStream<'_>| input.parse::<LitStr>(), Token![,])?;
    let mut wrong: Option<Error> = None;
    for literal in &literals {
        let Err(message) = check(&literal.value()) else { continue };
        let error = Error::new(literal.span(), message);
        match &mut wrong {
            Some(all) => all.combine(error),
            None => wrong = Some(error),
        }
    }
    match wrong {
        Some(wrong) => Err(wrong),
        None => Ok(literals.iter().map(LitStr::value).collect()),
    }
}

/// Whether `text` is a target of HTTP requests, roughly: the runner has the exact rule, and a module that breaks it does not load.
fn check_target(text: &str) -> std::result::Result<(), String> {
    let host = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:*[]".contains(&b);
    if host.is_some_and(|host| !host.is_empty() && host.bytes().all(plain)) {
        return Ok(());
    }
    Err(format!(
        "http lists targets of scheme, host and port, as in \"https://api.example.com\" or \"https://*.example.com\", not {text:?}"
    ))
}

/// Whether `text` is a kind, or the beginning of kinds and a star.
fn check_kinds(text: &str) -> std::result::Result<(), String> {
    match text.strip_suffix('*') {
        Some("") => Ok(()),
        Some(start) => check_kind(start),
        None => check_kind(text),
    }
}

fn memory_bytes(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("memory is a size from 64KiB to 4GiB, as in \"64MiB\", not {text:?}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match text[digits..].trim() {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    count.checked_mul(unit).filter(|bytes| (64 << 10..=4 << 30).contains(bytes)).ok_or_else(wrong)
}

fn timeout_ms(text: &str) -> std::result::Result<u64, String> {
    match span_ms(text)? {
        ms @ 1..=TIMEOUT_MS_MAX => Ok(ms),
        _ => Err(format!("timeout is a span from 1ms to 24h, not {text:?}")),
    }
}

fn backoff(text: &str) -> std::result::Result<Backoff, String> {
    let wrong = || {
        format!(
            "backoff is \"exp(15s, 1h)\" (first and longest wait), \"exp(15s, 1h, 10%)\" (with jitter), \"fixed(30s)\" or \"none\", not {text:?}"
        )
    };
    if text.trim() == "none" {
        return Ok(Backoff { base_ms: 0, max_ms: 0, jitter_percent: 0 });
    }
    let (name, rest) = text.trim().split_once('(').ok_or_else(wrong)?;
    let inner = rest.strip_suffix(')').ok_or_else(wrong)?;
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    let (base, max, jitter) = match (name.trim_end(), parts.as_slice()) {
        ("exp", [base, max]) => (base, max, None),
        ("exp", [base, max, jitter]) => (base, max, Some(jitter)),
        ("fixed", [delay]) => (delay, delay, None),
        _ => return Err(wrong()),
    };
    let (base_ms, max_ms) = (span_ms(base)?, span_ms(max)?);
    if base_ms > max_ms {
        return Err(format!("the first wait of a backoff is not longer than the longest: {base} > {max}"));
    }
    if max_ms > BACKOFF_MS_MAX {
        return Err(format!("a backoff waits 366d at most, not {max}"));
    }
    let jitter_percent = jitter.map_or(Ok(JITTER_PERCENT_DEFAULT), |text| {
        let percent = text.strip_suffix('%').and_then(|digits| digits.trim().parse().ok());
        percent.filter(|n| *n <= 100).ok_or_else(|| format!("jitter is 0% to 100%, not {text:?}"))
    })?;
    Ok(Backoff { base_ms, max_ms, jitter_percent })
}

/// A span such as `250ms`, `3s` or `1m30s`, in milliseconds.
fn span_ms(text: &str) -> std::result::Result<u64, String> {
    let wrong =
        || format!("{text:?} is no span of time: expected a number and ms, s, m, h or d, as in \"3s\"");
    let mut rest = text.trim();
    let mut total: u64 = 0;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => SECOND_MS,
            "m" => MINUTE_MS,
            "h" => HOUR_MS,
            "d" => DAY_MS,
            _ => return Err(wrong()),
        };
        total = count.checked_mul(unit_ms).and_then(|ms| total.checked_add(ms)).ok_or_else(wrong)?;
        rest = &rest[letters..];
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(settings: &str) -> std::result::Result<String, String> {
        let settings: Settings = syn::parse_str(settings).map_err(|error: Error| error.to_string())?;
        Ok(settings.declaration("k"))
    }

    #[test]
    fn the_declaration_says_what_was_said_and_no_more() {
        assert_eq!(declared("").unwrap(), "{\"kind\":\"k\"}\n");
        assert_eq!(declared("keep_results = false").unwrap(), "{\"kind\":\"k\"}\n");
        assert_eq!(
            declared(
                r#"timeout = "3s", max_attempts = 5, backoff = "exp(15s, 1h, 10%)", keep_results = true,"#
            )
            .unwrap(),
            concat!(
                r#"{"kind":"k","timeout_ms":3000,"max_attempts":5,"#,
                r#""backoff":{"base_ms":15000,"max_ms":3600000,"jitter":0.1},"keep_results":true}"#,
                "\n"
            )
        );
    }

    #[test]
    fn what_a_handler_wants_to_reach_is_declared() {
        assert_eq!(
            declared(
                r#"memory = "64MiB", http = ["https://a.b", "http://*.c.d:8080"], env = ["TZ"], secrets = [], state = true, enqueue = ["a", "b_*", "*"]"#
            )
            .unwrap(),
            concat!(
                r#"{"kind":"k","memory_bytes":67108864,"http":["https://a.b","http://*.c.d:8080"],"env":["TZ"],"#,
                r#""secrets":[],"enqueue":["a","b_*","*"],"state":true}"#,
                "\n"
            )
        );
        for bad in [
            r#"memory = "64""#,
            r#"memory = "1KiB""#,
            r#"memory = "5GiB""#,
            r#"memory = "999999999999GiB""#,
            "memory = 64",
            r#"http = "https://a.b""#,
            r#"http = ["a.b"]"#,
            r#"http = ["https://"]"#,
            r#"http = ["https://a.b/c"]"#,
            r#"http = ["https://u@a.b"]"#,
            r#"http = ["https://a\"b"]"#,
            r#"env = ["A B"]"#,
            "env = [5]",
            r#"secrets = [""]"#,
            "state = 1",
            r#"enqueue = ["a*b"]"#,
            r#"enqueue = ["-*"]"#,
            r#"state = true, state = true"#,
        ] {
            assert!(declared(bad).is_err(), "{bad}");
        }
        let error = syn::parse_str::<Settings>(r#"http = ["a", "b"], enqueue = ["?"]"#).unwrap_err();
        assert_eq!(error.into_iter().count(), 3, "each at its own place");
    }

    #[test]
    fn spans_are_numbers_with_units() {
        for (text, ms) in
            [("250ms", 250), ("3s", 3_000), (" 1m30s ", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(span_ms(text), Ok(ms), "{text}");
        }
        for bad in [
            "",
            "abc",
            "3",
            "s",
            "-3s",
            "1.5s",
            "3 s",
            "3sec",
            "99999999999999999999s",
            "99999999999999999h",
            "3é",
        ] {
            assert!(span_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn backoffs_come_in_three_forms() {
        let exp = Backoff { base_ms: 15_000, max_ms: 3_600_000, jitter_percent: 20 };
        assert_eq!(backoff("exp(15s, 1h)"), Ok(exp));
        assert_eq!(backoff("exp(15s,1h,0%)"), Ok(Backoff { jitter_percent: 0, ..exp }));
        assert_eq!(
            backoff("fixed(30s)"),
            Ok(Backoff { base_ms: 30_000, max_ms: 30_000, jitter_percent: 20 })
        );
        assert_eq!(backoff("none"), Ok(Backoff { base_ms: 0, max_ms: 0, jitter_percent: 0 }));
        for bad in [
            "",
            "exp",
            "exp()",
            "exp(1s)",
            "exp(2s, 1s)",
            "exp(1s, 2s, 101%)",
            "exp(1s, 2s, 3)",
            "fixed(1s, 2s)",
            "exp(1s, 9999d)",
            "lin(1s)",
        ] {
            assert!(backoff(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_follow_the_rule_for_names() {
        for good in ["a", "order_close", "A-1.b", "_x", "0", &"k".repeat(128)] {
            assert!(check_kind(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "-a", ".a", "é", "a:b", "a/b", "a\"b", "a\n", &"k".repeat(129)] {
            assert!(check_kind(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        let error =
            syn::parse_str::<Settings>(r#"timeout = "abc", retries = 3, max_attempts = 0"#).unwrap_err();
        let messages: Vec<String> = error.into_iter().map(|error| error.to_string()).collect();
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[0].contains("\"abc\" is no span of time"), "{messages:?}");
        assert!(messages[1].contains("unknown setting `retries`"), "{messages:?}");
        assert!(messages[2].contains("from 1 to 1000"), "{messages:?}");
    }

    #[test]
    fn bounds_hold() {
        for bad in [
            r#"timeout = "0s""#,
            r#"timeout = "25h""#,
            "max_attempts = 1001",
            "max_attempts = -1",
            r#"max_attempts = "5""#,
            "timeout = 3",
            r#"kind = "a b""#,
            r#"timeout = "1s", timeout = "2s""#,
            "keep_results = 1",
            "keep_results",
        ] {
            assert!(declared(bad).is_err(), "{bad}");
        }
        assert!(declared(r#"timeout = "1ms", max_attempts = 1000"#).is_ok());
        assert!(declared(r#"timeout = "24h", max_attempts = 1"#).is_ok());
    }
}
