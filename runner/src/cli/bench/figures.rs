//! Figures by name, once a round, and what they come to: the median, and how far the rounds were apart.

use crate::cli::args_bench::Part;

/// What a round of a part gave. A name ends in its unit: `_per_second`, `_seconds`, `_ms`, `_bytes`; others are numbers.
pub(super) type Figures = Vec<(&'static str, f64)>;

/// What a part came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measurement {
    pub(super) part: Part,
    /// How many figures of each name there were.
    pub(super) samples: usize,
    /// In the order of the first round.
    pub(super) rows: Vec<Row>,
}

/// One figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Measurement {
    /// Each round has the same names.
    pub(super) fn new(part: Part, rounds: &[Figures]) -> Self {
        let names = rounds.first().into_iter().flatten().map(|(name, _)| *name);
        let rows = names.map(|name| {
            let all = rounds.iter().flatten().filter(|(of, _)| *of == name);
            let mut values: Vec<f64> = all.map(|(_, value)| *value).collect();
            values.sort_by(f64::total_cmp);
            let last = values.len() - 1;
            // Of an even number of rounds, the middle of the two in the middle.
            let median = f64::midpoint(values[last / 2], values[values.len() / 2]);
            Row { name, median, min: values[0], max: values[last] }
        });
        Self { part, samples: rounds.len(), rows: rows.collect() }
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The median of a figure.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        self.row(name).map(|row| row.median)
    }

    /// The largest of a figure.
    pub(super) fn max(&self, name: &str) -> Option<f64> {
        self.row(name).map(|row| row.max)
    }
}

/// The value below which this share of them is; `sorted` from the smallest on. 0 when there is none.
pub(super) fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
}

/// A figure as people write it, with its unit.
pub(super) fn shown(name: &str, value: f64) -> String {
    let whole = |value: f64| {
        let digits = format!("{value:.0}");
        let mut text = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    };
    if name.ends_with("_per_second") {
        format!("{}/s", whole(value))
    } else if name.ends_with("_seconds") {
        format!("{value:.2} s")
    } else if name.ends_with("_ms") {
        format!("{value:.2} ms")
    } else if name.ends_with("_bytes") && value >= f64::from(1 << 20) {
        format!("{:.1} MiB", value / f64::from(1 << 20))
    } else if name.ends_with("_bytes") {
        format!("{} B", whole(value))
    } else if name == "ratio" {
        format!("{value:.3}")
    } else {
        whole(value)
    }
}

/// What a figure is, in words: its name without its unit.
pub(super) fn words(name: &str) -> String {
    let unit = ["_per_second", "_seconds", "_ms", "_bytes"].into_iter().find(|unit| name.ends_with(unit));
    name.strip_suffix(unit.unwrap_or_default()).unwrap_or(name).replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_min_and_max_are_told() {
        let rounds = |values: &[f64]| values.iter().map(|value| vec![("a_ms", *value)]).collect::<Vec<_>>();
        let row = |values: &[f64]| Measurement::new(Part::Reload, &rounds(values)).rows[0];
        assert_eq!(row(&[3.0, 1.0, 2.0]), Row { name: "a_ms", median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(row(&[4.0, 1.0]).median, 2.5);
        assert_eq!(row(&[4.0]).median, 4.0);
        let all: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!((at(&all, 0.5), at(&all, 0.99), at(&all, 1.0), at(&[], 0.5)), (50.0, 99.0, 100.0, 0.0));
    }

    #[test]
    fn figures_are_written_with_their_units() {
        for (name, value, text) in [
            ("jobs_per_second", 45_678.4, "45,678/s"),
            ("jobs", 1_000_000.0, "1,000,000"),
            ("idle_p99_ms", 1.236, "1.24 ms"),
            ("scheduled_job_bytes", 398.2, "398 B"),
            ("runner_idle_bytes", 31_457_280.0, "30.0 MiB"),
            ("ratio", 0.9876, "0.988"),
            ("ran_seconds", 60.0, "60.00 s"),
        ] {
            assert_eq!(shown(name, value), text);
        }
        assert_eq!(words("enqueue_bulk_per_second"), "enqueue bulk");
    }
}
