//! Offering jobs to a store that has lost data: one that waits is leased again, one of which nothing is known is made again.

use super::SqliteStore;
use super::copy_in::insert;
use super::enqueue::bind_id;
use super::link::Promise;
use super::read::locate;
use super::rows::{JobRow, LeaseRow, PastRow};
use super::tx::{LaneNumbers, Tx};
use crate::names::{JobId, Name};
use crate::queue::checks::{check_offer, generated_record};
use crate::queue::{ClaimedJob, JobRef, Lane, Offered, StoreError};

impl SqliteStore {
    pub(super) async fn offer_jobs(&self, jobs: &[ClaimedJob]) -> Result<Vec<Offered>, StoreError> {
        check_offer(jobs)?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let jobs = jobs.to_vec();
        self.link
            .write(Promise::Kept, move |tx| {
                let mut call = Offering { tx };
                jobs.iter().map(|job| call.take(job)).collect()
            })
            .await
    }
}

/// One call's offers.
struct Offering<'a> {
    tx: &'a Tx<'a>,
}

/// What is known of an offered job.
enum Found {
    /// The job.
    Job(Box<JobRow>),
    /// Its id is another job's, or remembered after its end.
    Other,
    Nothing,
}

impl Offering<'_> {
    fn take(&mut self, claimed: &ClaimedJob) -> Result<Offered, StoreError> {
        let (tx, lease) = (self.tx, &claimed.lease);
        if LeaseRow::load(tx, lease.record)?.is_some_and(|found| is_of(&found, claimed)) {
            return Ok(Offered::Kept { record: lease.record });
        }
        let lane = Lane { queue: claimed.job.queue.clone(), kind: claimed.job.kind.clone() };
        let known = tx.find_lane(&lane)?;
        let job = match find(tx, known, claimed)? {
            Found::Job(job) => job,
            Found::Other => return Ok(Offered::Taken),
            Found::Nothing => return self.make(tx.lane(&lane)?, claimed),
        };
        let record = job.record;
        if let Some(found) = &job.lease {
            let kept = is_of(found, claimed);
            return Ok(if kept { Offered::Kept { record } } else { Offered::Taken });
        }
        let (attempt, crashes) = job.past.as_ref().map_or((0, 0), |past| (past.attempt, past.crashes));
        if !job.is_waiting() || attempt >= claimed.attempt || crashes > claimed.crashes {
            return Ok(Offered::Taken);
        }
        let entry = job.waiting();
        entry.delete(tx)?;
        put_lease(tx, record, job.lane, entry.place, claimed)
    }

    /// Makes a job again of which nothing is known, under its number if that is free; the sequence goes on behind it.
    fn make(&mut self, lane: LaneNumbers, claimed: &ClaimedJob) -> Result<Offered, StoreError> {
        let (tx, job) = (self.tx, &claimed.job);
        let wanted = claimed.lease.record;
        let (record, place) = if !is_free(tx, wanted)? {
            let number = tx.next_number()?;
            (number, number)
        } else if wanted > tx.number("SELECT last FROM sequence", [])? {
            tx.exec("UPDATE sequence SET last = max(last, ?1)", [wanted])?;
            (wanted, wanted)
        } else {
            // Another job may have this place: numbers are places, too.
            (wanted, tx.next_number()?)
        };
        let made = generated_record(&job.id) == Some(record);
        insert(tx, record, lane, job, claimed.due_ms, !made)?;
        if !made {
            bind_id(tx, lane, &job.id, record)?;
        }
        let mut past = PastRow::fresh(claimed.max_attempts, claimed.crashes, claimed.due_ms, place);
        past.attempt = claimed.attempt.saturating_sub(1);
        past.note(tx, "restored", "", "", "the store had lost it");
        past.save(tx, record)?;
        tx.exec("UPDATE queues SET enqueued = enqueued + 1 WHERE queue = ?1", [lane.queue])?;
        put_lease(tx, record, lane.lane, place, claimed)
    }
}

/// Whether a lease is the one under which this job was claimed.
fn is_of(found: &LeaseRow, claimed: &ClaimedJob) -> bool {
    found.session == *claimed.lease.session.0 && found.token == claimed.lease.token
}

/// The offered job. It is the same when its queue, kind, id and time of enqueue are: a store that has gone back gives numbers out again.
fn find(tx: &Tx<'_>, lane: Option<LaneNumbers>, claimed: &ClaimedJob) -> Result<Found, StoreError> {
    let (job, offered) = (&claimed.job, claimed.lease.record);
    let is_same = |record| match lane {
        Some(lane) => is_same(tx, record, lane, claimed),
        None => Ok(false),
    };
    if is_same(offered)? {
        return load(tx, offered);
    }
    match locate(tx, &JobRef { queue: job.queue.clone(), id: job.id.clone() })? {
        Some(record) if is_same(record)? => load(tx, record),
        Some(record) if JobRow::load(tx, record)?.is_some() => Ok(Found::Other),
        _ if is_remembered(tx, &job.queue, &job.id)? => Ok(Found::Other),
        _ => Ok(Found::Nothing),
    }
}

fn load(tx: &Tx<'_>, record: u64) -> Result<Found, StoreError> {
    Ok(JobRow::load(tx, record)?.map_or(Found::Nothing, |job| Found::Job(Box::new(job))))
}

fn is_same(
    tx: &Tx<'_>,
    record: u64,
    lane: LaneNumbers,
    ClaimedJob { job, .. }: &ClaimedJob,
) -> Result<bool, StoreError> {
    let found = tx.row(
        "SELECT 1 FROM jobs WHERE record = ?1 AND lane = ?2 AND id = ?3 AND enqueued_ms = ?4",
        (record, lane.lane, job.id.as_str(), job.enqueued_ms),
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

fn is_remembered(tx: &Tx<'_>, queue: &Name, id: &JobId) -> Result<bool, StoreError> {
    let Some(queue) = tx.find_queue(queue)? else { return Ok(false) };
    let found = tx.row(
        "SELECT 1 FROM ids WHERE queue = ?1 AND id = ?2 AND record IS NULL AND forget_ms > ?3",
        (queue, id.as_str(), tx.now_ms),
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Whether nothing has this number for its record, in whatever namespace.
fn is_free(tx: &Tx<'_>, record: u64) -> Result<bool, StoreError> {
    let taken = tx.number(
        "SELECT EXISTS (SELECT 1 FROM jobs WHERE record = ?1) OR EXISTS (SELECT 1 FROM past WHERE record = ?1) \
         OR EXISTS (SELECT 1 FROM leases WHERE record = ?1)",
        [record],
    )?;
    Ok(taken == 0)
}

fn put_lease(
    tx: &Tx<'_>,
    record: u64,
    lane: i64,
    place: u64,
    claimed: &ClaimedJob,
) -> Result<Offered, StoreError> {
    tx.exec(
        "INSERT INTO leases (ns, record, lane, session, token, attempt, max_attempts, crashes, due_ms, place, claimed_ms) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        rusqlite::params![
            tx.ns,
            record,
            lane,
            &*claimed.lease.session.0,
            claimed.lease.token,
            claimed.attempt,
            claimed.max_attempts,
            claimed.crashes,
            claimed.due_ms,
            place,
            tx.now_ms,
        ],
    )?;
    Ok(Offered::Restored { record })
}
