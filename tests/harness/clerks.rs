//! Command lines that enqueue in the background, one job or many at a time, and are killed now and then.

use std::fs;
use std::ops::RangeInclusive;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use hourhand::clock::{monotonic, wall_us};
use serde_json::Value;

use super::dice::Dice;
use super::hourhand::Hourhand;
use super::ledger::{Answer, Ledger, Mix, Order};

/// A command that has not ended by then hangs: each call of a store has 10 s at most, and a file is a few calls.
const PATIENCE: Duration = Duration::from_secs(60);

/// Jobs for as long as there are faults.
pub const ENDLESS: u64 = u64::MAX;

/// What the clerks of a scenario do.
pub struct Work {
    /// So many jobs are asked for.
    pub jobs: u64,
    /// The most in one file.
    pub file_max: u64,
    /// Between two commands of one clerk, in milliseconds.
    pub pause_ms: RangeInclusive<u64>,
    /// So many of a hundred commands are killed.
    pub killed_percent: u64,
    pub mix: Mix,
    /// Exit codes, beside 0 and 5, that the scenario's faults lead to.
    pub codes: &'static [i32],
}

impl Default for Work {
    fn default() -> Self {
        Self {
            jobs: ENDLESS,
            file_max: 40,
            pause_ms: 0..=100,
            killed_percent: 0,
            mix: Mix::default(),
            codes: &[],
        }
    }
}

/// Who enqueues.
pub struct Clerks<'a> {
    here: &'a Hourhand,
    ledger: &'a Ledger,
    work: Work,
    variables: Vec<(String, String)>,
    given: AtomicU64,
    commands: AtomicU64,
    killed: AtomicU64,
    over: AtomicBool,
}

impl<'a> Clerks<'a> {
    pub fn new(here: &'a Hourhand, ledger: &'a Ledger, work: Work) -> Self {
        let (given, commands, killed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let variables = Vec::new();
        Self { here, ledger, work, variables, given, commands, killed, over: AtomicBool::new(false) }
    }

    /// With these variables in the environment of each command.
    pub fn with(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Lets a clerk work for each of these, through its store's URL, while `faults` does what it does. When that is over, or has failed,
    /// they stop; where the work has a number, they do all of it first.
    pub fn during(&self, hands: Vec<(Dice, String)>, faults: impl FnOnce()) {
        struct Over<'a>(&'a AtomicBool, bool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                if self.1 || std::thread::panicking() {
                    self.0.store(true, SeqCst);
                }
            }
        }
        std::thread::scope(|scope| {
            let _over = Over(&self.over, self.work.jobs == ENDLESS);
            for (dice, url) in hands {
                scope.spawn(move || self.work(dice, &url));
            }
            faults();
        });
    }

    /// How many were killed.
    pub fn killed(&self) -> u64 {
        self.killed.load(SeqCst)
    }

    /// Enqueues through the store at `url` until all is asked for, or it is over.
    fn work(&self, mut dice: Dice, url: &str) {
        while !self.over.load(SeqCst) {
            let size = if dice.percent(40) { 1 } else { dice.of(2..=self.work.file_max.max(2)) };
            let first = self.given.fetch_add(size, SeqCst);
            let last = (first + size).min(self.work.jobs);
            if first >= last {
                return;
            }
            let orders = (first..last)
                .map(|n| Order::draw(&mut dice, format!("j{n}"), self.work.mix))
                .collect::<Vec<_>>();
            let entered = self.ask(&mut dice, url, orders);
            self.ledger.enter(entered);
            std::thread::sleep(Duration::from_millis(dice.of(self.work.pause_ms.clone())));
        }
    }

    /// One command; the orders as they were answered.
    fn ask(&self, dice: &mut Dice, url: &str, mut orders: Vec<Order>) -> Vec<Order> {
        let number = self.commands.fetch_add(1, SeqCst);
        let single = orders.len() == 1;
        let file = format!("batch-{number}.ndjson");
        let mut command = if single {
            let words = orders[0].arguments();
            self.here.command(&words.iter().map(String::as_str).collect::<Vec<_>>())
        } else {
            let lines: String = orders.iter().map(Order::line).collect();
            fs::write(self.here.dir.path().join(&file), lines).expect("a file of jobs");
            self.here.command(&["enqueue", "--ndjson", &file])
        };
        command.arg("--json").env("HOURHAND_STORE", url).env("HOURHAND_LOG", "error");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let kill = dice.percent(self.work.killed_percent).then(|| Duration::from_millis(dice.of(0..=150)));
        let asked_us = wall_us();
        let said = self.run(command, kill);
        let answered_us = wall_us();
        let answers = self.judge(&said, &orders);
        for (order, answer) in orders.iter_mut().zip(answers) {
            (order.asked_us, order.answered_us, order.answer) = (asked_us, answered_us, answer);
        }
        if !single {
            let _ = fs::remove_file(self.here.dir.path().join(file));
        }
        orders
    }

    /// What became of each, by the command's own words.
    fn judge(&self, said: &Said, orders: &[Order]) -> Vec<Answer> {
        let first = &orders[0].key;
        let Some(code) = said.code else { return vec![Answer::Unsure; orders.len()] };
        if code == 0 {
            let answer: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
            let right = match orders {
                [_] => answer["created"] == true,
                many => answer["created"] == many.len(),
            };
            if !right {
                self.ledger.complain(format!("{} new jobs from {first} on: {}", orders.len(), said.stdout));
            }
            return vec![Answer::Taken; orders.len()];
        }
        if code != 5 && !self.work.codes.contains(&code) {
            self.ledger.complain(format!("{first}: exit {code}: {}", said.stderr));
        }
        self.ledger.heard(&said.stderr);
        let unsure = said.stderr.contains("may or may not");
        if orders.len() == 1 {
            return vec![if unsure { Answer::Unsure } else { Answer::Refused }];
        }
        // A file may have been taken in part.
        let number = |before: &str| -> Option<usize> {
            let rest = said.stderr.split(before).nth(1)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let taken = number("\nline ").unwrap_or(0);
        let unsure = if unsure { number(" to ").unwrap_or(orders.len()) } else { taken };
        let of = |line: usize| match line {
            _ if line <= taken => Answer::Taken,
            _ if line <= unsure => Answer::Unsure,
            _ => Answer::Refused,
        };
        (1..=orders.len()).map(of).collect()
    }

    fn run(&self, mut command: Command, kill: Option<Duration>) -> Said {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start a command");
        let started = monotonic();
        let killed = kill.is_some_and(|after| {
            while started.elapsed() < after {
                if ended(&mut child) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            !ended(&mut child) && child.kill().is_ok()
        });
        if killed {
            self.killed.fetch_add(1, SeqCst);
        }
        while !ended(&mut child) {
            if started.elapsed() > PATIENCE {
                self.ledger.complain(format!("a command hangs: {command:?}"));
                let _ = child.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        let output = child.wait_with_output().expect("its answer");
        Said {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// What a command has said; no code when it was killed.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ended(child: &mut Child) -> bool {
    child.try_wait().expect("wait for a command").is_some()
}
