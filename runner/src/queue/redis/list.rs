//! Listing jobs, a bounded step at a time: those that wait, by due time over all lanes; then those that runners
//! have; then the finished, newest first over all queues. That is the way of a job's life, so a job that
//! moves on during a listing is rather seen twice than not at all.
//!
//! A cursor is `<phase>:<score>:<member>`, a position by value and not by rank.

use std::cmp::Ordering;

use super::RedisStore;
use super::link::Repeat;
use super::reply::{Items, text};
use crate::job::{JobView, State};
use crate::queue::{Lane, ListQuery, Page, StoreError};

/// Entries that one step reads from all indexes together.
const STEP_ENTRIES: usize = 4_000;
/// Most items of a page.
const LIMIT_MAX: usize = 1_000;
/// Bytes of payload after which a page ends.
const PAGE_BYTES: usize = 4 << 20;

/// The parts of a listing, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Finished,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Waiting, Self::Running, Self::Finished];

    fn letter(self) -> &'static str {
        match self {
            Self::Waiting => "w",
            Self::Running => "r",
            Self::Finished => "f",
        }
    }

    fn next(self) -> Option<Self> {
        match self {
            Self::Waiting => Some(Self::Running),
            Self::Running => Some(Self::Finished),
            Self::Finished => None,
        }
    }
}

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

    /// The jobs of some entries that the query wants, and the place of the last entry that was looked at.
    async fn view_step(
        &self,
        query: &ListQuery,
        entries: &[Entry],
    ) -> Result<(Vec<JobView>, Option<usize>), StoreError> {
        let records: Vec<u64> = entries.iter().map(|entry| record_of(&entry.member)).collect();
        let (mut items, mut looked, mut bytes) = (Vec::new(), 0, 0);
        while looked < records.len() && bytes < PAGE_BYTES {
            let (views, done) = self.view_some(&records[looked..]).await?;
            looked += done.max(1);
            bytes += views.iter().map(|(_, view)| view.job.payload.len()).sum::<usize>();
            items.extend(views.into_iter().map(|(_, view)| view).filter(|view| wanted(view, query)));
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
        let mut step = self.merged(&indexes, "asc", after, query.limit).await?;
        if let Some(now_ms) = now_ms.filter(|_| wants(State::Ready)) {
            let due = step.entries.iter().take_while(|entry| entry.score <= now_ms).count();
            step.more &= due == step.entries.len();
            step.entries.truncate(due);
        }
        Ok(step)
    }

    async fn finished_step(&self, query: &ListQuery, after: Option<Entry>) -> Result<Step, StoreError> {
        let mut indexes = Vec::new();
        let queues = match &query.queue {
            Some(queue) => vec![queue.clone()],
            None => self.queues().await?,
        };
        for queue in &queues {
            for (key, state) in
                self.keys.done(queue).into_iter().zip([State::Completed, State::Cancelled, State::Dead])
            {
                if query.states.is_empty() || query.states.contains(&state) {
                    indexes.push(key);
                }
            }
        }
        let mut step = self.merged(&indexes, "desc", after, query.limit).await?;
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
            records.extend(entries.into_iter().map(|(record, _)| record));
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let first = after.map_or(0, |entry| entry.score.saturating_add(1));
        records.retain(|record| *record >= first);
        records.sort_unstable();
        records.dedup();
        let more = records.len() > query.limit;
        records.truncate(query.limit);
        let entries = records.into_iter().map(|record| Entry { score: record, member: String::new() });
        Ok(Step {
            entries: entries.map(|e| Entry { member: super::record::rid_text(e.score), ..e }).collect(),
            more,
        })
    }

    /// Up to `limit` entries behind `after` from all indexes, merged.
    async fn merged(
        &self,
        indexes: &[String],
        direction: &str,
        after: Option<Entry>,
        limit: usize,
    ) -> Result<Step, StoreError> {
        let share = (STEP_ENTRIES / indexes.len().max(1)).clamp(1, limit);
        let (score, member) = after.map(|e| (e.score.to_string(), e.member)).unwrap_or_default();
        let by_place = |a: &Entry, b: &Entry| {
            let ascending = (a.score, &a.member).cmp(&(b.score, &b.member));
            if direction == "asc" { ascending } else { ascending.reverse() }
        };
        let (mut entries, mut bound): (Vec<Entry>, Option<Entry>) = (Vec::new(), None);
        for index in indexes {
            let args = [direction, &score, &member, &share.to_string()];
            let page = self
                .link
                .script(&self.scripts.page, std::slice::from_ref(index), &args, Repeat::Once)
                .await?;
            let page = read_entries(page)?;
            // What a full page does not show yet must not be overtaken.
            if let Some(last) = page.last().filter(|_| page.len() == share)
                && bound.as_ref().is_none_or(|bound| by_place(last, bound) == Ordering::Less)
            {
                bound = Some(last.clone());
            }
            entries.extend(page);
        }
        entries.sort_unstable_by(by_place);
        let mut more = bound.is_some();
        if let Some(bound) = &bound {
            entries.retain(|entry| by_place(entry, bound) != Ordering::Greater);
        }
        more |= entries.len() > limit;
        entries.truncate(limit);
        Ok(Step { entries, more })
    }

    async fn lanes_for(&self, query: &ListQuery) -> Result<Vec<Lane>, StoreError> {
        let mut lanes = self.all_lanes().await?;
        lanes.retain(|lane| {
            query.queue.as_ref().is_none_or(|queue| *queue == lane.queue)
                && query.kind.as_ref().is_none_or(|kind| *kind == lane.kind)
        });
        Ok(lanes)
    }
}

fn next_phase(phase: Phase, query: &ListQuery) -> Option<Phase> {
    let next = phase.next()?;
    if phase_wanted(next, query) { Some(next) } else { next_phase(next, query) }
}

fn phase_wanted(phase: Phase, query: &ListQuery) -> bool {
    let of_phase: &[State] = match phase {
        Phase::Waiting => &[State::Scheduled, State::Ready],
        // A held job has a lease and is scheduled.
        Phase::Running => &[State::Running, State::Scheduled],
        Phase::Finished => &[State::Completed, State::Cancelled, State::Dead],
    };
    query.states.is_empty() || query.states.iter().any(|state| of_phase.contains(state))
}

fn wanted(view: &JobView, query: &ListQuery) -> bool {
    let since = query.since_ms.is_none_or(|since_ms| match view.ended_us {
        Some(ended_us) if view.state.is_finished() => ended_us / 1_000 >= since_ms,
        _ => view.job.enqueued_ms >= since_ms,
    });
    let error = query.error.as_ref().is_none_or(|text| {
        view.error.as_ref().is_some_and(|e| e.message.contains(text) || e.reason.as_str().contains(text))
    });
    since
        && error
        && (query.states.is_empty() || query.states.contains(&view.state))
        && query.queue.as_ref().is_none_or(|queue| *queue == view.job.queue)
        && query.kind.as_ref().is_none_or(|kind| *kind == view.job.kind)
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

fn read_entries(reply: redis::Value) -> Result<Vec<Entry>, StoreError> {
    let mut items = Items::of(reply)?;
    let mut entries = Vec::with_capacity(items.len() / 2);
    while !items.is_empty() {
        let member = text(items.value()?)?;
        // A score that is no whole number is no job's: claims put it aside.
        let score = text(items.value()?)?.parse::<f64>().unwrap_or(0.0);
        entries.push(Entry { score: score as u64, member });
    }
    Ok(entries)
}
