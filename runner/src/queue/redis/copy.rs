//! Everything of a namespace on its way out to another store, and in from one: lua/export.lua and lua/import.lua.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::RedisStore;
use super::claim::push_lanes;
use super::enqueue::Lanes;
use super::link::Repeat;
use super::record::{
    LeaseText, PastText, priority_letter, read_lease, read_past, read_progress, read_record, record_text,
    rid_text,
};
use super::reply::{Items, text, unexpected};
use super::walk::{Walk, step_of};
use crate::job::State;
use crate::names::{JobId, Name};
use crate::queue::copy::{
    ExportedJob, ExportedQueue, ExportedState, JobEnd, LostLease, RememberedId, check_import, last_number,
};
use crate::queue::life::Owner;
use crate::queue::{AttemptLog, Exported, Imported, Lane, Page, Source, StoreError};

/// Jobs of a page, as far as their sizes allow.
const PAGE_JOBS: usize = 100;
/// Bytes of records, pasts and logs that one script reads before it answers for fewer jobs than it was asked for.
const STEP_BYTES: usize = 1 << 20;
/// Ids of a page.
const PAGE_IDS: usize = 500;
/// From here on nothing expires, in milliseconds since 1970: as lua/includes/finish.lua has it.
const NEVER_MS: u64 = 9_000_000_000_000_000;
/// What a past weighs beyond its events and its result, in bytes: as lua/includes/finish.lua has it.
const PAST_COST: usize = 128;

impl RedisStore {
    pub(super) async fn as_source(&self) -> Result<Source, StoreError> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(self.keys.global("meta")).arg("store_id");
        let name = text(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut cmd = redis::cmd("GET");
        cmd.arg(self.keys.global("seq"));
        let last = text(self.link.command(&cmd, Repeat::Once).await?)?.parse().unwrap_or(0);
        let place = format!("{} {}", self.link.place(), self.namespace);
        Ok(Source { name: if name.is_empty() { place } else { name }, last })
    }

    pub(super) async fn export_page(&self, cursor: Option<String>) -> Result<Page<Exported>, StoreError> {
        let cursor = cursor.unwrap_or_else(|| "jobs:0".to_owned());
        let at = cursor.split_once(':').filter(|(_, at)| at.parse::<u64>().is_ok());
        match at {
            Some(("jobs", at)) => self.export_jobs(at).await,
            Some(("ids", at)) => self.export_ids(at).await,
            Some(("queues", _)) => self.export_queues().await,
            _ if cursor.starts_with("state:") => self.export_state(&cursor).await,
            _ => Err(StoreError::Invalid(format!(
                "invalid cursor {cursor:?}: expected one that an export gave"
            ))),
        }
    }

    async fn export_jobs(&self, at: &str) -> Result<Page<Exported>, StoreError> {
        let count = self.jobs_in_a_step(PAGE_JOBS).await?;
        let (next, mut entries) = self.walk("jobs", at, count, Walk::Records).await?;
        let mut jobs = Vec::new();
        while !entries.is_empty() {
            let (rid, _size, head) = (entries.text()?, entries.value()?, entries.bytes()?);
            let record = rid.parse().ok().filter(|record| rid_text(*record) == rid);
            // What cannot be read cannot be moved: the doctor tells of it.
            let job = record.and_then(|record| read_record(record, &head).map(|(job, _)| (record, job)));
            jobs.extend(job.map(|(record, job)| (record, Lane { queue: job.queue, kind: job.kind })));
        }
        let mut items = Vec::with_capacity(jobs.len());
        let mut looked = 0;
        while looked < jobs.len() {
            looked += self.export_some(&jobs[looked..], &mut items).await?;
        }
        let cursor = next.map_or("ids:0".to_owned(), |next| format!("jobs:{next}"));
        Ok(Page { items, cursor: Some(cursor) })
    }

    /// The first of these jobs, as many as one step takes; how many it looked at.
    async fn export_some(
        &self,
        jobs: &[(u64, Lane)],
        items: &mut Vec<Exported>,
    ) -> Result<usize, StoreError> {
        let lanes = Lanes::of(jobs.iter().map(|(_, lane)| lane.clone()));
        let mut args = vec![STEP_BYTES.to_string().into_bytes()];
        push_lanes(&mut args, &lanes);
        for (record, lane) in jobs {
            args.extend([lanes.number(lane).to_string().into(), rid_text(*record).into()]);
        }
        let reply =
            self.link.script(&self.scripts.export, &self.lane_keys(&lanes), &args, Repeat::Once).await?;
        let mut reply = Items::of(reply)?;
        let now_us = reply.number()?;
        let looked = reply.len() / 8;
        if looked == 0 || looked > jobs.len() {
            return Err(unexpected("an export of other jobs"));
        }
        for (record, _) in &jobs[..looked] {
            items.extend(read_exported(*record, &mut reply, now_us)?.map(|job| Exported::Job(Box::new(job))));
        }
        Ok(looked)
    }

    async fn export_ids(&self, at: &str) -> Result<Page<Exported>, StoreError> {
        let mut cmd = redis::cmd("HSCAN");
        cmd.arg(self.keys.global("ids")).arg(at).arg("COUNT").arg(PAGE_IDS);
        let (next, mut fields) = step_of(self.link.command(&cmd, Repeat::Once).await?)?;
        let mut items = Vec::new();
        while !fields.is_empty() {
            let (field, value) = (fields.text()?, fields.text()?);
            items.extend(read_remembered(&field, &value).map(Exported::Id));
        }
        let cursor = next.map_or("queues:0".to_owned(), |next| format!("ids:{next}"));
        Ok(Page { items, cursor: Some(cursor) })
    }

    async fn export_queues(&self) -> Result<Page<Exported>, StoreError> {
        let counts = self.count_all().await?;
        let items = counts.queues.into_iter().map(|queue| {
            Exported::Queue(ExportedQueue {
                totals: queue.totals(),
                queue: queue.queue,
                kinds: queue.kinds,
                paused: queue.paused,
            })
        });
        Ok(Page { items: items.collect(), cursor: Some("state::0".to_owned()) })
    }

    /// A page of one bucket, `state:<bucket>:<cursor in it>`; no bucket is the first.
    async fn export_state(&self, cursor: &str) -> Result<Page<Exported>, StoreError> {
        let invalid =
            || StoreError::Invalid(format!("invalid cursor {cursor:?}: expected one that an export gave"));
        let mut parts = cursor.split(':').skip(1);
        let (bucket, at) = (parts.next().ok_or_else(invalid)?, parts.next().ok_or_else(invalid)?);
        let bucket = match bucket {
            "" => self.bucket_behind(None).await?,
            name => Some(Name::new(name).map_err(|_| invalid())?),
        };
        let Some(bucket) = bucket else { return Ok(Page { items: Vec::new(), cursor: None }) };
        let page = self.entry_page(&bucket, Some(at.to_owned())).await?;
        let next = match page.cursor {
            Some(at) => Some((bucket.clone(), at)),
            None => self.bucket_behind(Some(&bucket)).await?.map(|next| (next, "0".to_owned())),
        };
        let exported = |entry| Exported::State(ExportedState { bucket: bucket.clone(), entry });
        let items = page.items.into_iter().map(exported).collect();
        Ok(Page { items, cursor: next.map(|(bucket, at)| format!("state:{bucket}:{at}")) })
    }

    pub(super) async fn import_items(
        &self,
        source: &Source,
        items: &[Exported],
    ) -> Result<Vec<Imported>, StoreError> {
        check_import(items)?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let lanes = Lanes::of(items.iter().flat_map(lanes_of));
        let mut buckets: Vec<&Name> = items.iter().filter_map(bucket_of).collect();
        buckets.sort_unstable();
        buckets.dedup();
        let mut args = vec![source.name.as_bytes().to_vec(), last_number(source, items).to_string().into()];
        push_lanes(&mut args, &lanes);
        let mut keys = self.lane_keys(&lanes);
        let lane_keys = keys.len();
        keys.extend(buckets.iter().map(|bucket| self.keys.state(bucket)));
        for item in items {
            match item {
                Exported::Job(job) => push_job(&mut args, job, &lanes),
                Exported::Id(id) => {
                    args.extend([b"i".to_vec(), id.queue.as_str().into(), id.id.as_str().into()]);
                    args.push(letter_of(id.state).into());
                    args.extend([id.due_ms, id.forget_ms].map(|ms| ms.to_string().into_bytes()));
                }
                Exported::Queue(queue) => {
                    args.extend([b"q".to_vec(), queue.queue.as_str().into()]);
                    args.push(u8::from(queue.paused).to_string().into());
                    args.extend(queue.totals.map(|total| total.to_string().into_bytes()));
                }
                Exported::State(ExportedState { bucket, entry }) => {
                    let place = lane_keys + buckets.binary_search(&bucket).unwrap_or(0);
                    args.extend([b"s".to_vec(), bucket.as_str().into(), (place + 1).to_string().into()]);
                    args.extend([entry.key.as_bytes().to_vec(), entry.found.version.to_string().into()]);
                    args.push(entry.found.value.to_vec());
                }
            }
        }
        let answers = self.import_script(&keys, &args).await?;
        if answers.len() == items.len() { Ok(answers) } else { Err(unexpected("answers for other items")) }
    }

    pub(super) async fn import_end(&self, source: &Source) -> Result<(), StoreError> {
        let mut args = vec![source.name.as_bytes().to_vec(), source.last.to_string().into()];
        push_lanes(&mut args, &Lanes::default());
        args.push(b"e".to_vec());
        self.import_script(self.keys.globals(), &args).await.map(drop)
    }

    async fn import_script(&self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Imported>, StoreError> {
        // A second run finds what the first one has brought.
        let reply = self.link.script(&self.scripts.import, keys, args, Repeat::Once).await?;
        let mut words = Items::of(reply)?;
        let mut answers = Vec::with_capacity(words.len());
        while !words.is_empty() {
            answers.push(match words.text()?.as_str() {
                "copied" => Imported::Copied,
                "there" => Imported::There,
                "before" => Imported::Before,
                _ => return Err(unexpected("an unknown answer")),
            });
        }
        Ok(answers)
    }
}

fn letter_of(state: State) -> &'static str {
    match state {
        State::Completed => "c",
        State::Cancelled => "x",
        State::Dead => "d",
        State::Scheduled | State::Ready | State::Running => "w",
    }
}

fn state_of(letter: u8) -> Option<State> {
    [State::Completed, State::Cancelled, State::Dead]
        .into_iter()
        .find(|state| letter_of(*state).as_bytes() == [letter])
}

fn lanes_of(item: &Exported) -> Vec<Lane> {
    match item {
        Exported::Job(job) => vec![Lane { queue: job.job.queue.clone(), kind: job.job.kind.clone() }],
        Exported::Id(_) | Exported::State(_) => Vec::new(),
        Exported::Queue(queue) => {
            queue.kinds.iter().map(|kind| Lane { queue: queue.queue.clone(), kind: kind.clone() }).collect()
        }
    }
}

fn bucket_of(item: &Exported) -> Option<&Name> {
    match item {
        Exported::State(state) => Some(&state.bucket),
        _ => None,
    }
}

/// What export.lua says of one job. `None` for one that went away meanwhile.
fn read_exported(record: u64, reply: &mut Items, now_us: u64) -> Result<Option<ExportedJob>, StoreError> {
    let (text, past, lease, recall) = (reply.bytes()?, reply.bytes()?, reply.bytes()?, reply.text()?);
    let (runner, ended) = (reply.text()?, reply.text()?);
    let told = read_progress(&reply.bytes()?);
    let logs = read_logs(reply.list()?)?;
    let Some((job, due_ms)) = read_record(record, &text) else { return Ok(None) };
    let mut exported = ExportedJob::untouched(record, job, due_ms, logs);
    let mut owner = None;
    if let Some(past) = read_past(&past) {
        add_past(&mut exported, &past, ended.parse().ok());
        owner = past.settled();
    }
    if let Some(lease) = read_lease(&lease) {
        let cancel = recall == format!("{} {} c", lease.session, lease.token);
        exported.take_back(&lost(&lease, &runner, cancel), now_us);
        owner = Some(Owner { session: lease.session, token: lease.token });
    }
    exported.add_progress(told, owner.as_ref());
    Ok(Some(exported))
}

fn add_past(job: &mut ExportedJob, past: &PastText<'_>, ended_ms: Option<u64>) {
    (job.attempt, job.max_attempts, job.crashes) = (past.attempt, past.max_attempts, past.crashes);
    (job.due_ms, job.place) = (past.due_ms, past.order);
    job.result = Bytes::copy_from_slice(past.result);
    (job.events, job.history) = (past.events, Bytes::copy_from_slice(past.history));
    job.end = state_of(past.state).map(|state| JobEnd {
        state,
        // A job that is in no index has ended some time: the doctor puts it back.
        at_ms: ended_ms.unwrap_or(past.due_ms),
        expires_ms: Some(past.expire_ms).filter(|ms| *ms < NEVER_MS),
        forget_ms: past.forget_ms,
    });
}

fn lost<'a>(lease: &LeaseText, runner: &'a str, cancel: bool) -> LostLease<'a> {
    LostLease {
        attempt: lease.attempt,
        max_attempts: lease.max_attempts,
        crashes: lease.crashes,
        due_ms: lease.due_ms,
        place: lease.order,
        runner,
        cancel,
    }
}

fn read_logs(mut list: Items) -> Result<Vec<AttemptLog>, StoreError> {
    let mut logs = BTreeMap::new();
    while !list.is_empty() {
        let attempt = list.number()?;
        logs.insert(attempt, list.text()?);
    }
    Ok(logs.into_iter().map(|(attempt, text)| AttemptLog { attempt, text }).collect())
}

/// An entry of `ids`, if it is the memory of a job.
fn read_remembered(field: &str, value: &str) -> Option<RememberedId> {
    let (queue, id) = field.split_once('/')?;
    let mut words = value.strip_prefix('~')?.split(' ');
    Some(RememberedId {
        queue: Name::new(queue).ok()?,
        id: JobId::new(id).ok()?,
        state: state_of(*words.next()?.as_bytes().first()?)?,
        due_ms: words.next()?.parse().ok()?,
        forget_ms: words.next()?.parse().ok()?,
    })
}

/// A job as import.lua takes it.
fn push_job(args: &mut Vec<Vec<u8>>, exported: &ExportedJob, lanes: &Lanes) {
    let ExportedJob { job, attempt, max_attempts, crashes, due_ms, events, .. } = exported;
    let number = |number: u64| number.to_string().into_bytes();
    let lane = Lane { queue: job.queue.clone(), kind: job.kind.clone() };
    let state = exported.end.map_or("w", |end| letter_of(end.state));
    let priority = priority_letter(job.priority);
    let record = record_text(job, *due_ms);
    let (mut size, mut expire_ms, mut forget_ms, mut at_ms) = (0, 0, 0, 0);
    if let Some(end) = exported.end {
        size = record.len() + exported.history.len() + exported.result.len() + PAST_COST;
        (expire_ms, forget_ms, at_ms) = (end.expires_ms.unwrap_or(NEVER_MS), end.forget_ms, end.at_ms);
    }
    let (mut before, mut after) = (String::new(), Vec::new());
    if !exported.is_fresh() {
        before = format!("{state} {attempt} {max_attempts} {crashes} {due_ms}");
        let result = &exported.result;
        after = format!("{size} {expire_ms} {forget_ms} - 0 {events}\n{}:", result.len()).into_bytes();
        after.extend_from_slice(result);
        after.push(b',');
        after.extend_from_slice(&exported.history);
    }
    args.extend([
        b"j".to_vec(),
        number(lanes.number(&lane) as u64),
        number(exported.record),
        number(exported.place),
    ]);
    args.extend([job.id.as_str().into(), state.into(), number((*attempt).into()), number((*crashes).into())]);
    args.extend([number(*due_ms), priority.into(), record, before.into(), after]);
    args.extend([number(at_ms), number(size as u64), number(expire_ms), number(forget_ms)]);
    // Nobody's any more: what tells it from that of a later attempt is its number.
    let told = exported.progress.as_ref();
    let told = told.map(|p| format!("- 0 {} {} {} {}", p.attempt, p.at_us, p.percent, p.message));
    args.push(told.unwrap_or_default().into());
    args.push(number(exported.logs.len() as u64));
    for log in &exported.logs {
        args.extend([number(log.attempt.into()), log.text.as_bytes().to_vec()]);
    }
}
