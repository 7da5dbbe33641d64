//! Runners that are killed at random and started again, while work goes on.

use std::time::Duration;

use super::dice::{Dice, seed};
use super::hourhand::{Hourhand, Runner};
use super::waiting::eventually;

/// Random numbers that a seed repeats: splitmix64.
pub struct Draw(u64);

impl Draw {
    /// Prints the seed, which `HOURHAND_TEST_SEED` sets.
    pub fn start() -> Self {
        let given = std::env::var("HOURHAND_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| getrandom::u64().expect("random numbers"));
        println!("HOURHAND_TEST_SEED={seed}");
        Self(seed)
    }

    /// A number below `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }
}

/// A crew of runners, each with a state folder of its own: one that is killed comes back as itself.
pub struct Crew<'a> {
    here: &'a Hourhand,
    arguments: Vec<String>,
    runners: Vec<Runner>,
    dice: Dice,
}

impl<'a> Crew<'a> {
    /// So many runners with these arguments. Prints the seed, which `HOURHAND_TEST_SEED` sets.
    pub fn start(here: &'a Hourhand, count: usize, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut crew = Self { here, arguments, runners: Vec::new(), dice: Dice::new(seed()) };
        for number in 0..count {
            let runner = crew.runner(number);
            crew.runners.push(runner);
        }
        crew
    }

    /// A number below `below`.
    pub fn draw(&mut self, below: u64) -> u64 {
        self.dice.below(below)
    }

    /// Kills one of them (SIGKILL) after a moment of up to `within`, and starts it again.
    pub fn kill_one(&mut self, within: Duration) {
        let moment = self.draw(within.as_micros() as u64);
        std::thread::sleep(Duration::from_micros(moment));
        let number = self.draw(self.runners.len() as u64) as usize;
        self.runners[number].kill();
        self.runners[number] = self.runner(number);
        let again = &self.runners[number];
        eventually("the runner serves again", Duration::from_secs(120), || {
            again.log().contains("the runner serves").then_some(())
        });
    }

    fn runner(&self, number: usize) -> Runner {
        let state = format!("state-{number}");
        let mut arguments = vec!["--state-dir", &state];
        arguments.extend(self.arguments.iter().map(String::as_str));
        self.here.runner_unready(&arguments)
    }
}
