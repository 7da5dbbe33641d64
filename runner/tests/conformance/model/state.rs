//! The model: what a store holds, in memory and as simply as can be.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, bail, ensure};
use hourhand::job::{Due, JobView, State};
use hourhand::names::{JobId, Name};
use hourhand::queue::{Disposition, JobRef, Lane, LeaseSeen, Retention, SessionId};

use super::job::ModelJob;
use super::ops::{Answer, Op};
use super::remember::ModelEntry;
use super::window::Window;

pub(super) type Key = (Name, JobId);
/// The finished jobs of a queue in one state.
pub(super) type Index = (Name, State);

pub(super) fn key_of(job: &JobRef) -> Key {
    (job.queue.clone(), job.id.clone())
}

/// What was ever counted of a queue.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) enqueued: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    /// Dead letters dropped by a limit, at least and at most: of one whose time is over just then nobody can tell.
    pub(super) dropped: (u64, u64),
}

/// An id whose job has ended and is gone.
#[derive(Debug, Clone)]
pub(super) struct Remembered {
    pub(super) state: State,
    pub(super) due_ms: u64,
    pub(super) forget: Window,
    /// Somebody may have found its time over, before the clock was set back.
    pub(super) maybe_gone: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) jobs: BTreeMap<Key, ModelJob>,
    pub(super) remembered: BTreeMap<Key, Remembered>,
    pub(super) lanes: BTreeSet<Lane>,
    pub(super) paused: BTreeSet<Name>,
    pub(super) totals: BTreeMap<Name, Totals>,
    pub(super) stale: u64,
    /// State, by bucket.
    pub(super) buckets: BTreeMap<Name, BTreeMap<String, ModelEntry>>,
    /// The last version that was seen of each key that ever was.
    pub(super) versions: BTreeMap<(Name, String), u64>,
    /// The highest mark that a heartbeat has told.
    pub(super) mark: u64,
    /// Those that are registered, with their last beat.
    pub(super) sessions: BTreeMap<SessionId, u64>,
    /// What this step added to each finished index, and what may be kept there.
    pub(super) added: HashMap<Index, (usize, Retention)>,
    order: u64,
}

/// What was seen of the store after a step.
pub(super) struct Seen {
    pub(super) answer: Answer,
    /// The jobs that the step may have changed; `None` for those that are not there.
    pub(super) views: BTreeMap<Key, Option<JobView>>,
    /// Who is left in the finished indexes in which retention may have been at work.
    pub(super) kept: HashMap<Index, BTreeSet<Key>>,
}

impl Model {
    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// Takes a step with the store: whether its answer, and what it shows afterwards, is what the rules
    /// demand at some moment of `window`, in milliseconds since 1970.
    pub(super) fn step(&mut self, op: &Op, seen: &Seen, window: Window) -> Result<()> {
        let narrow = narrowed(op, &seen.answer, window)?;
        let parts = narrow.parts(self.marks(op, &seen.answer).into_iter());
        let looked = |part: Window| Window { lo: part.lo, hi: window.hi };
        if let [part] = parts[..] {
            return self.try_step(op, seen, part, looked(part));
        }
        let mut errors = Vec::new();
        for part in parts {
            let mut next = self.clone();
            match next.try_step(op, seen, part, looked(part)) {
                Ok(()) => {
                    *self = next;
                    return Ok(());
                }
                Err(error) => errors.push(format!("at {part:?}: {error:#}")),
            }
        }
        bail!("at no moment of {window:?}: {}", errors.join("; "))
    }

    /// The due times on which it depends what a step does: the store's answer tells whether each had come.
    fn marks(&self, op: &Op, answer: &Answer) -> Vec<u64> {
        let waiting_too = match op {
            Op::Requeue(_) => true,
            Op::Reclaim(..) | Op::Reschedule(..) | Op::Delete(_) => false,
            _ => return Vec::new(),
        };
        let touched = self.touched(op, answer);
        let jobs = touched.iter().filter_map(|key| self.jobs.get(key));
        jobs.filter(|job| job.taken().is_some() || waiting_too && job.waits()).map(ModelJob::due).collect()
    }

    /// As if the store had acted within `now`, in which no due time passes that matters, and were looked at
    /// within `looked`.
    fn try_step(&mut self, op: &Op, seen: &Seen, now: Window, looked: Window) -> Result<()> {
        self.apply(op, seen, now, looked)?;
        self.trim(seen, now)?;
        for (key, view) in &seen.views {
            self.agree(key, view.as_ref(), looked)?;
        }
        Ok(())
    }

    fn apply(&mut self, op: &Op, seen: &Seen, now: Window, looked: Window) -> Result<()> {
        match (op, &seen.answer) {
            (Op::Enqueue(jobs), Answer::Enqueued(answers)) => self.enqueue(jobs, answers, now),
            (Op::Claim(request), Answer::Claimed(claimed)) => self.claim(request, claimed),
            (Op::Settle(settlements), Answer::Settled(answers)) => self.settle(settlements, answers, now),
            (Op::WriteLogs(logs), Answer::Settled(answers)) => self.write_logs(logs, answers),
            (Op::Heartbeat(session), Answer::Pulse(pulse)) => self.heartbeat(session, pulse),
            (Op::EndSession(session), Answer::Nothing) => {
                self.sessions.remove(session);
                Ok(())
            }
            (Op::Reclaim(leases, dead), Answer::Reclaimed(answer)) => {
                self.reclaim(leases, *dead, answer, now)
            }
            (Op::Offer(jobs), Answer::Offered(answers, leases)) => self.offer(jobs, answers, leases, now),
            (Op::Cancel(jobs, retention), Answer::Verdicts(verdicts)) => {
                self.each(jobs, verdicts, |model, key| model.cancel(key, *retention, now))
            }
            (Op::Reschedule(job, due), Answer::Verdicts(verdicts)) => {
                self.each(std::slice::from_ref(job), verdicts, |model, key| model.reschedule(key, *due, now))
            }
            (Op::Requeue(jobs), Answer::Verdicts(verdicts)) => {
                self.each(jobs, verdicts, |model, key| model.requeue(key, now))
            }
            (Op::Delete(jobs), Answer::Verdicts(verdicts)) => {
                self.each(jobs, verdicts, |model, key| model.delete(key, now))
            }
            (Op::Pause(queue), Answer::Nothing) => {
                self.paused.insert(queue.clone());
                self.recall_held(queue, now);
                Ok(())
            }
            (Op::Resume(queue), Answer::Nothing) => {
                self.paused.remove(queue);
                Ok(())
            }
            (Op::Purge(queue), Answer::Purged(purged, more)) => self.purge(queue, *purged, *more, now),
            (Op::Prune, Answer::Pruned(pruned)) => self.prune(seen, pruned.jobs, now),
            (Op::Find(queue, id), Answer::Views(views)) => self.find(queue.as_ref(), id, views, looked),
            (Op::List(query), Answer::Views(views)) => self.list(query, views, looked),
            (Op::Logs(job), Answer::Logs(logs)) => self.logs(&key_of(job), logs),
            (Op::ReadState(bucket, keys), Answer::State(found)) => self.read_state(bucket, keys, found),
            (Op::SetState(bucket, key, value), Answer::Version(version)) => {
                self.set_state(bucket, key, value, *version)
            }
            (Op::DeleteState(bucket, key), Answer::Deleted(deleted)) => {
                self.delete_state(bucket, key, *deleted)
            }
            (Op::EmptyBucket(bucket), Answer::Emptied(deleted, more)) => {
                self.empty_bucket(bucket, *deleted, *more)
            }
            (Op::Refused(_), Answer::Nothing) => Ok(()),
            (op, answer) => bail!("{answer:?} is no answer to {op:?}"),
        }
    }

    /// Whether the store shows a job as it should be.
    pub(super) fn agree(&mut self, key: &Key, view: Option<&JobView>, now: Window) -> Result<()> {
        let context = || format!("job {} of {}", key.1, key.0);
        let session = self.jobs.get(key).and_then(|job| job.taken()).map(|taken| &taken.lease.session);
        let runner = session.and_then(|session| self.runner_of(session));
        match (self.jobs.get_mut(key), view) {
            (None, None) => Ok(()),
            (Some(job), Some(view)) => job.agree(view, runner.as_deref(), now).with_context(context),
            (Some(job), None) => Err(anyhow::anyhow!("it is gone, expected {job:?}")).with_context(context),
            (None, Some(view)) => Err(anyhow::anyhow!("it should be gone: {view:?}")).with_context(context),
        }
    }

    /// The name of a session's runner, where it is registered.
    pub(super) fn runner_of(&self, session: &SessionId) -> Option<String> {
        self.sessions.contains_key(session).then(|| crate::bed::info(session).name)
    }

    /// The job under a lease.
    pub(super) fn leased(&self, lease: &hourhand::queue::Lease) -> Option<Key> {
        self.jobs.iter().find(|(_, job)| job.is_under(lease)).map(|(key, _)| key.clone())
    }

    /// All leases, as the store should list them.
    pub(super) fn leases(&self) -> Vec<LeaseSeen> {
        let mut leases: Vec<LeaseSeen> = self
            .jobs
            .values()
            .filter_map(|job| {
                let taken = job.taken()?;
                Some(LeaseSeen { lease: taken.lease.clone(), lane: job.lane(), claimed_ms: taken.claimed_ms })
            })
            .collect();
        leases.sort_unstable_by_key(|seen| (seen.lease.record, seen.lease.token));
        leases
    }

    /// The jobs that a step may have changed.
    pub(super) fn touched(&self, op: &Op, answer: &Answer) -> BTreeSet<Key> {
        let mut keys = BTreeSet::new();
        match (op, answer) {
            (Op::Enqueue(jobs), Answer::Enqueued(answers)) => {
                keys.extend(jobs.iter().zip(answers).map(|(job, got)| (job.queue.clone(), got.id.clone())));
            }
            (Op::Claim(_), Answer::Claimed(claimed)) => {
                keys.extend(claimed.jobs.iter().map(|c| (c.job.queue.clone(), c.job.id.clone())).take(2));
            }
            (Op::Settle(settlements), _) => {
                keys.extend(settlements.iter().filter_map(|s| self.of_record(s.lease.record)));
                let children =
                    settlements.iter().filter_map(|s| s.effects.as_ref()).flat_map(|e| &e.children);
                keys.extend(children.filter_map(|child| Some((child.queue.clone(), child.id.clone()?))));
            }
            (Op::Reclaim(leases, _), _) => {
                keys.extend(leases.iter().filter_map(|seen| self.of_record(seen.lease.record)));
            }
            (Op::Cancel(jobs, _) | Op::Requeue(jobs) | Op::Delete(jobs), _) => {
                keys.extend(jobs.iter().map(key_of));
            }
            (Op::Offer(jobs), _) => {
                keys.extend(jobs.iter().map(|of| (of.job.queue.clone(), of.job.id.clone())));
            }
            (Op::Reschedule(job, _), _) => keys.extend([key_of(job)]),
            (Op::Refused(op), _) => return self.touched(op, answer),
            _ => {}
        }
        keys
    }

    pub(super) fn of_record(&self, record: u64) -> Option<Key> {
        self.jobs.iter().find(|(_, job)| job.record == Some(record)).map(|(key, _)| key.clone())
    }
}

/// The window after what the answer itself tells of the moment: a call has one.
fn narrowed(op: &Op, answer: &Answer, mut window: Window) -> Result<Window> {
    match (op, answer) {
        (Op::Claim(_), Answer::Claimed(claimed)) => window.pin("the clock", claimed.now_us / 1_000)?,
        (Op::Heartbeat(_), Answer::Pulse(pulse)) => window.pin("the clock", pulse.now_us / 1_000)?,
        (Op::Enqueue(jobs), Answer::Enqueued(answers)) => {
            for (job, got) in jobs.iter().zip(answers) {
                if matches!(got.disposition, Disposition::Kept | Disposition::Conflict) {
                    continue;
                }
                let age = job.age_ms;
                match job.due {
                    _ if age > 0 && got.disposition == Disposition::Rescheduled => {}
                    Due::In(ms) => window.pin("the clock", got.due_ms.saturating_sub(ms) + age)?,
                    Due::At(ms) if got.due_ms > ms => window.pin("the clock", got.due_ms + age)?,
                    Due::At(ms) => {
                        ensure!(window.lo <= ms + age, "due at {ms}, although it was {window:?}");
                        window.hi = window.hi.min(ms + age);
                    }
                }
            }
        }
        _ => {}
    }
    Ok(window)
}
