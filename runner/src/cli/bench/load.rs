//! Puts jobs into a store: one at a time, by many callers at once, and in bulk.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::try_join_all;

use super::plan::Plan;
use crate::clock::monotonic;
use crate::job::{Due, NewJob};
use crate::names::Name;
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, Store, StoreError};

/// Callers that enqueue jobs one by one at the same time.
const CALLERS: usize = 16;
/// Callers that enqueue batches at the same time: one prepares while the store works for the other.
const BULK_CALLERS: usize = 2;
/// Far ahead: 10 days, in milliseconds.
pub(super) const FAR: Due = Due::In(864_000_000);

/// What is enqueued.
pub(super) struct Load<'a> {
    pub(super) plan: &'a Plan,
    pub(super) kind: &'a Name,
}

/// How many jobs were taken, and how quickly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) jobs: usize,
    pub(super) per_second: f64,
}

impl Load<'_> {
    fn job(&self, number: usize, due: Due) -> NewJob {
        let payload = self.plan.payloads[number % self.plan.payloads.len()].clone();
        NewJob { payload, due, ..NewJob::new(self.kind.clone()) }
    }

    /// One caller, a job a call: at most so many jobs, for at most so long.
    pub(super) async fn single(
        &self,
        store: &dyn Store,
        jobs: usize,
        within: Duration,
    ) -> Result<Taken, StoreError> {
        self.one_by_one(store, 1, jobs, within).await
    }

    /// 16 callers, a job a call.
    pub(super) async fn pipelined(
        &self,
        store: &dyn Store,
        jobs: usize,
        within: Duration,
    ) -> Result<Taken, StoreError> {
        self.one_by_one(store, CALLERS, jobs, within).await
    }

    async fn one_by_one(
        &self,
        store: &dyn Store,
        callers: usize,
        jobs: usize,
        within: Duration,
    ) -> Result<Taken, StoreError> {
        let (began, next) = (monotonic(), Cell::new(0));
        let caller = || async {
            while next.get() < jobs && began.elapsed() < within {
                let number = next.replace(next.get() + 1);
                store.enqueue(&[self.job(number, Due::NOW)]).await?;
            }
            Ok(())
        };
        try_join_all((0..callers).map(|_| caller())).await?;
        Ok(Taken { jobs: next.get(), per_second: next.get() as f64 / began.elapsed().as_secs_f64() })
    }

    /// As many jobs a call as one takes.
    pub(super) async fn bulk(
        &self,
        store: &dyn Store,
        jobs: usize,
        due: impl Fn(usize) -> Due,
    ) -> Result<Taken, StoreError> {
        let batch = (BATCH_PAYLOAD_BYTES_MAX / self.plan.payload_bytes().max(1)).clamp(1, BATCH_MAX);
        let (began, next) = (monotonic(), Cell::new(0));
        let caller = || async {
            while next.get() < jobs {
                let from = next.get();
                let to = (from + batch).min(jobs);
                next.set(to);
                let some: Vec<NewJob> = (from..to).map(|number| self.job(number, due(number))).collect();
                store.enqueue(&some).await?;
            }
            Ok(())
        };
        try_join_all((0..BULK_CALLERS).map(|_| caller())).await?;
        Ok(Taken { jobs, per_second: jobs as f64 / began.elapsed().as_secs_f64() })
    }
}
