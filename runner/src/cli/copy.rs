//! `store copy`: everything of a namespace from one store into another.
//!
//! The source is only read. While a runner works on it the copy is refused, for a job could run in both stores. What a
//! runner had that is gone is copied as if it had been taken back from it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::args::CopyArgs;
use super::context::Context;
use super::exit::{Code, Fault};
use super::output::note;
use crate::app;
use crate::clock::{Monotonic, monotonic};
use crate::config::StoreSettings;
use crate::queue::copy::IMPORT_BYTES_MAX;
use crate::queue::{BATCH_MAX, Exported, Imported, SessionId, SessionSeen, Source, Store, StoreError};

/// How long the source is watched for signs of life: a runner shows itself once a second.
const WATCH: Duration = Duration::from_millis(2_500);
/// As [`WATCH`], while runners have jobs: as long as others wait before they take those over, and a little.
const WATCH_LEASES: Duration = Duration::from_secs(6);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often it is said how far the copy is.
const SAY_EVERY: Duration = Duration::from_secs(2);

/// What was done.
#[derive(Debug, Default, Serialize)]
struct CopyOut {
    /// Jobs that the target has now.
    copied: u64,
    /// Jobs of which the target had the id.
    already_there: u64,
    /// Jobs that an earlier copy had brought, and that are gone since.
    copied_before: u64,
    /// Of those that were copied, how many a runner had that is gone.
    taken_back: u64,
    /// Ids of finished jobs that the target remembers now.
    remembered_ids: u64,
    /// Queues of the source.
    queues: u64,
    /// Entries of state that the target has now.
    state: u64,
}

/// Runs `store copy`.
pub(super) async fn run(context: &mut Context, args: &CopyArgs) -> Result<Code, Fault> {
    let (from, to) = open(context, args).await?;
    let watched = Watch::begin(&*from).await?.through_all(&*from).await?;
    let expected = jobs_of(&*from).await?;
    let source = from.export_source().await?;
    let mut copy =
        Copy { to: &*to, source: &source, done: CopyOut::default(), seen: HashSet::new(), said: monotonic() };
    let copied = copy.all(&*from).await;
    let (seen, done) = (copy.seen.len() as u64, copy.done);
    copied.map_err(|error| {
        let mut fault = Fault::from(error);
        fault.message = format!(
            "{}\n{} jobs were copied before; the same command goes on with the others",
            fault.message, done.copied
        );
        fault
    })?;
    watched.nobody_came(&*from).await?;
    if seen < expected {
        say(context, &done);
        return Err(Fault::failed(format!(
            "{} jobs of the source cannot be read and were not copied: `hourhand doctor` tells more",
            expected - seen
        )));
    }
    to.import_done(&source).await?;
    say(context, &done);
    Ok(Code::Done)
}

/// The two stores, which are not the same.
async fn open(context: &Context, args: &CopyArgs) -> Result<(Arc<dyn Store>, Arc<dyn Store>), Fault> {
    let (from, to) = StoreSettings::pair(&context.layers, &args.from, &args.to)?;
    if let Some(file) = from.missing_file() {
        return Err(StoreError::Unreachable(format!("{}: there is no such file", file.display())).into());
    }
    let missing = to.missing_file();
    let (source, target) = (app::open_store(&from)?, app::open_store(&to)?);
    if let Some(file) = missing {
        note(&format!("there is no store {} yet: making it", file.display()));
    }
    // The target gets its name first: two ways to one store then lead to one name.
    if from.url == to.url || target.identity().await? == source.export_source().await?.name {
        return Err(Fault::usage("--from and --to name the same store"));
    }
    Ok((source, target))
}

/// How many jobs there are.
async fn jobs_of(store: &dyn Store) -> Result<u64, Fault> {
    let counts = store.counts().await?;
    let of = |q: &crate::queue::QueueCounts| {
        q.scheduled + q.ready + q.running + q.completed + q.cancelled + q.dead
    };
    Ok(counts.queues.iter().map(of).sum())
}

/// Runners of the source, as they were at first.
struct Watch {
    beats: HashMap<SessionId, u64>,
    /// How long they must stay as they are.
    span: Duration,
}

impl Watch {
    async fn begin(store: &dyn Store) -> Result<Self, Fault> {
        let beats: HashMap<SessionId, u64> =
            store.sessions().await?.into_iter().map(|seen| (seen.session, seen.beat)).collect();
        let span = match (has_leases(store).await?, beats.is_empty()) {
            (true, _) => WATCH_LEASES,
            (false, false) => WATCH,
            (false, true) => Duration::ZERO,
        };
        Ok(Self { beats, span })
    }

    /// Watches until it is sure that no runner works.
    async fn through_all(self, store: &dyn Store) -> Result<Self, Fault> {
        if !self.span.is_zero() {
            note("watching whether a runner works on the source");
        }
        let begun = monotonic();
        while begun.elapsed() < self.span {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(runner) = self.live(store).await? {
                return Err(Fault::conflict(format!(
                    "{runner} works on the source: stop it (SIGTERM) and wait for its end, then copy"
                )));
            }
        }
        Ok(self)
    }

    /// A last look: no runner has begun to work meanwhile.
    async fn nobody_came(&self, store: &dyn Store) -> Result<(), Fault> {
        match self.live(store).await? {
            None => Ok(()),
            Some(runner) => Err(Fault::conflict(format!(
                "{runner} has begun to work on the source during the copy: what it does now may be done in both stores; \
                 stop it, and copy again"
            ))),
        }
    }

    /// A runner that has shown itself since the beginning.
    async fn live(&self, store: &dyn Store) -> Result<Option<String>, Fault> {
        let sessions = store.sessions().await?;
        let live = sessions.iter().find(|seen| self.beats.get(&seen.session) != Some(&seen.beat));
        Ok(live.map(runner_name))
    }
}

fn runner_name(seen: &SessionSeen) -> String {
    match &seen.info {
        Some(info) => format!("runner {}", info.name),
        None => format!("a runner (session {})", seen.session),
    }
}

async fn has_leases(store: &dyn Store) -> Result<bool, Fault> {
    let mut cursor = None;
    loop {
        let page = store.leases(cursor).await?;
        if !page.items.is_empty() {
            return Ok(true);
        }
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(false),
        }
    }
}

/// A copy on its way.
struct Copy<'a> {
    to: &'a dyn Store,
    source: &'a Source,
    done: CopyOut,
    /// Records that were seen: a page may bring one twice.
    seen: HashSet<u64>,
    said: Monotonic,
}

impl Copy<'_> {
    async fn all(&mut self, from: &dyn Store) -> Result<(), StoreError> {
        let mut cursor = None;
        loop {
            let page = from.export(cursor).await?;
            let items: Vec<Exported> = page.items.into_iter().filter(|item| self.is_new(item)).collect();
            let mut rest = &items[..];
            while !rest.is_empty() {
                let (batch, left) = rest.split_at(fitting(rest));
                let answers = self.to.import(self.source, batch).await?;
                batch.iter().zip(answers).for_each(|(item, answer)| self.count(item, answer));
                rest = left;
            }
            if self.said.elapsed() > SAY_EVERY {
                self.said = monotonic();
                note(&format!("{} jobs copied, {} already there", self.done.copied, self.done.already_there));
            }
            match page.cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn is_new(&mut self, item: &Exported) -> bool {
        match item {
            Exported::Job(job) => self.seen.insert(job.record),
            Exported::Id(_) | Exported::Queue(_) | Exported::State(_) => true,
        }
    }

    fn count(&mut self, item: &Exported, answer: Imported) {
        let done = &mut self.done;
        match (item, answer) {
            (Exported::Job(job), Imported::Copied) => {
                done.copied += 1;
                done.taken_back += u64::from(job.taken_back);
            }
            (Exported::Job(_), Imported::There) => done.already_there += 1,
            (Exported::Job(_), Imported::Before) => done.copied_before += 1,
            (Exported::Id(_), answer) => done.remembered_ids += u64::from(answer == Imported::Copied),
            (Exported::Queue(_), _) => done.queues += 1,
            (Exported::State(_), answer) => done.state += u64::from(answer == Imported::Copied),
        }
    }
}

/// How many of the first items fit one call.
fn fitting(items: &[Exported]) -> usize {
    let mut bytes = 0;
    let fit = items.iter().take(BATCH_MAX).take_while(|item| {
        bytes += item.bytes();
        bytes <= IMPORT_BYTES_MAX
    });
    fit.count().max(1)
}

fn say(context: &mut Context, done: &CopyOut) {
    if done.taken_back > 0 {
        note(&format!(
            "{} jobs were in the hands of runners that are gone: they were copied as if taken back, a crash on their record",
            done.taken_back
        ));
    }
    if done.copied_before > 0 {
        note(&format!(
            "{} jobs were copied by an earlier command and are gone from the target since: they were not brought back",
            done.copied_before
        ));
    }
    if context.out.json() {
        context.out.value(done);
    } else {
        context.out.line(&format!("{} jobs copied, {} already there", done.copied, done.already_there));
    }
}
