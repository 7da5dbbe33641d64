//! What `dev` shows: one line for each thing that happens, in the order in which it happens.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::cli::local::brief;
use crate::cli::local::report::outcome_words;
use crate::cli::output::{Out, plain};
use crate::clock::{Monotonic, monotonic};
use crate::outcome::Outcome;
use crate::queue::Settlement;
use crate::sandbox::JobLog;
use crate::wire::job_out::ms_of_us;

/// Characters of a result on a line.
const RESULT_SHOWN_MAX: usize = 300;

/// Something that happened.
pub(super) enum News {
    /// Worth saying.
    Remark(String),
    /// A build begins.
    Building { project: String, tool: &'static str },
    /// It gave modules, of which these are new.
    Built { project: String, build_ms: f64, changed: Vec<String> },
    /// It gave none, or they could not be installed.
    NotBuilt { project: String, error: String },
    /// All handlers at one moment.
    Serving(Vec<Served>),
    /// A line of stdin became a job.
    Enqueued { id: String, kind: String, served: bool },
    /// A run begins.
    Begun(Begun),
    /// A run is over.
    Ended(Box<Settlement>),
    /// The runner is over.
    Over,
}

/// A file of the handlers folder, for a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) kind: String,
    /// The first 12 digits of its hash.
    pub(super) handler: String,
    /// Why it does not serve.
    pub(super) error: Option<String>,
}

/// A run that has begun.
pub(super) struct Begun {
    pub(super) token: u64,
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) attempt: (u32, u32),
    pub(super) log: Arc<JobLog>,
}

/// A run on the screen.
struct Running {
    begun: Begun,
    /// The log's version that was shown.
    version: u64,
    /// Bytes of its text that were shown.
    shown: usize,
}

/// The lines of `dev`.
pub(super) struct Screen<'a> {
    out: &'a mut Out,
    running: BTreeMap<u64, Running>,
    serving: Vec<Served>,
    /// When the last build with something new was installed.
    installed: Option<Monotonic>,
}

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a mut Out) -> Self {
        Self { out, running: BTreeMap::new(), serving: Vec::new(), installed: None }
    }

    fn say(&mut self, text: &str, value: &Value) {
        if self.out.json() {
            self.out.value(value);
        } else {
            self.out.line(text);
        }
    }

    /// Sends on what was said.
    pub(super) fn flush(&mut self) {
        self.out.flush();
    }

    /// Shows what happened.
    pub(super) fn show(&mut self, news: News) {
        match news {
            News::Remark(text) => self.say(&plain(&text), &json!({"event": "remark", "message": text})),
            News::Building { project, tool } => {
                let value = json!({"event": "building", "project": project, "tool": tool});
                self.say(&format!("{}: building with {tool}", plain(&project)), &value);
            }
            News::Built { project, build_ms, changed } => {
                let what = if changed.is_empty() { "nothing new".to_owned() } else { changed.join(", ") };
                self.installed = if changed.is_empty() { self.installed } else { Some(monotonic()) };
                let value =
                    json!({"event": "built", "project": project, "build_ms": build_ms, "changed": changed});
                self.say(
                    &format!("{}: built in {:.2} s: {what}", plain(&project), build_ms / 1_000.0),
                    &value,
                );
            }
            News::NotBuilt { project, error } => {
                let value = json!({"event": "not_built", "project": project, "error": error});
                let serves = if self.serving.is_empty() { "" } else { "; what was built before serves on" };
                self.say(&format!("{}: NOT BUILT: {}{serves}", plain(&project), plain(&error)), &value);
            }
            News::Serving(now) => self.serving(now),
            News::Enqueued { id, kind, served } => {
                let value = json!({"event": "enqueued", "id": id, "kind": kind, "served": served});
                let unserved = if served { "" } else { ": no handler serves the kind yet, and it waits" };
                self.say(&format!("{id} {kind} enqueued{unserved}"), &value);
            }
            News::Begun(begun) => {
                let (attempt, max) = begun.attempt;
                let value = json!({
                    "event": "began", "id": begun.id, "kind": begun.kind, "attempt": attempt, "max_attempts": max
                });
                self.say(&format!("{} {} attempt {attempt} of {max}", plain(&begun.id), begun.kind), &value);
                self.running.insert(begun.token, Running { begun, version: 0, shown: 0 });
            }
            News::Ended(settlement) => self.ended(&settlement),
            News::Over => {}
        }
    }

    fn serving(&mut self, now: Vec<Served>) {
        let before = std::mem::replace(&mut self.serving, now.clone());
        let after_ms = self.installed.map(|at| ms_of_us(monotonic().duration_since(at).as_micros() as u64));
        for served in now.iter().filter(|served| !before.contains(served)) {
            let Served { kind, handler, error } = served;
            let value = json!({
                "event": if error.is_some() { "broken" } else { "serving" },
                "kind": kind, "handler": handler, "error": error, "after_ms": after_ms
            });
            let text = match error {
                Some(error) => format!("{}: NOT LOADED: {}", plain(kind), plain(error)),
                None => format!("{kind} serves, on {handler}"),
            };
            self.say(&text, &value);
        }
        for gone in before.iter().filter(|old| !now.iter().any(|new| new.kind == old.kind)) {
            let value = json!({"event": "gone", "kind": gone.kind});
            self.say(&format!("{} is served no more", plain(&gone.kind)), &value);
        }
    }

    /// Shows what running jobs have logged since the last time.
    pub(super) fn show_logs(&mut self) {
        let mut running = std::mem::take(&mut self.running);
        for run in running.values_mut() {
            self.show_log(run, false);
        }
        self.running = running;
    }

    fn show_log(&mut self, run: &mut Running, ended: bool) {
        let version = run.begun.log.version();
        if version == run.version && !ended {
            return;
        }
        let text = run.begun.log.text();
        // A log that is cut in its middle has no new end: all of what is left is shown, once.
        if !text.is_char_boundary(run.shown) || text.len() < run.shown {
            run.shown = 0;
        }
        let new = &text[run.shown..];
        // The last line may still grow.
        let whole = if ended { new.len() } else { new.rfind('\n').map_or(0, |at| at + 1) };
        for line in new[..whole].lines() {
            let value = json!({"event": "log", "id": run.begun.id, "kind": run.begun.kind, "line": line});
            self.say(&format!("{} | {}", plain(&run.begun.id), plain(line)), &value);
        }
        run.shown += whole;
        run.version = version;
    }

    fn ended(&mut self, settlement: &Settlement) {
        let Some(mut run) = self.running.remove(&settlement.lease.token) else { return };
        self.show_log(&mut run, true);
        let facts = settlement.run.as_ref();
        let times = facts.map(|facts| (ms_of_us(facts.duration_us), ms_of_us(facts.lateness_us)));
        let (reason, message, delay_ms) = parts_of(&settlement.outcome);
        let result = match &settlement.outcome {
            Outcome::Completed { result } => result.as_deref().map(String::from_utf8_lossy),
            _ => None,
        };
        let value = json!({
            "event": "ended", "id": run.begun.id, "kind": run.begun.kind, "attempt": run.begun.attempt.0,
            "handler": facts.map(|facts| facts.handler.as_str()), "outcome": settlement.outcome.as_str(),
            "reason": reason, "message": message, "delay_ms": delay_ms, "result": result,
            "duration_ms": times.map(|times| times.0), "lateness_ms": times.map(|times| times.1)
        });
        let mut text = format!("{} {}", plain(&run.begun.id), outcome_words(&settlement.outcome));
        if let Some((duration, lateness)) = times {
            text.push_str(&format!(" ({duration:.3} ms, {lateness:.3} ms late)"));
        }
        if let Some(result) = result {
            text.push_str(&format!(": {}", brief(&result, RESULT_SHOWN_MAX)));
        }
        self.say(&text, &value);
    }
}

fn parts_of(outcome: &Outcome) -> (Option<&'static str>, Option<&str>, Option<u64>) {
    match outcome {
        Outcome::Retry { reason, message, delay_ms } => {
            (Some(reason.as_str()), Some(message), Some(*delay_ms))
        }
        Outcome::Dead { reason, message } => (Some(reason.as_str()), Some(message), None),
        Outcome::Snoozed { delay_ms } => (None, None, Some(*delay_ms)),
        Outcome::Released { message } => (None, message.as_deref(), None),
        Outcome::Completed { .. } | Outcome::Cancelled => (None, None, None),
    }
}
