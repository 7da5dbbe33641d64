//! What a job looks like in Redis, read: its record, its past and its lease as the scripts write
//! them, and the view of a job that follows from the three. Reading never fails on odd bytes of a
//! foreign program: what cannot be read is left out.

use bytes::Bytes;

use crate::effects::ProgressSeen;
use crate::job::{Job, JobView, Priority};
use crate::names::{JobId, Name};
use crate::queue::life::{Known, LeaseFacts, Owner, Past, Told, netstring, read_event, view};

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
    let name = |text: &str| Name::new(text).ok();
    read_record_with(rid, bytes, name, |from| Bytes::copy_from_slice(&bytes[from..]))
}

/// The same, where somebody knows the `name`s, and gives the `payload` from a place in the record on.
pub(super) fn read_record_with(
    rid: u64,
    bytes: &[u8],
    mut name: impl FnMut(&str) -> Option<Name>,
    payload: impl FnOnce(usize) -> Bytes,
) -> Option<(Job, u64)> {
    let mut parts = bytes.splitn(8, |b| *b == UNIT);
    let mut part = || std::str::from_utf8(parts.next()?).ok();
    let max_attempts = part()?;
    let queue = name(part()?)?;
    let kind = part()?;
    let kind = if kind.is_empty() { queue.clone() } else { name(kind)? };
    let id = part()?;
    let id = match id.strip_prefix(MARK) {
        Some(random) => JobId::new(&format!("{rid}-{random}")).ok()?,
        None => JobId::new(id).ok()?,
    };
    let enqueued_ms = u64::from_str_radix(part()?, 36).ok()?;
    let delay = part()?;
    let delay_ms = if delay.is_empty() { 0 } else { u64::from_str_radix(delay, 36).ok()? };
    let options = part()?;
    let payload = payload(bytes.len() - parts.next()?.len());
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

/// How scripts name a priority.
pub(super) fn priority_letter(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "h",
        Priority::Normal => "n",
        Priority::Low => "l",
    }
}

/// A record as lua/enqueue.lua writes it: [`read_record`] the other way round, for a job with an id.
pub(super) fn record_text(job: &Job, due_ms: u64) -> Vec<u8> {
    let (mut text, rest) = record_around_id(job, due_ms);
    text.extend_from_slice(job.id.as_str().as_bytes());
    text.extend(rest);
    text
}

/// As [`record_text`], what stands before the id and what stands behind it.
pub(super) fn record_around_id(job: &Job, due_ms: u64) -> (Vec<u8>, Vec<u8>) {
    let meta = match job.meta.is_empty() {
        true => Vec::new(),
        false => serde_json::to_vec(&job.meta).unwrap_or_default(),
    };
    let head = Head {
        max_attempts: job.max_attempts,
        queue: &job.queue,
        kind: &job.kind,
        priority: job.priority,
        timeout_ms: job.timeout_ms,
        traceparent: job.traceparent.as_deref(),
        meta,
        source: &job.source,
    };
    let (before, after) = head.text();
    let delay = match due_ms.saturating_sub(job.enqueued_ms) {
        0 => String::new(),
        ms => base36(ms),
    };
    let (unit, enqueued) = (char::from(UNIT), base36(job.enqueued_ms));
    let mut rest = format!("{unit}{enqueued}{unit}{delay}").into_bytes();
    rest.extend(after);
    rest.extend_from_slice(&job.payload);
    (before, rest)
}

/// What a record says of a job, but for its id, its times and its payload.
pub(super) struct Head<'a> {
    pub(super) max_attempts: Option<u32>,
    pub(super) queue: &'a Name,
    pub(super) kind: &'a Name,
    pub(super) priority: Priority,
    pub(super) timeout_ms: Option<u64>,
    pub(super) traceparent: Option<&'a str>,
    /// A JSON array of pairs, empty when there is none.
    pub(super) meta: Vec<u8>,
    pub(super) source: &'a str,
}

impl Head<'_> {
    /// The record up to its id, and from behind its times to its payload.
    pub(super) fn text(&self) -> (Vec<u8>, Vec<u8>) {
        let unit = char::from(UNIT);
        let max = self.max_attempts.map(|max| max.to_string()).unwrap_or_default();
        let kind = if self.kind == self.queue { "" } else { self.kind.as_str() };
        let before = format!("{max}{unit}{}{unit}{kind}{unit}", self.queue);
        let mut options: Vec<Vec<u8>> = Vec::new();
        match self.priority {
            Priority::High => options.push(b"ph".to_vec()),
            Priority::Low => options.push(b"pl".to_vec()),
            Priority::Normal => {}
        }
        options.extend(self.timeout_ms.map(|ms| format!("t{ms}").into_bytes()));
        options.extend(self.traceparent.map(|text| format!("w{text}").into_bytes()));
        if !self.meta.is_empty() {
            options.push([b"m", &self.meta[..]].concat());
        }
        if !self.source.is_empty() {
            options.push(format!("s{}", self.source).into_bytes());
        }
        let mut after = vec![UNIT];
        after.extend(options.join(MARK.to_string().as_bytes()));
        after.push(UNIT);
        (before.into_bytes(), after)
    }
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseParts<'a> {
    pub(super) session: &'a str,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    pub(super) order: u64,
    pub(super) claimed_ms: u64,
    pub(super) member: &'a str,
    pub(super) queue: &'a str,
    pub(super) kind: &'a str,
    pub(super) record_bytes: usize,
    /// Empty when it was made.
    pub(super) id: &'a str,
}

/// Takes a lease apart. `None` where it is none of ours.
pub(super) fn lease_parts(text: &str) -> Option<LeaseParts<'_>> {
    let mut parts = text.splitn(14, ' ');
    let mut part = || parts.next();
    let session = part()?;
    let token = part()?.parse().ok()?;
    let attempt = part()?.parse().ok()?;
    let max_attempts = part()?.parse().ok()?;
    let crashes = part()?.parse().ok()?;
    let due_ms = part()?.parse().ok()?;
    let order = part()?.parse().ok()?;
    let claimed_ms = part()?.parse().ok()?;
    let (member, queue, kind, _priority) = (part()?, part()?, part()?, part()?);
    let record_bytes = part()?.parse().ok()?;
    let id = part()?;
    Some(LeaseParts {
        session,
        token,
        attempt,
        max_attempts,
        crashes,
        due_ms,
        order,
        claimed_ms,
        member,
        queue,
        kind,
        record_bytes,
        id,
    })
}

/// The same with names that are some, for whoever keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseText {
    pub(super) session: String,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) claimed_ms: u64,
    pub(super) due_ms: u64,
    pub(super) order: u64,
    pub(super) queue: Name,
    pub(super) kind: Name,
}

pub(super) fn read_lease(bytes: &[u8]) -> Option<LeaseText> {
    let text = String::from_utf8_lossy(bytes);
    let parts = lease_parts(&text)?;
    Some(LeaseText {
        session: parts.session.to_owned(),
        token: parts.token,
        attempt: parts.attempt,
        max_attempts: parts.max_attempts,
        crashes: parts.crashes,
        claimed_ms: parts.claimed_ms,
        due_ms: parts.due_ms,
        order: parts.order,
        queue: Name::new(parts.queue).ok()?,
        kind: Name::new(parts.kind).ok()?,
    })
}

/// The `past` of a job: see lua/includes/past.lua.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastText<'a> {
    pub(super) state: u8,
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) crashes: u32,
    pub(super) due_ms: u64,
    pub(super) order: u64,
    pub(super) expire_ms: u64,
    pub(super) forget_ms: u64,
    /// Of the last settled lease; `-` for none.
    pub(super) session: &'a str,
    pub(super) token: u64,
    pub(super) events: u32,
    pub(super) result: &'a [u8],
    /// Netstrings: see queue/life.rs.
    pub(super) history: &'a [u8],
}

pub(super) fn read_past(bytes: &[u8]) -> Option<PastText<'_>> {
    let line = bytes.iter().position(|b| *b == b'\n')?;
    let header = std::str::from_utf8(&bytes[..line]).ok()?;
    let parts: Vec<&str> = header.split(' ').collect();
    let [state, attempt, max, crashes, due, order, _bytes, expire, forget, session, token, events] =
        parts[..]
    else {
        return None;
    };
    let mut history = &bytes[line + 1..];
    let result = netstring(&mut history)?;
    Some(PastText {
        state: *state.as_bytes().first()?,
        attempt: attempt.parse().ok()?,
        max_attempts: max.parse().ok()?,
        crashes: crashes.parse().ok()?,
        due_ms: due.parse().ok()?,
        order: order.parse().ok()?,
        expire_ms: expire.parse().ok()?,
        forget_ms: forget.parse().ok()?,
        session,
        token: token.parse().ok()?,
        events: events.parse().ok()?,
        result,
        history,
    })
}

impl PastText<'_> {
    /// The lease that was settled last.
    pub(super) fn settled(&self) -> Option<Owner> {
        (self.session != "-").then(|| Owner { session: self.session.to_owned(), token: self.token })
    }

    fn life(&self) -> Past {
        let mut rest = self.history;
        let events = std::iter::from_fn(|| netstring(&mut rest)).filter_map(read_event).collect();
        Past {
            state: self.state,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            crashes: self.crashes,
            due_ms: self.due_ms,
            settled: self.settled(),
            result: Bytes::copy_from_slice(self.result),
            events,
        }
    }
}

/// What view.lua returns of one job, as it is: empty where there is nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) record: &'a [u8],
    pub(super) past: &'a [u8],
    pub(super) lease: &'a [u8],
    /// The name of the runner that has the lease.
    pub(super) runner: &'a str,
    pub(super) progress: &'a [u8],
}

/// What a job has said of its progress: see lua/log.lua.
pub(super) fn read_progress(bytes: &[u8]) -> Option<Told> {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(6, ' ');
    let mut part = || parts.next();
    let by = Owner { session: part()?.to_owned(), token: part()?.parse().ok()? };
    let (attempt, at_us) = (part()?.parse().ok()?, part()?.parse().ok()?);
    let percent = part()?.parse().ok()?;
    Some(Told { by, seen: ProgressSeen { percent, message: part()?.to_owned(), attempt, at_us } })
}

/// A job as it is at `now_ms`. `None` when there is no record.
pub(super) fn read_view(rid: u64, raw: Raw<'_>, now_ms: u64) -> Option<JobView> {
    let (job, due_ms) = read_record(rid, raw.record)?;
    let lease = read_lease(raw.lease).map(|lease| LeaseFacts {
        owner: Owner { session: lease.session, token: lease.token },
        attempt: lease.attempt,
        max_attempts: lease.max_attempts,
        crashes: lease.crashes,
        claimed_ms: lease.claimed_ms,
        due_ms: lease.due_ms,
    });
    let past = read_past(raw.past).map(|past| past.life());
    let told = read_progress(raw.progress);
    Some(view(Known { job, due_ms, past, lease, runner: raw.runner, told }, now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_as_what_was_written() {
        let name = |text: &str| Name::new(text).expect("a name");
        let plain = Job {
            id: JobId::new("7-abcde").expect("an id"),
            kind: name("k"),
            queue: name("k"),
            priority: Priority::Normal,
            enqueued_ms: 0,
            max_attempts: None,
            timeout_ms: None,
            meta: Vec::new(),
            traceparent: None,
            source: String::new(),
            payload: Bytes::new(),
        };
        let full = Job {
            queue: name("q"),
            priority: Priority::Low,
            enqueued_ms: 1_796_000_000_123,
            max_attempts: Some(7),
            timeout_ms: Some(1),
            meta: vec![("a".to_owned(), "\u{1e}".to_owned()), ("a".to_owned(), "b".to_owned())],
            traceparent: Some("00-x".to_owned()),
            source: "somebody".to_owned(),
            payload: Bytes::from_static(b"\x1f\x00 as it is"),
            ..plain.clone()
        };
        for (job, due_ms) in [(plain, 35), (full, 1_796_000_000_123)] {
            assert_eq!(read_record(9, &record_text(&job, due_ms)), Some((job, due_ms)));
        }
    }
}
