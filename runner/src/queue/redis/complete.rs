//! The usual end of a job, made for speed: the Rust side of lua/complete.lua. What is not usual is left to settle.lua.

use std::collections::HashSet;

use super::RedisStore;
use super::arguments::Arguments;
use super::claim::{push_policy, read_answers};
use super::link::Repeat;
use super::record::{LeaseParts, lease_parts, rid_text};
use crate::outcome::Outcome;
use crate::queue::life::event_text;
use crate::queue::{Retention, Settled, Settlement, StoreError};

/// What a past costs beside its parts, in bytes: see PAST_COST in lua/includes/finish.lua.
const PAST_COST: usize = 128;

impl RedisStore {
    /// Settles what has no effects: by the fast script what is usual, by lua/settle.lua the rest.
    pub(super) async fn settle_plain(&self, settlements: &[Settlement]) -> Result<Vec<Settled>, StoreError> {
        let mut answers = vec![None; settlements.len()];
        let classes = classes(settlements);
        let usual: Vec<usize> =
            classes.iter().flat_map(|class| class.jobs.iter().map(|(place, _)| *place)).collect();
        if usual.is_empty() || (usual.len() < settlements.len() && !all_differ(settlements)) {
            return self.settle_some(settlements).await;
        }
        // The rest first: if one of it is refused for what it says, none is written.
        let mut is_usual = vec![false; settlements.len()];
        usual.iter().for_each(|place| is_usual[*place] = true);
        self.settle_those(settlements, &mut answers, |place, _| !is_usual[place]).await?;
        let done = self.complete_usual(classes, usual.len()).await?;
        usual.into_iter().zip(done).for_each(|(place, done)| answers[place] = done.then_some(Settled::Done));
        self.settle_those(settlements, &mut answers, |_, answer| answer.is_none()).await?;
        Ok(answers.into_iter().flatten().collect())
    }

    async fn settle_those(
        &self,
        settlements: &[Settlement],
        answers: &mut [Option<Settled>],
        wanted: impl Fn(usize, &Option<Settled>) -> bool,
    ) -> Result<(), StoreError> {
        let places: Vec<usize> =
            (0..settlements.len()).filter(|place| wanted(*place, &answers[*place])).collect();
        if places.is_empty() {
            return Ok(());
        }
        let those: Vec<Settlement> = places.iter().map(|place| settlements[*place].clone()).collect();
        for (place, settled) in places.into_iter().zip(self.settle_some(&those).await?) {
            answers[place] = Some(settled);
        }
        Ok(())
    }

    /// Which of them are done; the others are as they were.
    async fn complete_usual(&self, classes: Vec<Class<'_>>, jobs: usize) -> Result<Vec<bool>, StoreError> {
        let mut keys = self.keys.globals().to_vec();
        let mut args = Arguments::with_capacity(1 + 8 * classes.len() + 7 * jobs);
        args.push(classes.len().to_string());
        for class in classes {
            let [completed, ..] = self.keys.done(&class.like.lane.queue);
            keys.push(completed);
            class.push(&mut args);
        }
        // Done twice, the second finds no lease, and says that it knows nothing.
        let reply = self.link.script(&self.scripts.complete, &keys, &args.slices(), Repeat::Once).await?;
        Ok(read_answers(reply, jobs)?.into_iter().map(|answer| answer == 'D').collect())
    }
}

/// Those that have ended in the usual way, with their places.
fn classes(settlements: &[Settlement]) -> Vec<Class<'_>> {
    let mut classes: Vec<Class<'_>> = Vec::new();
    for (place, settlement) in settlements.iter().enumerate() {
        let Some(usual) = Usual::of(settlement) else { continue };
        match classes.iter_mut().find(|class| class.takes(settlement)) {
            Some(class) => class.jobs.push((place, usual)),
            None => classes.push(Class { like: settlement, jobs: vec![(place, usual)] }),
        }
    }
    classes
}

/// Whether no two are of the same job: those would have to be written in their order.
fn all_differ(settlements: &[Settlement]) -> bool {
    let mut seen = HashSet::with_capacity(settlements.len());
    settlements.iter().all(|settlement| seen.insert(settlement.lease.record))
}

/// Settlements that have in common what the script is told once.
struct Class<'a> {
    like: &'a Settlement,
    jobs: Vec<(usize, Usual<'a>)>,
}

impl Class<'_> {
    fn takes(&self, other: &Settlement) -> bool {
        let Settlement { lane, lease, retention, id_memory, .. } = self.like;
        lane.queue == other.lane.queue
            && lease.session == other.lease.session
            && *retention == other.retention
            && *id_memory == other.id_memory
    }

    fn push(self, args: &mut Arguments) {
        args.push(self.like.lane.queue.as_str());
        args.push(&*self.like.lease.session.0);
        let mut policy = Vec::new();
        push_policy(&mut policy, self.like.retention, self.like.id_memory);
        policy.iter().for_each(|argument| args.push(argument));
        args.push(self.jobs.len().to_string());
        self.jobs.into_iter().for_each(|(_, usual)| usual.push(args));
    }
}

/// A completion of a job to which nothing has happened before.
struct Usual<'a> {
    settlement: &'a Settlement,
    result: &'a [u8],
    lease: LeaseParts<'a>,
}

impl<'a> Usual<'a> {
    fn of(settlement: &'a Settlement) -> Option<Self> {
        let Outcome::Completed { result } = &settlement.outcome else { return None };
        // Without a run its event has the script's time.
        settlement.run.as_ref()?;
        let lease = lease_parts(std::str::from_utf8(&settlement.receipt).ok()?)?;
        let fits = lease.member == rid_text(settlement.lease.record)
            && lease.token == settlement.lease.token
            && lease.session == &*settlement.lease.session.0
            && (lease.queue, lease.kind) == (settlement.lane.queue.as_str(), settlement.lane.kind.as_str())
            && settlement.commits().is_none()
            && keeps(settlement.retention);
        fits.then(|| Self { settlement, result: result.as_deref().unwrap_or_default(), lease })
    }

    /// See lua/complete.lua.
    fn push(self, args: &mut Arguments) {
        let Self { settlement, result, lease } = self;
        let LeaseParts {
            session, token, attempt, max_attempts, crashes, due_ms, order, record_bytes, ..
        } = lease;
        let event = event_text(settlement.run.as_ref(), &settlement.outcome);
        // `R`, and what follows the attempt.
        let (letter, rest) = event.split_at(1);
        let event_bytes = event.len() + decimal_digits(attempt) + 1;
        let bytes = record_bytes + event_bytes + result.len() + PAST_COST;
        args.push(lease.member);
        args.push(&settlement.receipt);
        args.push_text(format_args!("c {attempt} {max_attempts} {crashes} {due_ms} {order:014} "));
        args.push_text(format_args!("{bytes}"));
        args.begin(format_args!("{session} {token} 1\n{}:", result.len()));
        args.go_on(result);
        args.push_text(format_args!(",{event_bytes}:{letter}{attempt}\u{1f}{rest},"));
        match lease.id {
            "" => args.push(""),
            _ => args.push_text(format_args!("{due_ms}")),
        }
        args.push(lease.id);
    }
}

fn decimal_digits(number: u32) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Whether a policy keeps anything: what is not kept at all is settle.lua's.
fn keeps(retention: Retention) -> bool {
    ![retention.age_ms, retention.count, retention.bytes].contains(&Some(0))
}
