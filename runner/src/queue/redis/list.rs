//! Listing jobs, a bounded step at a time, in the order of [`listing`](crate::queue::listing).
//!
//! A cursor is `<phase>:<score>:<member>`, a position by value and not by rank.

use std::collections::BTreeSet;

use super::RedisStore;
use super::link::Repeat;
use super::record::{read_lease, rid_text};
use super::reply::{Items, text};
use crate::job::{JobView, State};
use crate::names::Name;
use crate::queue::listing::{
    LIMIT_MAX, PAGE_BYTES, Phase, entries_of, lane_wanted, next_phase, phase_wanted, wanted,
};
use crate::queue::{Lane, ListQuery, Page, StoreError};

/// Indexes that one script reads.
const STEP_INDEXES: usize = 256;

/// An entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    score: u64,
    member: String,
}

/// Entries in order, and where the listing goes on within the phase.
struct Step {
    entries: Vec<Entry>,
    more: bool,
}

impl RedisStore {
    pub(super) async fn list_jobs(&self, query: &ListQuery) -> Result<Page<JobView>, StoreError> {
        if !(1..=LIMIT_MAX).contains(&query.limit) {
            return Err(StoreError::Invalid(format!("limit of {}: expected 1 to {LIMIT_MAX}", query.limit)));
        }
        let (mut phase, mut after) = match &query.cursor {
            Some(cursor) => read_cursor(cursor)?,
            None => (Phase::Waiting, None),
        };
        if !phase_wanted(phase, query) {
            let Some(next) = next_phase(phase, query) else {
                return Ok(Page { items: Vec::new(), cursor: None });
            };
            (phase, after) = (next, None);
        }
        let step = match phase {
            Phase::Waiting => self.waiting_step(query, after).await?,
            Phase::Running => self.running_step(query, after).await?,
            Phase::Finished => self.finished_step(query, after).await?,
        };
        let (items, last) = self.view_step(query, &step.entries).await?;
        let cut = last.is_some_and(|last| last + 1 < step.entries.len());
        let cursor = match last.map(|last| &step.entries[last]) {
            Some(entry) if step.more || cut => {
                Some(format!("{}:{}:{}", phase.letter(), entry.score, entry.member))
            }
            _ => next_phase(phase, query).map(|next| format!("{}::", next.letter())),
        };
        Ok(Page { items, cursor })
    }

    /// The jobs of the first entries that the query wants, and the place of the last entry that was looked at.
    async fn view_step(
        &self,
        query: &ListQuery,
        entries: &[Entry],
    ) -> Result<(Vec<JobView>, Option<usize>), StoreError> {
        let records: Vec<u64> = entries.iter().map(|entry| record_of(&entry.member)).collect();
        let (mut items, mut looked, mut bytes) = (Vec::new(), 0, 0);
        while looked < records.len() && bytes < PAGE_BYTES && items.len() < query.limit {
            let (views, done) = self.view_some(&records[looked..]).await?;
            let mut views = views.into_iter().peekable();
            for record in &records[looked..looked + done] {
                if items.len() == query.limit {
                    break;
                }
                looked += 1;
                // One that went away meanwhile has no view.
                let Some((_, view)) = views.next_if(|(of, _)| of == record) else { continue };
                bytes += view.job.payload.len();
                items.extend(Some(view).filter(|view| wanted(view, query)));
            }
        }
        Ok((items, looked.checked_sub(1)))
    }

    async fn waiting_step(&self, query: &ListQuery, mut after: Option<Entry>) -> Result<Step, StoreError> {
        let lanes = self.lanes_for(query).await?;
        let indexes: Vec<String> = lanes.iter().flat_map(|lane| self.keys.due(lane)).collect();
        let wants = |state| query.states.is_empty() || query.states.contains(&state);
        let now_ms =
            if wants(State::Scheduled) && wants(State::Ready) { None } else { Some(self.now_ms().await?) };
        if let (Some(now_ms), true, None) = (now_ms, wants(State::Scheduled), &after) {
            // Behind everything that is due; members are digits, so no one is behind this.
            after = Some(Entry { score: now_ms, member: "~".to_owned() });
        }
        let mut step = self.merged(&indexes, "asc", after, entries_of(Phase::Waiting, query)).await?;
        if let Some(now_ms) = now_ms.filter(|_| wants(State::Ready)) {
            let due = step.entries.iter().take_while(|entry| entry.score <= now_ms).count();
            step.more &= due == step.entries.len();
            step.entries.truncate(due);
        }
        Ok(step)
    }

    async fn finished_step(&self, query: &ListQuery, after: Option<Entry>) -> Result<Step, StoreError> {
        let mut indexes = Vec::new();
        let queues: BTreeSet<Name> = self.lanes_for(query).await?.into_iter().map(|l| l.queue).collect();
        for queue in &queues {
            for (key, state) in
                self.keys.done(queue).into_iter().zip([State::Completed, State::Cancelled, State::Dead])
            {
                if query.states.is_empty() || query.states.contains(&state) {
                    indexes.push(key);
                }
            }
        }
        let mut step = self.merged(&indexes, "desc", after, entries_of(Phase::Finished, query)).await?;
        if let Some(since_ms) = query.since_ms {
            let recent = step.entries.iter().take_while(|entry| entry.score >= since_ms).count();
            step.more &= recent == step.entries.len();
            step.entries.truncate(recent);
        }
        Ok(step)
    }

    /// Leases have no order of their own, and there are only as many as the fleet has slots: all are
    /// read, and listed by record id.
    async fn running_step(&self, query: &ListQuery, after: Option<Entry>) -> Result<Step, StoreError> {
        let (mut records, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let (entries, next) = self.scan_running(&cursor).await?;
            let wanted = entries.into_iter().filter(|(_, lease)| {
                read_lease(lease).is_none_or(|lease| lane_wanted(&lease.queue, &lease.kind, query))
            });
            records.extend(wanted.map(|(record, _)| record));
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let first = after.map_or(0, |entry| entry.score.saturating_add(1));
        records.retain(|record| *record >= first);
        records.sort_unstable();
        records.dedup();
        let limit = entries_of(Phase::Running, query);
        let more = records.len() > limit;
        records.truncate(limit);
        let entries = records.into_iter().map(|score| Entry { score, member: rid_text(score) }).collect();
        Ok(Step { entries, more })
    }

    /// Up to `limit` entries behind `after` from all indexes, merged.
    async fn merged(
        &self,
        indexes: &[String],
        direction: &str,
        after: Option<Entry>,
        limit: usize,
    ) -> Result<Step, StoreError> {
        let (score, member) = after.map(|e| (e.score.to_string(), e.member)).unwrap_or_default();
        let args = [direction, &score, &member, &limit.to_string()];
        let (mut entries, mut more): (Vec<Entry>, bool) = (Vec::new(), false);
        for step in indexes.chunks(STEP_INDEXES) {
            let reply = self.link.script(&self.scripts.page, step, &args, Repeat::Once).await?;
            let mut items = Items::of(reply)?;
            // A step with more has brought `limit` entries, so that none it kept back is among the first.
            more |= items.number::<u8>()? > 0;
            entries.extend(read_entries(items)?);
            entries.sort_unstable_by(|a, b| {
                let ascending = (a.score, &a.member).cmp(&(b.score, &b.member));
                if direction == "asc" { ascending } else { ascending.reverse() }
            });
            more |= entries.len() > limit;
            entries.truncate(limit);
        }
        Ok(Step { entries, more })
    }

    async fn lanes_for(&self, query: &ListQuery) -> Result<Vec<Lane>, StoreError> {
        let mut lanes = self.all_lanes().await?;
        lanes.retain(|lane| lane_wanted(&lane.queue, &lane.kind, query));
        Ok(lanes)
    }
}

/// The record id in a member of a due index, a finished index or the running phase; 0 is no job.
fn record_of(member: &str) -> u64 {
    let digits = match member.len() {
        14 => Some(member),
        _ if member.as_bytes().get(14) == Some(&b':') => member.get(..14),
        _ => member.get(14..28),
    };
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn read_cursor(cursor: &str) -> Result<(Phase, Option<Entry>), StoreError> {
    let read = || {
        let (phase, rest) = cursor.split_once(':')?;
        let phase = Phase::ALL.into_iter().find(|p| p.letter() == phase)?;
        let (score, member) = rest.split_once(':')?;
        if score.is_empty() {
            return Some((phase, None));
        }
        // Scores are whole numbers that a double holds exactly.
        let score = score.parse().ok().filter(|score| *score < 1 << 53)?;
        Some((phase, Some(Entry { score, member: member.to_owned() })))
    };
    read().ok_or_else(|| {
        StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that a list gave"))
    })
}

fn read_entries(mut items: Items) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::with_capacity(items.len() / 2);
    while !items.is_empty() {
        let member = text(items.value()?)?;
        // A score that is no whole number is no job's: claims put it aside.
        let score = text(items.value()?)?.parse::<f64>().unwrap_or(0.0);
        entries.push(Entry { score: score as u64, member });
    }
    Ok(entries)
}
