//! A TOML file read strictly: every key is taken by somebody or an error, every error names file, line and key, and all
//! of a file are reported together.
//!
//! A text is quoted in a message only where whoever reads it says so: a value may be a secret.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::config::Problems;
use crate::wire::units;

/// Entries of a list, or of a table whose keys are names of the user's.
pub(crate) const ENTRIES_MAX: usize = 1_000;
/// What is said of one file: each costs a look through the file for its line.
const PROBLEMS_MAX: usize = 100;

/// A file, and what is wrong with it so far.
pub(crate) struct Document<'a> {
    shown: &'a str,
    text: &'a str,
    problems: RefCell<Vec<(usize, String)>>,
}

/// One value with its place.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    document: &'a Document<'a>,
    path: &'a str,
    at: usize,
    value: &'a DeValue<'a>,
}

/// A table that is taken apart key by key.
pub(crate) struct Keys<'a> {
    document: &'a Document<'a>,
    path: String,
    table: &'a DeTable<'a>,
    known: RefCell<Vec<&'static str>>,
}

/// A byte-order mark that editors leave at the beginning is no part of the file.
pub(crate) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

impl<'a> Document<'a> {
    /// `shown` is how messages name the file.
    pub(crate) fn new(shown: &'a str, text: &'a str) -> Self {
        Self { shown, text, problems: RefCell::default() }
    }

    /// The file as a table.
    ///
    /// # Errors
    /// When it is not TOML. The message does not quote it.
    pub(crate) fn table(text: &'a str, shown: &str) -> Result<DeTable<'a>, Problems> {
        // The error's own form quotes the line, which may hold a password.
        DeTable::parse(text).map(Spanned::into_inner).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            Problems::one(format!("{shown}:{line}: not valid TOML: {}", error.message()))
        })
    }

    /// The outermost table.
    pub(crate) fn keys(&'a self, table: &'a DeTable<'a>) -> Keys<'a> {
        Keys { document: self, path: String::new(), table, known: RefCell::default() }
    }

    /// One value that is not reached by [`Self::keys`].
    pub(crate) fn item(
        &'a self,
        path: &'a str,
        key: &Spanned<DeString<'_>>,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Item<'a> {
        Item { document: self, path, at: key.span().start, value: value.get_ref() }
    }

    /// What is wrong with it, in the order of the file.
    pub(crate) fn problems(&self) -> Problems {
        let mut problems = self.problems.take();
        problems.sort_by_key(|(at, _)| *at);
        Problems(problems.into_iter().map(|(_, message)| message).collect())
    }

    /// Notes a problem with a key that has no item.
    pub(crate) fn stray(&self, key: &Spanned<DeString<'_>>, message: &str) {
        self.note(key.span().start, message);
    }

    fn report(&self, at: usize, path: &str, message: &str) {
        self.note(at, &format!("{path}: {message}"));
    }

    fn note(&self, at: usize, message: &str) {
        let mut problems = self.problems.borrow_mut();
        if problems.len() < PROBLEMS_MAX {
            let line = line_of(self.text, at);
            problems.push((at, format!("{}:{line}: {message}", self.shown)));
        }
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// What a value is, for messages.
pub(crate) fn sort_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

impl<'a> Keys<'a> {
    /// The value of a key that may be there.
    pub(crate) fn item(&self, key: &'static str) -> Option<(String, &'a Spanned<DeValue<'a>>, usize)> {
        self.known.borrow_mut().push(key);
        let (found, value) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some((self.path_of(key), value, found.span().start))
    }

    /// Reads the value of a key that may be there. `read` reports what is wrong with it.
    pub(crate) fn take<T>(&self, key: &'static str, read: impl FnOnce(Item<'_>) -> Option<T>) -> Option<T> {
        let (path, value, at) = self.item(key)?;
        read(Item { document: self.document, path: &path, at, value: value.get_ref() })
    }

    /// Reads all entries of a table whose keys are names of the user's. `read` reports what is wrong with one.
    pub(crate) fn each<T>(self, mut read: impl FnMut(&str, Item<'_>) -> Option<T>) -> Vec<T> {
        if self.table.len() > ENTRIES_MAX {
            // Where the first of all stands: the table itself may have no place of its own.
            let at = self.table.keys().map(|key| key.span().start).min().unwrap_or(0);
            self.document.report(at, &self.path, &too_many(self.table.len()));
            return Vec::new();
        }
        let entries = self.table.iter().filter_map(|(key, value)| {
            let path = self.path_of(key.get_ref());
            let at = key.span().start;
            let item = Item { document: self.document, path: &path, at, value: value.get_ref() };
            read(key.get_ref(), item)
        });
        entries.collect()
    }

    /// Reports all keys that nobody asked for.
    pub(crate) fn end(self) {
        let mut known = self.known.take();
        known.sort_unstable();
        for key in self.table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let message = format!("unknown key: expected one of {}", known.join(", "));
            self.document.report(key.span().start, &self.path_of(key.get_ref()), &message);
        }
    }

    fn path_of(&self, key: &str) -> String {
        // As it would be written: a key with other characters has to be quoted, and may hold anything.
        let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let key =
            if bare { key.to_owned() } else { format!("{:?}", crate::outcome::capped(key.to_owned(), 100)) };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }
}

impl<'a> Item<'a> {
    /// Notes what is wrong with this value.
    pub(crate) fn wrong<T>(&self, message: &str) -> Option<T> {
        self.document.report(self.at, self.path, message);
        None
    }

    fn expected<T>(&self, what: &str) -> Option<T> {
        self.wrong(&format!("expected {what}, got {}", sort_of(self.value)))
    }

    /// The line that it stands in, from 1.
    pub(crate) fn line(&self) -> usize {
        line_of(self.document.text, self.at)
    }

    /// Where it stands, as messages begin.
    pub(crate) fn origin(&self) -> String {
        format!("{}:{}: {}", self.document.shown, self.line(), self.path)
    }

    pub(crate) fn is_text(&self) -> bool {
        matches!(self.value, DeValue::String(_))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self.value, DeValue::Array(_))
    }

    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(self.value, DeValue::Array(items) if items.is_empty())
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value, DeValue::Table(_))
    }

    /// A text. `what` says what it should be, for messages: they do not quote it.
    pub(crate) fn text(&self, what: &str) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text),
            _ => self.expected(what),
        }
    }

    /// A text that `parse` takes; its message may quote it.
    pub(crate) fn parsed<T>(&self, what: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.text(what)?) {
            Ok(value) => Some(value),
            Err(message) => self.wrong(&message),
        }
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        self.boolean_or("true or false")
    }

    /// The same where something else would do as well.
    pub(crate) fn boolean_or(&self, what: &str) -> Option<bool> {
        match self.value {
            DeValue::Boolean(value) => Some(*value),
            _ => self.expected(what),
        }
    }

    /// A whole number within bounds.
    pub(crate) fn whole(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let what = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let DeValue::Integer(number) = self.value else { return self.expected(&what) };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
        match value.filter(|value| bounds.contains(value)) {
            Some(value) => Some(value),
            None => self.wrong(&format!("expected {what}, got {number}")),
        }
    }

    /// The same in 32 bits.
    pub(crate) fn whole_u32(&self, bounds: RangeInclusive<u32>) -> Option<u32> {
        let wide = u64::from(*bounds.start())..=u64::from(*bounds.end());
        self.whole(wide).and_then(|value| u32::try_from(value).ok())
    }

    /// A part of one: a fraction from 0 to 1, or a percentage.
    pub(crate) fn part(&self) -> Option<f64> {
        const WHAT: &str = "a fraction from 0.0 to 1.0, or a text such as \"20%\"";
        let (value, shown) = match self.value {
            DeValue::Float(number) => (number.as_str().parse::<f64>().ok(), number.to_string()),
            DeValue::Integer(number) => (
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n as f64),
                number.to_string(),
            ),
            DeValue::String(text) => {
                let digits = text.strip_suffix('%').map(str::trim);
                (
                    digits.and_then(|d| d.parse::<u32>().ok()).map(|n| f64::from(n) / 100.0),
                    format!("{text:?}"),
                )
            }
            _ => return self.expected(WHAT),
        };
        match value.filter(|value| (0.0..=1.0).contains(value)) {
            Some(value) => Some(value),
            None => self.wrong(&format!("expected {WHAT}, got {shown}")),
        }
    }

    /// A span of time within bounds, in milliseconds.
    pub(crate) fn duration_ms(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        self.parsed("a span of time such as \"3s\"", |text| {
            let ms = units::duration_ms(text)?;
            let (least, most) = (units_of_ms(*bounds.start()), units_of_ms(*bounds.end()));
            bounds
                .contains(&ms)
                .then_some(ms)
                .ok_or_else(|| format!("expected {least} to {most}, got {text:?}"))
        })
    }

    /// A size within bounds, in bytes.
    pub(crate) fn size_bytes(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        self.parsed("a size such as \"64MiB\"", |text| {
            let bytes = units::size_bytes(text)?;
            let (least, most) = (units_of_bytes(*bounds.start()), units_of_bytes(*bounds.end()));
            bounds
                .contains(&bytes)
                .then_some(bytes)
                .ok_or_else(|| format!("expected {least} to {most}, got {text:?}"))
        })
    }

    /// A number, size or span, as settings have it: `none` or `off` lifts the limit.
    pub(crate) fn limit(&self, parse: fn(&str) -> Result<u64, String>) -> Option<Option<u64>> {
        let text = match self.value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.to_string(),
            _ => return self.expected("a text in quotes or a whole number"),
        };
        match crate::config::limit(&text, parse) {
            Ok(limit) => Some(limit),
            Err(message) => self.wrong(&message),
        }
    }

    /// A list; `read` reports what is wrong with one of its items, each at its own line.
    pub(crate) fn list<T>(&self, what: &str, mut read: impl FnMut(Item<'_>) -> Option<T>) -> Option<Vec<T>> {
        let DeValue::Array(items) = self.value else { return self.expected(what) };
        if items.len() > ENTRIES_MAX {
            return self.wrong(&too_many(items.len()));
        }
        let read = |item: &'a Spanned<DeValue<'a>>| {
            read(Item {
                document: self.document,
                path: self.path,
                at: item.span().start,
                value: item.get_ref(),
            })
        };
        let all: Vec<Option<T>> = items.iter().map(read).collect();
        all.into_iter().collect()
    }

    /// A table.
    pub(crate) fn keys(&self, what: &str) -> Option<Keys<'a>> {
        match self.value {
            DeValue::Table(table) => {
                let path = self.path.to_owned();
                Some(Keys { document: self.document, path, table, known: RefCell::default() })
            }
            _ => self.expected(what),
        }
    }
}

fn too_many(entries: usize) -> String {
    format!("expected at most {ENTRIES_MAX} entries, got {entries}")
}

/// A span as it would be written, in its largest whole unit.
pub(crate) fn units_of_ms(ms: u64) -> String {
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms >= unit && ms.is_multiple_of(unit) {
            return format!("{}{name}", ms / unit);
        }
    }
    format!("{ms}ms")
}

/// A size as it would be written, in its largest whole unit.
pub(crate) fn units_of_bytes(bytes: u64) -> String {
    for (shift, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{name}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}
