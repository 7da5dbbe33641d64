//! Jobs that are typed: each line `KIND PAYLOAD` on stdin is enqueued at once.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::screen::News;
use crate::app::Parts;
use crate::job::{NewJob, PAYLOAD_BYTES_MAX};
use crate::names::Name;

/// Longest line, in bytes: a payload and a kind.
const LINE_BYTES_MAX: u64 = PAYLOAD_BYTES_MAX as u64 + 1_024;

/// Reads stdin to its end. What is wrong with a line is said, and the next one counts.
pub(super) fn run(parts: &Parts, source: &str, news: &Sender<News>) {
    let mut lines = BufReader::new(std::io::stdin());
    loop {
        let mut line = Vec::new();
        match (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let told = match job(&line, source) {
            Err(message) => News::Remark(message),
            Ok(job) => enqueue(parts, &job),
        };
        if news.send(told).is_err() {
            return;
        }
    }
}

fn enqueue(parts: &Parts, job: &NewJob) -> News {
    let kind = job.kind.to_string();
    match parts.io.block_on(parts.store.enqueue(std::slice::from_ref(job))) {
        Ok(answers) => match answers.first() {
            Some(answer) => News::Enqueued {
                id: answer.id.to_string(),
                served: parts.registry.snapshot().handlers.contains_key(&job.kind),
                kind,
            },
            None => News::Remark("the store gave no answer for the job".to_owned()),
        },
        Err(error) => News::Remark(format!("not enqueued: {error}")),
    }
}

/// The job that a line describes: its payload is the rest of the line, as it was typed.
fn job(line: &[u8], source: &str) -> Result<NewJob, String> {
    let line = line.trim_ascii();
    let (kind, payload) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(at) => (&line[..at], line[at..].trim_ascii_start()),
        None => (line, &b""[..]),
    };
    let kind = Name::new(&String::from_utf8_lossy(kind))
        .map_err(|error| format!("expected KIND PAYLOAD: {error}"))?;
    let job =
        NewJob { payload: Bytes::copy_from_slice(payload), source: source.to_owned(), ..NewJob::new(kind) };
    job.validate()?;
    Ok(job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_kind_and_a_payload() {
        let read = |line: &[u8]| job(line, "me").map(|job| (job.kind.to_string(), job.payload.to_vec()));
        assert_eq!(read(b"greet  {\"a\": 1} \r\n"), Ok(("greet".to_owned(), b"{\"a\": 1}".to_vec())));
        assert_eq!(read(b" greet\n"), Ok(("greet".to_owned(), Vec::new())));
        assert!(read(b"{\"a\":1}\n").expect_err("no kind").contains("expected KIND PAYLOAD"));
    }
}
