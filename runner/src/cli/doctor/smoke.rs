//! `doctor --smoke`: a real job, due in a second, from the enqueue to the outcome in the store.
//!
//! Without a kind it runs on a runner of the doctor's own ([`own`]), with a kind on whoever serves that. However it ends, the
//! job does not stay: it is cancelled where it has not ended, and deleted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use self::own::SmokeRunner;
use crate::cli::context::Context;
use crate::cli::exit::Fault;
use crate::cli::stop::Stop;
use crate::clock::{Monotonic, monotonic};
use crate::job::{Due, JobView, NewJob, State};
use crate::names::{JobId, Name};
use crate::queue::checks::random_text;
use crate::queue::{Finding, JobRef, ListQuery, Retention, Severity, Store, StoreError, Verdict};
use crate::wire::job_out::duration_us;
use crate::wire::stats_out::is_served;

mod own;

/// The kind, and the queue, of jobs for a runner of the doctor's own.
const OWN_KIND: &str = "hourhand_smoke";
/// A job falls due so long after its enqueue.
const DUE_IN: Duration = Duration::from_secs(1);
/// A job that starts later than this is worth a word, in milliseconds.
const LATE_MS: f64 = 1_000.0;
/// How often the job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long a runner may take to give up a job that is taken back, and a store to come back.
const TAKE_BACK_MAX: Duration = Duration::from_secs(5);
/// Jobs that an earlier doctor has left behind are older than this, in milliseconds.
const LEFT_BEHIND_MS: u64 = 120_000;

/// What became of the job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SmokeOut {
    pub(super) kind: Name,
    pub(super) id: String,
    /// Its state in the end; `null` when it did not end in time.
    pub(super) state: Option<State>,
    pub(super) runner: Option<String>,
    pub(super) handler: Option<String>,
    /// From its due time to its start, by the store's clock.
    pub(super) lateness_ms: Option<f64>,
    /// From its start to its end.
    pub(super) duration_ms: Option<f64>,
    /// From its due time until its outcome was read from the store.
    pub(super) settled_ms: Option<f64>,
    /// From the enqueue until then, or until the wait was given up.
    pub(super) total_ms: f64,
}

/// Runs a job of this kind, or one of the doctor's own; what it brought.
pub(super) async fn run(
    context: &Context,
    store: &Arc<dyn Store>,
    kind: Option<&Name>,
    within: Duration,
) -> Result<(Option<SmokeOut>, Vec<Finding>), Fault> {
    let mut stop = Stop::new()?;
    let Some(kind) = kind else {
        let kind = Name::new(OWN_KIND).map_err(|error| Fault::failed(error.to_string()))?;
        let mut runner = SmokeRunner::start(context, &kind)?;
        let ready = tokio::select! {
            ready = runner.ready() => Some(ready),
            () = stop.told() => None,
        };
        let served = matches!(ready, Some(Ok(())));
        let smoked = match ready {
            Some(Ok(())) => smoke(context, &**store, &kind, within, &mut stop).await,
            Some(Err(fault)) => Err(fault),
            None => Ok((None, vec![interrupted(&kind)])),
        };
        let ended = runner.end().await;
        forget_left_behind(&**store, &kind).await;
        return match (smoked, ended) {
            (Ok(smoked), Ok(())) => Ok(smoked),
            // Its end tells why it did not serve.
            (Err(_), Err(end)) if !served => Err(end),
            // What is left of the job is in it.
            (Err(fault), _) => Err(fault),
            (Ok((_, found)), Err(mut end)) => {
                for finding in &found {
                    end.message = format!("{}\n{}", end.message, in_words(finding));
                }
                Err(end)
            }
        };
    };
    if let Some(obstacle) = obstacle(&**store, kind).await? {
        return Ok((None, vec![obstacle]));
    }
    smoke(context, &**store, kind, within, &mut stop).await
}

/// Why no job of this kind would run now.
async fn obstacle(store: &dyn Store, kind: &Name) -> Result<Option<Finding>, StoreError> {
    let (sessions, counts) = (store.sessions().await?, store.counts().await?);
    if !is_served(kind, &sessions, counts.now_ms) {
        return Ok(Some(failed(
            kind,
            format!("no live runner serves kind {kind}: nothing was enqueued"),
            "start a runner with a handler for it (`hourhand runner list` shows who serves what)",
        )));
    }
    let paused = counts.queues.iter().any(|queue| queue.queue == *kind && queue.paused);
    Ok(paused.then(|| {
        let fix = format!("hourhand queue resume {kind}");
        failed(kind, format!("queue {kind} is paused: nothing was enqueued"), &fix)
    }))
}

async fn smoke(
    context: &Context,
    store: &dyn Store,
    kind: &Name,
    within: Duration,
    stop: &mut Stop,
) -> Result<(Option<SmokeOut>, Vec<Finding>), Fault> {
    // Known before it is sent: it can be taken back though the answer is lost.
    let id = JobId::new(&format!("smoke-{}", random_text(20)?)).map_err(|e| Fault::failed(e.to_string()))?;
    let place = JobRef { queue: kind.clone(), id };
    let job = NewJob {
        id: Some(place.id.clone()),
        due: Due::In(DUE_IN.as_millis() as u64),
        payload: Bytes::from_static(b"null"),
        max_attempts: Some(1),
        source: format!("{} doctor --smoke", context.machine.source()),
        ..NewJob::new(kind.clone())
    };
    let began = monotonic();
    if let Err(error) = store.enqueue(std::slice::from_ref(&job)).await {
        return Err(not_enqueued(store, &place, error, TAKE_BACK_MAX).await);
    }
    let due = monotonic() + DUE_IN;
    let (view, told) = tokio::select! {
        view = ended(store, &place, due + within) => (view, false),
        () = stop.told() => (None, true),
    };
    let seen = monotonic();
    let ms_of = |us: u64| us as f64 / 1_000.0;
    // The due time is by the store's clock, which was read before its answer to the enqueue came.
    let ran_ms = view
        .as_ref()
        .map_or(0.0, |view| ms_of(view.lateness_us.unwrap_or(0) + duration_us(view).unwrap_or(0)));
    let since = |from: Monotonic| seen.saturating_duration_since(from).as_secs_f64() * 1_000.0;
    let out = SmokeOut {
        kind: kind.clone(),
        id: place.id.to_string(),
        state: view.as_ref().map(|view| view.state),
        runner: view.as_ref().and_then(|view| view.runner.clone()),
        handler: view.as_ref().and_then(|view| view.handler.clone()),
        lateness_ms: view.as_ref().and_then(|view| view.lateness_us).map(ms_of),
        duration_ms: view.as_ref().and_then(duration_us).map(ms_of),
        settled_ms: view.as_ref().map(|_| rounded(since(due).max(ran_ms))),
        total_ms: rounded(since(began)),
    };
    let mut found: Vec<Finding> = match &view {
        Some(view) => judge(kind, view).into_iter().collect(),
        None if told => vec![interrupted(kind)],
        None => vec![not_in_time(store, kind, &place, within).await],
    };
    found.extend(take_back(store, &place, TAKE_BACK_MAX).await);
    Ok((Some(out), found))
}

/// What an enqueue that failed comes to. The job may be there all the same: then it is taken back, or what is left is told.
async fn not_enqueued(store: &dyn Store, place: &JobRef, error: StoreError, within: Duration) -> Fault {
    let nothing_done =
        matches!(error, StoreError::Invalid(_) | StoreError::NotReady(_) | StoreError::Full(_));
    let mut fault = Fault::from(error);
    if !nothing_done && let Some(left) = take_back(store, place, within).await {
        fault.message =
            format!("{}\nthe smoke job may be there all the same: {}", fault.message, in_words(&left));
    }
    fault
}

fn rounded(ms: f64) -> f64 {
    (ms * 1_000.0).round() / 1_000.0
}

/// The job once it has ended; `None` when it has not until then.
async fn ended(store: &dyn Store, place: &JobRef, until: Monotonic) -> Option<JobView> {
    loop {
        // A store that is away for a moment may come back in time.
        let views = store.find(Some(&place.queue), &place.id).await.unwrap_or_default();
        let view = views.into_iter().next().filter(|view| view.state.is_finished());
        if view.is_some() || monotonic() >= until {
            return view;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is to be said about a job that has ended.
fn judge(kind: &Name, view: &JobView) -> Option<Finding> {
    if view.state != State::Completed {
        let why = view.error.as_ref().map_or_else(String::new, |error| {
            format!(": {} ({})", error.message.lines().next().unwrap_or_default(), error.reason.as_str())
        });
        let message = format!("the job ended {}{why}", view.state);
        return Some(failed(kind, message, "a handler that serves smoke jobs has to take the payload null"));
    }
    let late_ms = view.lateness_us? as f64 / 1_000.0;
    (late_ms > LATE_MS).then(|| {
        Finding::around(
            "lateness",
            Severity::Warning,
            format!("kind {kind}"),
            format!("the job started {late_ms:.0} ms after its due time"),
            "look at round trip, claims and the machine's load above; and whether its runners have free slots",
        )
    })
}

/// Why the job has not ended.
async fn not_in_time(store: &dyn Store, kind: &Name, place: &JobRef, within: Duration) -> Finding {
    let views = store.find(Some(&place.queue), &place.id).await.unwrap_or_default();
    let (state, fix) = match views.first().map(|view| view.state) {
        Some(State::Running) => ("it still ran", "a handler that takes longer needs --within"),
        Some(_) => (
            "no runner took it",
            "look whether runners have free slots, and take jobs of this queue (--queues)",
        ),
        None => ("the store did not tell of it", "look at the store's log"),
    };
    failed(kind, format!("the job did not end within {} s: {state}", within.as_secs_f32()), fix)
}

fn failed(kind: &Name, message: String, fix: &str) -> Finding {
    Finding::around("smoke", Severity::Error, format!("kind {kind}"), message, fix)
}

fn interrupted(kind: &Name) -> Finding {
    failed(kind, "it was interrupted before the job had ended".to_owned(), "run it again")
}

/// Sees to it that the job does not run later, and is gone; what stands against that.
async fn take_back(store: &dyn Store, place: &JobRef, within: Duration) -> Option<Finding> {
    let jobs = std::slice::from_ref(place);
    let until = monotonic() + within;
    loop {
        let done = async {
            // One that has ended is in conflict, which is as good; one that runs answers when it has stopped.
            store.cancel(jobs, Retention::FINISHED).await?;
            Ok::<_, StoreError>(store.delete(jobs).await?.first().copied())
        };
        let stands = match done.await {
            Ok(Some(Verdict::Done | Verdict::NotFound)) => return None,
            Ok(_) => "its runner was told to stop it, and has not answered yet".to_owned(),
            Err(error) => error.to_string(),
        };
        if monotonic() >= until {
            return Some(Finding::around(
                "smoke",
                Severity::Error,
                format!("job {} of queue {}", place.id, place.queue),
                format!("it could not be taken back: {stands}"),
                format!(
                    "hourhand job cancel {0} --queue {1} && hourhand job delete {0} --queue {1}",
                    place.id, place.queue
                ),
            ));
        }
        tokio::time::sleep(LOOK_EVERY * 4).await;
    }
}

/// What to say of a finding when there is no report for it.
fn in_words(finding: &Finding) -> String {
    let fix = finding.fix.as_ref().map(|fix| format!(": {fix}")).unwrap_or_default();
    format!("{}: {}{fix}", finding.place, finding.message)
}

/// Deletes what doctors have left that were killed, and nothing of one that works right now. A failure leaves it to the next.
async fn forget_left_behind(store: &dyn Store, kind: &Name) {
    let query =
        ListQuery { queue: Some(kind.clone()), kind: Some(kind.clone()), limit: 250, ..ListQuery::default() };
    let (Ok(page), Ok(counts)) = (store.list(&query).await, store.counts().await) else { return };
    let old = page.items.into_iter().filter(|view| view.job.enqueued_ms + LEFT_BEHIND_MS < counts.now_ms);
    let old: Vec<JobRef> = old.map(|view| JobRef { queue: view.job.queue, id: view.job.id }).collect();
    if !old.is_empty() {
        let _ = store.delete(&old).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Code;
    use crate::queue::redis::{RedisOptions, RedisStore};
    use crate::queue::sqlite::{SqliteOptions, SqliteStore};

    fn lost() -> StoreError {
        StoreError::Unreachable("no answer in time".to_owned())
    }

    #[tokio::test]
    async fn a_job_whose_answer_is_lost_is_taken_back_or_told() {
        let (name, within) = (Name::new("k").expect("a name"), Duration::from_millis(50));
        let place = JobRef { queue: name.clone(), id: JobId::new("smoke-x").expect("an id") };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("h.db");
        let store = SqliteStore::open(&file, &name, SqliteOptions::default()).expect("a store");
        let job = NewJob { id: Some(place.id.clone()), ..NewJob::new(name.clone()) };
        store.enqueue(&[job]).await.expect("taken");
        let fault = not_enqueued(&store, &place, lost(), within).await;
        assert_eq!(fault, Fault::from(lost()), "nothing is left to tell of");
        assert_eq!(store.find(None, &place.id).await.expect("an answer"), []);
        // It is not there, which is as good.
        assert_eq!(not_enqueued(&store, &place, lost(), within).await, Fault::from(lost()));

        // A port that nobody listens to.
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let url = format!("redis://127.0.0.1:{port}");
        let away = RedisStore::connect(&url, &name, RedisOptions::default()).expect("a store");
        let fault = not_enqueued(&away, &place, lost(), within).await;
        assert_eq!(fault.code, Code::Away);
        let command = "hourhand job cancel smoke-x --queue k && hourhand job delete smoke-x --queue k";
        assert!(
            fault.message.contains("job smoke-x of queue k") && fault.message.ends_with(command),
            "{fault}"
        );
    }
}
