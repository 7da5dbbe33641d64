//! The JSON of counts and runners, and which of them are alive.
//!
//! `overdue` counts the jobs whose due time has passed and which have not started. A queue is `served` when
//! a live runner serves one of its kinds. A runner is live while its last heartbeat, of which there is one a
//! second, is less than [`FRESH_MS`] old: a word for people, never a decision about a lease.

use serde::Serialize;

use super::units::rfc3339;
use crate::names::Name;
use crate::queue::{Counts, QueueCounts, SessionSeen};

/// Heartbeats older than this are those of a runner that is gone, in milliseconds.
pub const FRESH_MS: u64 = 10_000;

/// All counts.
#[derive(Debug, Serialize)]
pub struct StatsOut<'a> {
    /// By queue, in order of name.
    pub queues: Vec<QueueOut<'a>>,
    /// Every runner that has shown itself.
    pub runners: Vec<RunnerOut<'a>>,
}

/// Counts of one queue.
#[derive(Debug, Serialize)]
pub struct QueueOut<'a> {
    /// Which.
    pub queue: &'a str,
    /// Due later.
    pub scheduled: u64,
    /// Due now.
    pub ready: u64,
    /// In a runner's hands.
    pub running: u64,
    /// Held back by an ordering key or a limit; this version has neither.
    pub blocked: u64,
    /// Dead letters.
    pub dead: u64,
    /// Completed and still kept.
    pub completed: u64,
    /// Past their due time and not started.
    pub overdue: u64,
    /// The earliest due time of those that wait.
    pub oldest_due_at: Option<String>,
    /// Whether claims leave it alone.
    pub paused: bool,
    /// Whether a live runner serves it.
    pub served: bool,
    /// Jobs ever enqueued.
    pub enqueued_total: u64,
    /// Jobs ever completed.
    pub completed_total: u64,
    /// Attempts ever failed.
    pub failed_total: u64,
    /// Dead letters ever removed by a limit in number or bytes before their age was over.
    pub dead_dropped_total: u64,
}

/// One runner.
#[derive(Debug, Serialize)]
pub struct RunnerOut<'a> {
    /// What it is called.
    pub runner: Option<&'a str>,
    /// Its life, from its start to its end.
    pub session: &'a str,
    /// Its machine.
    pub host: Option<&'a str>,
    /// Its process.
    pub pid: Option<u32>,
    /// Hourhand's version.
    pub version: Option<&'a str>,
    /// When it started.
    pub started_at: Option<String>,
    /// When the store last heard of it.
    pub seen_at: Option<String>,
    /// Whether that is less than [`FRESH_MS`] ago.
    pub live: bool,
    /// Its slots.
    pub concurrency: Option<u32>,
    /// Jobs that run.
    pub running: Option<u32>,
    /// Jobs that it holds for their moment.
    pub held: Option<u32>,
    /// Kinds that it serves.
    pub kinds: &'a [Name],
    /// Whether it has stopped claiming.
    pub stopping: bool,
}

impl<'a> StatsOut<'a> {
    /// Counts and sessions, as of the same moment.
    pub fn new(counts: &'a Counts, sessions: &'a [SessionSeen]) -> Self {
        let queues = counts.queues.iter().map(|q| QueueOut::new(q, sessions, counts.now_ms)).collect();
        Self { queues, runners: runners(sessions, counts.now_ms) }
    }
}

impl<'a> QueueOut<'a> {
    /// One queue's counts at `now_ms`, the store's clock.
    pub fn new(counts: &'a QueueCounts, sessions: &[SessionSeen], now_ms: u64) -> Self {
        Self {
            queue: counts.queue.as_str(),
            scheduled: counts.scheduled,
            ready: counts.ready,
            running: counts.running,
            blocked: 0,
            dead: counts.dead,
            completed: counts.completed,
            overdue: counts.ready,
            oldest_due_at: counts.oldest_due_ms.map(rfc3339),
            paused: counts.paused,
            served: counts.kinds.iter().any(|kind| is_served(kind, sessions, now_ms)),
            enqueued_total: counts.enqueued_total,
            completed_total: counts.completed_total,
            failed_total: counts.failed_total,
            dead_dropped_total: counts.dead_dropped_total,
        }
    }
}

/// The runners, by name.
pub fn runners(sessions: &[SessionSeen], now_ms: u64) -> Vec<RunnerOut<'_>> {
    let mut runners: Vec<RunnerOut<'_>> = sessions.iter().map(|s| runner(s, now_ms)).collect();
    runners.sort_by(|a, b| (a.runner, a.session).cmp(&(b.runner, b.session)));
    runners
}

fn runner(seen: &SessionSeen, now_ms: u64) -> RunnerOut<'_> {
    let info = seen.info.as_ref();
    RunnerOut {
        runner: info.map(|i| i.name.as_str()),
        session: &seen.session.0,
        host: info.map(|i| i.host.as_str()),
        pid: info.map(|i| i.pid),
        version: info.map(|i| i.version.as_str()),
        started_at: info.filter(|i| i.started_ms > 0).map(|i| rfc3339(i.started_ms)),
        seen_at: (seen.beat_ms > 0).then(|| rfc3339(seen.beat_ms)),
        live: is_live(seen, now_ms),
        concurrency: info.map(|i| i.concurrency),
        running: info.map(|i| i.running),
        held: info.map(|i| i.held),
        kinds: info.map_or(&[], |i| &i.kinds),
        stopping: info.is_some_and(|i| i.stopping),
    }
}

/// Whether the store has heard of this session lately; `now_ms` is the store's clock.
pub fn is_live(seen: &SessionSeen, now_ms: u64) -> bool {
    seen.beat_ms > 0 && now_ms.saturating_sub(seen.beat_ms) < FRESH_MS
}

/// Whether a live runner that still claims serves `kind`.
pub fn is_served(kind: &Name, sessions: &[SessionSeen], now_ms: u64) -> bool {
    sessions
        .iter()
        .filter(|s| is_live(s, now_ms))
        .filter_map(|s| s.info.as_ref())
        .any(|info| !info.stopping && info.kinds.contains(kind))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::queue::{RunnerInfo, SessionId};

    pub(crate) const NOW: u64 = 1_796_115_600_000;

    pub(crate) fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    pub(crate) fn session(kinds: &[&str], age_ms: u64) -> SessionSeen {
        SessionSeen {
            session: SessionId(Arc::from("s1")),
            beat: 3,
            beat_ms: NOW - age_ms,
            info: Some(RunnerInfo {
                name: "host:7".to_owned(),
                host: "host".to_owned(),
                pid: 7,
                version: "0.1.0".to_owned(),
                started_ms: NOW - 60_000,
                concurrency: 128,
                running: 2,
                held: 1,
                kinds: kinds.iter().map(|k| name(k)).collect(),
                stopping: false,
            }),
        }
    }

    pub(crate) fn counts() -> Counts {
        Counts {
            queues: vec![QueueCounts {
                queue: name("orders"),
                kinds: vec![name("order_close"), name("order_notify")],
                scheduled: 3,
                ready: 2,
                running: 1,
                dead: 4,
                completed: 5,
                cancelled: 6,
                oldest_due_ms: Some(NOW - 1),
                paused: true,
                enqueued_total: 21,
                completed_total: 8,
                failed_total: 9,
                dead_dropped_total: 10,
            }],
            now_ms: NOW,
            stale_total: 0,
            orphans: 0,
            quarantined: 0,
        }
    }

    #[test]
    fn the_json_of_stats() {
        let (counts, sessions) = (counts(), [session(&["order_notify"], 900)]);
        let json = serde_json::to_string(&StatsOut::new(&counts, &sessions)).expect("serialises");
        let expected = concat!(
            r#"{"queues":[{"queue":"orders","scheduled":3,"ready":2,"running":1,"blocked":0,"dead":4,"#,
            r#""completed":5,"overdue":2,"oldest_due_at":"2026-12-01T08:59:59.999Z","paused":true,"#,
            r#""served":true,"enqueued_total":21,"completed_total":8,"failed_total":9,"dead_dropped_total":10}],"runners":[{"#,
            r#""runner":"host:7","session":"s1","host":"host","pid":7,"version":"0.1.0","#,
            r#""started_at":"2026-12-01T08:59:00.000Z","seen_at":"2026-12-01T08:59:59.100Z","live":true,"#,
            r#""concurrency":128,"running":2,"held":1,"kinds":["order_notify"],"stopping":false}]}"#,
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn who_went_silent_stops_or_serves_others_serves_nothing() {
        let kind = name("order_close");
        let served = |session: SessionSeen| is_served(&kind, &[session], NOW);
        assert!(served(session(&["order_close"], FRESH_MS - 1)));
        assert!(!served(session(&["order_close"], FRESH_MS)));
        assert!(!served(session(&["other"], 0)));
        let mut stopping = session(&["order_close"], 0);
        stopping.info.as_mut().expect("info").stopping = true;
        assert!(!served(stopping));
        let mut known_by_leases_alone = session(&[], 0);
        (known_by_leases_alone.info, known_by_leases_alone.beat_ms) = (None, 0);
        assert!(!served(known_by_leases_alone.clone()));
        assert!(!runners(&[known_by_leases_alone], 5)[0].live);
    }
}
