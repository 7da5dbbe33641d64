//! The ledger of a scenario: what was acknowledged, by the command line's exit codes; what ran, by the files that the example
//! `ledger` writes, where no store has a hand in it; and which faults excuse that a job ran again. `balance` compares.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::UNIX_EPOCH;

use hourhand::clock::wall_us;
use serde_json::{Value, json};

use super::dice::Dice;

/// The kind that keeps the ledger.
pub const KIND: &str = "ledger";
/// Where its jobs wait.
pub const QUEUES: [&str; 3] = ["ledger", "ledger-b", "ledger-c"];

/// What became of an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Exit 0: it must end.
    Taken,
    /// Nobody knows: it may be there.
    Unsure,
    /// It must not be there.
    Refused,
}

/// A job as it was asked for.
#[derive(Debug, Clone)]
pub struct Order {
    pub key: String,
    /// It is its id too.
    pub named: bool,
    pub queue: &'static str,
    pub priority: &'static str,
    pub delay_ms: u64,
    pub ms: u64,
    pub spin: bool,
    pub fails: u32,
    pub dies: bool,
    pub child: bool,
    pub pad: usize,
    /// By this process's wall clock, in microseconds since 1970.
    pub asked_us: u64,
    pub answered_us: u64,
    pub answer: Answer,
}

/// How jobs of a scenario are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    pub delay_ms_max: u64,
    pub ms_max: u64,
    /// Some fail at first, some for good, some have a child. Without, each job is one run.
    pub varied: bool,
    /// Bytes that its payload carries for nothing.
    pub pad: usize,
}

impl Default for Mix {
    fn default() -> Self {
        Self { delay_ms_max: 2_000, ms_max: 100, varied: true, pad: 0 }
    }
}

impl Order {
    /// A job that the dice decide.
    pub fn draw(dice: &mut Dice, key: String, mix: Mix) -> Self {
        let dies = mix.varied && dice.percent(3);
        Self {
            key,
            named: dice.percent(60),
            queue: QUEUES[dice.below(3) as usize],
            priority: ["high", "normal", "normal", "low"][dice.below(4) as usize],
            delay_ms: if dice.percent(40) { 0 } else { dice.of(0..=mix.delay_ms_max) },
            ms: dice.of(0..=mix.ms_max),
            spin: dice.percent(5),
            fails: u32::from(mix.varied && dice.percent(8)),
            dies,
            child: mix.varied && !dies && dice.percent(8),
            pad: mix.pad,
            asked_us: 0,
            answered_us: 0,
            answer: Answer::Unsure,
        }
    }

    pub fn payload(&self) -> Value {
        json!({
            "key": self.key, "ms": self.ms, "spin": self.spin, "fails": self.fails, "dies": self.dies, "child": self.child,
            "pad": "x".repeat(self.pad),
        })
    }

    /// Its line of NDJSON.
    pub fn line(&self) -> String {
        let mut line = json!({
            "kind": KIND, "queue": self.queue, "priority": self.priority, "delay": format!("{}ms", self.delay_ms),
            "payload": self.payload(),
        });
        if self.named {
            line["id"] = json!(self.key);
        }
        format!("{line}\n")
    }

    /// The arguments that enqueue it.
    pub fn arguments(&self) -> Vec<String> {
        let (payload, delay) = (self.payload().to_string(), format!("{}ms", self.delay_ms));
        let words = [
            "enqueue",
            KIND,
            &payload,
            "--queue",
            self.queue,
            "--priority",
            self.priority,
            "--delay",
            &delay,
        ];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        if self.named {
            words.extend(["--id".to_owned(), self.key.clone()]);
        }
        words
    }
}

/// A span in which jobs may have been run again, of one runner or of all.
#[derive(Debug, Clone)]
pub struct Excuse {
    pub runner: Option<String>,
    pub from_us: u64,
    pub to_us: u64,
}

/// One run, as the guest has told it.
#[derive(Debug, Clone)]
pub struct Run {
    pub key: String,
    pub attempt: u32,
    pub runner: String,
    pub nonce: String,
    pub id: String,
    pub start_us: u64,
    /// When and how it ended, unless it was cut short.
    pub end: Option<(u64, String)>,
}

/// From when on the store's clock is so far from this process's.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub from_us: u64,
    pub offset_us: i64,
}

/// What happened in a scenario.
#[derive(Default)]
pub struct Ledger {
    dir: PathBuf,
    orders: Mutex<Vec<Order>>,
    excuses: Mutex<Vec<Excuse>>,
    steps: Mutex<Vec<Step>>,
    cuts: Mutex<Vec<(u64, u64)>>,
    /// What went wrong before the books were closed.
    complaints: Mutex<Vec<String>>,
    /// What commands have said when they failed, each once.
    words: Mutex<BTreeSet<String>>,
    /// An outcome may be under way to the store for so long after its run, in microseconds.
    pub settled_within_us: u64,
    /// The runners' wall clocks lie: the file system's is asked instead.
    pub by_files: bool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Ledger {
    /// The guests write into `dir`.
    pub fn new(dir: PathBuf) -> Self {
        fs::create_dir(&dir).expect("a folder for the ledger");
        Self { dir, settled_within_us: 700_000, ..Self::default() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Enters orders that were answered.
    pub fn enter(&self, orders: impl IntoIterator<Item = Order>) {
        lock(&self.orders).extend(orders);
    }

    /// Something that must not happen, whatever else did.
    pub fn complain(&self, what: String) {
        lock(&self.complaints).push(what);
    }

    /// From `from_us` until now jobs of this runner, or of all, may have been run again.
    pub fn excuse(&self, runner: Option<&str>, from_us: u64) {
        self.excuse_until(runner, from_us, wall_us());
    }

    /// The same with another end.
    pub fn excuse_until(&self, runner: Option<&str>, from_us: u64, to_us: u64) {
        lock(&self.excuses).push(Excuse { runner: runner.map(str::to_owned), from_us, to_us });
    }

    /// From now on the store's clock is so far from this process's.
    pub fn stepped(&self, offset_us: i64) {
        lock(&self.steps).push(Step { from_us: wall_us(), offset_us });
    }

    /// The store was killed, and what it was told since `since_us` is gone.
    pub fn cut(&self, since_us: u64, killed_us: u64) {
        lock(&self.cuts).push((since_us, killed_us));
    }

    /// Whether the store was ever killed and had lost what it was told.
    pub fn was_cut(&self) -> bool {
        !lock(&self.cuts).is_empty()
    }

    /// Whether the store may have lost this order with its last moments.
    pub fn may_be_forgotten(&self, order: &Order) -> bool {
        lock(&self.cuts)
            .iter()
            .any(|(since, killed)| order.answered_us >= *since && order.asked_us <= *killed)
    }

    /// What a command that failed has said.
    pub fn heard(&self, said: &str) {
        lock(&self.words).insert(said.lines().next().unwrap_or_default().to_owned());
    }

    /// All that was heard.
    pub fn words(&self) -> BTreeSet<String> {
        lock(&self.words).clone()
    }

    pub fn orders(&self) -> Vec<Order> {
        lock(&self.orders).clone()
    }

    pub fn excuses(&self) -> Vec<Excuse> {
        lock(&self.excuses).clone()
    }

    pub fn steps(&self) -> Vec<Step> {
        lock(&self.steps).clone()
    }

    pub fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }

    /// All runs, by their start.
    pub fn runs(&self) -> Vec<Run> {
        let entries = fs::read_dir(&self.dir).expect("the ledger's folder");
        let mut runs: Vec<Run> = entries.map(|entry| self.run(&entry.expect("an entry"))).collect();
        runs.sort_by_key(|run| run.start_us);
        runs
    }

    fn run(&self, entry: &fs::DirEntry) -> Run {
        let name = entry.file_name().into_string().expect("a name of ours");
        let parts: Vec<&str> = name.splitn(6, '~').collect();
        let [key, attempt, runner, start, nonce, id] = parts[..] else { panic!("{name}: no run") };
        let text = fs::read_to_string(entry.path()).expect("a run");
        let mut start_us = start.parse().expect("a number");
        let mut end = text.split_once(' ').map(|(how, at)| (at.parse().expect("a number"), how.to_owned()));
        if self.by_files {
            let times = entry.metadata().expect("times");
            let us = |time: std::time::SystemTime| {
                time.duration_since(UNIX_EPOCH).expect("now").as_micros() as u64
            };
            start_us = us(times.created().expect("a file system that knows when a file was made"));
            let ended = us(times.modified().expect("a time"));
            end = end.map(|(_, how)| (ended, how));
        }
        Run {
            key: key.to_owned(),
            attempt: attempt.parse().expect("a number"),
            runner: runner.to_owned(),
            nonce: nonce.to_owned(),
            id: id.to_owned(),
            start_us,
            end,
        }
    }
}
