//! `state`: what handlers remember, for operators to look at and to change.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use super::args_state::StateCommand;
use super::context::Context;
use super::exit::{Code, Fault};
use super::output::note;
use super::queues::confirmed;
use super::show::bytes_shown;
use super::table::Table;
use super::{listing, payload};
use crate::effects::{BucketSeen, StateEntry, StateValue};
use crate::names::Name;
use crate::queue::{Page, Store, StoreError};

/// An entry in JSON: what is no text comes as `value_base64`.
#[derive(Debug, Serialize)]
struct EntryOut<'a> {
    bucket: &'a str,
    key: &'a str,
    #[serde(flatten)]
    value: ValueOut<'a>,
    version: u64,
}

#[derive(Debug, Serialize)]
enum ValueOut<'a> {
    #[serde(rename = "value")]
    Text(&'a str),
    #[serde(rename = "value_base64")]
    Bytes(String),
}

impl<'a> EntryOut<'a> {
    fn new(bucket: &'a Name, key: &'a str, found: &'a StateValue) -> Self {
        let value = match std::str::from_utf8(&found.value) {
            Ok(text) => ValueOut::Text(text),
            Err(_) => ValueOut::Bytes(BASE64.encode(&found.value)),
        };
        Self { bucket: bucket.as_str(), key, value, version: found.version }
    }
}

/// Runs a command about state.
pub(super) async fn run(context: &mut Context, command: &StateCommand) -> Result<Code, Fault> {
    // An entry may be set before there is anything at all.
    let sets = matches!(command, StateCommand::Set { .. });
    let store = if sets { context.store_or_new()? } else { context.store()? };
    match command {
        StateCommand::List { bucket: None } => list_buckets(context, &*store).await?,
        StateCommand::List { bucket: Some(bucket) } => list_entries(context, &*store, bucket).await?,
        StateCommand::Get { bucket, key } => get(context, &*store, bucket, key).await?,
        StateCommand::Set { bucket, key, value } => {
            let value = payload::read(Some(value), None)?;
            let unsure = |error| Fault::unsure(error, &entry_named(bucket, key), "set");
            let version = store.set_state(bucket, key, &value).await.map_err(unsure)?;
            if context.out.json() {
                context.out.value(&EntryOut::new(bucket, key, &StateValue { value, version }));
            } else {
                context.out.line(&format!("{} set", entry_named(bucket, key)));
            }
        }
        StateCommand::Delete { bucket, key: Some(key), .. } => {
            let unsure = |error| Fault::unsure(error, &entry_named(bucket, key), "deleted");
            if !store.delete_state(bucket, key).await.map_err(unsure)? {
                return Err(missing(bucket, key));
            }
            say_deleted(context, bucket, 1);
        }
        StateCommand::Delete { bucket, key: None, yes } => {
            empty(context, &*store, bucket, *yes).await?;
        }
    }
    Ok(Code::Done)
}

fn entry_named(bucket: &Name, key: &str) -> String {
    format!("{key:?} of bucket {bucket}")
}

fn missing(bucket: &Name, key: &str) -> Fault {
    Fault::not_found(format!("there is no {}", entry_named(bucket, key)))
}

/// Everything that pages bring.
async fn all<T>(
    mut page: impl AsyncFnMut(Option<String>) -> Result<Page<T>, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let next = page(cursor).await?;
        items.extend(next.items);
        if next.cursor.is_none() {
            return Ok(items);
        }
        cursor = next.cursor;
    }
}

async fn list_buckets(context: &mut Context, store: &dyn Store) -> Result<(), Fault> {
    #[derive(Serialize)]
    struct BucketOut {
        bucket: Name,
        entries: u64,
        bytes: u64,
    }
    let buckets = all(async |cursor| store.buckets(cursor).await).await?;
    if context.out.json() {
        let out = |BucketSeen { bucket, entries, bytes }| BucketOut { bucket, entries, bytes };
        listing::whole(context, buckets.into_iter().map(out).collect());
        return Ok(());
    }
    let mut table = Table::new(&["bucket", "entries", "bytes"]);
    for seen in buckets {
        table.row([seen.bucket.to_string(), seen.entries.to_string(), seen.bytes.to_string()]);
    }
    table.print(&mut context.out, "no state yet");
    Ok(())
}

async fn list_entries(context: &mut Context, store: &dyn Store, bucket: &Name) -> Result<(), Fault> {
    // A page may bring an entry again.
    let entries = all(async |cursor| store.state_page(bucket, cursor).await).await?;
    let entries: BTreeMap<String, StateValue> =
        entries.into_iter().map(|StateEntry { key, found }| (key, found)).collect();
    if entries.is_empty() {
        return Err(no_bucket(bucket));
    }
    if context.out.json() {
        let items = entries.iter().map(|(key, found)| EntryOut::new(bucket, key, found)).collect();
        listing::whole(context, items);
        return Ok(());
    }
    let mut table = Table::new(&["key", "version", "value"]);
    for (key, found) in &entries {
        table.row([key.clone(), found.version.to_string(), bytes_shown(&found.value)]);
    }
    table.print(&mut context.out, "");
    Ok(())
}

fn no_bucket(bucket: &Name) -> Fault {
    Fault::not_found(format!("bucket {bucket} holds nothing"))
}

/// A value comes as it is, so that what reads it has it byte for byte; a terminal gets what can be shown.
async fn get(context: &mut Context, store: &dyn Store, bucket: &Name, key: &str) -> Result<(), Fault> {
    let mut found = store.read_state(bucket, &[key.to_owned()]).await?;
    let Some(found) = found.values.pop().flatten() else { return Err(missing(bucket, key)) };
    if context.out.json() {
        context.out.value(&EntryOut::new(bucket, key, &found));
    } else if context.out.columns().is_some() {
        context.out.line(&bytes_shown(&found.value));
    } else {
        context.out.bytes(&found.value);
    }
    Ok(())
}

/// Deletes a whole bucket. On a terminal it asks first; elsewhere `--yes` must say so.
async fn empty(context: &mut Context, store: &dyn Store, bucket: &Name, yes: bool) -> Result<(), Fault> {
    let held = store.read_state(bucket, &[]).await?;
    if held.entries == 0 {
        return Err(no_bucket(bucket));
    }
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Fault::usage("state delete: expected --yes, as there is no terminal to ask"));
        }
        if !confirmed(&format!("delete the {} entries of bucket {bucket}? [y/N] ", held.entries)) {
            return Err(Fault::failed("nothing was deleted"));
        }
    }
    let mut deleted = 0;
    loop {
        let (count, more) = store.empty_bucket(bucket).await.map_err(|error| {
            if deleted > 0 {
                note(&format!("{deleted} entries were deleted before the store failed"));
            }
            Fault::unsure(error, "some of the others", "deleted")
        })?;
        deleted += count;
        if !more {
            break;
        }
    }
    say_deleted(context, bucket, deleted);
    Ok(())
}

fn say_deleted(context: &mut Context, bucket: &Name, deleted: u64) {
    #[derive(Serialize)]
    struct Deleted<'a> {
        bucket: &'a str,
        deleted: u64,
    }
    if context.out.json() {
        context.out.value(&Deleted { bucket: bucket.as_str(), deleted });
    } else {
        context.out.line(&format!("{deleted} deleted"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_no_text_comes_as_base64() {
        let bucket = Name::new("b").expect("a name");
        let json = |value: &'static [u8]| {
            let found = StateValue { value: value.into(), version: 7 };
            serde_json::to_string(&EntryOut::new(&bucket, "k", &found)).expect("serialises")
        };
        assert_eq!(json(b"1"), r#"{"bucket":"b","key":"k","value":"1","version":7}"#);
        assert_eq!(json(b"\xff"), r#"{"bucket":"b","key":"k","value_base64":"/w==","version":7}"#);
    }
}
