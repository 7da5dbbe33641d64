//! The one way out: a command's answer to stdout, everything else to stderr.
//!
//! A reader that goes away (`| head -1`) is no error: what follows is dropped in silence and the command
//! keeps its exit code. Any other failure to write the answer is exit 1. Nothing here panics.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsRawFd;

use serde::Serialize;

use super::exit::Fault;

/// Where a command's answer and its remarks go.
pub(super) struct Out {
    answer: Box<dyn Write + Send>,
    /// Why the answer cannot be written any more.
    broken: Option<io::Error>,
    json: bool,
    /// Columns of the terminal that the answer goes to; `None` when it is no terminal.
    columns: Option<usize>,
    /// The file descriptor that tells whether its reader is there, also while nothing is written.
    watched: Option<i32>,
}

impl Out {
    /// The process's own stdout.
    pub(super) fn stdout(json: bool) -> Self {
        let stdout = io::stdout();
        let columns = stdout.is_terminal().then(|| {
            terminal_size::terminal_size_of(&stdout)
                .map_or(80, |(terminal_size::Width(w), _)| usize::from(w.max(20)))
        });
        // Not line by line, as stdout itself would: a long list is one write per 64 KiB.
        let watched = Some(stdout.as_raw_fd());
        let answer = Box::new(BufWriter::with_capacity(64 << 10, stdout));
        Self { answer, broken: None, json, columns, watched }
    }

    /// True when the answer is to be JSON.
    pub(super) fn json(&self) -> bool {
        self.json
    }

    /// Columns of the terminal that the answer goes to; `None` when it is no terminal.
    pub(super) fn columns(&self) -> Option<usize> {
        self.columns
    }

    /// Writes bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if self.broken.is_none()
            && let Err(error) = self.answer.write_all(bytes)
        {
            self.broken = Some(error);
        }
    }

    /// Writes a line.
    pub(super) fn line(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.bytes(b"\n");
    }

    /// Writes a value as one line of JSON.
    pub(super) fn value(&mut self, value: &impl Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(&text),
            Err(error) => self.broken = Some(error.into()),
        }
    }

    /// Sends on what was written so far: for answers that come bit by bit.
    pub(super) fn flush(&mut self) {
        if self.broken.is_none()
            && let Err(error) = self.answer.flush()
        {
            self.broken = Some(error);
        }
    }

    /// True once nobody reads any more: a long command may stop.
    pub(super) fn is_closed(&self) -> bool {
        self.broken.is_some() || self.watched.is_some_and(has_no_reader)
    }

    /// Sends on the rest.
    ///
    /// # Errors
    /// When the answer could not be written, but for a reader that went away.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.flush();
        match self.broken.take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Fault::failed(format!("cannot write the answer: {error}")))
            }
            _ => Ok(()),
        }
    }
}

/// True when the other end of a pipe, socket or terminal is closed. Never waits.
fn has_no_reader(fd: i32) -> bool {
    let mut asked = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: poll() gets one valid pollfd that outlives the call, and its count.
    #[allow(unsafe_code, reason = "the standard library does not poll")]
    let answered = unsafe { libc::poll(&raw mut asked, 1, 0) };
    answered == 1 && asked.revents & (libc::POLLERR | libc::POLLHUP) != 0
}

/// Writes a remark to stderr; nobody to read it is no error.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a fault to stderr, each line of it marked.
pub(super) fn complain(fault: &Fault) {
    for line in fault.message.lines() {
        note(&format!("error: {line}"));
    }
}

/// `text` with control characters escaped, so that what a job holds cannot steer a terminal or
/// break a line of a table.
pub(super) fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// An answer that a test can read.
    #[derive(Clone, Default)]
    pub(in crate::cli) struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Captured {
        pub(in crate::cli) fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("UTF-8")
        }
    }

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    pub(in crate::cli) fn captured(json: bool, columns: Option<usize>) -> (Out, Captured) {
        let captured = Captured::default();
        (Out { answer: Box::new(captured.clone()), broken: None, json, columns, watched: None }, captured)
    }

    struct Failing(io::ErrorKind, usize);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            assert!(self.1 == 1, "written to after it broke");
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is() {
        for (kind, fine) in [(io::ErrorKind::BrokenPipe, true), (io::ErrorKind::StorageFull, false)] {
            let mut out = Out {
                answer: Box::new(Failing(kind, 0)),
                broken: None,
                json: false,
                columns: None,
                watched: None,
            };
            out.line("a");
            assert!(out.is_closed());
            out.line("b");
            assert_eq!(out.finish().is_ok(), fine);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("a\u{1b}[2Jé\n\t\u{9b}"), "a\\u{1b}[2Jé\\n\\t\\u{9b}");
    }
}
