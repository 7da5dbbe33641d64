//! `dead`: dead letters, listed, counted, brought back and deleted.
//!
//! Work on many goes page by page in bounded steps; each step is whole, so that a command that was
//! killed in the middle is simply run again. Jobs that die meanwhile are left for the next time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::args::By;
use super::args_jobs::{DeadCommand, DeadFilter, DeadSelection, PageArgs};
use super::context::{Context, since};
use super::exit::{Code, Fault};
use super::listing::{self, PAGE_MAX};
use super::output::note;
use super::table::Table;
use super::verbs::{self, Verb};
use crate::job::{JobView, State};
use crate::queue::{BATCH_MAX, JobRef, ListQuery, Store, Verdict};
use crate::wire::units::rfc3339;

/// Most groups that are told apart; what comes beyond is counted together.
const GROUPS_MAX: usize = 10_000;
/// Longest key of a group, in characters.
const KEY_CHARS_MAX: usize = 160;
/// The key of what comes beyond the bounds, or has no error.
const OTHER: &str = "(other)";

/// Runs a command about dead letters.
pub(super) async fn run(context: &mut Context, command: &DeadCommand) -> Result<Code, Fault> {
    match command {
        DeadCommand::List { by, filter, page } => list(context, *by, filter, page).await,
        DeadCommand::Retry(selection) => change(context, Verb::RetryDead, selection).await,
        DeadCommand::Delete(selection) => change(context, Verb::DeleteDead, selection).await,
    }
}

fn query(filter: &DeadFilter, since_text: Option<&str>) -> Result<ListQuery, Fault> {
    Ok(ListQuery {
        queue: filter.queue.clone(),
        kind: filter.kind.clone(),
        states: vec![State::Dead],
        error: filter.error.clone(),
        since_ms: since(since_text)?,
        limit: PAGE_MAX as usize,
        cursor: None,
    })
}

async fn list(
    context: &mut Context,
    by: Option<By>,
    filter: &DeadFilter,
    page: &PageArgs,
) -> Result<Code, Fault> {
    let mut query = query(filter, page.since.as_deref())?;
    let store = context.store()?;
    let Some(by) = by else {
        query.cursor.clone_from(&page.cursor);
        return listing::jobs(context, &*store, query, page.limit).await;
    };
    let mut groups = Groups::default();
    loop {
        let page = store.list(&query).await?;
        for view in &page.items {
            groups.add(key_of(by, view), view.ended_us.unwrap_or_default() / 1_000);
        }
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    groups.print(context, by);
    Ok(Code::Done)
}

/// Dead letters that have something in common.
#[derive(Debug)]
struct Group {
    count: u64,
    first_ms: u64,
    last_ms: u64,
}

#[derive(Debug, Default)]
struct Groups(BTreeMap<String, Group>);

impl Groups {
    fn add(&mut self, key: String, at_ms: u64) {
        let key = if self.0.len() < GROUPS_MAX || self.0.contains_key(&key) { key } else { OTHER.to_owned() };
        let group = self.0.entry(key).or_insert(Group { count: 0, first_ms: at_ms, last_ms: at_ms });
        group.count += 1;
        group.first_ms = group.first_ms.min(at_ms);
        group.last_ms = group.last_ms.max(at_ms);
    }

    /// The largest first, days in their order.
    fn print(self, context: &mut Context, by: By) {
        let (name, heading) = match by {
            By::Day => ("day", "day"),
            By::Kind => ("kind", "kind"),
            By::Error => ("error", "error"),
        };
        let mut groups: Vec<(String, Group)> = self.0.into_iter().collect();
        if by != By::Day {
            groups.sort_by(|a, b| b.1.count.cmp(&a.1.count).then_with(|| a.0.cmp(&b.0)));
        }
        if context.out.json() {
            let items: Vec<GroupOut> = groups
                .into_iter()
                .map(|(key, group)| GroupOut {
                    key: BTreeMap::from([(name, key)]),
                    count: group.count,
                    first_at: rfc3339(group.first_ms),
                    last_at: rfc3339(group.last_ms),
                })
                .collect();
            listing::whole(context, items);
            return;
        }
        let mut table = Table::new(&["count", heading, "first", "last"]);
        for (key, group) in groups {
            table.row([group.count.to_string(), key, rfc3339(group.first_ms), rfc3339(group.last_ms)]);
        }
        table.print(&mut context.out, "no dead letters");
    }
}

/// One group: `{"kind": ..., "count", "first_at", "last_at"}`.
#[derive(Debug, Serialize)]
struct GroupOut {
    #[serde(flatten)]
    key: BTreeMap<&'static str, String>,
    count: u64,
    first_at: String,
    last_at: String,
}

fn key_of(by: By, view: &JobView) -> String {
    match by {
        By::Day => rfc3339(view.ended_us.unwrap_or_default() / 1_000)[..10].to_owned(),
        By::Kind => view.job.kind.to_string(),
        By::Error => view
            .error
            .as_ref()
            .map_or_else(|| OTHER.to_owned(), |e| format!("{}: {}", e.reason, error_key(&e.message))),
    }
}

/// The first line of a message with each number as `#`: messages that differ in an id are one error.
fn error_key(message: &str) -> String {
    let mut key = String::new();
    let mut in_number = false;
    for c in message.lines().next().unwrap_or_default().chars().take(KEY_CHARS_MAX) {
        if !c.is_ascii_digit() {
            key.push(c);
        } else if !in_number {
            key.push('#');
        }
        in_number = c.is_ascii_digit();
    }
    key
}

/// What became of many dead letters.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Changed {
    #[serde(skip_serializing_if = "Option::is_none")]
    requeued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<u64>,
    /// Those that somebody else had changed meanwhile.
    skipped: u64,
}

async fn change(context: &mut Context, verb: Verb, selection: &DeadSelection) -> Result<Code, Fault> {
    if !selection.id.is_empty() {
        return verbs::run(context, verb, &selection.id, selection.filter.queue.as_ref()).await;
    }
    let filter = &selection.filter;
    if !selection.all && filter.kind.is_none() && filter.error.is_none() && selection.since.is_none() {
        return Err(Fault::usage(
            "expected ids, --kind, --error, --since or --all: nothing says which dead letters",
        ));
    }
    let query = query(filter, selection.since.as_deref())?;
    let store = context.store()?;
    let mut changed = (0, 0);
    let ended = change_pages(&*store, verb, query, &mut changed).await;
    let (done, skipped) = changed;
    let requeued = (verb == Verb::RetryDead).then_some(done);
    let deleted = (verb == Verb::DeleteDead).then_some(done);
    if context.out.json() {
        context.out.value(&Changed { requeued, deleted, skipped });
    } else {
        context.out.line(&format!("{done} {}", if requeued.is_some() { "requeued" } else { "deleted" }));
    }
    if skipped > 0 {
        note(&format!("{skipped} were changed by somebody else meanwhile"));
    }
    if ended.is_err() {
        note("the same command goes on with the rest");
    }
    ended.map(|()| Code::Done)
}

/// Goes through all pages once; counts what was done and what was not.
async fn change_pages(
    store: &dyn Store,
    verb: Verb,
    mut query: ListQuery,
    (done, skipped): &mut (u64, u64),
) -> Result<(), Fault> {
    query.limit = BATCH_MAX;
    // What dies after this moment, perhaps of being retried, is not meant.
    let until_ms = store.counts().await?.now_ms;
    loop {
        let page = store.list(&query).await?;
        let jobs: Vec<JobRef> = page
            .items
            .iter()
            .filter(|view| view.state == State::Dead && view.ended_us.unwrap_or_default() / 1_000 <= until_ms)
            .map(|view| JobRef { queue: view.job.queue.clone(), id: view.job.id.clone() })
            .collect();
        if !jobs.is_empty() {
            let some = format!("up to {} more", jobs.len());
            let verdicts = verb.apply(store, &jobs).await;
            for verdict in verdicts.map_err(|error| Fault::unsure(error, &some, verb.done()))? {
                *if verdict == Verdict::Done { &mut *done } else { &mut *skipped } += 1;
            }
        }
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::job_out::tests::sample;

    #[test]
    fn errors_that_differ_in_numbers_are_one() {
        assert_eq!(error_key("bad id 7 at src/lib.rs:10:5\nmore"), "bad id # at src/lib.rs:#:#");
        assert_eq!(error_key(""), "");
        assert_eq!(error_key(&"é".repeat(500)).chars().count(), KEY_CHARS_MAX);
    }

    #[test]
    fn dead_letters_are_counted_by_day_kind_and_error() {
        let view = sample();
        assert_eq!(key_of(By::Day, &view), "2026-12-01");
        assert_eq!(key_of(By::Kind, &view), "order_close");
        assert_eq!(key_of(By::Error, &view), "panic: bad id #");
    }

    #[test]
    fn groups_are_bounded() {
        let mut groups = Groups::default();
        for n in 0..GROUPS_MAX as u64 + 5 {
            groups.add(n.to_string(), n);
        }
        groups.add("3".to_owned(), 50_000);
        assert_eq!(groups.0.len(), GROUPS_MAX + 1);
        assert_eq!(groups.0[OTHER].count, 5);
        assert_eq!((groups.0["3"].count, groups.0["3"].first_ms, groups.0["3"].last_ms), (2, 3, 50_000));
    }
}
