//! Lines of NDJSON, bounded in length, and the batches that they make.
//!
//! Lines end in LF or CRLF; a byte order mark before the first and lines of white space alone are skipped, and
//! count. A batch holds what one call of the store takes: [`BATCH_MAX`] jobs and
//! [`BATCH_PAYLOAD_BYTES_MAX`] of payload; a larger payload travels alone.

use std::io::{self, BufRead, BufReader, Read};

use super::exit::Fault;
use crate::job::NewJob;
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX};
use crate::wire::job_in;

/// Longest line, in bytes: a payload of 1 MiB in base64 and all else at its longest fit well.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// As much as a pipe holds at most by default.
const BUFFER_BYTES: usize = 64 << 10;

/// Consecutive jobs of one source.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The jobs, in the order of their lines.
    pub(super) jobs: Vec<NewJob>,
    /// The line of the first job, counted from 1.
    pub(super) first_line: u64,
    /// The line of the last job.
    pub(super) last_line: u64,
    payload_bytes: usize,
}

impl Batch {
    fn has_room(&self, payload_bytes: usize) -> bool {
        self.jobs.is_empty()
            || (self.jobs.len() < BATCH_MAX && self.payload_bytes + payload_bytes <= BATCH_PAYLOAD_BYTES_MAX)
    }

    fn push(&mut self, job: NewJob, line: u64) {
        if self.jobs.is_empty() {
            self.first_line = line;
        }
        self.last_line = line;
        self.payload_bytes += job.payload.len();
        self.jobs.push(job);
    }
}

/// How lines are read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// What the source is called in messages.
    pub(super) shown: String,
    /// The first line that counts, from 1; those before are skipped unread.
    pub(super) from_line: u64,
    /// For [`job_in::parse`], in milliseconds since 1970.
    pub(super) now_ms: u64,
    /// Who enqueues.
    pub(super) source: String,
    /// Whether to hand on what is there rather than wait for a full batch: true for a pipe.
    pub(super) eager: bool,
}

impl Reading {
    /// Reads `input` to its end and hands on batch after batch until `take` answers false.
    ///
    /// # Errors
    /// When the input cannot be read, or a line is not a job: the message names the line. What came before
    /// has been handed on.
    pub(super) fn batches(&self, input: impl Read, mut take: impl FnMut(Batch) -> bool) -> Result<(), Fault> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, input);
        let mut batch = Batch::default();
        let mut text = Vec::new();
        let mut line = 0;
        let ended = loop {
            if self.eager && !batch.jobs.is_empty() && !reader.buffer().contains(&b'\n') {
                // The next read may have to wait for whoever writes.
                if !take(std::mem::take(&mut batch)) {
                    return Ok(());
                }
            }
            line += 1;
            text.clear();
            let job = match self.next(&mut reader, &mut text, line) {
                Ok(Next::Job(job)) => *job,
                Ok(Next::Nothing) => continue,
                Ok(Next::End) => break Ok(()),
                Err(fault) => break Err(fault),
            };
            if !batch.has_room(job.payload.len()) && !take(std::mem::take(&mut batch)) {
                return Ok(());
            }
            batch.push(job, line);
        };
        if !batch.jobs.is_empty() {
            take(batch);
        }
        ended
    }

    fn next(&self, reader: &mut impl BufRead, text: &mut Vec<u8>, line: u64) -> Result<Next, Fault> {
        let fault = |message: String| Fault::usage(format!("{}, line {line}: {message}", self.shown));
        let unreadable = |error: io::Error| fault(format!("cannot be read: {error}"));
        if line < self.from_line {
            let skipped = reader.skip_until(b'\n').map_err(unreadable)?;
            return Ok(if skipped == 0 { Next::End } else { Next::Nothing });
        }
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', text).map_err(unreadable)?;
        if read == 0 {
            return Ok(Next::End);
        }
        if read as u64 == LINE_BYTES_MAX && text.last() != Some(&b'\n') {
            return Err(fault(format!("expected at most {LINE_BYTES_MAX} bytes, got a longer line")));
        }
        let mut text = text.as_slice();
        if line == 1 {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.trim_ascii().is_empty() {
            return Ok(Next::Nothing);
        }
        job_in::parse(text, self.now_ms, &self.source).map(|job| Next::Job(Box::new(job))).map_err(fault)
    }
}

enum Next {
    Job(Box<NewJob>),
    /// A line that holds no job.
    Nothing,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(eager: bool) -> Reading {
        Reading { shown: "f".to_owned(), from_line: 1, now_ms: 0, source: String::new(), eager }
    }

    /// Ids of the jobs of each batch, and how it ended.
    fn read(reading: &Reading, input: impl Read) -> (Vec<Vec<String>>, Result<(), Fault>) {
        let mut batches = Vec::new();
        let ended = reading.batches(input, |batch| {
            let ids = batch.jobs.iter().map(|j| j.id.as_ref().map_or("-".to_owned(), |id| id.to_string()));
            batches.push(ids.collect());
            assert!(batch.first_line <= batch.last_line);
            true
        });
        (batches, ended)
    }

    fn line(id: usize, payload_bytes: usize) -> String {
        let payload = "x".repeat(payload_bytes.saturating_sub(2));
        format!("{{\"kind\":\"k\",\"id\":\"{id}\",\"payload\":\"{payload}\"}}\n")
    }

    #[test]
    fn marks_blank_lines_and_either_line_end_are_fine() {
        let input = "\u{feff}{\"kind\":\"k\",\"id\":\"1\"}\r\n\r\n  \n{\"kind\":\"k\",\"id\":\"2\"}\n\n{\"kind\":\"k\",\"id\":\"3\"}";
        let (batches, ended) = read(&reading(false), input.as_bytes());
        assert_eq!(ended, Ok(()));
        assert_eq!(batches, [["1", "2", "3"]]);
        assert_eq!(read(&reading(false), &b""[..]), (Vec::new(), Ok(())));
    }

    #[test]
    fn batches_keep_the_bounds_and_the_order() {
        let input: String = (0..1_203).map(|id| line(id, 2)).collect();
        let (batches, ended) = read(&reading(false), input.as_bytes());
        assert_eq!(ended, Ok(()));
        assert_eq!(
            batches.iter().map(Vec::len).collect::<Vec<_>>(),
            [BATCH_MAX, BATCH_MAX, BATCH_MAX, BATCH_MAX, 203]
        );
        let ids: Vec<usize> = batches.iter().flatten().map(|id| id.parse().expect("a number")).collect();
        assert!(ids.iter().copied().eq(0..1_203));

        let sizes = [100_000, 100_000, 62_144, 1, 300_000, 1, 1_048_576, 1_048_576];
        let input: String = sizes.iter().enumerate().map(|(id, bytes)| line(id, *bytes)).collect();
        let (batches, _) = read(&reading(false), input.as_bytes());
        assert_eq!(batches, [vec!["0", "1", "2"], vec!["3"], vec!["4"], vec!["5"], vec!["6"], vec!["7"]]);
    }

    #[test]
    fn a_malformed_line_is_named_and_what_came_before_is_handed_on() {
        let mut input: String = (1..517).map(|id| line(id, 2)).collect();
        input += "{\"kind\":\"k\",}\n";
        input += &line(518, 2);
        let (batches, ended) = read(&reading(false), input.as_bytes());
        let fault = ended.expect_err("line 517");
        assert!(fault.message.starts_with("f, line 517: expected one JSON object: "), "{fault}");
        assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), 516);
    }

    #[test]
    fn reading_starts_where_it_is_told_to_whatever_is_before() {
        let input = format!("rubbish\n\n{}{}", line(3, 2), line(4, 2));
        let from = |from_line| read(&Reading { from_line, ..reading(false) }, input.as_bytes());
        assert_eq!(from(3), (vec![vec!["3".to_owned(), "4".to_owned()]], Ok(())));
        assert_eq!(from(4).0, [["4"]]);
        assert_eq!(from(99), (Vec::new(), Ok(())));
        assert!(from(1).1.is_err());
    }

    #[test]
    fn a_line_without_end_is_not_kept_in_memory() {
        let endless = io::repeat(b' ').take(64 << 20);
        let fault = read(&reading(false), endless).1.expect_err("too long");
        assert!(fault.message.contains("line 1: expected at most 4194304 bytes"), "{fault}");
    }

    #[test]
    fn an_eager_reader_hands_on_what_is_there_before_it_waits() {
        /// Gives one piece a read, as a pipe whose writer is slow.
        struct Pieces(Vec<Vec<u8>>);
        impl Read for Pieces {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some(piece) = (!self.0.is_empty()).then(|| self.0.remove(0)) else { return Ok(0) };
                buffer[..piece.len()].copy_from_slice(&piece);
                Ok(piece.len())
            }
        }
        let all = line(1, 2) + &line(2, 2) + &line(3, 2);
        let (start, end) = all.as_bytes().split_at(all.len() - 10);
        let pieces = || Pieces(vec![start.to_vec(), end.to_vec()]);
        assert_eq!(read(&reading(true), pieces()).0, [vec!["1", "2"], vec!["3"]]);
        assert_eq!(read(&reading(false), pieces()).0, [["1", "2", "3"]]);
    }

    #[test]
    fn reading_ends_when_nobody_takes_any_more() {
        let input = line(1, 2).repeat(2_000);
        let mut taken = 0;
        let ended = reading(false).batches(input.as_bytes(), |_| {
            taken += 1;
            false
        });
        assert_eq!((ended, taken), (Ok(()), 1));
    }
}
