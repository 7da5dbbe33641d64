//! The doctor of the Redis store: looks at every key under our names and at every job, a bounded step at a time.
//!
//! Each suspicion is judged, and mended if that is wanted, by one small script (lua/examine.lua and others) that
//! sees everything as it is at that moment. So what moves on meanwhile is never reported.
//!
//! The order matters where something is mended: entries in the wrong place go before jobs are put into the right one,
//! and counters are counted when all is where it belongs.

use std::collections::{BTreeSet, HashSet};

use self::names::Index;
use super::RedisStore;
use super::link::Repeat;
use super::reply::{Items, unexpected};
use super::scripts::Script;
use crate::names::Name;
use crate::queue::{Finding, Lane, Severity, StoreError};

mod counters;
mod names;
mod state;
mod walks;

/// Keys, entries or fields in one step.
const STEP: usize = 100;
/// Indexes that one script counts: with more, each job's own place is all that is looked at.
const CENSUS_MAX: usize = 5_000;
/// How often the census is taken again because a lane came in between.
const CENSUS_TRIES: usize = 5;

impl RedisStore {
    pub(super) async fn look_at_all(&self, repair: bool) -> Result<Vec<Finding>, StoreError> {
        let mut doctor = Doctor {
            store: self,
            repair,
            found: Vec::new(),
            seen: HashSet::new(),
            known: HashSet::new(),
            lanes: BTreeSet::new(),
            indexes: Vec::new(),
            buckets: BTreeSet::new(),
            order_max: 0,
            record_max: 0,
        };
        doctor.look_at_names().await?;
        if !doctor.found.iter().any(|f| f.check == "wrong-type" && f.repaired.is_none()) {
            doctor.look_at_lanes().await?;
            doctor.look_at_entries().await?;
            doctor.look_at_leases().await?;
            doctor.look_at_records().await?;
            doctor.look_at_belongings().await?;
            doctor.look_at_counters().await?;
            doctor.look_at_state().await?;
            doctor.look_at_floors().await?;
        }
        if doctor.found.iter().all(|finding| finding.severity == Severity::Warning) {
            doctor.take_census().await?;
        }
        Ok(doctor.found)
    }
}

/// One look at a namespace.
struct Doctor<'a> {
    store: &'a RedisStore,
    repair: bool,
    found: Vec<Finding>,
    /// The keys that were looked at: an iteration may bring one twice.
    seen: HashSet<Vec<u8>>,
    /// What was found already: an iteration may bring an entry twice.
    known: HashSet<(&'static str, String)>,
    /// The lanes that can be read.
    lanes: BTreeSet<Lane>,
    /// The indexes that there are.
    indexes: Vec<Index>,
    /// The buckets of state that have entries.
    buckets: BTreeSet<Name>,
    /// The largest record id or version that was seen.
    order_max: u64,
    /// The largest record that was seen, in bytes.
    record_max: u64,
}

impl Doctor<'_> {
    fn note(&mut self, finding: Finding) {
        if self.known.insert((finding.check, finding.place.clone())) {
            self.found.push(finding);
        }
    }

    fn add(
        &mut self,
        check: &str,
        place: impl Into<String>,
        message: impl Into<String>,
        repaired: Option<String>,
    ) -> Result<(), StoreError> {
        let finding = Finding::new(check, place.into(), message.into(), repaired);
        self.note(finding.ok_or_else(|| unexpected("an unknown finding"))?);
        Ok(())
    }

    /// Runs a script that answers with findings, and notes them.
    async fn ask(&mut self, script: &Script, keys: Vec<String>, args: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut keys = keys;
        keys.push(self.store.keys.quarantine());
        // A second run finds only what the first one did not mend; what that has mended is then not told.
        let reply = self.store.link.script(script, &keys, args, Repeat::Once).await?;
        let mut items = Items::of(reply)?;
        while !items.is_empty() {
            let (check, place, message, repaired) =
                (items.text()?, items.text()?, items.text()?, items.text()?);
            self.add(&check, place, message, Some(repaired).filter(|text| !text.is_empty()))?;
        }
        Ok(())
    }

    /// The first argument of a script that may mend.
    fn mends(&self) -> Vec<u8> {
        u8::from(self.repair).to_string().into_bytes()
    }

    async fn look_at_floors(&mut self) -> Result<(), StoreError> {
        let args =
            [self.mends(), self.order_max.to_string().into_bytes(), self.record_max.to_string().into_bytes()];
        self.ask(&self.store.scripts.floors, self.store.keys.globals().to_vec(), &args).await
    }

    /// Where nothing was found, the records are as many as the places that they have.
    async fn take_census(&mut self) -> Result<(), StoreError> {
        for _ in 0..CENSUS_TRIES {
            let mut keys = self.store.keys.globals().to_vec();
            let lanes = self.store.all_lanes().await?;
            let queues: BTreeSet<_> = lanes.iter().map(|lane| lane.queue.clone()).collect();
            keys.extend(lanes.iter().flat_map(|lane| self.store.keys.due(lane)));
            keys.extend(queues.iter().flat_map(|queue| self.store.keys.done(queue)));
            if keys.len() > CENSUS_MAX {
                return Ok(());
            }
            let none: [&[u8]; 0] = [];
            let reply =
                self.store.link.script(&self.store.scripts.census, &keys, &none, Repeat::Once).await?;
            let mut items = Items::of(reply)?;
            let (records, places, known): (u64, u64, u64) =
                (items.number()?, items.number()?, items.number()?);
            if known == lanes.len() as u64 {
                if records != places {
                    let message =
                        format!("{records} jobs have {places} places in indexes and hands of runners");
                    self.add("count", "jobs", message, None)?;
                }
                return Ok(());
            }
        }
        Ok(())
    }
}
