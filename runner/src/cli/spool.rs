//! `spool`: what waits on this machine for its store.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::args_spool::SpoolCommand;
use super::context::Context;
use super::exit::{Code, Fault};
use super::output::{note, plain};
use super::table::Table;
use crate::app;
use crate::client::{Client, DrainError, Drained, Spool, SpoolDeleted, SpoolEntry};
use crate::config::{SpoolSettings, StoreSettings};
use crate::names::{JobId, Name};
use crate::wire::units::rfc3339;

/// How often it is looked whether another process still drains.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a command about the spool.
pub(super) async fn run(context: &mut Context, command: &SpoolCommand) -> Result<Code, Fault> {
    let settings = SpoolSettings::resolve(&context.layers, &context.machine)?;
    let spool = app::spool(&settings);
    match command {
        SpoolCommand::List { limit, cursor, .. } => list(context, &spool, *limit, cursor.as_deref()),
        SpoolCommand::Drain { all, .. } => drain(context, spool, *all).await,
        SpoolCommand::Delete { id, queue, waiting, .. } => {
            delete(context, &spool, id, queue.as_ref(), *waiting)
        }
    }
}

/// A job in the spool.
#[derive(Debug, Serialize)]
struct EntryOut<'a> {
    id: &'a str,
    queue: &'a str,
    kind: &'a str,
    state: &'static str,
    store: &'a str,
    accepted_at: String,
    due_at: String,
    payload_bytes: u64,
    /// Why it is set aside.
    reason: Option<&'a str>,
}

impl<'a> From<&'a SpoolEntry> for EntryOut<'a> {
    fn from(entry: &'a SpoolEntry) -> Self {
        Self {
            id: &entry.id,
            queue: &entry.queue,
            kind: &entry.kind,
            state: if entry.aside.is_some() { "set_aside" } else { "waiting" },
            store: &entry.store,
            accepted_at: rfc3339(entry.accepted_ms),
            due_at: rfc3339(entry.due_ms),
            payload_bytes: entry.payload_bytes,
            reason: entry.aside.as_deref(),
        }
    }
}

fn list(context: &mut Context, spool: &Spool, limit: u64, cursor: Option<&str>) -> Result<Code, Fault> {
    #[derive(Serialize)]
    struct ListOut<'a> {
        items: Vec<EntryOut<'a>>,
        cursor: Option<String>,
    }
    let after = match cursor {
        None => 0,
        Some(text) => place_of(text).ok_or_else(|| {
            Fault::usage(format!("--cursor: expected one of an earlier list, got {text:?}"))
        })?,
    };
    let entries = spool.list(after, limit)?;
    let full = entries.len() as u64 == limit;
    let cursor = entries.last().filter(|_| full).map(|last| last.place.to_string());
    let items: Vec<EntryOut<'_>> = entries.iter().map(EntryOut::from).collect();
    if context.out.json() {
        context.out.value(&ListOut { items, cursor });
        return Ok(Code::Done);
    }
    let mut table = Table::new(&["id", "queue", "kind", "state", "accepted", "due", "store", "reason"]);
    for item in items {
        let reason = item.reason.unwrap_or_default();
        table.row([
            item.id,
            item.queue,
            item.kind,
            item.state,
            &item.accepted_at,
            &item.due_at,
            item.store,
            reason,
        ]);
    }
    table.print(&mut context.out, "the spool is empty");
    if let Some(cursor) = cursor {
        note(&format!("there may be more: --cursor {cursor}"));
    }
    Ok(Code::Done)
}

/// The place that a cursor names. The file numbers places with a sign, so that there are none in the upper half.
fn place_of(cursor: &str) -> Option<u64> {
    cursor.parse().ok().filter(|place| i64::try_from(*place).is_ok())
}

async fn drain(context: &mut Context, spool: Spool, all: bool) -> Result<Code, Fault> {
    #[derive(Serialize)]
    struct DrainedOut {
        drained: u64,
        set_aside: u64,
        left: u64,
        for_other_stores: u64,
    }
    let settings = StoreSettings::resolve(&context.layers)?;
    let missing = settings.missing_file();
    let store = app::open_store(&settings)?;
    let before = spool.rest(&store.address())?;
    let to_do = before.waiting > 0 || all && !before.others.is_empty();
    if let Some(file) = missing.filter(|_| to_do) {
        note(&format!("there is no store {} yet: making it", file.display()));
    }
    let client = Client::new(Arc::clone(&store));
    client.set_spool(Some(spool.clone()));
    let ended = loop {
        match client.drain(None, all).await {
            Err(DrainError::Busy) => tokio::time::sleep(LOOK_EVERY).await,
            ended => break ended,
        }
    };
    let Drained { sent, set_aside, .. } = *ended.as_ref().unwrap_or(&Drained::default());
    let rest = spool.rest(&store.address())?;
    let others = rest.others.iter().map(|(_, jobs)| jobs).sum();
    match ended {
        Err(DrainError::Store(error)) => {
            let mut fault = Fault::from(error);
            fault.message = format!(
                "{}\n{sent} drained; {} still wait in the spool, and nothing is lost",
                plain(&fault.message),
                rest.waiting
            );
            return Err(fault);
        }
        Err(DrainError::Spool(error)) => return Err(error.into()),
        Ok(_) | Err(DrainError::Busy) => {}
    }
    if context.out.json() {
        context.out.value(&DrainedOut {
            drained: sent,
            set_aside,
            left: rest.waiting,
            for_other_stores: others,
        });
    } else {
        context.out.line(&format!("{sent} drained"));
    }
    for (other, jobs) in &rest.others {
        note(&format!(
            "{jobs} wait for {}: drain them with --store, or with --all if that is this store by another name",
            plain(other)
        ));
    }
    if rest.aside > 0 {
        note(&format!("{} are set aside, for their store refused them: hourhand spool list", rest.aside));
    }
    Ok(if rest.aside > 0 { Code::Failed } else { Code::Done })
}

fn delete(
    context: &mut Context,
    spool: &Spool,
    ids: &[JobId],
    queue: Option<&Name>,
    waiting: bool,
) -> Result<Code, Fault> {
    #[derive(Serialize)]
    struct Answer<'a> {
        id: &'a str,
        result: &'static str,
    }
    let mut answers = Vec::with_capacity(ids.len());
    let mut worst = Code::Done;
    for id in ids {
        let (result, code, message) = match spool.delete(queue.map(Name::as_str), id.as_str(), waiting)? {
            SpoolDeleted::Deleted(_) => ("deleted", Code::Done, format!("{id} deleted")),
            SpoolDeleted::NotFound => {
                ("not_found", Code::NotFound, format!("there is no job {id} in the spool"))
            }
            SpoolDeleted::Waiting => (
                "conflict",
                Code::Conflict,
                format!("{id} waits for its store: --waiting deletes it all the same"),
            ),
            SpoolDeleted::Ambiguous(queues) => (
                "ambiguous",
                Code::Conflict,
                format!("{id} is in several queues: choose with --queue one of {}", queues.join(", ")),
            ),
        };
        worst = worst.max(code);
        answers.push(Answer { id: id.as_str(), result });
        match (context.out.json(), code) {
            (false, Code::Done) => context.out.line(&message),
            (_, Code::Done) => {}
            _ => note(&format!("error: {message}")),
        }
    }
    if context.out.json() {
        context.out.value(&answers);
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_that_no_list_gives_is_none() {
        assert_eq!(place_of("0"), Some(0));
        assert_eq!(place_of("9223372036854775807"), Some(u64::MAX / 2));
        for text in ["9223372036854775808", "18446744073709551615", "18446744073709551616", "-1", "x", ""] {
            assert_eq!(place_of(text), None, "{text}");
        }
    }
}
