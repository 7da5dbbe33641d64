//! Logs and progress of running jobs, flushed while they run so that `job logs --follow` has something to follow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Running, Worker};
use crate::queue::{BATCH_MAX, BATCH_PAYLOAD_BYTES_MAX, LogWrite};
use crate::vitals::Vital;

/// How often logs of running jobs are looked at.
const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// Flushes what was written since the last look, until the runner has stopped.
pub(super) async fn flush_loop(worker: Arc<Worker>, vital: Vital) {
    let mut flushed: HashMap<u64, u64> = HashMap::new();
    while !worker.is_over() {
        if worker.hand.is_empty() {
            // An idle runner wakes up for nothing.
            let _rest = vital.rest();
            worker.jobs_came.notified().await;
        }
        vital.step();
        tokio::time::sleep(FLUSH_EVERY).await;
        let running = worker.hand.running();
        flushed.retain(|token, _| running.iter().any(|r| r.claimed.lease.token == *token));
        let mut logs = Vec::new();
        for running in &running {
            let version = running.version();
            let known = flushed.entry(running.claimed.lease.token).or_insert(0);
            if version > *known {
                *known = version;
                logs.push(log_write(running));
            }
        }
        for chunk in chunks(logs) {
            vital.step();
            // A failure costs a look: the last word is written with the outcome.
            if let Err(error) = worker.store.write_logs(&chunk).await {
                worker.outage.failed("write_logs", &error);
                break;
            }
        }
    }
}

/// The whole log of a run so far, and how far it has come.
pub(super) fn log_write(running: &Running) -> LogWrite {
    LogWrite {
        lease: running.claimed.lease(),
        attempt: running.claimed.attempt,
        text: running.log.text(),
        progress: running.told.latest(),
    }
}

/// Cut into calls by count and bytes (rule 6).
pub(super) fn chunks(logs: Vec<LogWrite>) -> Vec<Vec<LogWrite>> {
    let mut chunks: Vec<Vec<LogWrite>> = Vec::new();
    let mut bytes = 0;
    for log in logs {
        let size = log.text.len();
        match chunks.last_mut() {
            Some(last) if last.len() < BATCH_MAX && bytes + size <= BATCH_PAYLOAD_BYTES_MAX => {
                bytes += size;
                last.push(log);
            }
            _ => {
                bytes = size;
                chunks.push(vec![log]);
            }
        }
    }
    chunks
}
