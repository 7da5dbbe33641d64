//! The way of a listing, which every store goes alike: those that wait, by due time over all lanes; then those that
//! runners have; then the finished, newest first over all queues. That is the way of a job's life, so a job
//! that moves on during a listing is rather seen twice than not at all.

use super::ListQuery;
use crate::job::{JobView, State};
use crate::names::Name;

/// Entries that a page looks at when only the jobs themselves tell which are wanted.
pub(super) const STEP_ENTRIES: usize = 1_000;
/// Most items of a page.
pub(super) const LIMIT_MAX: usize = 1_000;
/// Bytes of payload after which a page ends.
pub(super) const PAGE_BYTES: usize = 4 << 20;

/// The parts of a listing, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Running,
    Finished,
}

impl Phase {
    pub(super) const ALL: [Self; 3] = [Self::Waiting, Self::Running, Self::Finished];

    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Waiting => "w",
            Self::Running => "r",
            Self::Finished => "f",
        }
    }

    pub(super) fn next(self) -> Option<Self> {
        match self {
            Self::Waiting => Some(Self::Running),
            Self::Running => Some(Self::Finished),
            Self::Finished => None,
        }
    }
}

pub(super) fn next_phase(phase: Phase, query: &ListQuery) -> Option<Phase> {
    let next = phase.next()?;
    if phase_wanted(next, query) { Some(next) } else { next_phase(next, query) }
}

pub(super) fn phase_wanted(phase: Phase, query: &ListQuery) -> bool {
    let of_phase: &[State] = match phase {
        Phase::Waiting => &[State::Scheduled, State::Ready],
        // A held job has a lease and is scheduled.
        Phase::Running => &[State::Running, State::Scheduled],
        Phase::Finished => &[State::Completed, State::Cancelled, State::Dead],
    };
    query.states.is_empty() || query.states.iter().any(|state| of_phase.contains(state))
}

pub(super) fn wanted(view: &JobView, query: &ListQuery) -> bool {
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
        && lane_wanted(&view.job.queue, &view.job.kind, query)
}

pub(super) fn lane_wanted(queue: &Name, kind: &Name, query: &ListQuery) -> bool {
    query.queue.as_ref().is_none_or(|wanted| wanted == queue)
        && query.kind.as_ref().is_none_or(|wanted| wanted == kind)
}

/// Entries that a page looks at: as many as it may hold, unless some turn out not to be wanted only when
/// their jobs are read.
pub(super) fn entries_of(phase: Phase, query: &ListQuery) -> usize {
    let in_index = match phase {
        Phase::Waiting => true,
        Phase::Running => query.states.is_empty(),
        // An index is a queue's.
        Phase::Finished => query.kind.is_none(),
    };
    let exact = in_index && query.error.is_none() && query.since_ms.is_none();
    if exact { query.limit } else { STEP_ENTRIES.max(query.limit) }
}
