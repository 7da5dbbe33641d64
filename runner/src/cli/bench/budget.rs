//! What Hourhand must reach and aims for, on two cores with the Redis server on the same machine: a no-op SDK handler, 150-byte payload,
//! append-only file every second. What is not measured here (the sandbox alone, an idle runner) has a benchmark of its own.

use serde::{Serialize, Serializer};

use super::figures::Measurement;
use crate::cli::args_bench::Part;
use crate::queue::sqlite::Durability;

/// Of which store a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Any,
    Redis,
    Sqlite(Durability),
}

/// Which side of the bound is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AtLeast,
    AtMost,
}
use Bound::{AtLeast, AtMost};

/// A line: of which part and figure, on which store, what it must reach and aims for.
type Line = (Part, &'static str, On, Bound, f64, Option<f64>);

const MIB: f64 = 1_048_576.0;

const LINES: [Line; 16] = [
    (Part::Throughput, "jobs_per_second", On::Redis, AtLeast, 45_000.0, Some(60_000.0)),
    (Part::Throughput, "jobs_per_second", On::Sqlite(Durability::Normal), AtLeast, 20_000.0, Some(30_000.0)),
    (Part::Throughput, "jobs_per_second", On::Sqlite(Durability::Full), AtLeast, 15_000.0, Some(25_000.0)),
    (Part::Throughput, "enqueue_single_per_second", On::Redis, AtLeast, 8_000.0, None),
    (Part::Throughput, "enqueue_bulk_per_second", On::Redis, AtLeast, 100_000.0, Some(150_000.0)),
    (Part::Lateness, "idle_p50_ms", On::Any, AtMost, 1.0, None),
    (Part::Lateness, "idle_p99_ms", On::Any, AtMost, 2.5, Some(1.0)),
    (Part::Lateness, "loaded_p99_ms", On::Any, AtMost, 20.0, Some(5.0)),
    (Part::Backlog, "ratio", On::Any, AtLeast, 0.95, Some(1.0)),
    (Part::Memory, "scheduled_job_bytes", On::Redis, AtMost, 400.0, Some(370.0)),
    (Part::Memory, "runner_idle_bytes", On::Any, AtMost, 60.0 * MIB, None),
    (Part::Memory, "runner_crowded_bytes", On::Any, AtMost, 400.0 * MIB, None),
    (Part::Duplicates, "duplicate_jobs", On::Any, AtMost, 0.0, None),
    (Part::Duplicates, "duplicate_nonces", On::Any, AtMost, 0.0, None),
    (Part::Duplicates, "missing_jobs", On::Any, AtMost, 0.0, None),
    (Part::Reload, "drop_to_first_job_ms", On::Any, AtMost, 500.0, Some(250.0)),
];

/// A figure beside its bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Judged {
    pub(super) part: &'static str,
    pub(super) figure: &'static str,
    /// The median that was measured.
    #[serde(serialize_with = "as_number")]
    pub(super) seen: f64,
    #[serde(serialize_with = "as_number")]
    pub(super) must: f64,
    #[serde(serialize_with = "as_number_or_null")]
    pub(super) aim: Option<f64>,
    /// `ok`, or `below`: it is not what it must be.
    pub(super) verdict: &'static str,
    /// Whether what is aimed for is reached, where there is such a thing.
    pub(super) aim_reached: Option<bool>,
    /// Before the bounds, for people.
    #[serde(skip)]
    pub(super) sign: &'static str,
}

fn as_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    super::report::number(*value).serialize(serializer)
}

fn as_number_or_null<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(super::report::number).serialize(serializer)
}

/// What was measured of the budget, on a store of this sort.
pub(super) fn judge(measured: &[Measurement], store: On) -> Vec<Judged> {
    let lines = LINES.iter().filter(|(_, _, on, ..)| *on == On::Any || *on == store);
    lines
        .filter_map(|&(part, figure, _, bound, must, aim)| {
            let seen = measured.iter().find(|one| one.part == part)?.median(figure)?;
            let reaches = |wanted: f64| match bound {
                AtLeast => seen >= wanted,
                AtMost => seen <= wanted,
            };
            Some(Judged {
                part: super::report::word(part),
                figure,
                seen,
                must,
                aim,
                verdict: if reaches(must) { "ok" } else { "below" },
                aim_reached: aim.map(reaches),
                sign: if bound == AtLeast { "≥" } else { "≤" },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_judged_on_its_side_and_of_its_store() {
        let of = |part, name, value| Measurement::new(part, &[vec![(name, value)]]);
        let measured = [
            of(Part::Throughput, "jobs_per_second", 21_000.0),
            of(Part::Lateness, "idle_p99_ms", 0.9),
            of(Part::Reload, "drop_to_first_job_ms", 501.0),
        ];
        let verdicts = |store| {
            let judged = judge(&measured, store);
            judged.iter().map(|line| (line.figure, line.verdict, line.aim_reached)).collect::<Vec<_>>()
        };
        let rest = [("idle_p99_ms", "ok", Some(true)), ("drop_to_first_job_ms", "below", Some(false))];
        for (store, verdict) in [
            (On::Redis, "below"),
            (On::Sqlite(Durability::Full), "ok"),
            (On::Sqlite(Durability::Normal), "ok"),
        ] {
            let all = [&[("jobs_per_second", verdict, Some(false))], &rest[..]].concat();
            assert_eq!(verdicts(store), all, "{store:?}");
        }
    }
}
