//! SIGHUP: the handlers folder is scanned and the settings file read again, while everything goes on.

use tokio::signal::unix::Signal;
use tokio::sync::watch;

use crate::client::Spool;
use crate::config::machine::Machine;
use crate::config::{self, Layers, LogFormat, LogSettings, Problems, RunSettings, SpoolSettings};
use crate::registry::Registry;
use crate::vitals::Vital;

/// What the settings of a runner are read from, at its start and again.
pub struct Reread {
    layers: Layers,
    machine: Machine,
}

impl Reread {
    /// The same flags and variables as `layers`, and its file.
    pub fn new(layers: &Layers, machine: &Machine) -> Self {
        Self { layers: layers.clone(), machine: machine.clone() }
    }

    /// What the settings say now of the spool, and which others differ from those of the start.
    ///
    /// # Errors
    /// All that is wrong with any of them.
    fn read(&self) -> Result<(SpoolSettings, Vec<&'static str>), Problems> {
        let now = self.layers.reread()?;
        let log = LogSettings::resolve(&now, "", LogFormat::Text);
        let (Ok(settings), Ok(_)) = (RunSettings::resolve(&now, &self.machine, false), log) else {
            return Err(config::all_problems(&now, &self.machine));
        };
        let others = self.layers.differences(&now).into_iter().filter(|key| !key.starts_with("spool"));
        Ok((settings.spool, others.collect()))
    }
}

/// The spool that a runner drains, if it drains one.
pub(super) fn drained(settings: &SpoolSettings) -> Option<Spool> {
    settings.drained.then(|| super::spool(settings))
}

/// Does so at each SIGHUP. Settings that are wrong change nothing.
pub(super) async fn reload_at(
    mut hang_up: Signal,
    vital: Vital,
    registry: Registry,
    reread: Option<Reread>,
    mut spool: SpoolSettings,
    drains: watch::Sender<Option<Spool>>,
) {
    loop {
        let rest = vital.rest();
        if hang_up.recv().await.is_none() {
            // There will be no more signals; the runner goes on.
            std::future::pending::<()>().await;
        }
        drop(rest);
        tracing::info!("scanning the handlers folder: told to by SIGHUP");
        registry.reload();
        match reread.as_ref().map(Reread::read) {
            None => {}
            Some(Err(problems)) => {
                let problems = problems.0.join("; ");
                tracing::error!(problems, "the settings are wrong: all stays as it was");
            }
            Some(Ok((now, others))) => {
                if !others.is_empty() {
                    tracing::warn!(
                        settings = others.join(", "),
                        "these settings differ, and count after a restart"
                    );
                }
                if now != spool {
                    tracing::info!(drained = now.drained, dir = %now.dir.display(), "the spool's settings count now");
                    drains.send_replace(drained(&now));
                    spool = now;
                }
            }
        }
    }
}
