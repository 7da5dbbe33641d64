//! Closing the books of a scenario: what was acknowledged against what the store holds, and against what ran.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde_json::Value;

use super::ledger::{Answer, Excuse, Ledger, Order, Run, Step};

/// A job is claimed by the store's clock, and started up to so much later, in microseconds: a step in between does not count.
const LOOKED_AHEAD_US: u64 = 200_000;
/// The clock of a file system goes in ticks.
const TICK_US: i64 = 10_000;
const SHOWN: usize = 30;

/// What the books say when they balance.
#[derive(Debug, Default)]
pub struct Balance {
    pub taken: usize,
    pub unsure: usize,
    pub refused: usize,
    /// Gone with the store's last moments.
    pub forgotten: usize,
    pub completed: usize,
    pub dead: usize,
    /// Of the dead, those whose runners were killed too often.
    pub lost: usize,
    pub runs: usize,
    /// Runs that came after another of the same job for no other reason than a fault.
    pub again: usize,
    /// The longest from when a job was due, or its enqueue answered, to its first run.
    pub latest_ms: u64,
    /// Which that was.
    pub latest: String,
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} taken, {} unsure, {} refused, {} forgotten; {} completed, {} dead ({} lost with their runners); {} runs, {} of them again; \
             the latest start {} ms after its due time",
            self.taken,
            self.unsure,
            self.refused,
            self.forgotten,
            self.completed,
            self.dead,
            self.lost,
            self.runs,
            self.again,
            self.latest_ms
        )
    }
}

/// The books of one scenario.
struct Books<'a> {
    ledger: &'a Ledger,
    excuses: Vec<Excuse>,
    steps: Vec<Step>,
    complaints: Vec<String>,
    balance: Balance,
}

/// Compares everything. `records` is what the store lists, once nothing of it waits or runs any more.
///
/// # Panics
/// With each thing that does not agree.
#[track_caller]
pub fn balance(ledger: &Ledger, records: &[Value]) -> Balance {
    let (balance, complaints) = compare(ledger, records);
    let shown = complaints.iter().take(SHOWN).map(|text| format!("\n  {text}")).collect::<String>();
    assert!(complaints.is_empty(), "{} things do not balance ({balance}):{shown}", complaints.len());
    balance
}

/// What the books say, and all that does not agree.
fn compare(ledger: &Ledger, records: &[Value]) -> (Balance, Vec<String>) {
    let mut books = Books {
        ledger,
        excuses: ledger.excuses(),
        steps: ledger.steps(),
        complaints: ledger.complaints(),
        balance: Balance::default(),
    };
    let orders = ledger.orders();
    let mut runs: HashMap<String, Vec<Run>> = HashMap::new();
    for run in ledger.runs() {
        runs.entry(run.key.clone()).or_default().push(run);
    }
    let mut held: HashMap<String, &Value> = HashMap::new();
    let mut children: HashMap<String, usize> = HashMap::new();
    for record in records {
        let key = key_of(record);
        // A parent whose end the store has lost ends again, and has another child beside one that a runner had in hand: so
        // each child has an end of its own.
        let has_own_end = key.strip_suffix('+').filter(|_| ledger.was_cut()).is_some_and(|parent| {
            let ends = runs.get(parent).map_or(0, |runs| runs.iter().filter(|run| is_done(run)).count());
            let count = children.entry(key.clone()).or_default();
            *count += 1;
            *count <= ends
        });
        if let Some(other) = held.insert(key.clone(), record)
            && !has_own_end
        {
            books.complain(format!("{key} is there twice: {} and {}", other["id"], record["id"]));
        }
    }
    let mut known = HashSet::new();
    for order in &orders {
        known.insert(order.key.clone());
        books.order(
            order,
            held.get(&order.key).copied(),
            runs.get(&order.key).map_or(&[][..], Vec::as_slice),
        );
        if order.child {
            let child = format!("{}+", order.key);
            books.child(order, held.get(&order.key).copied(), held.get(&child).copied(), runs.get(&child));
            known.insert(child);
        }
    }
    for key in held.keys().chain(runs.keys()).filter(|key| !known.contains(*key)) {
        books.complain(format!("{key}: nobody has asked for it"));
    }
    (books.balance, books.complaints)
}

/// The test's own name of a job that the store lists.
fn key_of(record: &Value) -> String {
    let payload: Value =
        record["payload"].as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    payload["key"].as_str().unwrap_or("a job without a key").to_owned()
}

impl Books<'_> {
    fn complain(&mut self, what: String) {
        self.complaints.push(what);
    }

    fn order(&mut self, order: &Order, record: Option<&Value>, runs: &[Run]) {
        match order.answer {
            Answer::Taken => self.balance.taken += 1,
            Answer::Unsure => self.balance.unsure += 1,
            Answer::Refused => self.balance.refused += 1,
        }
        let key = &order.key;
        match (order.answer, record) {
            _ if record.is_none() && self.ledger.may_be_forgotten(order) => self.balance.forgotten += 1,
            (Answer::Taken, None) => {
                self.complain(format!("{key} was taken and is not there; {}", told(runs)))
            }
            (Answer::Refused, Some(record)) => {
                self.complain(format!("{key} was refused and is {}; {}", record["state"], told(runs)));
            }
            (_, None) if !runs.is_empty() => self.complain(format!("{key} is not there, but {}", told(runs))),
            _ => {}
        }
        self.in_turn(key, runs);
        self.never_early(order, runs);
        if let Some(record) = record {
            self.ended(key, order.dies, record, runs);
        }
    }

    fn child(
        &mut self,
        order: &Order,
        parent: Option<&Value>,
        child: Option<&Value>,
        runs: Option<&Vec<Run>>,
    ) {
        let runs = runs.map_or(&[][..], Vec::as_slice);
        let key = format!("{}+", order.key);
        match (parent.is_some_and(|parent| parent["state"] == "completed"), child) {
            (true, None) => self.complain(format!("{key}: its parent has completed, and it is not there")),
            // A runner had the child in hand when the store forgot both, and brought it back.
            (false, Some(_)) if parent.is_none() && self.ledger.may_be_forgotten(order) => {}
            (false, Some(_)) => self.complain(format!("{key} is there, and its parent has not completed")),
            _ => {}
        }
        self.in_turn(&key, runs);
        if let Some(child) = child {
            self.ended(&key, false, child, runs);
        }
    }

    /// The job is in one final state, which its runs explain.
    fn ended(&mut self, key: &str, dies: bool, record: &Value, runs: &[Run]) {
        self.balance.runs += runs.len();
        // A child that the store has forgotten comes with its parent's next run, and has another id.
        let other =
            |run: &&Run| record["id"] != run.id.as_str() && !(key.ends_with('+') && self.excused(run, run));
        if let Some(other) = runs.iter().find(other) {
            self.complain(format!("{key} is {} and ran as {}", record["id"], other.id));
        }
        let ended = |how: &str| runs.iter().any(|run| run.end.as_ref().is_some_and(|(_, end)| end == how));
        match record["state"].as_str().unwrap_or_default() {
            "completed" => {
                self.balance.completed += 1;
                let result: Value = record["result"]
                    .as_str()
                    .and_then(|text| serde_json::from_str(text).ok())
                    .unwrap_or_default();
                let of_this = |run: &Run| result["nonce"] == run.nonce.as_str() && is_done(run);
                if dies || !runs.iter().any(of_this) {
                    self.complain(format!("{key} is completed with {result}, but {}", told(runs)));
                }
            }
            "dead" if record["error"]["reason"] == "lost" => {
                self.balance.dead += 1;
                self.balance.lost += 1;
                if record["crashes"].as_u64().unwrap_or(0) < 3 {
                    self.complain(format!("{key} is given up as lost after {} crashes", record["crashes"]));
                }
            }
            "dead" => {
                self.balance.dead += 1;
                if !dies || !ended("dies") {
                    self.complain(format!("{key} is dead ({}), but {}", record["error"], told(runs)));
                }
            }
            other => self.complain(format!("{key} is {other}, and nothing goes on; {}", told(runs))),
        }
    }

    /// A run after another has a reason: the one before failed as planned, or a fault took it or its outcome.
    fn in_turn(&mut self, key: &str, runs: &[Run]) {
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            let failed = before.end.as_ref().is_some_and(|(at, how)| how == "fails" && *at <= after.start_us);
            // Attempts in between may have been lost before their guests began.
            if failed && after.attempt > before.attempt {
                continue;
            }
            self.balance.again += 1;
            if !self.excused(before, after) {
                self.complain(format!("{key} ran again without a reason: {}", told(runs)));
            }
        }
    }

    /// Whether a fault was about while `run` was under way, or its outcome.
    fn excused(&self, run: &Run, next: &Run) -> bool {
        let until = run.end.as_ref().map_or(next.start_us, |(at, _)| at + self.ledger.settled_within_us);
        let about = |runner: &str, from_us: u64, to_us: u64| {
            let of = |excuse: &&Excuse| excuse.runner.as_ref().is_none_or(|named| named == runner);
            self.excuses.iter().filter(of).any(|excuse| excuse.from_us <= to_us && excuse.to_us >= from_us)
        };
        // Or the next one's runner had claimed the job first, and was stopped before it could begin.
        about(&run.runner, run.start_us, until)
            || (next.attempt < run.attempt && about(&next.runner, run.start_us, next.start_us))
    }

    /// By the store's clock, which is this process's but for the steps that were made.
    fn never_early(&mut self, order: &Order, runs: &[Run]) {
        let slack = if self.ledger.by_files { TICK_US } else { 0 };
        let due = order.asked_us as i64
            + self.offsets(order.asked_us, order.answered_us).min().unwrap_or(0)
            + order.delay_ms as i64 * 1_000;
        // A retry is due when its attempt says so.
        let failed = |run: &Run| run.end.as_ref().is_some_and(|(_, how)| how == "fails");
        for run in &runs[..runs.iter().position(failed).map_or(runs.len(), |first| first + 1)] {
            let start = run.start_us as i64
                + self.offsets(run.start_us.saturating_sub(LOOKED_AHEAD_US), run.start_us).max().unwrap_or(0);
            if start + slack < due {
                self.complain(format!("{} ran {} us early: {}", order.key, due - start, told(runs)));
            }
        }
        if let Some(first) = runs.first() {
            let from = self.reached(order);
            let late_ms = first.start_us.saturating_sub(from) / 1_000;
            if late_ms > self.balance.latest_ms {
                (self.balance.latest_ms, self.balance.latest) =
                    (late_ms, format!("{order:?}, due at {from}; {}", told(runs)));
            }
        }
    }

    /// When the store's clock came to the order's due time at the latest, by this process's.
    fn reached(&self, order: &Order) -> u64 {
        let offset = self.offsets(order.asked_us, order.answered_us).max().unwrap_or(0);
        let due = order.answered_us as i64 + offset + order.delay_ms as i64 * 1_000;
        // The clock goes on between steps: the first span in which it is so far.
        let now = self.steps.iter().rposition(|step| step.from_us <= order.asked_us);
        let first = now.map_or(Step { from_us: 0, offset_us: 0 }, |now| self.steps[now]);
        let later = &self.steps[now.map_or(0, |now| now + 1)..];
        let ends = later.iter().map(|step| step.from_us).chain([u64::MAX]);
        let spans = std::iter::once(&first).chain(later).zip(ends);
        let found = spans.map(|(step, end)| ((due - step.offset_us).max(step.from_us as i64) as u64, end));
        found.into_iter().find(|(at, end)| at < end).map_or(u64::MAX, |(at, _)| at)
    }

    /// How far the store's clock was from this process's at any moment of a span.
    fn offsets(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = i64> {
        let first = self.steps.iter().rposition(|step| step.from_us <= from_us);
        let before = if first.is_none() { Some(0) } else { None };
        let steps = self.steps[first.unwrap_or(0)..].iter().filter(move |step| step.from_us <= to_us);
        before.into_iter().chain(steps.map(|step| step.offset_us))
    }
}

/// Runs in words.
fn told(runs: &[Run]) -> String {
    if runs.is_empty() {
        return "it never ran".to_owned();
    }
    let runs = runs.iter().map(|run| match &run.end {
        Some((at, how)) => {
            format!(
                "attempt {} by {} at {}, {how} after {} us",
                run.attempt,
                run.runner,
                run.start_us,
                at - run.start_us
            )
        }
        None => format!("attempt {} by {} at {}, cut short", run.attempt, run.runner, run.start_us),
    });
    format!("it ran: {}", runs.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests;

/// Whether a run came to a good end.
fn is_done(run: &Run) -> bool {
    run.end.as_ref().is_some_and(|(_, how)| how == "done")
}
