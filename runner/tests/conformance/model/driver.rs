//! Takes the steps: asks the store, looks at what it holds, and lets the model judge.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use anyhow::{Context, Result, ensure};
use hourhand::clock::{Monotonic, monotonic};
use hourhand::job::State;
use hourhand::names::Name;
use hourhand::queue::{JobRef, ListQuery, Store};

use super::crew::Crew;
use super::generate::next;
use super::look;
use super::ops::{Op, perform};
use super::state::{Key, Model, Seen};
use super::window::Window;
use crate::bed::{Bed, leases, list_all};
use crate::random::{Random, SEED_VARIABLE};

/// Steps between two looks at everything.
const LOOK_EVERY: u64 = 40;
/// What may pass while a clock is moved, in milliseconds: less than a step is wide.
const CLOCK_SLACK_MS: u64 = 50_000;
/// Steps that a failure tells.
const TOLD: usize = 30;
/// Characters of a step that it tells.
const TOLD_CHARACTERS: usize = 1_500;

/// One namespace, as several processes would have it open, and its model.
struct Side<S> {
    handles: Vec<S>,
    model: Model,
    crew: Crew,
}

/// A store in a run.
pub(super) struct World<'a, B: Bed> {
    bed: &'a B,
    seed: u64,
    /// The bed's own namespace, of which the inside is audited, and one beside it in the same store.
    sides: [Side<B::S>; 2],
    told: VecDeque<String>,
}

impl<'a, B: Bed> World<'a, B> {
    pub(super) async fn new(bed: &'a B, seed: u64) -> Self {
        let mut sides = Vec::new();
        for namespace in [crate::bed::NAMESPACE, "beside"] {
            let handles = vec![bed.open(namespace).await, bed.open(namespace).await];
            sides.push(Side { handles, model: Model::default(), crew: Crew::new() });
        }
        let sides = sides.try_into().unwrap_or_else(|_| unreachable!("there are two"));
        Self { bed, seed, sides, told: VecDeque::new() }
    }

    /// One step, checked.
    pub(super) async fn step(&mut self, step: u64) {
        let mut result = self.try_step(step).await;
        if result.is_ok() && step % LOOK_EVERY == LOOK_EVERY - 1 {
            result = self.look(step).await.context("a look at everything");
        }
        if let Err(error) = result {
            self.fail(step, &error);
        }
    }

    /// A last look.
    pub(super) async fn end(&mut self) {
        if let Err(error) = self.look(0).await {
            self.fail(u64::MAX, &error);
        }
    }

    fn fail(&self, step: u64, error: &anyhow::Error) -> ! {
        let steps: Vec<&str> = self.told.iter().map(String::as_str).collect();
        panic!(
            "{SEED_VARIABLE}={}, step {step}: {error:#}\nthe last steps:\n{}\n{SEED_VARIABLE}={}, step {step}: {error:#}",
            self.seed,
            steps.join("\n"),
            self.seed
        );
    }

    fn tell(&mut self, text: &str) {
        self.told.push_back(text.chars().take(TOLD_CHARACTERS).collect());
        if self.told.len() > TOLD {
            self.told.pop_front();
        }
    }

    async fn try_step(&mut self, step: u64) -> Result<()> {
        let mut random = Random::of(self.seed, step);
        let at = usize::from(random.once_in(8));
        let handle = random.below(self.sides[at].handles.len());
        let before = self.sides[at].handles[handle].counts().await?.now_ms;
        let begun = monotonic();
        let Side { model, crew, .. } = &mut self.sides[at];
        let op = next(&mut random, model, crew, before);
        self.tell(&format!("{step}.{at}.{handle} at {before}: {op:?}"));
        if let Op::StepClock(_) | Op::PassTime(_) = op {
            return self.move_clock(&op, at, before).await;
        }
        let side = &mut self.sides[at];
        let store = &side.handles[handle];
        let answer = perform(store, &op).await?;
        side.crew.remember(&op, &answer, &side.model);
        let seen = look_after(store, &side.model, &op, answer).await?;
        let counts = store.counts().await?;
        let told = format!("    at {}: {:?}", counts.now_ms, seen.answer);
        let window = readings(before, counts.now_ms, begun);
        side.model.step(&op, &seen, window)?;
        side.model.counts(&counts).context("the counts")?;
        self.tell(&told);
        Ok(())
    }

    /// Moves the clocks of the store's machine: its own follows those that nobody sets.
    async fn move_clock(&mut self, op: &Op, at: usize, before: u64) -> Result<()> {
        let moved_ms = match op {
            Op::StepClock(ms) if self.bed.step_clock(*ms).await => 0,
            Op::PassTime(ms) if self.bed.pass_time(*ms).await => *ms,
            _ => return Ok(()),
        };
        let after = self.sides[at].handles[0].counts().await?.now_ms;
        let expected = before + moved_ms;
        let near = (expected..expected + CLOCK_SLACK_MS).contains(&after);
        ensure!(near, "the store's clock went from {before} to {after}, expected {expected}");
        Ok(())
    }

    /// Everything, through one handle or the other.
    async fn look(&mut self, step: u64) -> Result<()> {
        for side in &mut self.sides {
            let store = &side.handles[(step as usize / 8) % side.handles.len()];
            let (before, begun) = (store.counts().await?.now_ms, monotonic());
            let query = ListQuery { limit: [7, 50, 1_000][step as usize % 3], ..ListQuery::default() };
            let views = list_all(store, &query).await;
            let counts = store.counts().await?;
            side.model.counts(&counts)?;
            side.model.list(&query, &views, readings(before, counts.now_ms, begun))?;
            side.model.check_leases(&leases(store).await)?;
            side.model.check_buckets(&store.buckets(None).await?.items)?;
            side.model.check_lanes(&store.lanes().await?)?;
            side.model.check_registered(&store.sessions().await?)?;
            let logged = side.model.jobs.iter().filter(|(_, job)| !job.logs.is_empty());
            for key in logged.map(|(key, _)| key.clone()).take(5).collect::<Vec<_>>() {
                let job = JobRef { queue: key.0.clone(), id: key.1.clone() };
                side.model.logs(&key, &store.logs(&job).await?)?;
            }
        }
        let wrong = self.bed.audit().await;
        ensure!(wrong.is_empty(), "inside: {wrong:#?}");
        let found = self.bed.store().doctor(false).await?;
        ensure!(found.is_empty(), "the doctor found {found:#?}");
        Ok(())
    }
}

/// When what happened between two readings of the store's clock happened, by that clock. Where it was set back in
/// between, as much before the second as has passed since the first.
fn readings(before: u64, after: u64, begun: Monotonic) -> Window {
    let mut window = Window::between(before, after);
    if after < before {
        window.lo -= begun.elapsed().as_millis() as u64 + 1;
    }
    window
}

/// What the store shows of what a step may have changed.
async fn look_after(store: &dyn Store, model: &Model, op: &Op, answer: super::ops::Answer) -> Result<Seen> {
    let mut views = BTreeMap::new();
    for key in model.touched(op, &answer) {
        let mut found = store.find(Some(&key.0), &key.1).await?;
        ensure!(found.len() < 2, "two jobs have one id: {found:?}");
        views.insert(key, found.pop());
    }
    let mut kept = HashMap::new();
    for (queue, state) in model.watched(op) {
        let left = index(store, &queue, state).await;
        kept.insert((queue, state), left);
    }
    Ok(Seen { answer, views, kept })
}

/// Who is in a finished index.
async fn index(store: &dyn Store, queue: &Name, state: State) -> BTreeSet<Key> {
    let query = ListQuery {
        queue: Some(queue.clone()),
        states: vec![state],
        limit: look::INDEX_LIMIT,
        ..ListQuery::default()
    };
    list_all(store, &query).await.into_iter().map(|view| (view.job.queue, view.job.id)).collect()
}
