//! `queue`, `stats` and `runner`: counts, and what runners may take.

use std::io::{BufRead, IsTerminal, Write};

use serde::Serialize;

use super::args::QueueCommand;
use super::context::Context;
use super::exit::{Code, Fault};
use super::listing;
use super::output::{Out, note};
use super::table::Table;
use crate::names::Name;
use crate::queue::{Counts, QueueCounts, SessionSeen, Store};
use crate::wire::stats_out::{QueueOut, RunnerOut, StatsOut, runners};

/// A queue as `queue list` and `queue show` have it: what `stats` says, and more.
#[derive(Debug, Serialize)]
struct QueueDetails<'a> {
    #[serde(flatten)]
    counts: QueueOut<'a>,
    cancelled: u64,
    kinds: &'a [Name],
}

/// Runs a command about queues.
pub(super) async fn run(context: &mut Context, command: &QueueCommand) -> Result<Code, Fault> {
    // A queue may be paused before there is anything at all.
    let pauses = matches!(command, QueueCommand::Pause { .. });
    let store = if pauses { context.store_or_new()? } else { context.store()? };
    match command {
        QueueCommand::List => {
            let (counts, sessions) = look(&*store).await?;
            if context.out.json() {
                let items = counts.queues.iter().map(|q| details(q, &sessions, counts.now_ms)).collect();
                listing::whole(context, items);
            } else {
                queue_table(&mut context.out, &StatsOut::new(&counts, &sessions));
            }
        }
        QueueCommand::Show { queue } => {
            let (counts, sessions) = look(&*store).await?;
            let found = counts.queues.iter().find(|q| q.queue == *queue);
            let found = found.ok_or_else(|| Fault::not_found(format!("there is no queue {queue}")))?;
            let details = details(found, &sessions, counts.now_ms);
            if context.out.json() {
                context.out.value(&details);
            } else {
                show(&mut context.out, &details);
            }
        }
        QueueCommand::Pause { queue } => {
            let known = is_known(&*store, queue).await?;
            let unsure = |error| Fault::unsure(error, &format!("queue {queue}"), "paused");
            store.pause(queue).await.map_err(unsure)?;
            if !known {
                note(&format!("queue {queue} has no job yet: it is paused for those to come"));
            }
            say_paused(context, queue, true);
        }
        QueueCommand::Resume { queue } => {
            let unsure = |error| Fault::unsure(error, &format!("queue {queue}"), "resumed");
            store.resume(queue).await.map_err(unsure)?;
            say_paused(context, queue, false);
        }
        QueueCommand::Purge { queue, yes } => purge(context, &*store, queue, *yes).await?,
    }
    Ok(Code::Done)
}

/// Runs `stats`.
pub(super) async fn stats(context: &mut Context) -> Result<Code, Fault> {
    let store = context.store()?;
    let (counts, sessions) = look(&*store).await?;
    let stats = StatsOut::new(&counts, &sessions);
    if context.out.json() {
        context.out.value(&stats);
    } else {
        queue_table(&mut context.out, &stats);
        if !stats.runners.is_empty() {
            context.out.line("");
        }
        runner_table(&mut context.out, &stats.runners);
    }
    for (count, what) in [(counts.orphans, "orphans"), (counts.quarantined, "entries in quarantine")] {
        if count > 0 {
            note(&format!("warning: the store has set aside {count} {what}"));
        }
    }
    Ok(Code::Done)
}

/// Runs `runner list`.
pub(super) async fn runner_list(context: &mut Context) -> Result<Code, Fault> {
    let store = context.store()?;
    let (counts, sessions) = look(&*store).await?;
    let runners = runners(&sessions, counts.now_ms);
    if context.out.json() {
        listing::whole(context, runners);
    } else {
        runner_table(&mut context.out, &runners);
    }
    Ok(Code::Done)
}

async fn look(store: &dyn Store) -> Result<(Counts, Vec<SessionSeen>), Fault> {
    let sessions = store.sessions().await?;
    Ok((store.counts().await?, sessions))
}

async fn is_known(store: &dyn Store, queue: &Name) -> Result<bool, Fault> {
    Ok(store.counts().await?.queues.iter().any(|q| q.queue == *queue))
}

fn details<'a>(counts: &'a QueueCounts, sessions: &[SessionSeen], now_ms: u64) -> QueueDetails<'a> {
    QueueDetails {
        counts: QueueOut::new(counts, sessions, now_ms),
        cancelled: counts.cancelled,
        kinds: &counts.kinds,
    }
}

fn say_paused(context: &mut Context, queue: &Name, paused: bool) {
    #[derive(Serialize)]
    struct Paused<'a> {
        queue: &'a str,
        paused: bool,
    }
    if context.out.json() {
        context.out.value(&Paused { queue: queue.as_str(), paused });
    } else {
        context.out.line(&format!("{queue} {}", if paused { "paused" } else { "resumed" }));
    }
}

/// Deletes what waits in a queue. On a terminal it asks first; elsewhere `--yes` must say so.
async fn purge(context: &mut Context, store: &dyn Store, queue: &Name, yes: bool) -> Result<(), Fault> {
    #[derive(Serialize)]
    struct Purged<'a> {
        queue: &'a str,
        deleted: u64,
    }
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Fault::usage("queue purge: expected --yes, as there is no terminal to ask"));
        }
        let counts = store.counts().await?;
        let waiting = counts.queues.iter().find(|q| q.queue == *queue).map_or(0, |q| q.scheduled + q.ready);
        if !confirmed(&format!("delete the {waiting} scheduled and ready jobs of {queue}? [y/N] ")) {
            return Err(Fault::failed("nothing was deleted"));
        }
    }
    let mut deleted = 0;
    loop {
        let (count, more) = store.purge(queue).await.map_err(|error| {
            if deleted > 0 {
                note(&format!("{deleted} jobs were deleted before the store failed"));
            }
            Fault::unsure(error, "some of the others", "deleted")
        })?;
        deleted += count;
        if !more {
            break;
        }
    }
    if context.out.json() {
        context.out.value(&Purged { queue: queue.as_str(), deleted });
    } else {
        context.out.line(&format!("{deleted} deleted"));
    }
    Ok(())
}

/// Asks on the terminal.
pub(super) fn confirmed(question: &str) -> bool {
    let mut stderr = std::io::stderr();
    if stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn queue_table(out: &mut Out, stats: &StatsOut<'_>) {
    let mut table =
        Table::new(&["queue", "scheduled", "ready", "running", "dead", "completed", "oldest due", "notes"]);
    for queue in &stats.queues {
        table.row([
            queue.queue.to_owned(),
            queue.scheduled.to_string(),
            queue.ready.to_string(),
            queue.running.to_string(),
            queue.dead.to_string(),
            queue.completed.to_string(),
            queue.oldest_due_at.clone().unwrap_or_default(),
            notes(queue),
        ]);
    }
    table.print(out, "no queues yet");
}

/// What a person should know of a queue.
fn notes(queue: &QueueOut<'_>) -> String {
    let mut notes = Vec::new();
    if queue.paused {
        notes.push("paused");
    }
    if !queue.served {
        notes.push("not served");
    }
    notes.join(", ")
}

fn show(out: &mut Out, details: &QueueDetails<'_>) {
    let queue = &details.counts;
    let kinds: Vec<&str> = details.kinds.iter().map(Name::as_str).collect();
    for (name, text) in [
        ("queue", queue.queue.to_owned()),
        ("kinds", kinds.join(", ")),
        ("scheduled", queue.scheduled.to_string()),
        ("ready", queue.ready.to_string()),
        ("running", queue.running.to_string()),
        ("dead", queue.dead.to_string()),
        ("completed", queue.completed.to_string()),
        ("cancelled", details.cancelled.to_string()),
        ("oldest due", queue.oldest_due_at.clone().unwrap_or_else(|| "-".to_owned())),
        (
            "ever",
            format!(
                "{} enqueued, {} completed, {} attempts failed, {} dead letters dropped by a limit",
                queue.enqueued_total, queue.completed_total, queue.failed_total, queue.dead_dropped_total
            ),
        ),
        ("notes", notes(queue)),
    ] {
        out.line(format!("{name:11} {text}").trim_end());
    }
}

fn runner_table(out: &mut Out, runners: &[RunnerOut<'_>]) {
    let mut table = Table::new(&["runner", "state", "running", "held", "slots", "seen", "version", "kinds"]);
    for runner in runners {
        let number = |n: Option<u32>| n.map(|n| n.to_string()).unwrap_or_default();
        let state = match (runner.live, runner.stopping) {
            (false, _) => "silent",
            (true, true) => "stopping",
            (true, false) => "live",
        };
        let kinds: Vec<&str> = runner.kinds.iter().map(Name::as_str).collect();
        table.row([
            runner.runner.unwrap_or(runner.session).to_owned(),
            state.to_owned(),
            number(runner.running),
            number(runner.held),
            number(runner.concurrency),
            runner.seen_at.clone().unwrap_or_default(),
            runner.version.unwrap_or_default().to_owned(),
            kinds.join(", "),
        ]);
    }
    table.print(out, "no runners");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::captured;
    use crate::wire::stats_out::tests::{NOW, counts, session};
    use crate::wire::units::rfc3339;

    #[test]
    fn a_queue_says_what_a_person_should_know() {
        let counts = counts();
        let (mut out, captured) = captured(false, None);
        show(&mut out, &details(&counts.queues[0], &[], NOW));
        queue_table(&mut out, &StatsOut::new(&counts, &[]));
        out.flush();
        let text = captured.text();
        assert!(text.contains("kinds       order_close, order_notify\n"), "{text}");
        assert!(text.contains("notes       paused, not served\n"), "{text}");
        assert!(text.contains(&rfc3339(NOW - 1)), "{text}");
    }

    #[test]
    fn the_json_of_a_queue_is_that_of_stats_and_more() {
        let counts = counts();
        let json = serde_json::to_value(details(&counts.queues[0], &[], NOW)).expect("serialises");
        assert_eq!(json["queue"], "orders");
        assert_eq!(json["cancelled"], 6);
        assert_eq!(json["kinds"], serde_json::json!(["order_close", "order_notify"]));
    }

    #[test]
    fn a_runner_that_went_silent_is_shown_as_such() {
        let sessions = [session(&["k"], 0), session(&["k"], 60_000)];
        let (mut out, captured) = captured(false, None);
        runner_table(&mut out, &runners(&sessions, NOW));
        out.flush();
        let text = captured.text();
        assert!(text.contains("live") && text.contains("silent"), "{text}");
    }
}
