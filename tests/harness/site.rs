//! The place of a fault scenario: a deployment whose one handler keeps the ledger.

use std::fs;
use std::time::Duration;

use hourhand::clock::monotonic;
use serde_json::Value;

use super::balance::{Balance, balance};
use super::clerks::{Clerks, Work};
use super::dice::{Dice, seed};
use super::fleet::Fleet;
use super::hourhand::Hourhand;
use super::ledger::{KIND, Ledger, QUEUES};
use super::stalls::Stalls;

/// One scenario's world. When it ends, the doctor must find nothing wrong in its store.
pub struct Site {
    pub ledger: Ledger,
    pub here: Hourhand,
    pub dice: Dice,
    /// The latest that a job may start after its due time, in milliseconds; the machine's own stalls come on top.
    pub starts_within_ms: u64,
    stalls: Stalls,
}

impl Site {
    /// A deployment on this store, and a ledger outside of it.
    pub fn new(store: &str) -> Self {
        let here = Hourhand::new(store, &[KIND]);
        let ledger = Ledger::new(here.dir.path().canonicalize().expect("a path").join("ledger"));
        let folder = ledger.dir().display();
        here.manifest(
            KIND,
            &format!(
                "[retry]\nattempts = 9\nbase = '100ms'\njitter = 0\n[allow]\nenv = ['LEDGER_RUNNER']\n\
                 enqueue = ['{KIND}']\ndirs = [{{ host = '{folder}', guest = '/ledger', writable = true }}]\n"
            ),
        );
        let ceiling = format!("[ceiling]\nenv = ['LEDGER_RUNNER']\ndirs = ['{folder}']\n");
        fs::write(here.dir.path().join("hourhand.toml"), ceiling).expect("a file of settings");
        Self { ledger, here, dice: Dice::new(seed()), starts_within_ms: u64::MAX, stalls: Stalls::start() }
    }

    /// Runners that share the site's own store.
    pub fn fleet(&self, count: usize, arguments: &[&str]) -> Fleet<'_> {
        Fleet::start(&self.here, &self.ledger, count, arguments, |_, _| {})
    }

    /// What enqueues here.
    pub fn clerks(&self, work: Work) -> Clerks<'_> {
        Clerks::new(&self.here, &self.ledger, work)
    }

    /// Waits until nothing waits or runs any more, and closes the books. Says what they say, and how long the rest took.
    ///
    /// # Panics
    /// When that does not come, or the books do not balance.
    #[track_caller]
    #[allow(clippy::print_stdout, reason = "a test's figures")]
    pub fn close(&self, what: &str, within: Duration) -> Balance {
        let started = monotonic();
        let mut last = Value::Null;
        while !self.all_ended(&mut last) {
            assert!(started.elapsed() < within, "{what}: something goes on after {within:?}: {last:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let rest = started.elapsed();
        let records: Vec<Value> =
            QUEUES.iter().flat_map(|queue| self.here.all_jobs(&["--queue", queue])).collect();
        let balance = balance(&self.ledger, &records);
        println!(
            "{what}: {balance}; all ended {} ms after the last fault; the machine stood still for {} ms",
            rest.as_millis(),
            self.stalls.ms()
        );
        let bound = self.starts_within_ms.saturating_add(self.stalls.ms());
        assert!(balance.latest_ms <= bound, "{what}: a job started too late: {}", balance.latest);
        balance
    }

    fn all_ended(&self, last: &mut Value) -> bool {
        let output = self.here.run(&["stats", "--json"]);
        // A store that is on its way back is asked again.
        if output.status.code() == Some(5) {
            return false;
        }
        *last = serde_json::from_slice(&output.stdout).expect("JSON");
        let busy = |queue: &Value| ["scheduled", "ready", "running"].iter().any(|state| queue[state] != 0);
        !last["queues"].as_array().expect("queues").iter().any(busy)
    }
}
