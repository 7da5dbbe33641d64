//! `enqueue --ndjson`: many jobs in the order of their lines, one batch in flight while the next is parsed.
//!
//! A file is read twice: once to see that every line is right, then to enqueue, so that it need not fit
//! into memory and nothing is taken of a file with a mistake. A pipe is enqueued as it comes. When it
//! ends early, the last line that was taken is said, and `--from-line` goes on after it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::sync::mpsc;

use super::context::{Context, client};
use super::enqueue::{in_the_way, warn_unserved};
use super::exit::{Code, Fault};
use super::lines::{Batch, Reading};
use super::output::{note, plain};
use crate::client::{Accepted, Client, EnqueueError};
use crate::clock;
use crate::job::NewJob;
use crate::names::Name;
use crate::queue::{Disposition, Enqueued, Store, StoreError};

/// Ids in conflict that are named; the rest is counted.
const CONFLICTS_NAMED: u64 = 10;
/// Kinds whose runners are looked for.
const KINDS_MAX: usize = 100;

/// What became of all lines: the answer.
#[derive(Debug, Default, Serialize)]
struct Tally {
    created: u64,
    kept: u64,
    replaced: u64,
    rescheduled: u64,
    conflicts: u64,
    /// In the spool of this machine.
    spooled: u64,
    /// The last line that was taken, counted from 1; `null` when none was.
    last_line: Option<u64>,
    #[serde(skip)]
    kinds: BTreeSet<Name>,
}

/// Where the lines are.
enum Source {
    /// A file, of which so many bytes were checked.
    File { file: File, bytes: u64, jobs: u64 },
    /// Whatever can be read once.
    Stream(Box<dyn Read + Send>),
}

/// Enqueues the jobs of a file, or of stdin for `-`.
pub(super) async fn run(context: &mut Context, path: &Path, from_line: u64) -> Result<Code, Fault> {
    let (shown, opened) = open(path)?;
    let mut reading = Reading {
        shown,
        from_line,
        now_ms: clock::wall_ms(),
        source: context.machine.source(),
        eager: false,
    };
    let source = match opened {
        Source::File { file, .. } => checked(&reading, file)?,
        stream => {
            reading.eager = true;
            stream
        }
    };
    // Last, so that a file that is refused leaves no new store behind.
    let store = context.store_or_new()?;
    let client = client(context, &store)?;
    let bar = progress(&source);
    let mut tally = Tally::default();
    let ended = enqueue(&*store, &client, reading, source, &bar, &mut tally).await;
    bar.finish_and_clear();
    report(context, &tally);
    // A store that did not answer a moment ago is not asked for news.
    if tally.spooled == 0 {
        for kind in tally.kinds.iter().take(KINDS_MAX) {
            warn_unserved(&*store, kind).await;
        }
    }
    match ended {
        Err(fault) => Err(with_last_line(fault, &tally)),
        Ok(()) if tally.conflicts > 0 => Ok(Code::Conflict),
        Ok(()) => Ok(Code::Done),
    }
}

fn open(path: &Path) -> Result<(String, Source), Fault> {
    if path == Path::new("-") {
        return Ok(("stdin".to_owned(), Source::Stream(Box::new(io::stdin()))));
    }
    let shown = path.display().to_string();
    let unreadable = |error: io::Error| Fault::usage(format!("cannot read {shown}: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if facts.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if !facts.is_file() {
        note(&format!("{shown} can be read only once: its jobs are taken as they come"));
        return Ok((shown, Source::Stream(Box::new(file))));
    }
    Ok((shown, Source::File { file, bytes: facts.len(), jobs: 0 }))
}

/// Sees that every line of a file is right. What is appended meanwhile does not count.
fn checked(reading: &Reading, file: File) -> Result<Source, Fault> {
    let unreadable = |error: io::Error| Fault::usage(format!("cannot read {}: {error}", reading.shown));
    let bytes = file.metadata().map_err(unreadable)?.len();
    let mut jobs = 0;
    reading
        .batches((&file).take(bytes), |batch| {
            jobs += batch.jobs.len() as u64;
            true
        })
        .map_err(|mut fault| {
            fault.message += "; nothing was taken";
            fault
        })?;
    io::Seek::rewind(&mut &file).map_err(unreadable)?;
    Ok(Source::File { file, bytes, jobs })
}

/// A bar on a terminal; nothing elsewhere.
fn progress(source: &Source) -> ProgressBar {
    let (bar, template) = match source {
        Source::File { jobs, .. } => {
            (ProgressBar::new(*jobs), "{bar:30} {human_pos}/{human_len} jobs, {eta} to go")
        }
        Source::Stream(_) => (ProgressBar::no_length(), "{spinner} {human_pos} jobs"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

/// Parses on a thread of its own and enqueues here, batch after batch.
async fn enqueue(
    store: &dyn Store,
    client: &Client,
    reading: Reading,
    source: Source,
    bar: &ProgressBar,
    tally: &mut Tally,
) -> Result<(), Fault> {
    let (sender, mut batches) = mpsc::channel::<Batch>(1);
    let parser = std::thread::spawn(move || {
        let take = |batch| sender.blocking_send(batch).is_ok();
        match source {
            Source::File { file, bytes, .. } => reading.batches(file.take(bytes), take),
            Source::Stream(input) => reading.batches(input, take),
        }
    });
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            // Then the signal ends the process as it always did.
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(interrupted);
    loop {
        // What is in flight is waited for, so that what is said of it is true.
        let batch = tokio::select! {
            batch = batches.recv() => batch,
            () = &mut interrupted => return Err(Fault::failed("interrupted")),
        };
        let Some(batch) = batch else { break };
        let answers = client.enqueue(&batch.jobs).await.map_err(|e| unsure(e, &batch))?;
        if tally.spooled == 0
            && let Some(Accepted::Spooled(first)) = answers.first()
        {
            note(&format!(
                "spooled: {}; from line {} on, jobs wait on this machine",
                plain(&first.why),
                batch.first_line
            ));
        }
        for (job, answer) in tally.count(&batch, &answers) {
            note(&format!("conflict: {}", in_the_way(store, job, answer).await));
        }
        bar.inc(batch.jobs.len() as u64);
    }
    parser.join().unwrap_or_else(|_| Err(Fault::failed("the reader of the lines broke down")))
}

impl Tally {
    /// Counts the answers to a batch; returns the conflicts that are to be named.
    fn count<'a>(&mut self, batch: &'a Batch, answers: &'a [Accepted]) -> Vec<(&'a NewJob, &'a Enqueued)> {
        let mut named = Vec::new();
        for (job, answer) in batch.jobs.iter().zip(answers) {
            if self.kinds.len() < KINDS_MAX {
                self.kinds.insert(job.kind.clone());
            }
            let answer = match answer {
                Accepted::Stored(answer) => answer,
                Accepted::Spooled(_) => {
                    self.spooled += 1;
                    continue;
                }
            };
            let counter = match answer.disposition {
                Disposition::Created => &mut self.created,
                Disposition::Kept => &mut self.kept,
                Disposition::Replaced => &mut self.replaced,
                Disposition::Rescheduled => &mut self.rescheduled,
                Disposition::Conflict => &mut self.conflicts,
            };
            *counter += 1;
            if answer.disposition == Disposition::Conflict && self.conflicts <= CONFLICTS_NAMED {
                named.push((job, answer));
            }
        }
        self.last_line = Some(batch.last_line);
        named
    }
}

/// What a failed call means for its lines.
fn unsure(error: EnqueueError, batch: &Batch) -> Fault {
    let lines = format!("lines {} to {}", batch.first_line, batch.last_line);
    let fate = match &error {
        EnqueueError::Store(StoreError::Unreplicated(_)) => {
            format!("{lines} do not count as taken: those with an id can be repeated safely")
        }
        error if error.is_unsure() => {
            format!("{lines} may or may not have been taken: those with an id can be repeated safely")
        }
        _ => format!("{lines} were not taken"),
    };
    let mut fault = Fault::from(error);
    fault.message = format!("{}\n{fate}", fault.message);
    fault
}

fn with_last_line(mut fault: Fault, tally: &Tally) -> Fault {
    let last = match tally.last_line {
        Some(line) => format!("line {line} was the last one taken: go on with --from-line {}", line + 1),
        None => "no line was taken".to_owned(),
    };
    fault.message = format!("{}\n{last}", fault.message);
    fault
}

fn report(context: &mut Context, tally: &Tally) {
    if context.out.json() {
        context.out.value(tally);
        return;
    }
    let mut parts = vec![format!("{} created", tally.created)];
    for (count, word) in [
        (tally.kept, "kept"),
        (tally.replaced, "replaced"),
        (tally.rescheduled, "rescheduled"),
        (tally.conflicts, "in conflict"),
        (tally.spooled, "spooled"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    context.out.line(&parts.join(", "));
}
