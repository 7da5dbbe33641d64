//! The answer: figures with what they depend on.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::budget::{self, Judged, On};
use super::figures::{self, Measurement, Row};
use super::machine::MachineOut;
use super::plan::Plan;
use crate::cli::args_bench::Part;
use crate::cli::output::Out;
use crate::cli::table::Table;
use crate::queue::examination::{self, Facts};
use crate::queue::sqlite::Durability;

/// Facts of a store that figures depend on.
const STORE_FACTS: [&str; 10] = [
    "version",
    "persistence",
    "appendfsync",
    "aof_rewrite_percentage",
    "aof_rewrite_min_bytes",
    "snapshots",
    "durability",
    "journal",
    "file_system",
    "round_trip_median_ms",
];

/// What was measured with.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Settings {
    seed: u64,
    jobs: usize,
    backlog: usize,
    rounds: u32,
    seconds: Option<u32>,
    payload_bytes: usize,
    concurrency: u32,
    kind: String,
    handler: String,
    handler_file: Option<String>,
    module_bytes: usize,
}

impl Settings {
    pub(super) fn new(plan: &Plan, concurrency: u32) -> Self {
        let handler = &plan.handler;
        Self {
            seed: plan.seed,
            jobs: plan.jobs,
            backlog: plan.backlog,
            rounds: plan.rounds,
            seconds: plan.seconds,
            payload_bytes: plan.payload_bytes(),
            concurrency,
            kind: handler.kind.to_string(),
            handler: handler.hash.clone(),
            handler_file: (!handler.built_in).then(|| format!("{}.wasm", handler.stem)),
            module_bytes: handler.module.len(),
        }
    }
}

/// The word for a part, as it is typed.
pub(super) fn word(part: Part) -> &'static str {
    match part {
        Part::Throughput => "throughput",
        Part::Lateness => "lateness",
        Part::Backlog => "backlog",
        Part::Memory => "memory",
        Part::Recovery => "recovery",
        Part::Duplicates => "duplicates",
        Part::Reload => "reload",
        Part::All => "all",
    }
}

/// Prints what was measured.
pub(super) fn print(
    out: &mut Out,
    settings: &Settings,
    facts: &Facts,
    measured: &[Measurement],
    with_budget: bool,
) {
    let machine = MachineOut::read(settings.concurrency);
    let judged = with_budget.then(|| budget::judge(measured, store_of(facts)));
    if out.json() {
        out.value(&Answer { settings, machine: &machine, facts, measured, judged: judged.as_deref() });
        return;
    }
    facts_table(settings, &machine, facts).print(out, "");
    out.line("");
    let mut table = Table::new(&["part", "figure", "median", "min", "max"]);
    for measurement in measured {
        for row in &measurement.rows {
            let shown = |value| figures::shown(row.name, value);
            table.row([
                word(measurement.part).to_owned(),
                figures::words(row.name),
                shown(row.median),
                shown(row.min),
                shown(row.max),
            ]);
        }
    }
    table.print(out, "");
    if let Some(judged) = judged {
        out.line("");
        budget_table(&judged).print(out, "the budget has nothing about these parts");
    }
    if machine.build == "debug" {
        out.line("");
        out.line("this is a debug build: its figures say nothing of a release build");
    }
}

/// All of it, with one object a part.
struct Answer<'a> {
    settings: &'a Settings,
    machine: &'a MachineOut,
    facts: &'a Facts,
    measured: &'a [Measurement],
    judged: Option<&'a [Judged]>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("settings", self.settings)?;
        map.serialize_entry("machine", self.machine)?;
        map.serialize_entry("store", self.facts)?;
        for measurement in self.measured {
            map.serialize_entry(word(measurement.part), measurement)?;
        }
        if let Some(judged) = self.judged {
            map.serialize_entry("budget", judged)?;
        }
        map.end()
    }
}

/// The medians by name, how far the rounds were apart, and how many there were.
impl Serialize for Measurement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for row in &self.rows {
            map.serialize_entry(row.name, &number(row.median))?;
        }
        map.serialize_entry("min", &Named(&self.rows, |row| row.min))?;
        map.serialize_entry("max", &Named(&self.rows, |row| row.max))?;
        map.serialize_entry("samples", &self.samples)?;
        map.end()
    }
}

/// One value of each row, by name.
struct Named<'a>(&'a [Row], fn(&Row) -> f64);

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|row| (row.name, number(self.1(row)))))
    }
}

/// To three places; what is whole is written so.
pub(super) fn number(value: f64) -> Value {
    let rounded = (value * 1_000.0).round() / 1_000.0;
    if rounded.fract() == 0.0 { json!(rounded as i64) } else { json!(rounded) }
}

fn facts_table(settings: &Settings, machine: &MachineOut, facts: &Facts) -> Table {
    let mut table = Table::new(&["measured with", ""]);
    let of = |value: Value| match value {
        Value::Object(entries) => entries.into_iter().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    let mut all = of(json!(machine));
    for name in STORE_FACTS {
        all.extend(facts.get(name).map(|fact| (format!("store_{name}"), json!(fact))));
    }
    all.extend(of(json!(settings)));
    for (name, value) in all {
        let text = match value {
            Value::Null => continue,
            Value::Bool(on) => if on { "on" } else { "off" }.to_owned(),
            Value::String(text) if text.is_empty() => "none".to_owned(),
            Value::String(text) => text,
            // To be typed again.
            Value::Number(number) if name == "seed" => number.to_string(),
            Value::Number(number) => figures::shown(&name, number.as_f64().unwrap_or_default()),
            other => other.to_string(),
        };
        table.row([figures::words(&name), text]);
    }
    table
}

fn budget_table(judged: &[Judged]) -> Table {
    let mut table = Table::new(&["part", "figure", "seen", "must", "aim", "verdict"]);
    for line in judged {
        let bound = |value: f64| format!("{} {}", line.sign, figures::shown(line.figure, value));
        let verdict = match (line.verdict, line.aim_reached) {
            ("ok", Some(true)) => "ok, as aimed for",
            (verdict, _) => verdict,
        };
        table.row([
            line.part.to_owned(),
            figures::words(line.figure),
            figures::shown(line.figure, line.seen),
            bound(line.must),
            line.aim.map_or_else(String::new, bound),
            verdict.to_owned(),
        ]);
    }
    table
}

/// Only an embedded store has a durability.
fn store_of(facts: &Facts) -> On {
    match facts.get("durability") {
        Some(examination::Value::Text(text)) => On::Sqlite(text.parse::<Durability>().unwrap_or_default()),
        _ => On::Redis,
    }
}
