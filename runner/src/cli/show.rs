//! Jobs as people read them: a row of a list, everything about one, and how one ended.

use super::output::{Out, plain};
use super::table::Table;
use crate::clock;
use crate::job::{JobView, State};
use crate::wire::job_out::{duration_us, finished_us, ms_of_us};
use crate::wire::units::rfc3339;

/// Characters of a payload or a result that are shown; `--json` has all.
const TEXT_SHOWN_MAX: usize = 400;

/// A table for jobs.
pub(super) fn job_table() -> Table {
    Table::new(&["id", "kind", "queue", "state", "attempt", "due", "error"])
}

/// Adds a job to a table of jobs.
pub(super) fn job_row(table: &mut Table, view: &JobView) {
    table.row([
        view.job.id.to_string(),
        view.job.kind.to_string(),
        view.job.queue.to_string(),
        view.state.to_string(),
        format!("{}/{}", view.attempt, view.max_attempts),
        rfc3339(view.due_ms),
        view.error.as_ref().map(|e| format!("{}: {}", e.reason, e.message)).unwrap_or_default(),
    ]);
}

/// How a job ended: `completed in 3.1 ms, 0.4 ms late`, `dead: timeout: ... (attempt 5 of 5)`.
pub(super) fn outcome_line(view: &JobView) -> String {
    let mut line = view.state.to_string();
    if view.state == State::Completed {
        if let Some(us) = duration_us(view) {
            line += &format!(" in {} ms", ms_of_us(us));
        }
        if let Some(us) = view.lateness_us {
            line += &format!(", {} ms late", ms_of_us(us));
        }
        return line;
    }
    if let Some(error) = &view.error {
        line += &format!(": {}: {}", error.reason, plain(&error.message));
    }
    line + &format!(" (attempt {} of {})", view.attempt, view.max_attempts)
}

/// Writes everything about a job.
pub(super) fn job(out: &mut Out, view: &JobView) {
    let job = &view.job;
    let ago = |ms: u64| format!("{} ({})", rfc3339(ms), relative(ms, clock::wall_ms()));
    let mut fields: Vec<(&str, String)> = vec![
        ("id", job.id.to_string()),
        ("kind", job.kind.to_string()),
        ("queue", job.queue.to_string()),
        ("state", view.state.to_string()),
        ("priority", job.priority.to_string()),
        ("attempt", format!("{} of {}", view.attempt, view.max_attempts)),
    ];
    if view.crashes > 0 {
        fields.push(("crashes", view.crashes.to_string()));
    }
    fields.push(("enqueued", format!("{} by {}", ago(job.enqueued_ms), plain(&job.source))));
    fields.push(("due", ago(view.due_ms)));
    let times = [("started", view.started_us), ("finished", finished_us(view))];
    fields.extend(times.into_iter().filter_map(|(name, us)| Some((name, ago(us? / 1_000)))));
    let spans = [("lateness", view.lateness_us), ("duration", duration_us(view))];
    fields.extend(spans.into_iter().filter_map(|(name, us)| Some((name, format!("{} ms", ms_of_us(us?))))));
    if let Some(ms) = job.timeout_ms {
        fields.push(("timeout", format!("{ms} ms")));
    }
    for (name, text) in
        [("runner", &view.runner), ("handler", &view.handler), ("traceparent", &job.traceparent)]
    {
        fields.extend(text.as_ref().map(|t| (name, plain(t))));
    }
    if let Some(error) = &view.error {
        let at = rfc3339(error.at_us / 1_000);
        let message = plain(&error.message);
        fields.push(("error", format!("{}: {message} (attempt {} at {at})", error.reason, error.attempt)));
    }
    if let Some(progress) = &view.progress {
        let at = rfc3339(progress.at_us / 1_000);
        let message = plain(&progress.message);
        let said = if message.is_empty() { String::new() } else { format!(": {message}") };
        fields.push(("progress", format!("{} %{said} (at {at})", progress.percent)));
    }
    fields.extend(job.meta.iter().map(|(k, v)| ("meta", format!("{}={}", plain(k), plain(v)))));
    fields.push(("payload", bytes_shown(&job.payload)));
    if let Some(result) = &view.result {
        fields.push(("result", bytes_shown(result)));
    }
    for (name, text) in fields {
        out.line(&format!("{name:11} {text}"));
    }
    history(out, view);
}

fn history(out: &mut Out, view: &JobView) {
    if view.history.is_empty() {
        return;
    }
    let mut table = Table::new(&["at", "event", "attempt", "runner", "handler", "why"]);
    for event in &view.history {
        let why = match (&event.reason, &event.message) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            (Some(reason), None) => reason.to_string(),
            (None, message) => message.clone().unwrap_or_default(),
        };
        table.row([
            rfc3339(event.at_us / 1_000),
            event.event.clone(),
            event.attempt.to_string(),
            event.runner.clone().unwrap_or_default(),
            event.handler.clone().unwrap_or_default(),
            why,
        ]);
    }
    out.line("");
    table.print(out, "");
}

/// Bytes as people can read them, cut when there are many.
pub(super) fn bytes_shown(bytes: &[u8]) -> String {
    let count = bytes.len();
    match std::str::from_utf8(bytes) {
        Err(_) => format!("({count} bytes that are no text: --json has them)"),
        Ok(text) => match text.char_indices().nth(TEXT_SHOWN_MAX) {
            Some((end, _)) => format!("{}... ({count} bytes: --json has all)", plain(&text[..end])),
            None => plain(text),
        },
    }
}

/// How far `ms` is from `now_ms`, in its largest unit: `in 3m`, `2h ago`, `now`.
pub(super) fn relative(ms: u64, now_ms: u64) -> String {
    let distance = ms.abs_diff(now_ms) / 1_000;
    let (number, unit) = match distance {
        0 => return "now".to_owned(),
        1..60 => (distance, "s"),
        60..3_600 => (distance / 60, "m"),
        3_600..86_400 => (distance / 3_600, "h"),
        _ => (distance / 86_400, "d"),
    };
    if ms > now_ms { format!("in {number}{unit}") } else { format!("{number}{unit} ago") }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::cli::output::tests::captured;
    use crate::effects::ProgressSeen;
    use crate::wire::job_out::tests::sample;

    #[test]
    fn everything_about_a_job_is_shown() {
        let (mut out, captured) = captured(false, None);
        let mut view = sample();
        view.job.payload = Bytes::from_static(b"{\"a\": \"\x1b[2J\"}");
        view.result = Some(Bytes::from_static(b"\xff"));
        view.progress = Some(ProgressSeen {
            percent: 40,
            message: "2 of 5\n".to_owned(),
            attempt: 2,
            at_us: 1_796_115_601_002_000,
        });
        job(&mut out, &view);
        let text = captured.text();
        for part in [
            "id          order 7\n",
            "attempt     2 of 2\n",
            "crashes     1\n",
            " by cli:me@here\n",
            "due         2026-12-01T09:00:01.000Z (",
            "lateness    1.234 ms\n",
            "duration    2.066 ms\n",
            "error       panic: bad id 7 (attempt 2 at 2026-12-01T09:00:01.003Z)\n",
            "progress    40 %: 2 of 5\\n (at 2026-12-01T09:00:01.002Z)\n",
            "meta        b=1\nmeta        a=2\n",
            "payload     {\"a\": \"\\u{1b}[2J\"}\n",
            "result      (1 bytes that are no text: --json has them)\n",
            "AT                        EVENT     ATTEMPT",
        ] {
            assert!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
    }

    #[test]
    fn an_outcome_is_one_line() {
        let mut view = sample();
        assert_eq!(outcome_line(&view), "dead: panic: bad id 7 (attempt 2 of 2)");
        (view.state, view.error) = (State::Completed, None);
        assert_eq!(outcome_line(&view), "completed in 2.066 ms, 1.234 ms late");
        view.state = State::Cancelled;
        assert_eq!(outcome_line(&view), "cancelled (attempt 2 of 2)");
    }

    #[test]
    fn distances_are_shown_in_their_largest_unit() {
        for (ms, text) in [
            (1_000_000_999, "now"),
            (1_000_059_000, "in 59s"),
            (999_940_000, "1m ago"),
            (1_007_200_000, "in 2h"),
            (827_200_000, "2d ago"),
        ] {
            assert_eq!(relative(ms, 1_000_000_000), text);
        }
    }
}
