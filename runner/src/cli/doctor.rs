//! `doctor`: how the store's server is set up and doing, whether everything in the store is as it should be, and mending
//! what is not; and with `--smoke` whether a job really runs, and on time.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use self::smoke::SmokeOut;
use super::args::DoctorArgs;
use super::context::{Context, flag};
use super::exit::{Code, Fault};
use super::output::note;
use crate::queue::examination::{Facts, Value};
use crate::queue::{Examination, Finding, Severity, Store, StoreError};
use crate::wire::units;

mod report;
mod smoke;

/// How long a smoke job may take to end after its due time.
const SMOKE_WITHIN_MS: u64 = 30_000;

/// Everything that the doctor has to say.
#[derive(Debug, Serialize)]
struct DoctorOut {
    items: Vec<Finding>,
    /// As every list has it; this one is whole.
    cursor: Option<String>,
    server: Facts,
    #[serde(skip_serializing_if = "Option::is_none")]
    smoke: Option<SmokeOut>,
}

/// Runs `doctor`.
pub(super) async fn run(context: &mut Context, args: &DoctorArgs) -> Result<Code, Fault> {
    let within = args.within.as_deref().map(units::duration_ms).transpose();
    let within_ms = within.map_err(|error| flag("--within", &error))?.unwrap_or(SMOKE_WITHIN_MS);
    // The smoke job may be the first thing that is put into the store.
    let store = if args.smoke.is_some() { context.store_or_new()? } else { context.store()? };
    let (server, data) = look(&*store, args.repair).await?;
    say_set_aside(&*store).await;
    let left = data.iter().filter(|finding| finding.is_open_error()).count();
    let damages = data.iter().filter(|finding| finding.severity == Severity::Error).count();
    if damages > 0 {
        note(&summary(damages, left, args.repair));
    }
    let mut out = DoctorOut { items: data, cursor: None, server: server.facts, smoke: None };
    out.items.extend(server.findings);
    if let Some(kind) = &args.smoke {
        let store: Arc<dyn Store> = store;
        let within = Duration::from_millis(within_ms);
        let (smoke, found) = smoke::run(context, &store, kind.as_ref(), within).await?;
        out.smoke = smoke;
        out.items.extend(found);
    }
    let fails =
        |finding: &Finding| finding.is_open_error() || args.strict && finding.severity == Severity::Warning;
    let code = if out.items.iter().any(fails) { Code::Failed } else { Code::Done };
    if context.out.json() {
        context.out.value(&out);
    } else {
        report::print(&mut context.out, &out);
    }
    Ok(code)
}

/// Looks at the server and at the data. What the server refuses may explain why the data cannot be looked at.
async fn look(store: &dyn Store, repair: bool) -> Result<(Examination, Vec<Finding>), Fault> {
    let (mut server, refused) = match store.examine().await {
        Ok(examination) => (examination, None),
        // The look at the data may tell why, and whether it can be mended.
        Err(error @ StoreError::Refused(_)) => (Examination::default(), Some(error)),
        Err(error) => return Err(error.into()),
    };
    let place = match server.facts.get("store") {
        Some(Value::Text(place)) => place.clone(),
        _ => store.describe(),
    };
    match store.doctor(repair).await {
        Ok(data) => {
            if data.iter().any(|finding| finding.repaired.is_some()) {
                // What stood in the way of a call may be gone.
                server = store.examine().await?;
            } else if let Some(error) = refused {
                server.explain(error, "how it is set up cannot be looked at", &place)?;
            }
            Ok((server, data))
        }
        Err(error) => {
            if repair {
                note("some things may have been repaired before the store failed: run it again");
            }
            if refused.is_some() || server.findings.is_empty() {
                return Err(error.into());
            }
            server.explain(error, "what is in it cannot be looked at", &place)?;
            Ok((server, Vec::new()))
        }
    }
}

/// What was set aside earlier is not wrong any more, but somebody should know of it. A store of which the counts cannot be
/// read has findings that say why.
async fn say_set_aside(store: &dyn Store) {
    let Ok(counts) = store.counts().await else { return };
    for (count, what) in [(counts.orphans, "orphans"), (counts.quarantined, "entries in quarantine")] {
        if count > 0 {
            note(&format!("warning: the store has set aside {count} {what}"));
        }
    }
}

fn summary(all: usize, left: usize, repair: bool) -> String {
    match (left, repair) {
        (0, _) => format!("all {all} repaired"),
        (_, true) => format!("{} of {all} repaired, {left} left", all - left),
        (_, false) => format!("{all} found: doctor --repair mends what can be mended, and deletes nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_what_is_left() {
        assert_eq!(summary(3, 0, true), "all 3 repaired");
        assert_eq!(summary(3, 1, true), "2 of 3 repaired, 1 left");
        assert!(summary(3, 3, false).starts_with("3 found: doctor --repair"));
    }
}
