//! The worker: claims due jobs, runs each in its sandbox, settles what became of it.
//!
//! Knows the [`Store`] trait and never a store. Its loops run on the IO runtime; guests run on
//! threads of their own, so that spinning ones stop nothing. How one job goes: [`claims`] takes it,
//! [`hand`] counts it, [`run_job`] runs it, [`settle`] writes its outcome.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};

use crate::clock::{ClockTracker, Monotonic, StoreClock, monotonic};
use crate::names::Name;
use crate::queue::{IdMemory, Lane, Lease, Retention, RunnerInfo, SessionId, Settlement, Store, Wake};
use crate::registry::Registry;
use crate::sandbox::{JobLog, Limits, Sandbox, Stop, StopSignal};
use crate::vitals::{Vital, Vitals};

mod claims;
mod drains;
mod hand;
mod lanes;
mod logs;
mod onlooker;
mod outage;
mod outlook;
mod policy;
mod restore;
mod run_job;
mod services;
mod settle;
mod shortage;
mod timer;
mod waiting;
mod witness;

use drains::Drains;
pub(crate) use hand::Hand;
use hand::{Claim, InHand, Moment, Running};
pub use onlooker::Onlooker;
pub(crate) use outage::{Outage, Pace};
use outlook::Outlook;
pub(crate) use policy::{Attempt, decide};
use restore::Memory;
use run_job::Slot;
use shortage::Shortage;
use waiting::Ended;

/// How a runner works. Validated by whoever makes it.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Who it is, in records: `host:pid` or a chosen name.
    pub name: String,
    /// This machine's name, for people.
    pub host: String,
    /// Slots: jobs that run at once.
    pub concurrency: usize,
    /// How long a session is out of touch before its jobs are taken over.
    pub lease: Duration,
    /// How long running jobs may go on once a stop was asked for.
    pub grace: Duration,
    /// Serve only these kinds; all that have a handler when empty.
    pub kinds: HashSet<Name>,
    /// Serve only these queues; all when empty.
    pub queues: HashSet<Name>,
    /// How long completed and cancelled jobs are kept.
    pub retention_finished: Retention,
    /// How long dead letters are kept.
    pub retention_dead: Retention,
    /// How long explicit ids are remembered.
    pub id_memory: IdMemory,
    /// Who is told of each run.
    pub onlooker: Option<Arc<dyn Onlooker>>,
    /// Where its loops show that they live.
    pub vitals: Vitals,
}

/// One runner's working state, shared by its loops.
pub struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) session: SessionId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) sandbox: Arc<Sandbox>,
    drains: Arc<Drains<Slot>>,
    io: tokio::runtime::Handle,
    pub(crate) hand: Hand,
    clock: parking_lot::Mutex<ClockTracker>,
    pub(crate) outage: Outage,
    memory: Memory,
    /// When all in the hand was known to be this runner's own, last; `None` before the first heartbeat.
    touched: parking_lot::Mutex<Option<Monotonic>>,
    /// The store's name, once it has changed since the start.
    pub(crate) identity: watch::Sender<String>,
    /// Ends the sleep of the claim loop.
    wake: Notify,
    /// A heartbeat is wanted now: an operator recalls a job, or there is news to tell.
    pub(crate) beat_wanted: Notify,
    stopping: Notify,
    stop_asked: AtomicBool,
    over: AtomicBool,
    /// On the store's clock, in milliseconds; 0 until the store has told.
    started_ms: AtomicU64,
    next_token: AtomicU64,
    /// First token of the claim that is on its way; `u64::MAX` when none is.
    in_flight: AtomicU64,
    /// Claims that may have been done although no reply came, and how many of them an audit has seen the end of.
    lost_claims: AtomicU64,
    audited_claims: AtomicU64,
    shortage: Shortage,
    /// Jobs came, or ran, since this was looked at.
    worked: AtomicBool,
    /// Jobs were claimed: for whoever has nothing to do before.
    jobs_came: Notify,
    lanes_wanted: AtomicBool,
    /// How many lanes the store listed at the last heartbeat.
    lanes_counted: AtomicU64,
    /// What the last heartbeat has seen of those that are served.
    outlook: watch::Sender<Option<Outlook>>,
    served_lanes: ArcSwap<HashSet<Lane>>,
    /// The last pass found nothing scheduled and nothing ready in the lanes that are served.
    pub(crate) saw_nothing_due: AtomicBool,
    /// Runs whose effects met a change of what they had read.
    conflicts: parking_lot::Mutex<settle::Conflicts>,
    ended: parking_lot::Mutex<Option<mpsc::UnboundedSender<Ended>>>,
    timer: parking_lot::Mutex<Option<timer::Timer>>,
}

/// The loops of a worker, to be joined.
pub struct Loops {
    /// The loops that only end by a stop.
    pub(crate) serving: tokio::task::JoinSet<()>,
    /// Ends when all outcomes are written after [`Worker::close`].
    pub(crate) settling: tokio::task::JoinHandle<()>,
}

impl Worker {
    /// Starts the loops on the current runtime; guests run on `guests`.
    ///
    /// # Errors
    /// When the timer's thread cannot be made.
    pub fn start(
        config: WorkerConfig,
        session: SessionId,
        store: Arc<dyn Store>,
        registry: Registry,
        sandbox: Arc<Sandbox>,
        guests: tokio::runtime::Handle,
    ) -> std::io::Result<(Arc<Self>, Loops)> {
        let (ended, to_settle) = mpsc::unbounded_channel();
        let worker = Arc::new(Self {
            hand: Hand::new(config.concurrency),
            config,
            session,
            store,
            registry,
            sandbox,
            drains: Arc::new(Drains::new(guests, crate::sandbox::guest_threads())),
            io: tokio::runtime::Handle::current(),
            clock: parking_lot::Mutex::default(),
            outage: Outage::default(),
            memory: Memory::default(),
            touched: parking_lot::Mutex::default(),
            identity: watch::Sender::default(),
            wake: Notify::new(),
            beat_wanted: Notify::new(),
            stopping: Notify::new(),
            stop_asked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            started_ms: AtomicU64::new(0),
            next_token: AtomicU64::new(1),
            in_flight: AtomicU64::new(u64::MAX),
            lost_claims: AtomicU64::new(0),
            audited_claims: AtomicU64::new(0),
            shortage: Shortage::default(),
            worked: AtomicBool::new(true),
            jobs_came: Notify::new(),
            lanes_wanted: AtomicBool::new(true),
            lanes_counted: AtomicU64::new(0),
            outlook: watch::Sender::default(),
            served_lanes: ArcSwap::default(),
            saw_nothing_due: AtomicBool::new(false),
            conflicts: parking_lot::Mutex::default(),
            ended: parking_lot::Mutex::new(Some(ended)),
            timer: parking_lot::Mutex::new(None),
        });
        let of_timer = Arc::downgrade(&worker);
        let vital = |name| worker.config.vitals.enter(name);
        *worker.timer.lock() = Some(timer::Timer::start(vital("timer"), move |token| {
            if let Some(worker) = of_timer.upgrade() {
                worker.moment(token);
            }
        })?);
        let mut serving = tokio::task::JoinSet::new();
        serving.spawn(claims::claim_loop(Arc::clone(&worker), vital("claims")));
        serving.spawn(wake_loop(Arc::clone(&worker), vital("wakes")));
        serving.spawn(registry_loop(Arc::clone(&worker), vital("handlers")));
        serving.spawn(logs::flush_loop(Arc::clone(&worker), vital("logs")));
        let settling = tokio::spawn(settle::settle_loop(Arc::clone(&worker), vital("settle"), to_settle));
        Ok((worker, Loops { serving, settling }))
    }

    /// Whether this runner claims from a lane: it has a handler for the kind, and no filter forbids it.
    pub(crate) fn serves(&self, lane: &Lane) -> bool {
        let WorkerConfig { kinds, queues, .. } = &self.config;
        (kinds.is_empty() || kinds.contains(&lane.kind))
            && (queues.is_empty() || queues.contains(&lane.queue))
            && self.registry.snapshot().handlers.contains_key(&lane.kind)
    }

    /// The kinds that this runner serves now, in order.
    pub(crate) fn kinds(&self) -> Vec<Name> {
        let filter = &self.config.kinds;
        let snapshot = self.registry.snapshot();
        snapshot.handlers.keys().filter(|k| filter.is_empty() || filter.contains(*k)).cloned().collect()
    }

    /// How the runner presents itself.
    fn info(&self) -> RunnerInfo {
        let counts = self.hand.counts();
        RunnerInfo {
            name: self.config.name.clone(),
            host: self.config.host.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms: self.started_ms.load(SeqCst),
            concurrency: self.config.concurrency as u32,
            running: counts.running as u32,
            held: counts.held as u32,
            kinds: self.kinds(),
            stopping: self.is_stopping(),
        }
    }

    /// Stops claiming and gives held jobs back; running ones go on.
    pub fn stop_claiming(&self) {
        self.stop_asked.store(true, SeqCst);
        self.stopping.notify_waiters();
        self.stopping.notify_one();
        self.give_back_held(|_| true);
    }

    /// Asks every running guest to end now, its attempt unspent.
    pub fn release_running(&self) {
        self.hand.stop_all(Stop::Release);
    }

    /// No more outcomes will come: the settle loop ends when all are written.
    pub fn close(&self) {
        self.over.store(true, SeqCst);
        self.ended.lock().take();
        self.timer.lock().take();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_asked.load(SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Takes in a reading of the store's clock from a call that was asked at `asked` and has just been
    /// answered.
    pub(crate) fn read_clock(&self, store_us: u64, asked: Monotonic) -> StoreClock {
        self.clock.lock().observe(store_us, asked, monotonic())
    }

    /// All in the hand is this runner's own, as a heartbeat shows that was sent then.
    pub(crate) fn in_touch(&self, sent: Monotonic) {
        *self.touched.lock() = Some(sent);
    }

    /// Whether others may have taken what is in the hand by now: a process that was stopped for a lease goes on where it was.
    fn is_out_of_touch(&self) -> bool {
        self.touched.lock().is_some_and(|sent| monotonic().duration_since(sent) >= self.config.lease)
    }

    /// Has the claim loop ask for all lanes anew.
    fn look_at_lanes(&self) {
        self.lanes_wanted.store(true, Relaxed);
        self.wake();
    }

    /// Ends the claim loop's sleep.
    pub(crate) fn wake(&self) {
        self.worked.store(true, Relaxed);
        self.wake.notify_one();
    }

    /// Jobs were claimed.
    fn jobs_came(&self) {
        self.worked.store(true, Relaxed);
        self.jobs_came.notify_one();
    }

    /// Whether jobs of this runner may have ended since it was asked last, or others may have come.
    pub(crate) fn has_worked(&self) -> bool {
        let worked = self.worked.swap(false, Relaxed);
        let works = !self.hand.is_empty();
        if works {
            self.worked.store(true, Relaxed);
        }
        worked || works
    }

    /// Gives back the held jobs that match: they were never started.
    pub(crate) fn give_back_held(&self, wanted: impl Fn(&crate::queue::ClaimedJob) -> bool) {
        for job in self.hand.take_held(wanted) {
            self.settle(run_job::give_back(self, &job.claimed), None);
        }
    }

    /// The settlement that gives a lease back whose job is in nobody's hand.
    pub(crate) fn release(&self, lease: Lease, lane: Lane) -> Settlement {
        Settlement {
            lease,
            lane,
            outcome: crate::outcome::Outcome::Released { message: None },
            run: None,
            retention: self.config.retention_finished,
            id_memory: self.config.id_memory,
            effects: None,
            receipt: Bytes::new(),
        }
    }

    /// Settles a held job as cancelled. False when it is not held here.
    pub(crate) fn cancel_held(&self, token: u64) -> bool {
        let mut held = self.hand.take_held(|job| job.lease.token == token);
        let Some(job) = held.pop() else { return false };
        let outcome = crate::outcome::Outcome::Cancelled;
        let handler = run_job::pick_handler(self, &job.claimed);
        self.settle(run_job::settlement(self, &job.claimed, handler.as_deref(), outcome, None), None);
        true
    }

    /// Whether a lease of this session is neither in the hand nor on its way to it.
    pub(crate) fn is_unknown(&self, token: u64) -> bool {
        // In this order: a claim's jobs enter the hand before it ceases to be in flight.
        token < self.in_flight.load(SeqCst) && token < self.next_token.load(SeqCst) && !self.hand.has(token)
    }

    fn take_tokens(&self, count: u64) -> u64 {
        let first = self.next_token.load(SeqCst);
        self.in_flight.store(first, SeqCst);
        self.next_token.store(first + count, SeqCst);
        first
    }

    /// Whether a claim is on its way.
    pub(crate) fn is_claiming(&self) -> bool {
        self.in_flight.load(SeqCst) != u64::MAX
    }

    fn claim_ended(&self) {
        self.in_flight.store(u64::MAX, SeqCst);
    }

    /// A claim brought no reply: the store may hold jobs for us that we do not know of.
    fn claim_lost(&self) {
        self.lost_claims.fetch_add(1, SeqCst);
    }

    /// How many claims brought no reply so far.
    pub(crate) fn lost_claims(&self) -> u64 {
        self.lost_claims.load(SeqCst)
    }

    /// Nothing is left of the first so many of them.
    pub(crate) fn audited_claims(&self, lost: u64) {
        self.audited_claims.store(lost, SeqCst);
    }

    /// Whether the store may hold jobs for this session that are in nobody's hand.
    pub(crate) fn has_lost_claims(&self) -> bool {
        self.lost_claims() != self.audited_claims.load(SeqCst)
    }

    fn running_of(&self, job: &InHand) -> Arc<Running> {
        let handler = run_job::pick_handler(self, &job.claimed);
        let log_bytes = handler.map_or(Limits::default().log_bytes, |handler| handler.limits.log_bytes);
        Arc::new(Running {
            claimed: Arc::clone(&job.claimed),
            stop: StopSignal::new(),
            log: Arc::new(JobLog::new(log_bytes)),
            told: services::Told::default(),
            store: Arc::clone(&self.store),
            io: self.io.clone(),
        })
    }

    /// Starts jobs that have slots, in this order.
    fn start_all(&self, jobs: Vec<Slot>) {
        if !jobs.is_empty() {
            self.drains.push(jobs, run_job::run_in_slot);
        }
    }

    fn timer_at(&self, at: Monotonic, token: u64) {
        if let Some(timer) = &*self.timer.lock() {
            timer.at(at, token);
        }
    }

    /// On the timer's thread: a held job is due.
    fn moment(self: &Arc<Self>, token: u64) {
        let mut running = None;
        let moment = self.hand.moment(token, |job| {
            let made = self.running_of(job);
            running = Some(Arc::clone(&made));
            made
        });
        match (moment, running) {
            (Moment::Start(job), Some(running)) => {
                self.start_all(vec![Slot { worker: Arc::clone(self), job: *job, running }]);
            }
            (Moment::Start(job) | Moment::NoSlot(job), _) => {
                self.settle(run_job::give_back(self, &job.claimed), None);
            }
            (Moment::Gone, _) => {}
        }
    }

    /// Hands an outcome to the settle loop.
    fn settle(&self, settlement: Settlement, running: Option<Arc<Running>>) {
        let sent = match &*self.ended.lock() {
            Some(ended) => ended.send(Ended { settlement, running }).is_ok(),
            None => false,
        };
        if !sent {
            // The process ends; the lease is taken over like that of a lost runner.
            tracing::warn!("an outcome came after the end and is left to recovery");
        }
    }
}

/// Turns the store's signals into earlier looks.
async fn wake_loop(worker: Arc<Worker>, vital: Vital) {
    let mut wakes = worker.store.wakes();
    loop {
        let rest = vital.rest();
        let Some(wake) = wakes.recv().await else { return };
        drop(rest);
        match wake {
            Wake::Due { lane, .. } => {
                if !worker.served_lanes.load().contains(&lane) && worker.serves(&lane) {
                    worker.lanes_wanted.store(true, Relaxed);
                }
                if worker.serves(&lane) {
                    worker.wake();
                }
            }
            Wake::Recall(session) if session == worker.session => worker.beat_wanted.notify_one(),
            Wake::Recall(_) => {}
            Wake::Missed => {
                worker.lanes_wanted.store(true, Relaxed);
                worker.beat_wanted.notify_one();
                worker.wake();
            }
        }
    }
}

/// Follows the handlers: new ones may have jobs waiting, and held jobs of gone ones go back.
async fn registry_loop(worker: Arc<Worker>, vital: Vital) {
    let mut generations = worker.registry.subscribe();
    loop {
        let rest = vital.rest();
        if generations.changed().await.is_err() {
            return;
        }
        drop(rest);
        let snapshot = worker.registry.snapshot();
        worker.give_back_held(|job| !snapshot.handlers.contains_key(&job.job.kind));
        for (kind, handler) in &snapshot.handlers {
            // A bound that was lowered: those that run go on, those that are held do not begin.
            if handler.concurrency.is_some_and(|most| worker.hand.busy(kind) > most) {
                worker.give_back_held(|job| job.job.kind == *kind);
            }
        }
        worker.wake();
        worker.beat_wanted.notify_one();
    }
}

/// A uniform number in 0.0..1.0, from the system's source; 0.5 should that fail.
pub(crate) fn random_unit() -> f64 {
    getrandom::u64().map_or(0.5, |n| (n >> 11) as f64 / (1u64 << 53) as f64)
}
