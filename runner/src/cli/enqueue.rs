//! `enqueue`: one job, and waiting for its end.

use std::time::Duration;

use super::args_jobs::EnqueueArgs;
use super::context::{Context, client, due, flag};
use super::exit::{Code, Fault};
use super::output::{note, plain};
use super::show::outcome_line;
use super::{bulk, payload};
use crate::client::{Accepted, EnqueueError, Spooled};
use crate::clock;
use crate::job::{JobView, NewJob, State};
use crate::names::{JobId, Name};
use crate::queue::{Disposition, Enqueued, Store, StoreError};
use crate::telemetry::Throttled;
use crate::wire::job_out::{EnqueuedOut, JobOut};
use crate::wire::{stats_out, units};

/// The first and the longest pause between two looks at a job that is waited for.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));
/// How long a waiting command puts up with a store that is away.
const OUTAGE_MAX: Duration = Duration::from_secs(60);

/// Enqueues what the arguments say.
pub(super) async fn run(context: &mut Context, args: &EnqueueArgs) -> Result<Code, Fault> {
    if let Some(path) = &args.ndjson {
        return bulk::run(context, path, args.from_line.unwrap_or(1)).await;
    }
    let job = new_job(args, context.machine.source())?;
    let store = context.store_or_new()?;
    let client = client(context, &store)?;
    let answers = client.enqueue(std::slice::from_ref(&job)).await.map_err(|error| unsure(error, &job))?;
    let answer = match &answers[..] {
        [Accepted::Stored(answer)] => answer,
        [Accepted::Spooled(spooled)] => return say_spooled(context, spooled, args.wait),
        _ => return Err(Fault::failed("the store gave no answer for the job")),
    };
    if answer.disposition == Disposition::Conflict {
        let there = in_the_way(&*store, &job, answer).await;
        return Err(Fault::conflict(format!(
            "{there}: --on-conflict {} cannot be done",
            job.on_conflict.as_str()
        )));
    }
    let waits = args.wait && context.out.json();
    if !waits {
        if context.out.json() {
            context.out.value(&EnqueuedOut::from(answer));
        } else {
            context.out.line(answer.id.as_str());
        }
        context.out.flush();
    }
    if answer.disposition == Disposition::Kept {
        note(&format!("{} exists and is {}: kept as it is", answer.id, answer.state));
    }
    if !answer.state.is_finished() {
        warn_unserved(&*store, &job.kind).await;
    }
    if args.wait { wait(context, &*store, &job.queue, answer).await } else { Ok(Code::Done) }
}

/// Answers for a job that the spool has.
fn say_spooled(context: &mut Context, spooled: &Spooled, wait: bool) -> Result<Code, Fault> {
    if context.out.json() {
        context.out.value(&EnqueuedOut::from(spooled));
    } else {
        context.out.line(spooled.id.as_str());
    }
    context.out.flush();
    let Spooled { id, position, why, .. } = spooled;
    note(&format!("spooled: {}; {id} waits on this machine, as number {position}", plain(why)));
    if wait {
        return Err(Fault {
            code: Code::Away,
            message: format!(
                "{id} is not lost: it waits in the spool and runs once that is drained; nobody can wait for its end before"
            ),
        });
    }
    Ok(Code::Done)
}

/// What a failed call means for its only job.
fn unsure(error: EnqueueError, job: &NewJob) -> Fault {
    let what = job.id.as_ref().map_or("the job", JobId::as_str);
    // One that has too few copies says itself what that means.
    let lost = error.is_unsure() && !matches!(error, EnqueueError::Store(StoreError::Unreplicated(_)));
    let mut fault = Fault::from(error);
    if lost {
        fault.message = format!("{}\n{what} may or may not have been taken", fault.message);
    }
    if lost && job.id.is_some() {
        fault.message += ": with its id it can be repeated safely";
    }
    fault
}

/// What has the id of a job that is in conflict with it. The same id may belong to a job of another kind, which
/// no new job replaces.
pub(super) async fn in_the_way(store: &dyn Store, job: &NewJob, answer: &Enqueued) -> String {
    let found = store.find(Some(&job.queue), &answer.id).await.unwrap_or_default();
    let other = found.first().map(|view| &view.job.kind).filter(|kind| **kind != job.kind);
    let there = format!("{} exists in queue {} and is {}", answer.id, job.queue, answer.state);
    match other {
        Some(kind) => format!("{there}, of kind {kind} and not {}", job.kind),
        None => there,
    }
}

fn new_job(args: &EnqueueArgs, source: String) -> Result<NewJob, Fault> {
    // The arguments' definition demands a kind where there is no NDJSON.
    let kind = args.kind.clone().ok_or_else(|| Fault::usage("expected a KIND"))?;
    let timeout = args.timeout.as_deref().map(units::duration_ms).transpose();
    for (at, (key, _)) in args.meta.iter().enumerate() {
        if args.meta[..at].iter().any(|(k, _)| k == key) {
            return Err(flag("--meta", &format!("expected each key once, got {key:?} twice")));
        }
    }
    let mut job = NewJob {
        id: args.id.clone(),
        queue: args.queue.clone().unwrap_or_else(|| kind.clone()),
        priority: args.priority.unwrap_or_default(),
        due: due(args.delay.as_deref(), args.at.as_deref())?,
        max_attempts: args.max_attempts,
        timeout_ms: timeout.map_err(|e| flag("--timeout", &e))?,
        meta: args.meta.clone(),
        source,
        on_conflict: args.on_conflict.unwrap_or_default(),
        ..NewJob::new(kind)
    };
    job.validate().map_err(Fault::usage)?;
    // Last, so that a mistake in a flag does not wait for stdin.
    job.payload = payload::read(args.payload.as_deref(), args.payload_file.as_deref())?;
    Ok(job)
}

/// Says so on stderr when no live runner serves `kind`. A store that does not answer is no news here.
pub(super) async fn warn_unserved(store: &dyn Store, kind: &Name) {
    let Ok(sessions) = store.sessions().await else { return };
    let now_ms = if sessions.is_empty() {
        0
    } else {
        let Ok(counts) = store.counts().await else { return };
        counts.now_ms
    };
    if !stats_out::is_served(kind, &sessions, now_ms) {
        note(&format!("warning: no live runner serves kind {kind}: its jobs wait until one does"));
    }
}

/// Waits for the job's end and prints it.
async fn wait(
    context: &mut Context,
    store: &dyn Store,
    queue: &Name,
    answer: &Enqueued,
) -> Result<Code, Fault> {
    let view = finished(store, queue, answer).await;
    if view.is_err() && context.out.json() {
        // Its id is not lost with the store.
        context.out.value(&EnqueuedOut::from(answer));
    }
    let Some(view) = view? else {
        note(&format!("the record of {} is gone: retention has removed it", answer.id));
        if context.out.json() {
            context.out.value(&EnqueuedOut::from(answer));
        }
        return Ok(code_of(answer.state));
    };
    if context.out.json() {
        context.out.value(&JobOut::from(&view));
    } else {
        context.out.line(&outcome_line(&view));
        match view.result.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => context.out.line(text),
            Some(Err(_)) => {
                note(&format!("the result is no text: hourhand job show {} --json has it", view.job.id))
            }
            None => {}
        }
    }
    Ok(code_of(view.state))
}

fn code_of(state: State) -> Code {
    if state == State::Completed { Code::Done } else { Code::Failed }
}

/// The job once it has finished; `None` when its record went before that was seen.
async fn finished(store: &dyn Store, queue: &Name, answer: &Enqueued) -> Result<Option<JobView>, Fault> {
    let (mut pause, pause_max) = LOOK_PAUSES;
    let mut heard = clock::monotonic();
    let mut outage = Throttled::new();
    loop {
        match store.find(Some(queue), &answer.id).await {
            Ok(views) => {
                heard = clock::monotonic();
                match views.into_iter().next() {
                    Some(view) if view.state.is_finished() => return Ok(Some(view)),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
            Err(error) if error.is_passing() && clock::monotonic().duration_since(heard) < OUTAGE_MAX => {
                if outage.admit(clock::monotonic()).is_some() {
                    note(&format!("waiting: {}", plain(&error.to_string())));
                }
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(pause_max);
    }
}
