//! Arguments of a script, one behind the other in one piece of memory: for those that are called often with many.

use std::fmt::Arguments as Text;
use std::io::Write as _;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Arguments {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arguments {
    /// With room for so many of usual size.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { bytes: Vec::with_capacity(32 * count), ends: Vec::with_capacity(count) }
    }

    pub(super) fn push(&mut self, argument: impl AsRef<[u8]>) {
        self.go_on(argument);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn push_text(&mut self, text: Text<'_>) {
        self.begin(text);
        self.ends.push(self.bytes.len());
    }

    /// The beginning of one: the next push is the end of it.
    pub(super) fn begin(&mut self, text: Text<'_>) {
        // Memory does not fail.
        let _ = self.bytes.write_fmt(text);
    }

    /// More of one that has begun.
    pub(super) fn go_on(&mut self, part: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(part.as_ref());
    }

    /// Each argument.
    pub(super) fn slices(&self) -> Vec<&[u8]> {
        let mut from = 0;
        self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut from, *end)..*end]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_out_as_they_went_in() {
        let mut args = Arguments::with_capacity(3);
        args.push("one");
        args.push("");
        args.begin(format_args!("{}:", 2));
        args.go_on(b"\x00\xff");
        args.push_text(format_args!(",{}", 3));
        assert_eq!(args.slices(), [&b"one"[..], b"", b"2:\x00\xff,3"]);
    }
}
