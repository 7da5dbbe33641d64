//! Cancel, retry and delete: one verb on jobs that are named by id, and what became of each.
//!
//! Every id gets its own answer; the exit code is the worst of them. A runner that has the job is asked, and
//! given a moment to answer.

use std::time::Duration;

use serde::Serialize;

use super::context::Context;
use super::exit::{Code, Fault};
use super::jobs::{GIVE_BACK_MAX, find, place_of};
use super::output::note;
use crate::clock;
use crate::job::State;
use crate::names::{JobId, Name};
use crate::queue::{BATCH_MAX, JobRef, Retention, Store, StoreError, Verdict};

/// How long a runner may take to stop a job that is cancelled.
const STOP_MAX: Duration = Duration::from_secs(2);
/// The pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is to be done with each job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Cancel it, and keep its record so long.
    Cancel(Retention),
    /// Bring it back as new.
    Retry,
    /// Delete it.
    Delete,
    /// As [`Verb::Retry`], for dead letters alone.
    RetryDead,
    /// As [`Verb::Delete`], for dead letters alone.
    DeleteDead,
}

/// What became of one job.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    id: &'a str,
    queue: Option<Name>,
    result: &'static str,
    /// The state in which it is now: after the verb, or the one that stands in the way. `null` when there is
    /// no such job (any more), or nobody knows.
    state: Option<State>,
    #[serde(skip)]
    code: Code,
    #[serde(skip)]
    message: String,
}

impl Verb {
    /// What has happened to a job to which it was done.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Cancel(_) => "cancelled",
            Self::Retry | Self::RetryDead => "requeued",
            Self::Delete | Self::DeleteDead => "deleted",
        }
    }

    /// The state of a job to which it was done; none is left of a deleted one.
    fn state_after(self) -> Option<State> {
        match self {
            Self::Cancel(_) => Some(State::Cancelled),
            Self::Retry | Self::RetryDead => Some(State::Ready),
            Self::Delete | Self::DeleteDead => None,
        }
    }

    fn for_dead_alone(self) -> bool {
        matches!(self, Self::RetryDead | Self::DeleteDead)
    }

    /// Does it to up to [`BATCH_MAX`] jobs.
    pub(super) async fn apply(self, store: &dyn Store, jobs: &[JobRef]) -> Result<Vec<Verdict>, StoreError> {
        match self {
            Self::Cancel(retention) => store.cancel(jobs, retention).await,
            Self::Retry | Self::RetryDead => store.requeue(jobs).await,
            Self::Delete | Self::DeleteDead => store.delete(jobs).await,
        }
    }
}

/// Does `verb` to the jobs with these ids and says what became of each, in the order of the ids.
pub(super) async fn run(
    context: &mut Context,
    verb: Verb,
    ids: &[JobId],
    queue: Option<&Name>,
) -> Result<Code, Fault> {
    let store = context.store()?;
    let mut answers = Vec::with_capacity(ids.len());
    let mut ended = Ok(());
    for ids in ids.chunks(BATCH_MAX) {
        let mut slots: Vec<Option<Answer<'_>>> = ids.iter().map(|_| None).collect();
        if ended.is_ok() {
            ended = chunk(&*store, verb, ids, queue, &mut slots).await;
        }
        // What was not reached is as it was.
        let untried = |id| Answer::failed(id, "untried", Code::Away, format!("{id} was not tried"));
        answers.extend(slots.into_iter().zip(ids).map(|(slot, id)| slot.unwrap_or_else(|| untried(id))));
    }
    let worst = answers.iter().map(|a| a.code).max().unwrap_or(Code::Done);
    report(context, answers);
    ended.map(|()| worst)
}

/// Fills `slots` with the answers for `ids`; those that it did not come to stay empty.
async fn chunk<'a>(
    store: &dyn Store,
    verb: Verb,
    ids: &'a [JobId],
    queue: Option<&Name>,
    slots: &mut [Option<Answer<'a>>],
) -> Result<(), Fault> {
    let mut places = Vec::new();
    for (slot, id) in slots.iter_mut().zip(ids) {
        match place(store, verb, queue, id).await {
            Ok(place) => places.push((slot, id, place)),
            Err(Unfit::Answer(answer)) => *slot = Some(*answer),
            Err(Unfit::Fault(fault)) => return Err(fault),
        }
    }
    let refs: Vec<JobRef> = places.iter().map(|(_, _, place)| place.clone()).collect();
    if refs.is_empty() {
        return Ok(());
    }
    let verdicts = match verb.apply(store, &refs).await {
        Ok(verdicts) => verdicts,
        Err(error) => {
            if matches!(error, StoreError::Unreachable(_)) {
                for (slot, id, place) in places {
                    *slot = Some(Answer::unsure(verb, id, place));
                }
            }
            return Err(error.into());
        }
    };
    let mut ended = Ok(());
    for ((slot, id, place), verdict) in places.into_iter().zip(verdicts) {
        // Once the store is away, nobody is waited for any more; what was done is said all the same.
        if ended.is_err() && verdict == Verdict::Asked {
            *slot = Some(Answer::asked(id, place, None));
            continue;
        }
        match settle(store, verb, id, place.clone(), verdict).await {
            Ok(answer) => *slot = Some(answer),
            Err(error) => {
                *slot = Some(match verb {
                    Verb::Cancel(_) => Answer::asked(id, place, None),
                    _ => Answer::unsure(verb, id, place),
                });
                ended = Err(error.into());
            }
        }
    }
    ended
}

enum Unfit<'a> {
    Answer(Box<Answer<'a>>),
    Fault(Fault),
}

/// Where the job is, if the verb may touch it.
async fn place<'a>(
    store: &dyn Store,
    verb: Verb,
    queue: Option<&Name>,
    id: &'a JobId,
) -> Result<JobRef, Unfit<'a>> {
    let found = if verb.for_dead_alone() {
        match find(store, queue, id).await {
            Ok(view) if view.state != State::Dead => {
                let message = format!("{id} is {}: expected a dead letter", view.state);
                let mut answer = Answer::failed(id, "conflict", Code::Conflict, message);
                (answer.queue, answer.state) = (Some(view.job.queue), Some(view.state));
                return Err(Unfit::Answer(Box::new(answer)));
            }
            found => found.map(|view| JobRef { queue: view.job.queue, id: id.clone() }),
        }
    } else {
        place_of(store, queue, id).await
    };
    found.map_err(|fault| match fault.code {
        Code::NotFound => Unfit::Answer(Box::new(Answer::failed(id, "not_found", fault.code, fault.message))),
        Code::Conflict => Unfit::Answer(Box::new(Answer::failed(id, "ambiguous", fault.code, fault.message))),
        _ => Unfit::Fault(fault),
    })
}

/// What a verdict means; one that a runner was asked for is waited for.
async fn settle<'a>(
    store: &dyn Store,
    verb: Verb,
    id: &'a JobId,
    place: JobRef,
    verdict: Verdict,
) -> Result<Answer<'a>, StoreError> {
    let verdict = match (verdict, verb) {
        (Verdict::Asked, Verb::Cancel(_)) => return stopped(store, id, place).await,
        (Verdict::Asked, _) => {
            let again = async || {
                let verdicts = verb.apply(store, std::slice::from_ref(&place)).await?;
                Ok(verdicts.first().copied().unwrap_or(Verdict::NotFound))
            };
            patiently(GIVE_BACK_MAX, again).await?
        }
        (verdict, _) => verdict,
    };
    let mut answer = match verdict {
        Verdict::Done => {
            let mut answer = Answer::done(id, verb.done(), format!("{id} {}", verb.done()));
            answer.state = verb.state_after();
            answer
        }
        Verdict::Asked => Answer::failed(
            id,
            "asked",
            Code::Conflict,
            format!("{id}: a runner holds it and did not give it back"),
        ),
        Verdict::NotFound => Answer::failed(
            id,
            "not_found",
            Code::NotFound,
            format!("there is no job {id} in queue {}", place.queue),
        ),
        Verdict::Conflict(state) => {
            let mut answer = Answer::failed(
                id,
                "conflict",
                Code::Conflict,
                format!("{id} is {state}: cannot be {}", verb.done()),
            );
            answer.state = Some(state);
            answer
        }
    };
    answer.queue = Some(place.queue);
    Ok(answer)
}

/// Waits until a running job that was told to stop has done so.
async fn stopped<'a>(store: &dyn Store, id: &'a JobId, place: JobRef) -> Result<Answer<'a>, StoreError> {
    let told = clock::monotonic();
    let state = loop {
        let views = store.find(Some(&place.queue), id).await?;
        let state = views.first().map(|v| v.state);
        let waited = clock::monotonic().duration_since(told);
        if state.is_none_or(State::is_finished) || waited >= STOP_MAX {
            break state;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let mut answer = match state {
        // Retention may have removed it since.
        Some(State::Cancelled) | None => Answer::done(id, "cancelled", format!("{id} cancelled")),
        Some(state) if state.is_finished() => {
            Answer::failed(id, "conflict", Code::Conflict, format!("{id} is {state}: it finished first"))
        }
        Some(state) => return Ok(Answer::asked(id, place, Some(state))),
    };
    (answer.queue, answer.state) = (Some(place.queue), state.or(Some(State::Cancelled)));
    Ok(answer)
}

/// Repeats a call until a runner has given the job back, or the time is over.
pub(super) async fn patiently(
    patience: Duration,
    call: impl AsyncFn() -> Result<Verdict, StoreError>,
) -> Result<Verdict, StoreError> {
    let began = clock::monotonic();
    loop {
        let verdict = call().await?;
        if verdict != Verdict::Asked || clock::monotonic().duration_since(began) >= patience {
            return Ok(verdict);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl<'a> Answer<'a> {
    fn done(id: &'a JobId, result: &'static str, message: String) -> Self {
        Self { id: id.as_str(), queue: None, result, state: None, code: Code::Done, message }
    }

    /// A runner has been told to stop it; `state` is what is known of it since.
    fn asked(id: &'a JobId, place: JobRef, state: Option<State>) -> Self {
        let is = state.map(|state| format!(" is {state}")).unwrap_or_default();
        let message = format!("{id}{is}: its runner was asked to stop it");
        Self { queue: Some(place.queue), state, ..Self::done(id, "asked", message) }
    }

    /// The call may have been done, but its reply did not come.
    fn unsure(verb: Verb, id: &'a JobId, place: JobRef) -> Self {
        let message = format!("{id} may or may not have been {}", verb.done());
        Self { queue: Some(place.queue), ..Self::failed(id, "unsure", Code::Away, message) }
    }

    fn failed(id: &'a JobId, result: &'static str, code: Code, message: String) -> Self {
        Self { id: id.as_str(), queue: None, result, state: None, code, message }
    }
}

/// The answers to stdout; what failed is said on stderr too when stdout carries JSON.
fn report(context: &mut Context, answers: Vec<Answer<'_>>) {
    for answer in &answers {
        if answer.code != Code::Done {
            note(&format!("error: {}", answer.message));
        } else if !context.out.json() {
            context.out.line(&answer.message);
        }
    }
    if context.out.json() {
        super::listing::whole(context, answers);
    }
}
