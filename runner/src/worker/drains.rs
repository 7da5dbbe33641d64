//! Jobs that have a slot, on their way to the guests' threads.
//!
//! A task for each job would be made, queued and woken for a run that mostly takes some microseconds. Instead a few tasks,
//! *drains*, take jobs from one queue and run one after the other. A job that has to wait (for a call, its turn, a timer)
//! keeps its drain, which first sees to it that another one goes on with the queue.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// A drain lets others have its thread after so many jobs.
const JOBS_IN_A_ROW: usize = 64;

/// See the module's text. `J` is what a job is made of.
pub(super) struct Drains<J> {
    guests: Handle,
    /// Drains that work on the queue at once: as many as there are threads.
    most: usize,
    inner: Mutex<Inner<J>>,
}

struct Inner<J> {
    queue: VecDeque<J>,
    /// Drains that take from the queue, and are not kept by a job.
    working: usize,
}

impl<J: Send + 'static> Drains<J> {
    /// Jobs will run on `guests`, which has so many threads.
    pub(super) fn new(guests: Handle, threads: usize) -> Self {
        let inner = Mutex::new(Inner { queue: VecDeque::new(), working: 0 });
        Self { guests, most: threads.max(1), inner }
    }

    /// Has `run` run the jobs, in this order.
    pub(super) fn push<F>(self: &Arc<Self>, jobs: impl IntoIterator<Item = J>, run: fn(J) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let more = {
            let mut inner = self.inner.lock();
            inner.queue.extend(jobs);
            let more = inner.queue.len().min(self.most).saturating_sub(inner.working);
            inner.working += more;
            more
        };
        for _ in 0..more {
            self.guests.spawn(Arc::clone(self).drain(run));
        }
    }

    async fn drain<F>(self: Arc<Self>, run: fn(J) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut place = Place { drains: self, run, taken: true };
        let mut in_a_row = 0;
        while let Some(job) = place.next() {
            in_a_row += 1;
            if in_a_row > JOBS_IN_A_ROW {
                in_a_row = 0;
                tokio::task::yield_now().await;
            }
            let mut run_of_job = pin!(run(job));
            let over = poll_fn(|cx| Poll::Ready(run_of_job.as_mut().poll(cx).is_ready())).await;
            if !over {
                place.leave();
                run_of_job.await;
                if !place.take_again() {
                    return;
                }
            }
        }
    }
}

/// One of the few places of drains that take from the queue.
struct Place<J: Send + 'static, F: Future<Output = ()> + Send + 'static> {
    drains: Arc<Drains<J>>,
    run: fn(J) -> F,
    taken: bool,
}

impl<J: Send + 'static, F: Future<Output = ()> + Send + 'static> Place<J, F> {
    /// The next job. The place is free when there is none.
    fn next(&mut self) -> Option<J> {
        let mut inner = self.drains.inner.lock();
        let job = inner.queue.pop_front();
        if job.is_none() {
            inner.working -= 1;
            self.taken = false;
        }
        job
    }

    /// Another drain gets the place while there is something to do.
    fn leave(&mut self) {
        if !std::mem::replace(&mut self.taken, false) {
            return;
        }
        let another = {
            let mut inner = self.drains.inner.lock();
            let another = !inner.queue.is_empty();
            inner.working -= usize::from(!another);
            another
        };
        if another {
            self.drains.guests.spawn(Arc::clone(&self.drains).drain(self.run));
        }
    }

    /// Whether there is a place again, and something to do.
    fn take_again(&mut self) -> bool {
        let mut inner = self.drains.inner.lock();
        self.taken = !inner.queue.is_empty() && inner.working < self.drains.most;
        inner.working += usize::from(self.taken);
        self.taken
    }
}

impl<J: Send + 'static, F: Future<Output = ()> + Send + 'static> Drop for Place<J, F> {
    /// After a panic others go on.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};

    use super::*;

    type Done = mpsc::UnboundedSender<usize>;
    type Job = (usize, Option<oneshot::Receiver<()>>, Done);

    async fn run((number, until, done): Job) {
        if let Some(until) = until {
            let _ = until.await;
        }
        let _ = done.send(number);
    }

    fn threads(count: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(count).enable_all().build().unwrap()
    }

    #[test]
    fn jobs_that_wait_keep_none_of_the_others() {
        let runtime = threads(2);
        let drains = Arc::new(Drains::new(runtime.handle().clone(), 2));
        let (done, mut ended) = mpsc::unbounded_channel();
        let mut wake = Vec::new();
        let mut jobs: Vec<Job> = Vec::new();
        for number in 0..300 {
            let until = (number % 3 == 0).then(oneshot::channel::<()>).map(|(sender, receiver)| {
                wake.push(sender);
                receiver
            });
            jobs.push((number, until, done.clone()));
        }
        drains.push(jobs, run);
        runtime.block_on(async {
            let mut first: Vec<usize> = Vec::new();
            while first.len() < 200 {
                first.push(ended.recv().await.unwrap());
            }
            assert!(first.iter().all(|number| number % 3 != 0), "{first:?}");
            wake.clear();
            for _ in 0..100 {
                assert_eq!(ended.recv().await.unwrap() % 3, 0);
            }
            drains.push([(300, None, done)], run);
            assert_eq!(ended.recv().await, Some(300), "and drains are there for what comes later");
        });
        assert_eq!(drains.inner.lock().queue.len(), 0);
    }

    #[test]
    fn a_single_thread_runs_them_in_their_order() {
        let runtime = threads(1);
        let drains = Arc::new(Drains::new(runtime.handle().clone(), 1));
        let (done, mut ended) = mpsc::unbounded_channel();
        drains.push((0..1_000).map(|number| (number, None, done.clone())), run);
        for number in 0..1_000 {
            assert_eq!(runtime.block_on(ended.recv()), Some(number));
        }
    }

    async fn panics_at_first((number, _, done): Job) {
        assert_ne!(number, 0, "as this test wants it");
        let _ = done.send(number);
    }

    #[test]
    fn a_panic_stops_nobody_else() {
        let runtime = threads(1);
        let drains = Arc::new(Drains::new(runtime.handle().clone(), 1));
        let (done, mut ended) = mpsc::unbounded_channel();
        for _ in 0..3 {
            drains.push((0..3).map(|number| (number, None, done.clone())), panics_at_first);
            for number in 1..3 {
                assert_eq!(runtime.block_on(ended.recv()), Some(number));
            }
        }
    }

    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);

    async fn busy((_, _, done): Job) {
        MOST.fetch_max(AT_ONCE.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_micros(100));
        AT_ONCE.fetch_sub(1, SeqCst);
        let _ = done.send(0);
    }

    #[test]
    fn no_more_drains_work_than_there_are_threads() {
        let runtime = threads(4);
        let drains = Arc::new(Drains::new(runtime.handle().clone(), 2));
        let (done, mut ended) = mpsc::unbounded_channel();
        for _ in 0..100 {
            drains.push((0..5).map(|number| (number, None, done.clone())), busy);
        }
        for _ in 0..500 {
            runtime.block_on(ended.recv());
        }
        assert!(MOST.load(SeqCst) <= 2, "{} at once", MOST.load(SeqCst));
        runtime.block_on(async {
            while drains.inner.lock().working > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}
