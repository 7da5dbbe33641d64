//! What the scenarios on a Redis have in common: a server, links to it that can be troubled, runners and command lines at work.

use std::time::Duration;

use crate::harness::balance::Balance;
use crate::harness::clerks::Work;
use crate::harness::dice::Dice;
use crate::harness::fleet::Fleet;
use crate::harness::links::Links;
use crate::harness::redis_server::RedisServer;
use crate::harness::site::Site;

/// How long the rest of the work may take once the last fault is over.
pub const PATIENCE: Duration = Duration::from_secs(90);
const RUNNERS: usize = 2;
const CLERKS: usize = 2;

/// A Redis and a deployment on it. The site ends first, with the doctor.
pub struct Scene {
    pub site: Site,
    pub redis: RedisServer,
}

impl Scene {
    /// On a server of its own.
    pub fn on(redis: RedisServer) -> Self {
        Self { site: Site::new(&redis.url()), redis }
    }

    /// Lets two runners and two clerks work through links of their own (0 and 1, 2 and 3) while `faults` does what it does, and
    /// closes the books.
    #[track_caller]
    pub fn under_load(
        &mut self,
        what: &str,
        work: Work,
        faults: impl FnOnce(&Self, &Links, &mut Fleet<'_>, &mut Dice),
    ) -> Balance {
        let mut dice = self.site.dice.apart();
        let links = Links::to(self.redis.port(), RUNNERS + CLERKS);
        let hands = (RUNNERS..RUNNERS + CLERKS).map(|number| (dice.apart(), links.url(number))).collect();
        let site = &self.site;
        let mut fleet =
            Fleet::start(&site.here, &site.ledger, RUNNERS, &["--concurrency", "64"], |number, command| {
                command.env("HOURHAND_STORE", links.url(number));
            });
        let clerks = site.clerks(work);
        clerks.during(hands, || faults(self, &links, &mut fleet, &mut dice));
        fleet.assert_alive();
        let balance = site.close(what, PATIENCE);
        assert!(balance.completed > 0, "nothing was tried: {balance}");
        balance
    }

    /// A command to the server, past all links.
    pub fn command(&self, words: &[&str]) -> redis::Value {
        crate::harness::at_redis::command(&self.redis, words)
    }
}
