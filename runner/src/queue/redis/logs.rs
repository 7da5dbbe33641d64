//! Jobs' logs: written under the lease, read by attempt.

use super::RedisStore;
use super::claim::{fitting, read_settled};
use super::link::Repeat;
use super::record::rid_text;
use super::reply::{Items, text};
use crate::queue::checks::check_logs;
use crate::queue::{AttemptLog, JobRef, LogWrite, Settled, StoreError};

impl RedisStore {
    pub(super) async fn log_jobs(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError> {
        if logs.is_empty() {
            return Ok(Vec::new());
        }
        check_logs(logs)?;
        let mut settled = Vec::with_capacity(logs.len());
        while settled.len() < logs.len() {
            let rest = &logs[settled.len()..];
            let step = fitting(rest.iter().map(|log| log.text.len()));
            settled.extend(self.log_some(&rest[..step]).await?);
        }
        Ok(settled)
    }

    async fn log_some(&self, logs: &[LogWrite]) -> Result<Vec<Settled>, StoreError> {
        let mut args: Vec<Vec<u8>> = Vec::with_capacity(logs.len() * 6);
        for log in logs {
            args.push(rid_text(log.lease.record).into());
            args.push(log.lease.session.0.as_bytes().to_vec());
            args.push(log.lease.token.to_string().into());
            args.push(log.attempt.to_string().into());
            args.push(log.text.as_bytes().to_vec());
            let progress = log.progress.as_ref().map(|p| format!("{} {}", p.percent, p.message));
            args.push(progress.unwrap_or_default().into());
        }
        let reply = self.link.script(&self.scripts.log, self.keys.globals(), &args, Repeat::Once).await?;
        read_settled(reply, logs.len())
    }

    pub(super) async fn job_logs(&self, job: &JobRef) -> Result<Vec<AttemptLog>, StoreError> {
        let place = self.locate(std::slice::from_ref(job)).await?.into_iter().flatten().next();
        let Some(record) = place.map(|place| rid_text(place.record)) else { return Ok(Vec::new()) };
        let key = self.keys.global("logs");
        let mut get = redis::cmd("HGET");
        get.arg(key).arg(&record);
        let list = text(self.link.command(&get, Repeat::Once).await?)?;
        // Behind the attempts is the job's progress.
        let list = list.lines().next().unwrap_or_default();
        let attempts: Vec<u32> = list.split(' ').filter_map(|attempt| attempt.parse().ok()).collect();
        if attempts.is_empty() {
            return Ok(Vec::new());
        }
        let mut get = redis::cmd("HMGET");
        get.arg(key);
        for attempt in &attempts {
            get.arg(format!("{record}:{attempt}"));
        }
        let mut items = Items::of(self.link.command(&get, Repeat::Once).await?)?;
        let mut logs = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            logs.push(AttemptLog { attempt, text: items.text()? });
        }
        Ok(logs)
    }
}
