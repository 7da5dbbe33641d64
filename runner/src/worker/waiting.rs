//! Outcomes that wait to be written: in what company each goes, and when one that the store refused is tried again.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Running;
use super::outage::Pace;
use crate::clock::Monotonic;
use crate::effects::StateChange;
use crate::job::NewJob;
use crate::outcome::Outcome;
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, Settlement};

/// An outcome, and the run whose log goes with it.
pub(super) struct Ended {
    pub(super) settlement: Settlement,
    pub(super) running: Option<Arc<Running>>,
}

/// Outcomes that are written with one call.
pub(super) struct Company {
    pub(super) outcomes: Vec<Ended>,
    /// It is one that was refused before.
    pub(super) again: bool,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Waiting {
    fresh: VecDeque<Ended>,
    /// Those that the store refused, each alone: all wait for the same moment, and one of them is tried then.
    refused: VecDeque<Ended>,
    again_at: Option<Monotonic>,
    pace: Pace,
}

impl Waiting {
    /// One more outcome.
    pub(super) fn push(&mut self, ended: Ended) {
        self.fresh.push_back(ended);
    }

    /// The store refused this one. Its log was written before.
    pub(super) fn refused(&mut self, settlement: Settlement, now: Monotonic) {
        self.refused.push_back(Ended { settlement, running: None });
        self.again_at = Some(now + self.pace.failed());
    }

    /// One that had been refused is written: the others may be, too.
    pub(super) fn mended(&mut self) {
        self.fresh.extend(self.refused.drain(..));
        self.again_at = None;
        self.pace.succeeded();
    }

    /// Whether something that was refused still waits.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// When something that was refused is tried again.
    pub(super) fn again_at(&self) -> Option<Monotonic> {
        self.again_at.filter(|_| self.has_refused())
    }

    /// What is to be written now: one that was refused when its time has come, else as many others as one call takes.
    pub(super) fn next(&mut self, now: Monotonic) -> Option<Company> {
        if self.again_at().is_some_and(|at| at <= now) {
            self.again_at = None;
            let outcomes = self.refused.pop_front().into_iter().collect();
            return Some(Company { outcomes, again: true });
        }
        let outcomes = next_batch(&mut self.fresh);
        (!outcomes.is_empty()).then_some(Company { outcomes, again: false })
    }
}

/// As many outcomes as one call takes: by what is written, and by bytes. One that is too large for any company travels alone.
fn next_batch(waiting: &mut VecDeque<Ended>) -> Vec<Ended> {
    let mut batch = Vec::new();
    let (mut writes, mut bytes) = (0, 0);
    while let Some(next) = waiting.front() {
        let (its_writes, its_bytes) = size(&next.settlement);
        let fits = writes + its_writes <= BATCH_MAX && bytes + its_bytes <= BATCH_PAYLOAD_BYTES_MAX;
        if !fits && !batch.is_empty() {
            break;
        }
        writes += its_writes;
        bytes += its_bytes;
        batch.extend(waiting.pop_front());
    }
    batch
}

/// What a settlement keeps in memory, about, in bytes.
pub(super) fn bytes(settlement: &Settlement) -> usize {
    size(settlement).1
}

/// How many things a settlement writes or checks, and how many bytes.
fn size(settlement: &Settlement) -> (usize, usize) {
    let (mut writes, mut bytes) = (1, result_bytes(&settlement.outcome));
    if let Some(effects) = &settlement.effects {
        writes += effects.children.len();
        bytes += effects.children.iter().map(child_bytes).sum::<usize>();
        if let Some(state) = &effects.state {
            writes += state.reads.len() + state.changes.len();
            bytes +=
                state.changes.iter().map(|(key, change)| key.len() + change_bytes(change)).sum::<usize>();
        }
    }
    (writes, bytes)
}

fn child_bytes(child: &NewJob) -> usize {
    let meta: usize = child.meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    child.payload.len() + meta
}

fn change_bytes(change: &StateChange) -> usize {
    match change {
        StateChange::Set(value) => value.len(),
        StateChange::Delete | StateChange::Add(_) => 0,
    }
}

fn result_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Completed { result: Some(result) } => result.len(),
        Outcome::Retry { message, .. } | Outcome::Dead { message, .. } => message.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::clock::monotonic;
    use crate::effects::Effects;
    use crate::names::Name;
    use crate::queue::{IdMemory, Lane, Lease, Retention, SessionId};

    fn ended(token: u64, children: usize, child_bytes: usize) -> Ended {
        let kind = Name::new("k").unwrap();
        let child = NewJob { payload: Bytes::from(vec![0; child_bytes]), ..NewJob::new(kind.clone()) };
        let effects = Effects { children: vec![child; children], state: None };
        let settlement = Settlement {
            lease: Lease { record: 1, session: SessionId(Arc::from("s")), token },
            lane: Lane { queue: kind.clone(), kind },
            outcome: Outcome::Completed { result: None },
            run: None,
            retention: Retention::FINISHED,
            id_memory: IdMemory::default(),
            effects: (children > 0).then(|| Box::new(effects)),
            receipt: Bytes::new(),
        };
        Ended { settlement, running: None }
    }

    fn batches(sizes: &[(usize, usize)]) -> Vec<usize> {
        let mut waiting = Waiting::default();
        for (n, (children, bytes)) in sizes.iter().enumerate() {
            waiting.push(ended(n as u64, *children, *bytes));
        }
        let now = monotonic();
        std::iter::from_fn(|| Some(waiting.next(now)?.outcomes.len())).collect()
    }

    #[test]
    fn plain_outcomes_travel_by_the_batch() {
        assert_eq!(batches(&vec![(0, 0); 2 * BATCH_MAX + 1]), [BATCH_MAX, BATCH_MAX, 1]);
    }

    #[test]
    fn children_count_and_many_of_them_travel_alone() {
        assert_eq!(batches(&[(0, 0), (1_000, 0), (0, 0), (0, 0)]), [1, 1, 2]);
        assert_eq!(batches(&[(100, 0), (100, 0), (100, 0)]), [2, 1]);
        assert_eq!(batches(&[(2, 100 << 10), (1, 50 << 10), (1, 50 << 10)]), [2, 1]);
        assert_eq!(batches(&[(2, 1 << 20), (0, 0)]), [1, 1]);
    }
    fn tokens(company: Option<Company>) -> Vec<u64> {
        company
            .map_or(Vec::new(), |it| it.outcomes.iter().map(|ended| ended.settlement.lease.token).collect())
    }

    #[test]
    fn what_was_refused_holds_up_nobody_and_is_tried_again_alone() {
        let (mut waiting, start) = (Waiting::default(), monotonic());
        for token in 1..=2 {
            waiting.refused(ended(token, 0, 0).settlement, start);
        }
        for token in 3..=5 {
            waiting.push(ended(token, 0, 0));
        }
        assert_eq!(tokens(waiting.next(start)), [3, 4, 5], "the others do not wait");
        assert_eq!(tokens(waiting.next(start)), [0; 0], "not at once");
        let at = waiting.again_at().expect("a time");
        assert!(at > start && at <= start + Duration::from_secs(1), "but soon");
        let company = waiting.next(at).expect("its time has come");
        assert!(company.again);
        assert_eq!(tokens(Some(company)), [1], "one alone");
        waiting.refused(ended(1, 0, 0).settlement, at);
        assert_eq!(tokens(waiting.next(at)), [0; 0], "one at a time");
        let at = waiting.again_at().expect("a time");
        assert_eq!(tokens(waiting.next(at)), [2], "in turn");
        assert!(waiting.has_refused());
    }

    #[test]
    fn when_one_that_was_refused_is_written_the_others_follow_at_once() {
        let (mut waiting, start) = (Waiting::default(), monotonic());
        for token in 1..=3 {
            waiting.refused(ended(token, 0, 0).settlement, start);
        }
        let at = waiting.again_at().expect("a time");
        assert_eq!(tokens(waiting.next(at)), [1]);
        waiting.mended();
        assert_eq!(tokens(waiting.next(at)), [2, 3]);
        assert_eq!((tokens(waiting.next(at)), waiting.again_at()), (vec![], None));
        assert!(!waiting.has_refused());
    }
}
