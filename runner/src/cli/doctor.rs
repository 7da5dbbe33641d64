//! `doctor`: whether everything in the store is as it should be, and mending what is not.

use super::context::Context;
use super::exit::{Code, Fault};
use super::listing;
use super::output::{Out, note, plain};
use crate::queue::{Finding, Store};

/// Runs `doctor`.
pub(super) async fn run(context: &mut Context, repair: bool) -> Result<Code, Fault> {
    let store = context.store()?;
    let findings = store.doctor(repair).await.map_err(|error| {
        if repair {
            note("some things may have been repaired before the store failed: run it again");
        }
        Fault::from(error)
    })?;
    say_set_aside(&*store).await;
    let left = findings.iter().filter(|finding| finding.repaired.is_none()).count();
    if !findings.is_empty() {
        note(&summary(findings.len(), left, repair));
    }
    if context.out.json() {
        listing::whole(context, findings);
    } else {
        print(&mut context.out, &findings);
    }
    Ok(if left == 0 { Code::Done } else { Code::Failed })
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

fn print(out: &mut Out, findings: &[Finding]) {
    if findings.is_empty() {
        out.line("nothing is wrong");
    }
    for Finding { check, place, message, repaired } in findings {
        let done = repaired.as_ref().map(|done| format!(" ({})", plain(done))).unwrap_or_default();
        out.line(&format!("{check}: {}: {}{done}", plain(place), plain(message)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::captured;

    #[test]
    fn a_finding_is_a_line_whatever_it_holds() {
        let finding = |place: &str, repaired: Option<&str>| {
            let repaired = repaired.map(str::to_owned);
            Finding::new("lost-job", place.to_owned(), "it is in no index".to_owned(), repaired)
                .expect("a check")
        };
        let (mut out, captured) = captured(false, None);
        print(&mut out, &[finding("job a\nb of queue q", None), finding("job c", Some("put back"))]);
        print(&mut out, &[]);
        out.flush();
        assert_eq!(
            captured.text(),
            "lost-job: job a\\nb of queue q: it is in no index\nlost-job: job c: it is in no index (put back)\n\
             nothing is wrong\n"
        );
    }

    #[test]
    fn the_summary_says_what_is_left() {
        assert_eq!(summary(3, 0, true), "all 3 repaired");
        assert_eq!(summary(3, 1, true), "2 of 3 repaired, 1 left");
        assert!(summary(3, 3, false).starts_with("3 found: doctor --repair"));
    }
}
