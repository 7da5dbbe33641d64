//! A runner in a process of its own: to be looked at from outside, and to be killed.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Bench;
use super::plan::Measured;
use super::site::World;
use super::tally::until;
use crate::cli::exit::Fault;

/// How long it may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// This very binary, also when its file has been replaced since.
const THIS_BINARY: &str = "/proc/self/exe";

/// The process. One that is dropped is killed.
pub(super) struct ChildRunner(Child);

impl ChildRunner {
    /// Starts one and waits until it serves the handler.
    pub(super) async fn start(
        bench: &Bench,
        world: &World,
        handler: &Measured,
        concurrency: u32,
    ) -> Result<Self, Fault> {
        let settings = bench.site.runner_settings(world, Some(handler))?;
        let failed = |error: std::io::Error| Fault::failed(format!("cannot start a runner: {error}"));
        let log = settings.handlers.with_file_name("runner.log");
        let file = File::create(&log).map_err(failed)?;
        let mut command = Command::new(THIS_BINARY);
        command.args(["run", "--spool=off", "--log", "warn", "--log-format", "text"]);
        if let Some(config) = bench.config() {
            command.arg("--config").arg(config);
        }
        for (flag, value) in [
            ("--namespace", settings.store.namespace.to_string()),
            ("--concurrency", concurrency.to_string()),
            ("--lease", format!("{}ms", settings.lease.as_millis())),
            ("--kinds", handler.kind.to_string()),
            ("--queues", handler.kind.to_string()),
            ("--name", format!("{} of its own", settings.name)),
        ] {
            command.arg(flag).arg(value);
        }
        let cache = settings.handlers.with_file_name("cache");
        for (flag, value) in [
            ("--handlers", &settings.handlers),
            ("--state-dir", &settings.state_dir),
            ("--cache-dir", &cache),
        ] {
            command.arg(flag).arg(value);
        }
        if settings.store.url.file().is_some() {
            command.arg("--durability").arg(settings.store.durability.as_str());
        }
        // There a password is nobody else's to see. What a service manager waits for is told by us, if at all.
        command.env("HOURHAND_STORE", settings.store.url.expose());
        command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        die_with_us(&mut command);
        let mut runner = Self(command.spawn().map_err(failed)?);
        until("a runner in a process of its own does not serve", READY_WITHIN, async || {
            if let Some(status) = runner.0.try_wait().map_err(failed)? {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(Fault::failed(format!("a runner ended ({status}) before it served: {last}")));
            }
            let sessions = world.store.sessions().await?;
            Ok(sessions.iter().any(|session| {
                session
                    .info
                    .as_ref()
                    .is_some_and(|info| info.pid == runner.0.id() && info.kinds.contains(&handler.kind))
            }))
        })
        .await?;
        Ok(runner)
    }

    /// Its resident memory.
    pub(super) fn resident_bytes(&self) -> Result<u64, Fault> {
        super::machine::resident_bytes(self.0.id())
            .ok_or_else(|| Fault::failed("the system does not tell how much memory a runner has"))
    }

    /// Ends it as a crash would, and sees that it is gone.
    pub(super) fn kill(mut self) -> Result<(), Fault> {
        let killed = self.0.kill().and_then(|()| self.0.wait());
        killed.map(drop).map_err(|error| Fault::failed(format!("cannot kill a runner: {error}")))
    }
}

impl Drop for ChildRunner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whoever kills this process does not leave a runner behind.
fn die_with_us(command: &mut Command) {
    let parent = std::process::id();
    let bind = move || {
        // SAFETY: prctl with these arguments reads and writes no memory, and may be called after fork().
        #[allow(unsafe_code, reason = "the standard library does not have it")]
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        if std::os::unix::process::parent_id() != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure calls prctl() and getppid() alone, and allocates nothing.
    #[allow(unsafe_code, reason = "the standard library has no other way")]
    unsafe {
        command.pre_exec(bind);
    }
}
