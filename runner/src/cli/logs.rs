//! `job logs`: what a job's attempts wrote, and following it while it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::args_jobs::OneJob;
use super::context::Context;
use super::exit::{Code, Fault};
use super::jobs::find_one;
use super::listing;
use super::output::Out;
use crate::queue::{AttemptLog, JobRef, Store};

/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The end of what was printed, by which it is found again in a log whose middle was cut, in bytes.
const ANCHOR_BYTES: usize = 256;

/// The log of one attempt, or while following a piece of it.
#[derive(Debug, Serialize)]
struct LogOut<'a> {
    attempt: u32,
    text: &'a str,
}

/// Prints the logs of a job, and goes on until it has finished if asked to.
pub(super) async fn run(context: &mut Context, job: &OneJob, follow: bool) -> Result<Code, Fault> {
    let store = context.store()?;
    let view = find_one(&*store, job).await?;
    let place = JobRef { queue: view.job.queue.clone(), id: job.id.clone() };
    if follow {
        return self::follow(context, &*store, &place).await;
    }
    let logs = store.logs(&place).await?;
    if context.out.json() {
        let items: Vec<LogOut<'_>> =
            logs.iter().map(|l| LogOut { attempt: l.attempt, text: &l.text }).collect();
        listing::whole(context, items);
        return Ok(Code::Done);
    }
    let several = logs.len() > 1;
    let mut printer = Printer::default();
    for log in &logs {
        printer.print(&mut context.out, log, several);
    }
    Ok(Code::Done)
}

async fn follow(context: &mut Context, store: &dyn Store, place: &JobRef) -> Result<Code, Fault> {
    let mut printer = Printer::default();
    loop {
        // The state first: what is written before the end is then seen in the look after it.
        let view = store.find(Some(&place.queue), &place.id).await?.into_iter().next();
        for log in store.logs(place).await? {
            if context.out.json() {
                if let Some(new) = printer.news(&log) {
                    context.out.value(&LogOut { attempt: log.attempt, text: &new });
                }
            } else {
                printer.print(&mut context.out, &log, true);
            }
        }
        context.out.flush();
        if context.out.is_closed() || view.is_none_or(|v| v.state.is_finished()) {
            return Ok(Code::Done);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What has been printed, by attempt.
#[derive(Debug, Default)]
struct Printer {
    seen: BTreeMap<u32, String>,
    last: Option<u32>,
    /// Whether the last thing that was printed ended its line.
    in_line: bool,
}

impl Printer {
    /// Prints what is new in a log, under a heading when attempts take turns.
    fn print(&mut self, out: &mut Out, log: &AttemptLog, headings: bool) {
        let Some(new) = self.news(log) else { return };
        if self.last != Some(log.attempt) {
            if self.in_line {
                out.line("");
            }
            if headings {
                out.line(&format!("== attempt {} ==", log.attempt));
            }
            self.last = Some(log.attempt);
        }
        out.bytes(new.as_bytes());
        self.in_line = !new.ends_with('\n');
    }

    /// What is new in a log; `None` when nothing is.
    fn news(&mut self, log: &AttemptLog) -> Option<String> {
        let seen = self.seen.entry(log.attempt).or_default();
        let new = news(seen, &log.text);
        if !new.is_empty() {
            seen.clone_from(&log.text);
        }
        (!new.is_empty()).then_some(new)
    }
}

/// What `text` says beyond `seen`. A log that outgrew its cap lost its middle: then what follows the end
/// of `seen` is new, or, when that was cut too, all that differs, marked.
fn news(seen: &str, text: &str) -> String {
    if let Some(new) = text.strip_prefix(seen) {
        return new.to_owned();
    }
    let mut start = seen.len().saturating_sub(ANCHOR_BYTES);
    while !seen.is_char_boundary(start) {
        start += 1;
    }
    if let Some(at) = text.rfind(&seen[start..]).filter(|_| start < seen.len()) {
        return text[at + (seen.len() - start)..].to_owned();
    }
    let same = seen.char_indices().zip(text.chars()).find(|((_, a), b)| a != b);
    let at = same.map_or(0, |((at, _), _)| at);
    format!("\n[...]\n{}", &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::captured;

    #[test]
    fn only_what_is_new_is_printed() {
        assert_eq!(news("", "a\n"), "a\n");
        assert_eq!(news("a\n", "a\nb\n"), "b\n");
        assert_eq!(news("a\n", "a\n"), "");
        let old = format!("head {}", "x".repeat(1_000) + "éend");
        let new = format!("head ... 700 bytes cut ... {} more", &old[old.len() - 300..]);
        assert_eq!(news(&old, &new), " more", "the middle was cut");
        assert_eq!(
            news("head old", "head ... cut ... new"),
            "\n[...]\n... cut ... new",
            "the end was cut too"
        );
    }

    #[test]
    fn attempts_get_headings_and_start_on_their_own_line() {
        let (mut out, captured) = captured(false, None);
        let mut printer = Printer::default();
        let log = |attempt, text: &str| AttemptLog { attempt, text: text.to_owned() };
        for log in [log(1, "a"), log(1, "ab"), log(1, "ab"), log(2, "c\n"), log(2, "c\nd\n")] {
            printer.print(&mut out, &log, true);
        }
        out.flush();
        assert_eq!(captured.text(), "== attempt 1 ==\nab\n== attempt 2 ==\nc\nd\n");
    }
}
