//! Who works on a store in a run: runners that claim and settle, crash and come back, and what they remember.

use std::collections::VecDeque;

use hourhand::queue::{ClaimedJob, JobRef, LeaseSeen, SessionId};

use super::ops::{Answer, Op};
use super::state::{Key, Model};
use crate::random::Random;

/// Runners at a time.
const RUNNERS: usize = 3;
/// Leases and ids of the past that are kept to be used again.
const OLD_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct Runner {
    pub(super) session: SessionId,
    pub(super) next_token: u64,
}

#[derive(Debug)]
pub(super) struct Crew {
    pub(super) runners: Vec<Runner>,
    /// Sessions that are lost: nobody claims for them any more.
    pub(super) lost: Vec<SessionId>,
    /// Leases that are none any more, or will be none soon.
    pub(super) old: VecDeque<LeaseSeen>,
    /// Jobs that were claimed some time.
    pub(super) claimed: VecDeque<ClaimedJob>,
    /// Ids that the store made.
    pub(super) made: VecDeque<Key>,
    /// The job that operators look after at present.
    pub(super) favourite: Option<JobRef>,
    born: u32,
}

impl Crew {
    pub(super) fn new() -> Self {
        let mut crew = Self {
            runners: Vec::new(),
            lost: Vec::new(),
            old: VecDeque::new(),
            claimed: VecDeque::new(),
            made: VecDeque::new(),
            favourite: None,
            born: 0,
        };
        for _ in 0..RUNNERS {
            let runner = crew.newcomer();
            crew.runners.push(runner);
        }
        crew
    }

    fn newcomer(&mut self) -> Runner {
        self.born += 1;
        Runner { session: SessionId(format!("s{}", self.born).into()), next_token: 1 }
    }

    /// One runner crashes: its session is lost, and another takes its place.
    pub(super) fn crash(&mut self, random: &mut Random) {
        let newcomer = self.newcomer();
        let who = random.below(self.runners.len());
        let gone = std::mem::replace(&mut self.runners[who], newcomer);
        self.lost.push(gone.session);
        if self.lost.len() > 2 * RUNNERS {
            self.lost.remove(0);
        }
    }

    /// Any session, the present ones rather than the lost.
    pub(super) fn session(&self, random: &mut Random) -> SessionId {
        if !self.lost.is_empty() && random.once_in(6) {
            return random.pick(&self.lost);
        }
        self.runners[random.below(self.runners.len())].session.clone()
    }

    /// Remembers what a step used, for others to use it again. `model` is as it was before the step.
    pub(super) fn remember(&mut self, op: &Op, answer: &Answer, model: &Model) {
        match (op, answer) {
            (Op::Claim(request), Answer::Claimed(claimed)) => {
                self.claimed.extend(claimed.jobs.iter().cloned());
                let used = (request.due_max + request.ahead_max) as u64;
                let of_session = |runner: &&mut Runner| runner.session == request.session;
                if let Some(runner) = self.runners.iter_mut().find(of_session) {
                    runner.next_token += used;
                }
            }
            (Op::Settle(settlements), _) => {
                let used = |seen: &LeaseSeen| settlements.iter().any(|s| s.lease == seen.lease);
                self.old.extend(model.leases().into_iter().filter(used));
            }
            (Op::Reclaim(leases, _), _) => self.old.extend(leases.iter().cloned()),
            (Op::Enqueue(jobs), Answer::Enqueued(answers)) => {
                let made = jobs.iter().zip(answers).filter(|(job, _)| job.id.is_none());
                self.made.extend(made.map(|(job, got)| (job.queue.clone(), got.id.clone())));
            }
            _ => {}
        }
        while self.old.len() > OLD_MAX {
            self.old.pop_front();
        }
        while self.claimed.len() > OLD_MAX {
            self.claimed.pop_front();
        }
        while self.made.len() > OLD_MAX {
            self.made.pop_front();
        }
    }
}
