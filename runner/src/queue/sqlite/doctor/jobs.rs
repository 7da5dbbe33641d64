//! Jobs and their places: every entry of a lane is its job's place, every lease has its job, and every job is somewhere.

use super::{STEP, Sight, set_aside};
use crate::names::{JobId, Name};
use crate::queue::StoreError;
use crate::queue::life::{netstring, read_event};
use crate::queue::sqlite::rows::{End, JobRow, PastRow, Waiting, finished_state};
use crate::queue::sqlite::tx::Tx;

/// Every lane has a queue of a namespace, and names that can be read.
pub(super) fn look_at_lanes(tx: &Tx<'_>, sight: &mut Sight) -> Result<(), StoreError> {
    let lanes = tx.rows(
        "SELECT lane, kind, queues.name, namespaces.ns FROM lanes LEFT JOIN queues USING (queue) LEFT JOIN namespaces USING (ns)",
        [],
        |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, Option<String>>(2)?,
                row.get::<_, Option<i64>>(3)?,
            ))
        },
    )?;
    for (lane, kind, queue, ns) in lanes {
        let names = Name::new(&kind).is_ok() && queue.as_ref().is_some_and(|queue| Name::new(queue).is_ok());
        if !names || ns.is_none() {
            let message = format!("it is of queue {queue:?} and kind {kind:?}");
            sight.found("bad-lane", format!("lane {lane}"), message, "set aside")?;
            if sight.repair {
                set_aside(tx, "lanes", "lane = ?1", [lane])?;
            }
        }
    }
    Ok(())
}

/// A job as the tables have it; one that cannot be read is none.
fn load(tx: &Tx<'_>, record: i64) -> Result<Option<JobRow>, StoreError> {
    let Ok(record) = u64::try_from(record) else { return Ok(None) };
    match JobRow::load(tx, record) {
        // What is in a column is none that any version writes there.
        Err(StoreError::Refused(_)) => Ok(None),
        other => Ok(other?.filter(|job| (1..=3).contains(&job.priority))),
    }
}

/// A job for people.
fn label(tx: &Tx<'_>, job: &JobRow) -> Result<String, StoreError> {
    let queue: Option<String> =
        tx.row("SELECT name FROM queues WHERE queue = ?1", [job.queue], |row| row.get(0))?;
    Ok(format!("job {} of queue {}", job.id, queue.unwrap_or_default()))
}

/// Where a walk over the entries is: lane, part, due time, place.
pub(super) type AtEntry = (i64, i64, i64, i64);

/// An entry as it is, whatever is in it.
struct Entry {
    at: AtEntry,
    record: i64,
    attempt: i64,
    crashes: i64,
}

impl Entry {
    fn is(&self, job: &Waiting) -> bool {
        let at = (job.lane, i64::from(job.part), job.due_ms as i64, job.place as i64);
        self.at == at
            && self.record == job.record as i64
            && (self.attempt, self.crashes) == (i64::from(job.attempt), i64::from(job.crashes))
    }
}

pub(super) fn look_at_entries(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: AtEntry,
) -> Result<Option<AtEntry>, StoreError> {
    let (lane, part, due_ms, place) = if from == AtEntry::default() { (i64::MIN, 0, 0, 0) } else { from };
    let entries = tx.rows(
        "SELECT lane, part, due_ms, place, record, attempt, crashes FROM waiting \
         WHERE (lane, part, due_ms, place) > (?1, ?2, ?3, ?4) ORDER BY lane, part, due_ms, place LIMIT ?5",
        (lane, part, due_ms, place, STEP),
        |row| {
            let at = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Entry { at, record: row.get(4)?, attempt: row.get(5)?, crashes: row.get(6)? })
        },
    )?;
    for entry in &entries {
        look_at_entry(tx, sight, entry)?;
    }
    Ok(entries.last().map(|entry| entry.at))
}

fn look_at_entry(tx: &Tx<'_>, sight: &mut Sight, entry: &Entry) -> Result<(), StoreError> {
    let ns =
        tx.row("SELECT ns FROM lanes JOIN queues USING (queue) WHERE lane = ?1", [entry.at.0], |row| {
            row.get::<_, i64>(0)
        })?;
    if ns.is_some_and(|ns| ns != tx.ns) {
        return Ok(());
    }
    let (lane, part, due_ms, place) = entry.at;
    let shown = format!("entry of record {} in lane {lane}, part {part}, {due_ms}, {place}", entry.record);
    let Some(job) = load(tx, entry.record)? else {
        sight.found(
            "orphan-entry",
            shown,
            "its job has no record that can be read",
            "moved to the orphans",
        )?;
        return entry_out(tx, sight, entry, "orphan");
    };
    let waiting = job.waiting();
    if job.lease.is_none() && job.is_waiting() && entry.is(&waiting) {
        sight.saw(waiting.place);
        return Ok(());
    }
    let message = match &job.lease {
        Some(_) => format!("{} is in the hand of a runner", label(tx, &job)?),
        None => format!("it is not the place of {}", label(tx, &job)?),
    };
    sight.found("wrong-entry", shown, message, "moved to the orphans")?;
    entry_out(tx, sight, entry, "orphan")?;
    if sight.repair && job.lease.is_none() && job.is_waiting() {
        put_back(tx, sight, &waiting)?;
    }
    Ok(())
}

fn entry_out(tx: &Tx<'_>, sight: &mut Sight, entry: &Entry, what: &str) -> Result<(), StoreError> {
    if !sight.repair {
        return Ok(());
    }
    let (lane, part, due_ms, place) = entry.at;
    tx.exec(
        "DELETE FROM waiting WHERE lane = ?1 AND part = ?2 AND due_ms = ?3 AND place = ?4",
        (lane, part, due_ms, place),
    )?;
    tx.exec(
        "INSERT INTO aside (ns, what, at_ms, lane, part, due_ms, place, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (tx.ns, what, tx.now_ms, lane, part, due_ms, place, entry.record),
    )
    .map(drop)
}

/// True when the job is where it waits.
fn is_there(tx: &Tx<'_>, job: &Waiting) -> Result<bool, StoreError> {
    let found = tx.row(
        "SELECT record FROM waiting WHERE lane = ?1 AND part = ?2 AND due_ms = ?3 AND place = ?4",
        (job.lane, job.part, job.due_ms, job.place),
        |row| row.get::<_, i64>(0),
    )?;
    Ok(found == Some(job.record as i64))
}

/// Puts a job where it waits. Should another have its place, which two never have, it gets a new one.
fn put_back(tx: &Tx<'_>, sight: &mut Sight, job: &Waiting) -> Result<(), StoreError> {
    if is_there(tx, job)? {
        return Ok(());
    }
    let taken = tx.row(
        "SELECT 1 FROM waiting WHERE lane = ?1 AND part = ?2 AND due_ms = ?3 AND place = ?4",
        (job.lane, job.part, job.due_ms, job.place),
        |_| Ok(()),
    )?;
    let mut job = job.clone();
    if taken.is_some() {
        job.place = tx.next_number()?;
        let mut past = PastRow::load(tx, job.record)?
            .unwrap_or_else(|| PastRow::fresh(0, job.crashes, job.due_ms, job.place));
        past.place = job.place;
        past.save(tx, job.record)?;
    }
    sight.heads.put(tx, &job)
}

pub(super) fn look_at_leases(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<i64>,
) -> Result<Option<Option<i64>>, StoreError> {
    let leases = tx.rows(
        "SELECT record, lane FROM leases WHERE ns = ?1 AND record > ?2 ORDER BY record LIMIT ?3",
        (tx.ns, from.unwrap_or(i64::MIN), STEP),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    )?;
    for (record, lane) in &leases {
        let lane_of_job =
            tx.row("SELECT lane FROM jobs WHERE record = ?1", [*record], |row| row.get::<_, i64>(0))?;
        let (check, message) = match (lane_of_job, load(tx, *record)?) {
            (None, _) => ("orphan-lease", "its job has no record".to_owned()),
            (_, None) => ("bad-lease", "it, or its job, cannot be read".to_owned()),
            (Some(of_job), Some(job)) if of_job != *lane => {
                ("bad-lease", format!("it is of another queue or kind than {}", label(tx, &job)?))
            }
            _ => continue,
        };
        sight.found(check, format!("lease of {record}"), message, "set aside")?;
        if sight.repair {
            set_aside(tx, "leases", "record = ?1", [*record])?;
        }
    }
    Ok(leases.last().map(|(record, _)| Some(*record)))
}

pub(super) fn look_at_records(
    tx: &Tx<'_>,
    sight: &mut Sight,
    from: Option<i64>,
) -> Result<Option<Option<i64>>, StoreError> {
    let records = tx.rows(
        "SELECT record, jobs.id, queues.ns FROM jobs LEFT JOIN lanes USING (lane) LEFT JOIN queues USING (queue) \
         WHERE record > ?1 ORDER BY record LIMIT ?2",
        (from.unwrap_or(i64::MIN), STEP),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, Option<i64>>(2)?)),
    )?;
    for (record, id, ns) in &records {
        sight.saw(u64::try_from(*record).unwrap_or(0));
        if ns.is_some_and(|ns| ns != tx.ns) {
            continue;
        }
        let job = match ns {
            Some(_) if JobId::new(id).is_ok() => load(tx, *record)?,
            _ => None,
        };
        match job {
            Some(job) => look_at_job(tx, sight, &job)?,
            None => {
                sight.found("bad-record", format!("record {record}"), "it cannot be read", "set aside")?;
                if sight.repair {
                    set_aside(tx, "jobs", "record = ?1", [*record])?;
                    set_aside(tx, "past", "record = ?1", [*record])?;
                }
            }
        }
    }
    Ok(records.last().map(|(record, ..)| Some(*record)))
}

fn look_at_job(tx: &Tx<'_>, sight: &mut Sight, job: &JobRow) -> Result<(), StoreError> {
    if job.past.as_ref().is_some_and(|past| !is_sound(past)) && job.lease.is_none() {
        return job_aside(tx, sight, job, "bad-past", "what has happened to it cannot be read");
    }
    if job.given && look_at_id(tx, sight, job)? {
        return Ok(());
    }
    if job.lease.is_some() {
        return match job.past.as_ref().filter(|past| past.state != "w" || past.end.is_some()) {
            Some(past) => not_finished(tx, sight, job, past, "a runner has it"),
            None => Ok(()),
        };
    }
    let Some(past) = job.past.as_ref().filter(|_| !job.is_waiting()) else {
        let waiting = job.waiting();
        sight.saw(waiting.place);
        if let Some(past) = job.past.as_ref().filter(|past| past.end.is_some()) {
            not_finished(tx, sight, job, past, "it waits")?;
        }
        if !is_there(tx, &waiting)? {
            sight.found(
                "lost-job",
                label(tx, job)?,
                "it waits and is in no lane",
                "put back into its place",
            )?;
            if sight.repair {
                put_back(tx, sight, &waiting)?;
            }
        }
        return Ok(());
    };
    if past.end.as_ref().is_none_or(|end| end.queue != job.queue) {
        let message = format!("it has ended ({}) and is not listed as finished", past.state);
        sight.found("lost-job", label(tx, job)?, message, "put back into its place")?;
        if sight.repair {
            let known = past.end.clone();
            let fresh = End {
                queue: 0,
                ended_ms: tx.now_ms,
                bytes: job.bytes as u64,
                expire_ms: None,
                forget_ms: tx.now_ms,
            };
            let end = Some(End { queue: job.queue, ..known.unwrap_or(fresh) });
            PastRow { end, ..past.clone() }.save(tx, job.record)?;
        }
    }
    Ok(())
}

/// A job is listed as finished and is not.
fn not_finished(
    tx: &Tx<'_>,
    sight: &mut Sight,
    job: &JobRow,
    past: &PastRow,
    why: &str,
) -> Result<(), StoreError> {
    sight.found(
        "wrong-entry",
        label(tx, job)?,
        format!("it is listed as finished, and {why}"),
        "taken off the list",
    )?;
    if sight.repair {
        PastRow { state: "w".to_owned(), end: None, ..past.clone() }.save(tx, job.record)?;
    }
    Ok(())
}

/// True when a past can be read, its history to the end.
fn is_sound(past: &PastRow) -> bool {
    let mut rest = &past.history[..];
    let mut events = 0;
    while let Some(event) = netstring(&mut rest) {
        if read_event(event).is_none() {
            return false;
        }
        events += 1;
    }
    rest.is_empty() && events == past.events && (past.state == "w" || finished_state(&past.state).is_some())
}

/// A job of which nobody can tell where it belongs: out of the way, and not to be run.
fn job_aside(
    tx: &Tx<'_>,
    sight: &mut Sight,
    job: &JobRow,
    check: &str,
    message: &str,
) -> Result<(), StoreError> {
    sight.found(check, format!("{}, record {}", label(tx, job)?, job.record), message, "set aside")?;
    if sight.repair {
        set_aside(tx, "waiting", "lane = ?1 AND record = ?2", (job.lane, job.record))?;
        set_aside(tx, "jobs", "record = ?1", [job.record])?;
        set_aside(tx, "past", "record = ?1", [job.record])?;
    }
    Ok(())
}

/// An id that a caller chose leads to its job. True when the job is not to be looked at further.
fn look_at_id(tx: &Tx<'_>, sight: &mut Sight, job: &JobRow) -> Result<bool, StoreError> {
    let found = tx.row(
        "SELECT record, EXISTS (SELECT 1 FROM jobs JOIN lanes USING (lane) WHERE jobs.record = ids.record AND jobs.id = ids.id \
         AND lanes.queue = ids.queue) FROM ids WHERE queue = ?1 AND id = ?2",
        (job.queue, &*job.id),
        |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, bool>(1)?)),
    )?;
    match found {
        Some((Some(record), _)) if record == job.record as i64 => Ok(false),
        Some((Some(_), true)) if job.lease.is_some() => {
            let message = "another job has the same id, and a runner has this one";
            let repair = std::mem::replace(&mut sight.repair, false);
            sight.found("double-id", format!("{}, record {}", label(tx, job)?, job.record), message, "")?;
            sight.repair = repair;
            Ok(true)
        }
        Some((Some(_), true)) => {
            job_aside(tx, sight, job, "double-id", "another job has the same id")?;
            Ok(true)
        }
        _ => {
            sight.found("lost-id", label(tx, job)?, "its id does not lead to it", "its id leads to it")?;
            if sight.repair {
                tx.exec(
                    "INSERT OR REPLACE INTO ids (queue, id, record, ns) VALUES (?1, ?2, ?3, ?4)",
                    (job.queue, &*job.id, job.record, tx.ns),
                )?;
            }
            Ok(false)
        }
    }
}
