//! The answer: figures with what they depend on.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::budget::{self, Judged, On};
use super::figures::{self, Measurement};
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
    handler_bytes: usize,
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
            handler_bytes: handler.module.len(),
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
        let mut answer = Map::new();
        answer.insert("settings".to_owned(), json!(settings));
        answer.insert("machine".to_owned(), json!(machine));
        answer.insert("store".to_owned(), json!(facts));
        for measurement in measured {
            answer.insert(word(measurement.part).to_owned(), value(measurement));
        }
        if let Some(judged) = judged {
            answer.insert("budget".to_owned(), json!(judged));
        }
        out.value(&Value::Object(answer));
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

/// One object a part: the medians by name, and how far the rounds were apart.
fn value(measurement: &Measurement) -> Value {
    let rounded = |value: f64| json!((value * 1_000.0).round() / 1_000.0);
    let mut part: Map<String, Value> = Map::new();
    let (mut min, mut max) = (Map::new(), Map::new());
    for row in &measurement.rows {
        part.insert(row.name.to_owned(), rounded(row.median));
        min.insert(row.name.to_owned(), rounded(row.min));
        max.insert(row.name.to_owned(), rounded(row.max));
    }
    part.insert("min".to_owned(), Value::Object(min));
    part.insert("max".to_owned(), Value::Object(max));
    part.insert("measured".to_owned(), measurement.rounds.into());
    Value::Object(part)
}

fn facts_table(settings: &Settings, machine: &MachineOut, facts: &Facts) -> Table {
    let mut table = Table::new(&["measured with", ""]);
    let mut all: Vec<(String, Value)> = Vec::new();
    let of = |value: Value| match value {
        Value::Object(entries) => entries.into_iter().collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    all.extend(of(json!(machine)));
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
