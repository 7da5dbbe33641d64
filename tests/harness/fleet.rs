//! Runners that are killed, stopped and started again, each under a name that its guests write into the ledger.

use std::process::Command;
use std::time::Duration;

use hourhand::clock::wall_us;

use super::hourhand::{Hourhand, Runner};
use super::ledger::Ledger;
use super::waiting::eventually;

/// How a runner's process is made, by its number: its store, its clock.
type Make<'a> = Box<dyn Fn(usize, &mut Command) + Send + Sync + 'a>;

/// What a lease and the heartbeats before it leave: who was stopped for less has lost nothing.
const SURELY_KEPT: Duration = Duration::from_millis(3_800);
/// Who goes on after a stop needs a moment to see that its jobs are gone.
const WAKES_WITHIN_US: u64 = 1_000_000;

/// The runners of a scenario. Each keeps its state folder, so that one that was killed comes back as itself.
pub struct Fleet<'a> {
    here: &'a Hourhand,
    ledger: &'a Ledger,
    arguments: Vec<String>,
    make: Make<'a>,
    members: Vec<Member>,
    kills: u64,
}

struct Member {
    runner: Runner,
    /// `<number>.<how often it was started>`.
    name: String,
    started: u32,
}

impl<'a> Fleet<'a> {
    /// So many runners with these arguments, once all of them serve.
    pub fn start(
        here: &'a Hourhand,
        ledger: &'a Ledger,
        count: usize,
        arguments: &[&str],
        make: impl Fn(usize, &mut Command) + Send + Sync + 'a,
    ) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut fleet = Self { here, ledger, arguments, make: Box::new(make), members: Vec::new(), kills: 0 };
        for number in 0..count {
            let member = fleet.member(number, 1);
            fleet.members.push(member);
        }
        for member in &fleet.members {
            eventually("a runner serves", Duration::from_secs(120), || {
                member.runner.log().contains("the runner serves").then_some(())
            });
        }
        fleet
    }

    fn member(&self, number: usize, started: u32) -> Member {
        let (state, name) = (format!("state-{number}"), format!("{number}.{started}"));
        let mut arguments = vec![
            "--state-dir",
            &state,
            "--completed-count",
            "none",
            "--completed-bytes",
            "none",
            "--completed-age",
            "none",
        ];
        arguments.extend(self.arguments.iter().map(String::as_str));
        let runner = self.here.runner_made(&arguments, |command| {
            command.env("LEDGER_RUNNER", &name);
            (self.make)(number, command);
        });
        Member { runner, name, started }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// How many were killed so far.
    pub fn kills(&self) -> u64 {
        self.kills
    }

    /// kill -9, and another in its place. What it had in hand may run again.
    pub fn kill(&mut self, number: usize) {
        let member = &mut self.members[number];
        let before = wall_us();
        member.runner.kill();
        self.ledger.excuse(Some(&member.name), before);
        let started = member.started + 1;
        self.members[number] = self.member(number, started);
        self.kills += 1;
    }

    /// SIGSTOP, and SIGCONT after a while. When that is about as long as the lease, others may have run what it had in hand.
    pub fn stop(&self, number: usize, span: Duration) {
        let member = &self.members[number];
        let before = wall_us();
        member.runner.signal(libc::SIGSTOP);
        std::thread::sleep(span);
        member.runner.signal(libc::SIGCONT);
        if span > SURELY_KEPT {
            // What it had claimed and not begun yet, it begins as it wakes.
            self.ledger.excuse_until(Some(&member.name), before, wall_us() + WAKES_WITHIN_US);
        }
    }

    /// The name that a runner's guests write down.
    pub fn name(&self, number: usize) -> &str {
        &self.members[number].name
    }

    /// A runner.
    pub fn runner(&self, number: usize) -> &Runner {
        &self.members[number].runner
    }

    /// Whether all of them live still.
    ///
    /// # Panics
    /// When one has ended by itself.
    #[track_caller]
    pub fn assert_alive(&mut self) {
        for member in &mut self.members {
            let ended = member.runner.child.try_wait().expect("wait for a runner");
            assert_eq!(ended, None, "runner {} has ended by itself: {}", member.name, member.runner.log());
        }
    }
}
