//! The walks over all that there is: entries of indexes, leases, records, and what belongs to jobs beside.

use super::{Doctor, STEP};
use crate::queue::redis::claim::push_lanes;
use crate::queue::redis::enqueue::Lanes;
use crate::queue::redis::link::Repeat;
use crate::queue::redis::record::{read_lease, read_record, rid_text};
use crate::queue::redis::walk::{Walk, step_of};
use crate::queue::{Lane, StoreError};

/// Entries in one step of a hash whose values may be large, of which no number tells how large.
const FEW: usize = 50;

/// One thing to look at, as lua/examine.lua takes it. No lane: it cannot be read.
struct Item {
    what: &'static str,
    lane: Option<Lane>,
    /// A part of the lane, or a record id.
    which: String,
    /// A member, or what was seen there.
    seen: Vec<u8>,
}

impl Doctor<'_> {
    /// Entries that have no place there, or have none any more.
    pub(super) async fn look_at_entries(&mut self) -> Result<(), StoreError> {
        let step = self.store.jobs_in_a_step(STEP).await?;
        for index in self.indexes.clone() {
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let mut cmd = redis::cmd("ZSCAN");
                cmd.arg(&index.key).arg(from).arg("COUNT").arg(step);
                let (next, mut reply) = step_of(self.store.link.command(&cmd, Repeat::Once).await?)?;
                let mut items = Vec::with_capacity(reply.len() / 2);
                while !reply.is_empty() {
                    let (member, _score) = (reply.bytes()?.to_vec(), reply.value()?);
                    items.push(Item {
                        what: "entry",
                        lane: Some(index.lane.clone()),
                        which: index.part.to_string(),
                        seen: member,
                    });
                }
                self.examine(&items, step).await?;
                cursor = next;
            }
        }
        Ok(())
    }

    pub(super) async fn look_at_leases(&mut self) -> Result<(), StoreError> {
        let mut cursor = Some("0".to_owned());
        while let Some(from) = cursor {
            let mut cmd = redis::cmd("HSCAN");
            cmd.arg(self.store.keys.global("running")).arg(from).arg("COUNT").arg(STEP);
            let (next, mut reply) = step_of(self.store.link.command(&cmd, Repeat::Once).await?)?;
            let mut items = Vec::with_capacity(reply.len() / 2);
            while !reply.is_empty() {
                let (which, seen) = (reply.text()?, reply.bytes()?.to_vec());
                let lane = read_lease(&seen).map(|lease| Lane { queue: lease.queue, kind: lease.kind });
                items.push(Item { what: "lease", lane, which, seen });
            }
            self.examine(&items, STEP).await?;
            cursor = next;
        }
        Ok(())
    }

    /// Jobs that are nowhere, or not to be found by their ids.
    pub(super) async fn look_at_records(&mut self) -> Result<(), StoreError> {
        let step = self.store.jobs_in_a_step(STEP).await?;
        let mut cursor = Some("0".to_owned());
        while let Some(from) = cursor {
            let (next, mut reply) = self.store.walk("jobs", &from, step, Walk::Records).await?;
            let mut items = Vec::with_capacity(reply.len() / 3);
            while !reply.is_empty() {
                let (which, size, seen) = (reply.text()?, reply.number::<u64>()?, reply.bytes()?.to_vec());
                self.record_max = self.record_max.max(size);
                let record = which.parse().ok().filter(|record| rid_text(*record) == which);
                let job = record.and_then(|record| read_record(record, &seen));
                if let (Some(_), Some(record)) = (&job, record) {
                    self.order_max = self.order_max.max(record);
                }
                let lane = job.map(|(job, _)| Lane { queue: job.queue, kind: job.kind });
                items.push(Item { what: "record", lane, which, seen });
            }
            self.examine(&items, step).await?;
            cursor = next;
        }
        Ok(())
    }

    /// Pasts, logs, recalls and ids.
    pub(super) async fn look_at_belongings(&mut self) -> Result<(), StoreError> {
        for (name, step) in [("past", FEW), ("logs", FEW), ("recalls", STEP), ("ids", STEP)] {
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let (next, mut reply) = self.store.walk(name, &from, step, Walk::Names).await?;
                let mut fields = Vec::with_capacity(reply.len());
                while !reply.is_empty() {
                    fields.push(reply.bytes()?.to_vec());
                }
                for some in fields.chunks(STEP) {
                    let mut args = vec![self.mends(), name.into()];
                    args.extend_from_slice(some);
                    self.ask(&self.store.scripts.sift, self.store.keys.globals().to_vec(), &args).await?;
                }
                cursor = next;
            }
        }
        Ok(())
    }

    async fn examine(&mut self, items: &[Item], step: usize) -> Result<(), StoreError> {
        for some in items.chunks(step) {
            let lanes = Lanes::of(some.iter().filter_map(|item| item.lane.clone()));
            let mut args = vec![self.mends()];
            push_lanes(&mut args, &lanes);
            for item in some {
                let lane = item.lane.as_ref().map_or(0, |lane| lanes.number(lane));
                let which = item.which.clone().into_bytes();
                args.extend([item.what.into(), lane.to_string().into(), which, item.seen.clone()]);
            }
            self.ask(&self.store.scripts.examine, self.store.lane_keys(&lanes), &args).await?;
        }
        Ok(())
    }
}
