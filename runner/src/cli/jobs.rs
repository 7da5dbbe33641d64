//! `job`: look at jobs, and change them one by one.

use std::time::Duration;

use super::args_jobs::{JobCommand, ListArgs, OneJob};
use super::context::{Context, due, since};
use super::exit::{Code, Fault};
use super::verbs::{self, Verb};
use super::{listing, logs, show};
use crate::config;
use crate::job::JobView;
use crate::names::{JobId, Name};
use crate::queue::{JobRef, ListQuery, Store, Verdict};
use crate::wire::job_out::JobOut;

/// How long a job that a runner holds may take to come back for a change.
pub(super) const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// Runs a command about jobs.
pub(super) async fn run(context: &mut Context, command: &JobCommand) -> Result<Code, Fault> {
    match command {
        JobCommand::List(args) => list(context, args).await,
        JobCommand::Show(job) => {
            let store = context.store()?;
            let view = find_one(&*store, job).await?;
            if context.out.json() {
                context.out.value(&JobOut::from(&view));
            } else {
                show::job(&mut context.out, &view);
            }
            Ok(Code::Done)
        }
        JobCommand::Logs { job, follow } => logs::run(context, job, *follow).await,
        JobCommand::Cancel(jobs) => {
            let retention = config::retention(&context.layers)?.finished;
            verbs::run(context, Verb::Cancel(retention), &jobs.id, jobs.queue.as_ref()).await
        }
        JobCommand::Retry(jobs) => verbs::run(context, Verb::Retry, &jobs.id, jobs.queue.as_ref()).await,
        JobCommand::Delete(jobs) => verbs::run(context, Verb::Delete, &jobs.id, jobs.queue.as_ref()).await,
        JobCommand::Reschedule { job, delay, at } => {
            reschedule(context, job, delay.as_deref(), at.as_deref()).await
        }
    }
}

async fn list(context: &mut Context, args: &ListArgs) -> Result<Code, Fault> {
    let query = ListQuery {
        queue: args.queue.clone(),
        kind: args.kind.clone(),
        states: args.state.clone(),
        error: None,
        since_ms: since(args.page.since.as_deref())?,
        limit: 0,
        cursor: args.page.cursor.clone(),
    };
    let store = context.store()?;
    listing::jobs(context, &*store, query, args.page.limit).await
}

async fn reschedule(
    context: &mut Context,
    job: &OneJob,
    delay: Option<&str>,
    at: Option<&str>,
) -> Result<Code, Fault> {
    let due = due(delay, at)?;
    let store = context.store()?;
    let place = place_of(&*store, job.queue.as_ref(), &job.id).await?;
    let attempt = async || store.reschedule(&place, due).await;
    let unsure = |error| Fault::unsure(error, job.id.as_str(), "rescheduled");
    match verbs::patiently(GIVE_BACK_MAX, attempt).await.map_err(unsure)? {
        Verdict::Done => {}
        Verdict::Asked => {
            return Err(Fault::conflict(format!("{}: a runner holds it and did not give it back", job.id)));
        }
        Verdict::NotFound => return Err(not_found(job.queue.as_ref(), &job.id)),
        Verdict::Conflict(state) => {
            return Err(Fault::conflict(format!("{} is {state}: only a waiting job has a due time", job.id)));
        }
    }
    let views = store.find(Some(&place.queue), &place.id).await.map_err(|error| {
        let mut fault = Fault::from(error);
        fault.message += &format!("\n{} has been rescheduled", job.id);
        fault
    })?;
    let view = views.into_iter().next().ok_or_else(|| not_found(Some(&place.queue), &place.id))?;
    if context.out.json() {
        context.out.value(&JobOut::from(&view));
    } else {
        let due = crate::wire::units::rfc3339(view.due_ms);
        context.out.line(&format!("{} is {} and due {due}", view.job.id, view.state));
    }
    Ok(Code::Done)
}

/// Where a job is: its queue as given, else found.
///
/// # Errors
/// When there is none, or in several queues.
pub(super) async fn place_of(store: &dyn Store, queue: Option<&Name>, id: &JobId) -> Result<JobRef, Fault> {
    let queue = match queue {
        Some(queue) => queue.clone(),
        None => find(store, None, id).await?.job.queue,
    };
    Ok(JobRef { queue, id: id.clone() })
}

/// The one job that the arguments name.
///
/// # Errors
/// When there is none, or in several queues.
pub(super) async fn find_one(store: &dyn Store, job: &OneJob) -> Result<JobView, Fault> {
    find(store, job.queue.as_ref(), &job.id).await
}

/// The one job with this id.
///
/// # Errors
/// When there is none, or in several queues.
pub(super) async fn find(store: &dyn Store, queue: Option<&Name>, id: &JobId) -> Result<JobView, Fault> {
    let mut views = store.find(queue, id).await?;
    match views.len() {
        0 => Err(not_found(queue, id)),
        1 => Ok(views.swap_remove(0)),
        _ => {
            let queues: Vec<&str> = views.iter().map(|v| v.job.queue.as_str()).collect();
            Err(Fault::conflict(format!(
                "{id} is in several queues: choose with --queue one of {}",
                queues.join(", ")
            )))
        }
    }
}

fn not_found(queue: Option<&Name>, id: &JobId) -> Fault {
    Fault::not_found(match queue {
        Some(queue) => format!("there is no job {id} in queue {queue}"),
        None => format!("there is no job {id}"),
    })
}
