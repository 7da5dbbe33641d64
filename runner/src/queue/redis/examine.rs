//! How the server is set up and doing: what INFO and CONFIG say (`server`), what is to be said about it (`judge`), what this
//! user may do (`permits`), and what calls and claims take.

use redis::{Cmd, Value};

use self::server::{Looked, Server};
use super::RedisStore;
use super::link::Repeat;
use super::reply::{Items, text};
use crate::clock::{monotonic, wall_us};
use crate::queue::examination::{CALLS_TIMED, ClockSeen, Measures, Spread, time_claims};
use crate::queue::{Examination, Finding, StoreError};

mod judge;
mod permits;
mod server;

/// A round trip should be quicker than this, in milliseconds.
const ROUND_TRIP_MS_MAX: f64 = 10.0;
/// What to do when it is not.
const SLOW_WAY: &str =
    "run the runners in the network of their Redis, and look at its load (`redis-cli --latency`)";
/// Settings of the server that matter here.
const SETTINGS: [&str; 8] = [
    "appendfsync",
    "auto-aof-rewrite-min-size",
    "auto-aof-rewrite-percentage",
    "min-replicas-to-write",
    "save",
    "slowlog-log-slower-than",
    "stop-writes-on-bgsave-error",
    "maxclients",
];
/// Entries of the slow log that are looked at.
const SLOW_LOG: usize = 128;

impl RedisStore {
    /// What a user may not ask is not warned of here: the doctor says that.
    pub(super) async fn set_up_warnings(&self) -> Result<Vec<String>, StoreError> {
        let server = self.look_at_server().await?;
        let found = judge::set_up(&server, self.link.place(), self.replicas_wanted());
        let told = found.into_iter().filter(|finding| finding.check != "access").map(|finding| {
            let fix = finding.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
            format!("{}: {}{fix}", finding.place, finding.message)
        });
        Ok(told.collect())
    }

    pub(super) async fn examine_server(&self) -> Result<Examination, StoreError> {
        let place = self.link.place();
        let server = self.look_at_server().await?;
        let mut examination = Examination::default();
        let facts = &mut examination.facts;
        facts.add("store", place);
        facts.add("namespace", self.namespace.as_str());
        server.tell(facts);
        facts.add_known("keys", self.key_count().await?);
        if let Some((slow, slowest_ms)) = self.slow_scripts().await? {
            facts.add("slow_scripts", slow);
            facts.add("slowest_script_ms", slowest_ms);
        }
        examination.findings = judge::set_up(&server, place, self.replicas_wanted());
        examination.findings.extend(self.refusals().await?);
        match self.measure().await {
            Ok(measures) => {
                measures.tell(&mut examination.facts);
                examination.findings.extend(measures.judge(place, ROUND_TRIP_MS_MAX, SLOW_WAY));
            }
            // Who may not do what claims need is told so already.
            Err(StoreError::Refused(_)) if examination.findings.iter().any(is_refusal) => {}
            Err(error) => examination.explain(error, "claims are refused", place)?,
        }
        Ok(examination)
    }

    async fn measure(&self) -> Result<Measures, StoreError> {
        let (clock, round_trip) = self.time_calls().await?;
        Ok(Measures { clock, round_trip, claim: time_claims(self).await? })
    }

    async fn look_at_server(&self) -> Result<Server, StoreError> {
        // From here on, what is refused is refused to this user or by this kind of server.
        self.link.reach().await?;
        let info = match self.look(redis::cmd("INFO").arg("default")).await? {
            Looked::There(info) => Looked::There(text(info)?),
            Looked::Denied => Looked::Denied,
            Looked::Unknown => Looked::Unknown,
        };
        let mut get = redis::cmd("CONFIG");
        get.arg("GET").arg(&SETTINGS);
        let settings = match self.look(&get).await? {
            Looked::There(reply) => Looked::There(pairs(reply)?),
            Looked::Denied => Looked::Denied,
            Looked::Unknown => Looked::Unknown,
        };
        Ok(Server::read(info, settings))
    }

    /// Whether the server has done with what it does beside its calls: `fsync` and rewrites of the append-only file, snapshots, and
    /// giving memory back. True where it does not say.
    ///
    /// # Errors
    /// When the store is away.
    pub async fn is_at_rest(&self) -> Result<bool, StoreError> {
        let server = self.look_at_server().await?;
        let busy = [
            "aof_pending_bio_fsync",
            "aof_rewrite_in_progress",
            "rdb_bgsave_in_progress",
            "lazyfree_pending_objects",
        ];
        Ok(busy.iter().all(|name| server.number(name).is_none_or(|number| number == 0)))
    }

    /// How many replicas an enqueue waits for.
    fn replicas_wanted(&self) -> u32 {
        self.replicas.as_ref().map_or(0, |replicas| replicas.wanted())
    }

    /// Asks what a user need not be allowed to ask, or a server to know.
    async fn look(&self, cmd: &Cmd) -> Result<Looked<Value>, StoreError> {
        match self.link.command(cmd, Repeat::Once).await {
            Ok(Value::Nil) => Ok(Looked::Unknown),
            Ok(reply) => Ok(Looked::There(reply)),
            Err(StoreError::Refused(text)) if text.contains("NOPERM") => Ok(Looked::Denied),
            Err(StoreError::Refused(_)) => Ok(Looked::Unknown),
            Err(error) => Err(error),
        }
    }

    async fn key_count(&self) -> Result<Option<u64>, StoreError> {
        let Looked::There(reply) = self.look(&redis::cmd("DBSIZE")).await? else { return Ok(None) };
        super::reply::number(reply).map(Some)
    }

    /// How many of the slow log's last entries are calls of our scripts, and how long the slowest took in milliseconds.
    async fn slow_scripts(&self) -> Result<Option<(u64, f64)>, StoreError> {
        let mut get = redis::cmd("SLOWLOG");
        get.arg("GET").arg(SLOW_LOG);
        let Looked::There(reply) = self.look(&get).await? else { return Ok(None) };
        let (mut count, mut slowest_us) = (0, 0);
        let mut entries = Items::of(reply)?;
        while !entries.is_empty() {
            let mut entry = entries.list()?;
            let (_number, _at, took_us) = (entry.value()?, entry.value()?, entry.number::<u64>()?);
            let mut words = entry.list()?;
            while !words.is_empty() {
                if self.keys.rest(&words.bytes()?).is_some() {
                    count += 1;
                    slowest_us = slowest_us.max(took_us);
                    break;
                }
            }
        }
        Ok(Some((count, slowest_us as f64 / 1_000.0)))
    }

    /// The clock by the quickest of some round trips, and how long they took.
    async fn time_calls(&self) -> Result<(ClockSeen, Spread), StoreError> {
        let mut took = Vec::with_capacity(CALLS_TIMED);
        let mut best: Option<ClockSeen> = None;
        for _ in 0..CALLS_TIMED {
            let (asked, asked_us) = (monotonic(), wall_us());
            let there_us = self.now_us().await?;
            let way = monotonic().saturating_duration_since(asked);
            took.push(way);
            let half_us = way.as_micros() as f64 / 2.0;
            let seen = ClockSeen {
                ahead_ms: (there_us as f64 - asked_us as f64 - half_us) / 1_000.0,
                uncertainty_ms: half_us / 1_000.0,
            };
            best = best.filter(|best| best.uncertainty_ms <= seen.uncertainty_ms).or(Some(seen));
        }
        Ok((best.unwrap_or_default(), Spread::of(took)))
    }
}

fn is_refusal(finding: &Finding) -> bool {
    finding.check == "access" && finding.is_open_error()
}

/// A reply of names and values in turns, or a map.
fn pairs(reply: Value) -> Result<Vec<(String, String)>, StoreError> {
    let mut pairs = Vec::new();
    match reply {
        Value::Map(entries) => {
            for (name, value) in entries {
                pairs.push((text(name)?, text(value)?));
            }
        }
        reply => {
            let mut items = Items::of(reply)?;
            while !items.is_empty() {
                pairs.push((items.text()?, items.text()?));
            }
        }
    }
    Ok(pairs)
}
