//! What a job prints and logs, kept within a cap.
//!
//! Writing never fails a guest and never costs more than the cap: the first half of the cap is kept
//! as it came, the second half is a ring of the newest bytes, and what fell between is counted. The text
//! is made when somebody asks for it: valid UTF-8, control characters escaped.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// What a guest may write at once, in bytes: also what the host allocates for it.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// The log of one attempt: stdout, stderr and log lines in the order in which they came.
#[derive(Debug)]
pub struct JobLog {
    cap: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    /// The newest bytes after the head; once full, `tail_start` is where the oldest of them is.
    tail: Vec<u8>,
    tail_start: usize,
    /// Bytes that fell out of the tail.
    cut: u64,
    /// Whether the last byte ended a line.
    at_line_start: bool,
    version: u64,
}

impl JobLog {
    /// An empty log that keeps about `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self { cap, kept: Mutex::new(Kept { at_line_start: true, ..Kept::default() }) }
    }

    /// Changes with each write; 0 while nothing was written.
    pub fn version(&self) -> u64 {
        self.kept.lock().version
    }

    /// What it keeps, in bytes.
    pub fn bytes(&self) -> usize {
        let kept = self.kept.lock();
        kept.head.len() + kept.tail.len()
    }

    /// The log as text of about the cap's size: the head, how much was cut, the tail.
    pub fn text(&self) -> String {
        let (head, tail, cut) = self.kept.lock().parts();
        if cut == 0 {
            return shown(&[head, tail].concat(), self.cap);
        }
        let half = self.cap / 2;
        let torn = torn_end(&head);
        let (head_text, head_rest) = escaped_head(&head[..head.len() - torn], self.cap - half);
        let head_rest = head_rest + torn;
        let (tail_text, tail_rest) = escaped_tail(&tail, half);
        joined(head_text, cut + head_rest as u64 + tail_rest as u64, &tail_text)
    }

    /// Adds bytes that the guest printed.
    pub(super) fn print(&self, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut kept = self.kept.lock();
            kept.push(bytes, self.cap);
            kept.version += 1;
        }
    }

    /// Adds a line of its own: `LEVEL message`.
    pub(super) fn line(&self, level: &str, message: &str) {
        let mut kept = self.kept.lock();
        if !kept.at_line_start {
            kept.push(b"\n", self.cap);
        }
        kept.push(level.as_bytes(), self.cap);
        kept.push(b" ", self.cap);
        kept.push(message.as_bytes(), self.cap);
        kept.push(b"\n", self.cap);
        kept.version += 1;
    }
}

impl Kept {
    fn push(&mut self, mut bytes: &[u8], cap: usize) {
        let Some(last) = bytes.last() else { return };
        self.at_line_start = *last == b'\n';
        let head_cap = cap - cap / 2;
        let into_head = (head_cap - self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..into_head]);
        bytes = &bytes[into_head..];

        let tail_cap = cap / 2;
        if bytes.len() >= tail_cap {
            let skipped = bytes.len() - tail_cap;
            self.cut += (self.tail.len() + skipped) as u64;
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[skipped..]);
            self.tail_start = 0;
            return;
        }
        let into_free = (tail_cap - self.tail.len()).min(bytes.len());
        self.tail.extend_from_slice(&bytes[..into_free]);
        bytes = &bytes[into_free..];
        // Full from here on: overwrite the oldest, in at most two pieces.
        self.cut += bytes.len() as u64;
        while !bytes.is_empty() {
            let piece = (tail_cap - self.tail_start).min(bytes.len());
            self.tail[self.tail_start..self.tail_start + piece].copy_from_slice(&bytes[..piece]);
            self.tail_start = (self.tail_start + piece) % tail_cap;
            bytes = &bytes[piece..];
        }
    }

    fn parts(&self) -> (Vec<u8>, Vec<u8>, u64) {
        let (newer, older) = self.tail.split_at(self.tail_start);
        (self.head.clone(), [older, newer].concat(), self.cut)
    }
}

/// All of `bytes` as text, with its middle cut when escaping made it larger than `cap`.
fn shown(bytes: &[u8], cap: usize) -> String {
    let (text, rest) = escaped_head(bytes, cap);
    if rest == 0 {
        return text;
    }
    let (head, rest) = escaped_head(bytes, cap - cap / 2);
    let after_head = &bytes[bytes.len() - rest..];
    let (tail, cut) = escaped_tail(after_head, cap / 2);
    joined(head, cut as u64, &tail)
}

fn joined(mut head: String, cut: u64, tail: &str) -> String {
    if !head.is_empty() && !head.ends_with('\n') {
        head.push('\n');
    }
    head.push_str(&format!("... {cut} bytes cut ...\n"));
    head.push_str(tail);
    head
}

/// As much of the beginning of `bytes` as makes at most `budget` bytes of text, and how many bytes
/// are left over.
fn escaped_head(bytes: &[u8], budget: usize) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len().min(budget));
    let mut used = 0;
    for (raw, character) in characters(bytes) {
        let before = text.len();
        push_escaped(&mut text, character);
        if text.len() > budget {
            text.truncate(before);
            break;
        }
        used += raw;
    }
    (text, bytes.len() - used)
}

/// As much of the end of `bytes` as makes at most `budget` bytes of text, and how many bytes are left
/// over before it.
fn escaped_tail(bytes: &[u8], budget: usize) -> (String, usize) {
    // The tail may begin inside a character: drop what continues one.
    let inside = bytes.iter().take(3).take_while(|b| (**b & 0xC0) == 0x80).count();
    let all: Vec<(usize, char)> = characters(&bytes[inside..]).collect();
    let (mut size, mut from) = (0, all.len());
    while from > 0 && size + escaped_len(all[from - 1].1) <= budget {
        from -= 1;
        size += escaped_len(all[from].1);
    }
    let mut text = String::with_capacity(size);
    all[from..].iter().for_each(|(_, character)| push_escaped(&mut text, *character));
    (text, inside + all[..from].iter().map(|(raw, _)| raw).sum::<usize>())
}

/// How many bytes at the end of `bytes` begin a character that goes on after them.
fn torn_end(bytes: &[u8]) -> usize {
    let torn = bytes.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
    // The chunk is also the last when its bad bytes are no beginning of anything.
    let end = &bytes[bytes.len() - torn..];
    match std::str::from_utf8(end) {
        Err(error) if error.error_len().is_none() => torn,
        _ => 0,
    }
}

/// The characters of `bytes` with the number of bytes that each came from; what is not UTF-8 reads as
/// U+FFFD.
fn characters(bytes: &[u8]) -> impl Iterator<Item = (usize, char)> + '_ {
    bytes.utf8_chunks().flat_map(|chunk| {
        let bad = chunk.invalid().len();
        let replaced = (bad > 0).then_some((bad, char::REPLACEMENT_CHARACTER));
        chunk.valid().chars().map(|c| (c.len_utf8(), c)).chain(replaced)
    })
}

/// How many bytes [`push_escaped`] adds.
fn escaped_len(character: char) -> usize {
    match character {
        '\n' | '\t' => 1,
        '\r' => 2,
        c if c.is_control() && (c as u32) < 0x80 => 4,
        c if c.is_control() => 6,
        c => c.len_utf8(),
    }
}

fn push_escaped(text: &mut String, character: char) {
    match character {
        '\n' | '\t' => text.push(character),
        '\r' => text.push_str("\\r"),
        c if c.is_control() && (c as u32) < 0x80 => text.push_str(&format!("\\x{:02x}", c as u32)),
        c if c.is_control() => text.push_str(&format!("\\u{{{:x}}}", c as u32)),
        c => text.push(c),
    }
}

/// A guest's stdout or stderr.
#[derive(Clone)]
pub(super) struct Printed(pub(super) Arc<JobLog>);

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.print(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[async_trait::async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Printed {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0.print(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_shown_whole() {
        let log = JobLog::new(100);
        assert_eq!((log.version(), log.text().as_str()), (0, ""));
        log.print(b"a b\tc\n");
        log.line("INFO", "paid");
        log.print(b"no end");
        log.line("WARN", "on its own line");
        assert_eq!(log.text(), "a b\tc\nINFO paid\nno end\nWARN on its own line\n");
        assert_eq!(log.version(), 4);
    }

    #[test]
    fn a_character_may_come_in_pieces_and_what_is_none_is_replaced() {
        let log = JobLog::new(100);
        let euro = "\u{20AC}".as_bytes();
        log.print(&euro[..1]);
        log.print(&euro[1..]);
        log.print(b"\xFF\xFEx\r\x1b[2J\0\xC2\x85");
        assert_eq!(log.text(), "\u{20AC}\u{FFFD}\u{FFFD}x\\r\\x1b[2J\\x00\\u{85}");
    }

    #[test]
    fn the_middle_is_cut_whatever_the_pieces() {
        let written: Vec<u8> = (0..10_000).map(|n| b'a' + (n % 26) as u8).collect();
        for piece in [1, 7, 50, 51, 99, 100, 101, 2_500, 10_000] {
            let log = JobLog::new(100);
            written.chunks(piece).for_each(|bytes| log.print(bytes));
            let text = log.text();
            let (head, tail) = (&written[..50], &written[9_950..]);
            let wanted = format!(
                "{}\n... 9900 bytes cut ...\n{}",
                std::str::from_utf8(head).unwrap(),
                std::str::from_utf8(tail).unwrap()
            );
            assert_eq!(text, wanted, "in pieces of {piece}");
        }
    }

    #[test]
    fn the_length_of_an_escape_is_known() {
        for character in (0..0x300).chain([0x20AC, 0x1F600]).filter_map(char::from_u32) {
            let mut text = String::new();
            push_escaped(&mut text, character);
            assert_eq!(escaped_len(character), text.len(), "{character:?}");
        }
    }

    #[test]
    fn a_cut_never_splits_a_character_and_escapes_count() {
        for cap in 0..64 {
            let log = JobLog::new(cap);
            for _ in 0..40 {
                log.print("\u{1F600}\0".as_bytes());
            }
            let text = log.text();
            assert!(!text.contains('\u{FFFD}'), "cap {cap}: {text}");
            assert!(text.len() <= cap + 40, "cap {cap}: {} bytes", text.len());
            assert!(text.contains(" bytes cut "));
        }
        // All of it is kept, and escaping makes it four times as long.
        let log = JobLog::new(1_000);
        log.print(&[0; 1_000]);
        let text = log.text();
        assert!(text.len() < 1_040 && text.contains("... 750 bytes cut ..."), "{text}");
    }
}
