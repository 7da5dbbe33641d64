//! What a job looks like in Redis, read: its record, its past and its lease as the scripts write
//! them, and the view of a job that follows from the three. Reading never fails on odd bytes of a
//! foreign program: what cannot be read is left out.

use bytes::Bytes;

use crate::job::{Job, JobView, Priority};
use crate::names::{JobId, Name};
use crate::queue::life::{Known, LeaseFacts, Past, netstring, read_event, view};

/// Separates the parts of a record.
const UNIT: u8 = 0x1f;
/// Separates the options of a record, and marks a generated id.
const MARK: char = '\u{1e}';

/// A record id: the value of the sequence at the enqueue, 14 digits in Redis.
pub(super) fn rid_text(record: u64) -> String {
    format!("{record:014}")
}

/// A job's record, and its due time as it was enqueued.
pub(super) fn read_record(rid: u64, bytes: &[u8]) -> Option<(Job, u64)> {
    let mut parts = bytes.splitn(8, |b| *b == UNIT);
    let mut part = || std::str::from_utf8(parts.next()?).ok();
    let max_attempts = part()?;
    let queue = Name::new(part()?).ok()?;
    let kind = part()?;
    let kind = if kind.is_empty() { queue.clone() } else { Name::new(kind).ok()? };
    let id = part()?;
    let id = match id.strip_prefix(MARK) {
        Some(random) => JobId::new(&format!("{rid}-{random}")).ok()?,
        None => JobId::new(id).ok()?,
    };
    let enqueued_ms = u64::from_str_radix(part()?, 36).ok()?;
    let delay = part()?;
    let delay_ms = if delay.is_empty() { 0 } else { u64::from_str_radix(delay, 36).ok()? };
    let options = part()?;
    let payload = Bytes::copy_from_slice(parts.next()?);
    let mut job = Job {
        id,
        kind,
        queue,
        priority: Priority::Normal,
        enqueued_ms,
        max_attempts: max_attempts.parse().ok(),
        timeout_ms: None,
        meta: Vec::new(),
        traceparent: None,
        source: String::new(),
        payload,
    };
    for option in options.split(MARK) {
        read_option(&mut job, option);
    }
    Some((job, enqueued_ms + delay_ms))
}

fn read_option(job: &mut Job, option: &str) {
    let mut letters = option.chars();
    let letter = letters.next();
    let value = letters.as_str();
    match letter {
        Some('p') if value == "h" => job.priority = Priority::High,
        Some('p') => job.priority = Priority::Low,
        Some('t') => job.timeout_ms = value.parse().ok(),
        Some('w') => job.traceparent = Some(value.to_owned()),
        Some('m') => job.meta = serde_json::from_str(value).unwrap_or_default(),
        Some('s') => job.source = value.to_owned(),
        _ => {}
    }
}

/// A lease of the `running` hash: see lua/includes/lease.lua.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseText {
    pub(super) session: String,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) claimed_ms: u64,
    pub(super) due_ms: u64,
    pub(super) queue: Name,
    pub(super) kind: Name,
}

pub(super) fn read_lease(bytes: &[u8]) -> Option<LeaseText> {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split(' ');
    let mut part = || parts.next();
    let session = part()?.to_owned();
    let token = part()?.parse().ok()?;
    let attempt = part()?.parse().ok()?;
    let max_attempts = part()?.parse().ok()?;
    let crashes = part()?.parse().ok()?;
    let due_ms = part()?.parse().ok()?;
    let _order = part()?;
    let claimed_ms = part()?.parse().ok()?;
    let _member = part()?;
    let queue = Name::new(part()?).ok()?;
    let kind = Name::new(part()?).ok()?;
    Some(LeaseText { session, token, attempt, max_attempts, crashes, claimed_ms, due_ms, queue, kind })
}

/// The `past` of a job: see lua/includes/past.lua.
fn read_past(bytes: &[u8]) -> Option<Past> {
    let line = bytes.iter().position(|b| *b == b'\n')?;
    let header = std::str::from_utf8(&bytes[..line]).ok()?;
    let parts: Vec<&str> = header.split(' ').collect();
    let [state, attempt, max, crashes, due, _order, _bytes, _expire, _forget, _session, _token, _events] =
        parts[..]
    else {
        return None;
    };
    let mut rest = &bytes[line + 1..];
    let result = Bytes::copy_from_slice(netstring(&mut rest)?);
    let mut list = Vec::new();
    while let Some(event) = netstring(&mut rest) {
        list.extend(read_event(event));
    }
    Some(Past {
        state: *state.as_bytes().first()?,
        attempt: attempt.parse().ok()?,
        max_attempts: max.parse().ok()?,
        crashes: crashes.parse().ok()?,
        due_ms: due.parse().ok()?,
        result,
        events: list,
    })
}

/// What view.lua returns of one job, as it is: empty where there is nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) record: &'a [u8],
    pub(super) past: &'a [u8],
    pub(super) lease: &'a [u8],
    /// The name of the runner that has the lease.
    pub(super) runner: &'a str,
}

/// A job as it is at `now_ms`. `None` when there is no record.
pub(super) fn read_view(rid: u64, raw: Raw<'_>, now_ms: u64) -> Option<JobView> {
    let (job, due_ms) = read_record(rid, raw.record)?;
    let lease = read_lease(raw.lease).map(|lease| LeaseFacts {
        attempt: lease.attempt,
        max_attempts: lease.max_attempts,
        crashes: lease.crashes,
        claimed_ms: lease.claimed_ms,
        due_ms: lease.due_ms,
    });
    let past = read_past(raw.past);
    Some(view(Known { job, due_ms, past, lease, runner: raw.runner }, now_ms))
}
