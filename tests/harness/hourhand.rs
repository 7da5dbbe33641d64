//! A deployment for one test: a handlers folder, a store's URL, and the real binary on them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::doctor::assert_healthy;
use super::guests::guest;
use super::waiting::eventually;

/// One test's world. When it ends, the doctor must find nothing wrong in its store.
pub struct Hourhand {
    pub store: String,
    pub dir: TempDir,
    started: std::sync::atomic::AtomicU32,
}

impl Drop for Hourhand {
    fn drop(&mut self) {
        // The runners are gone by now, and a test that has failed tells enough.
        if !std::thread::panicking() {
            // Whatever settings the test has left in its folder, these are none.
            fs::write(self.dir.path().join("doctor.toml"), "").expect("a file");
            assert_healthy(self.command(&["--config", "doctor.toml"]));
        }
    }
}

impl Hourhand {
    /// A deployment on this store with these example handlers in its folder.
    pub fn new(store: &str, handlers: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let this = Self { store: store.to_owned(), dir, started: 0.into() };
        fs::create_dir(this.handlers()).expect("a handlers folder");
        for name in handlers {
            this.install(name, name);
        }
        this
    }

    /// The handlers folder.
    pub fn handlers(&self) -> PathBuf {
        self.dir.path().join("handlers")
    }

    /// Puts the example `name` into the folder as `kind`, atomically.
    pub fn install(&self, name: &str, kind: &str) {
        let staged = self.handlers().join(format!(".{kind}.staged"));
        fs::copy(guest(name), &staged).expect("copy the module");
        fs::rename(&staged, self.handlers().join(format!("{kind}.wasm"))).expect("rename the module");
    }

    /// Writes the manifest of the module `name`.
    pub fn manifest(&self, name: &str, text: &str) {
        fs::write(self.handlers().join(format!("{name}.toml")), text).expect("write a manifest");
    }

    /// The command line on this store, in an environment of its own.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hourhand"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            // Compiled code is the same for all tests: share it.
            .env("HOURHAND_CACHE_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled"))
            .env("HOURHAND_STATE_DIR", self.dir.path().join("state"))
            .env("HOURHAND_STORE", &self.store)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("run the binary")
    }

    /// Runs a command that must succeed; its stdout.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{args:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("UTF-8 on stdout")
    }

    /// Runs a command with `--json` that must succeed; what it printed.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let text = self.ok(&args);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
    }

    /// `job show` of an id.
    #[track_caller]
    pub fn job(&self, id: &str) -> Value {
        self.json(&["job", "show", id])
    }

    /// Waits until the job is in this state; the job.
    #[track_caller]
    pub fn job_in(&self, id: &str, state: &str, within: Duration) -> Value {
        let mut last = Value::Null;
        let found = |last: &mut Value| {
            *last = self.job(id);
            (last["state"] == state).then(|| last.clone())
        };
        #[allow(clippy::disallowed_methods, reason = "a test's own deadline")]
        let start = std::time::Instant::now();
        while start.elapsed() < within {
            if let Some(job) = found(&mut last) {
                return job;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("job {id} is not {state} within {within:?}: {last:#}");
    }

    /// Starts a runner and waits until it serves.
    pub fn runner(&self, args: &[&str]) -> Runner {
        self.runner_with(args, &[])
    }

    /// The same with these variables in its environment.
    pub fn runner_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Runner {
        let runner = self.runner_made(args, |command| {
            command.envs(variables.iter().copied());
        });
        eventually("the runner serves", Duration::from_secs(60), || {
            runner.log().contains("the runner serves").then_some(())
        });
        runner
    }

    /// Starts a runner without waiting for it.
    pub fn runner_unready(&self, args: &[&str]) -> Runner {
        self.runner_made(args, |_| ())
    }

    /// The same with a process that is made in another way.
    pub fn runner_made(&self, args: &[&str], make: impl FnOnce(&mut Command)) -> Runner {
        let number = self.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.dir.path().join(format!("runner-{number}.log"));
        let mut all = vec!["run", "--handlers", "handlers"];
        all.extend(args);
        let file = File::create(&log).expect("a log file");
        let mut command = self.command(&all);
        command.stdout(file.try_clone().expect("a second handle")).stderr(file);
        make(&mut command);
        let child = command.spawn().expect("start a runner");
        Runner { child, log }
    }

    /// A runner in a container of its own, as far as process ids go: it is number 1 there. `None`, with a word about it, where this
    /// machine does not let us make one. Waits until it serves.
    #[allow(clippy::print_stderr, reason = "why a test does nothing")]
    pub fn runner_as_pid_1(&self, args: &[&str]) -> Option<Runner> {
        const CONTAINER: [&str; 5] = ["--pid", "--fork", "--mount-proc", "--kill-child", "--"];
        let allowed = Command::new("unshare").args(CONTAINER).arg("true").output();
        if !allowed.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no PID namespaces here");
            return None;
        }
        let number = self.started.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.dir.path().join(format!("runner-{number}.log"));
        let file = File::create(&log).expect("a log file");
        let inner = self.command(&["run", "--handlers", "handlers"]);
        let mut command = Command::new("unshare");
        command
            .args(CONTAINER)
            .arg(inner.get_program())
            .args(inner.get_args())
            .args(args)
            .env_clear()
            .envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file);
        let child = command.spawn().expect("start a runner");
        let runner = Runner { child, log };
        eventually("the runner serves", Duration::from_secs(60), || {
            runner.log().contains("the runner serves").then_some(())
        });
        Some(runner)
    }

    /// Waits until the queue counts satisfy `wanted`; the counts of that queue.
    #[track_caller]
    pub fn counts(
        &self,
        queue: &str,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(what, within, || {
            let stats = self.json(&["stats"]);
            let found = stats["queues"].as_array()?.iter().find(|q| q["queue"] == queue)?.clone();
            wanted(&found).then_some(found)
        })
    }

    /// Every job of a list, page by page.
    pub fn all_jobs(&self, args: &[&str]) -> Vec<Value> {
        let mut jobs = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut all = vec!["job", "list", "--limit", "1000"];
            all.extend(args);
            if let Some(cursor) = &cursor {
                all.extend(["--cursor", cursor]);
            }
            let page = self.json(&all);
            jobs.extend(page["items"].as_array().expect("items").iter().cloned());
            match page["cursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return jobs,
            }
        }
    }
}

/// A runner's process. Killed when dropped.
pub struct Runner {
    pub child: Child,
    log: PathBuf,
}

impl Runner {
    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to this process.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "send signal {signal}");
    }

    /// kill -9, and wait for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and wait for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.wait(Duration::from_secs(60))
    }

    /// Waits for the end.
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        eventually("the runner ends", within, || self.child.try_wait().expect("wait for a runner"))
    }

    /// CPU time that it has used so far.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a live runner");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks: u64 = [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Runner {
    #[allow(clippy::print_stderr, reason = "a failed test's evidence")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail = log.len().saturating_sub(4_000);
            let start = (tail..log.len()).find(|i| log.is_char_boundary(*i)).unwrap_or(0);
            eprintln!("--- log of a runner ---\n{}", &log[start..]);
        }
    }
}
