//! Lists: pages of the store strung together, written as they arrive.
//!
//! In JSON a list is one object, an item a line, closed with its cursor even when the store goes away in the middle:
//! what was written stays valid, and the cursor goes on from there.

use serde::Serialize;

use super::context::Context;
use super::exit::{Code, Fault};
use super::show::{job_row, job_table};
use crate::queue::{ListQuery, Store};
use crate::wire::job_out::{JobOut, List};

/// Most items that a store gives in one page.
pub(super) const PAGE_MAX: u64 = 1_000;

/// Lists at most `limit` jobs from `query`'s cursor on.
pub(super) async fn jobs(
    context: &mut Context,
    store: &dyn Store,
    query: ListQuery,
    limit: u64,
) -> Result<Code, Fault> {
    if context.out.json() {
        jobs_json(context, store, query, limit).await
    } else {
        jobs_table(context, store, query, limit).await
    }
}

async fn jobs_json(
    context: &mut Context,
    store: &dyn Store,
    mut query: ListQuery,
    limit: u64,
) -> Result<Code, Fault> {
    let mut left = limit;
    let mut separator = "";
    let mut ended = Ok(Code::Done);
    let mut open = false;
    while left > 0 && !context.out.is_closed() {
        query.limit = left.min(PAGE_MAX) as usize;
        let page = match store.list(&query).await {
            Ok(page) => page,
            // Before the first line there is nothing to close.
            Err(error) if !open => return Err(error.into()),
            Err(error) => {
                ended = Err(error.into());
                break;
            }
        };
        if !open {
            context.out.bytes(b"{\"items\":[");
            open = true;
        }
        for view in &page.items {
            let text =
                serde_json::to_string(&JobOut::from(view)).map_err(|e| Fault::failed(e.to_string()))?;
            context.out.bytes(format!("{separator}\n{text}").as_bytes());
            separator = ",";
        }
        left = left.saturating_sub(page.items.len() as u64);
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    let cursor = serde_json::to_string(&query.cursor).map_err(|e| Fault::failed(e.to_string()))?;
    let newline = if separator.is_empty() { "" } else { "\n" };
    context.out.line(&format!("{newline}],\"cursor\":{cursor}}}"));
    ended
}

async fn jobs_table(
    context: &mut Context,
    store: &dyn Store,
    mut query: ListQuery,
    limit: u64,
) -> Result<Code, Fault> {
    let mut left = limit;
    let mut table = job_table();
    loop {
        query.limit = left.min(PAGE_MAX) as usize;
        let page = store.list(&query).await?;
        for view in &page.items {
            job_row(&mut table, view);
        }
        left = left.saturating_sub(page.items.len() as u64);
        query.cursor = page.cursor;
        if left == 0 || query.cursor.is_none() {
            break;
        }
    }
    table.print(&mut context.out, "no jobs");
    context.out.flush();
    // Who closed the answer does not want to read on.
    if let Some(cursor) = query.cursor.filter(|_| !context.out.is_closed()) {
        super::output::note(&format!("there may be more: --cursor {cursor}"));
    }
    Ok(Code::Done)
}

/// Writes a whole list as one line of JSON.
pub(super) fn whole<T: Serialize>(context: &mut Context, items: Vec<T>) {
    context.out.value(&List { items, cursor: None });
}
