//! What the doctor found, for people.

use super::DoctorOut;
use super::smoke::SmokeOut;
use crate::cli::output::{Out, plain};
use crate::cli::table::Table;
use crate::queue::examination::Value;
use crate::queue::finding::REPAIR;
use crate::queue::{Finding, Severity};

pub(super) fn print(out: &mut Out, said: &DoctorOut) {
    if !said.server.0.is_empty() {
        let mut table = Table::new(&["fact", "value"]);
        for (name, value) in &said.server.0 {
            let (name, value) = shown(name, value);
            table.row([name, value]);
        }
        table.print(out, "");
        out.line("");
    }
    if let Some(smoke) = &said.smoke {
        out.line(&smoke_line(smoke));
    }
    for finding in &said.items {
        print_finding(out, finding);
    }
    let is_warning = |finding: &&Finding| finding.severity == Severity::Warning;
    let warnings = said.items.iter().filter(is_warning).count();
    match (said.items.len() - warnings, warnings) {
        (0, 0) => out.line("nothing is wrong"),
        (0, 1) => out.line("nothing is wrong; 1 warning"),
        (0, n) => out.line(&format!("nothing is wrong; {n} warnings")),
        _ => {}
    }
}

fn print_finding(out: &mut Out, finding: &Finding) {
    let Finding { check, severity, place, message, fix, repaired } = finding;
    let grade = if *severity == Severity::Warning { "warning: " } else { "" };
    let done = repaired.as_ref().map(|done| format!(" ({})", plain(done))).unwrap_or_default();
    out.line(&format!("{grade}{check}: {}: {}{done}", plain(place), plain(message)));
    // That of damage is said once, for all, and what stands in the message already is not said again.
    if let Some(fix) = fix.as_ref().filter(|fix| *fix != REPAIR && !message.contains(fix.as_str())) {
        out.line(&format!("  fix: {}", plain(fix)));
    }
}

/// A fact as people write it: the unit with the value.
fn shown(name: &str, value: &Value) -> (String, String) {
    let unit = ["_bytes", "_ms", "_s"].into_iter().find(|unit| name.ends_with(unit));
    let text = match (value, unit) {
        (Value::Text(text), _) if text.is_empty() => "none".to_owned(),
        (Value::Text(text), _) => text.clone(),
        (Value::Number(bytes), Some("_bytes")) => size(*bytes),
        (Value::Number(number), Some("_s")) => format!("{number} s"),
        (Value::Number(number), _) => number.to_string(),
        (Value::Decimal(number), Some("_ms")) => format!("{number:.3} ms"),
        (Value::Decimal(number), _) => format!("{number:.1}"),
    };
    let name = name.strip_suffix(unit.unwrap_or_default()).unwrap_or(name);
    (name.replace('_', " "), text)
}

fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

fn smoke_line(smoke: &SmokeOut) -> String {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "?".to_owned(), |ms| format!("{ms:.1}"));
    let at = smoke.runner.as_ref().map(|runner| format!(" on {}", plain(runner))).unwrap_or_default();
    format!(
        "smoke: a job of kind {} {}{at}: {} ms late, ran for {} ms, settled {} ms after its due time; {} ms in all",
        smoke.kind,
        smoke.state.map_or("has not ended", |state| state.as_str()),
        ms(smoke.lateness_ms),
        ms(smoke.duration_ms),
        ms(smoke.settled_ms),
        ms(Some(smoke.total_ms))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::captured;
    use crate::queue::examination::Facts;

    fn said(items: Vec<Finding>, server: Facts) -> String {
        let (mut out, captured) = captured(false, None);
        print(&mut out, &DoctorOut { items, cursor: None, server, smoke: None });
        out.flush();
        captured.text()
    }

    #[test]
    fn a_finding_is_a_line_whatever_it_holds_and_its_fix_another() {
        let finding = |place: &str, repaired: Option<&str>| {
            let repaired = repaired.map(str::to_owned);
            Finding::new("lost-job", place.to_owned(), "it is in no index".to_owned(), repaired)
                .expect("a check")
        };
        let warning = Finding::around("clock", Severity::Warning, "there", "it is late", "wind it");
        let items =
            vec![finding("job a\nb of queue q", None), finding("job c", Some("put back")), warning.clone()];
        assert_eq!(
            said(items, Facts::default()),
            "lost-job: job a\\nb of queue q: it is in no index\nlost-job: job c: it is in no index (put back)\n\
             warning: clock: there: it is late\n  fix: wind it\n"
        );
        assert_eq!(said(Vec::new(), Facts::default()), "nothing is wrong\n");
        let text = said(vec![warning], Facts::default());
        assert!(text.ends_with("\nnothing is wrong; 1 warning\n"), "{text}");
    }

    #[test]
    fn facts_have_their_units() {
        let facts = vec![
            ("version", Value::Text("7.0".to_owned())),
            ("snapshots", Value::Text(String::new())),
            ("keys", Value::Number(7)),
            ("file_bytes", Value::Number(3 << 19)),
            ("log_bytes", Value::Number(0)),
            ("up_s", Value::Number(9)),
            ("claim_max_ms", Value::Decimal(0.25)),
        ];
        let text = said(Vec::new(), Facts(facts));
        let lines: Vec<Vec<&str>> =
            text.lines().map(|l| l.split("  ").filter(|w| !w.is_empty()).map(str::trim).collect()).collect();
        assert_eq!(
            lines[1..8],
            [
                ["version", "7.0"],
                ["snapshots", "none"],
                ["keys", "7"],
                ["file", "1.5 MiB"],
                ["log", "0 B"],
                ["up", "9 s"],
                ["claim max", "0.250 ms"]
            ]
        );
    }
}
