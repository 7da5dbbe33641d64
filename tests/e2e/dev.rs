//! `dev`: from a saved file to a job on the new code, and what happens when it does not build.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::cli::text;
use crate::harness::guests::guest;
use crate::harness::hourhand::Hourhand;
use crate::harness::toolchain::with_toolchain;
use crate::harness::waiting::eventually;

/// A first build has to make all that a handler depends on, beside other tests.
const BUILD: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(60);

/// A session of `dev --json` in a folder of its own.
struct Session {
    here: Hourhand,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Session {
    /// Starts it in the folder, on these projects.
    fn start(here: Hourhand, args: &[&str]) -> Self {
        let (out, err) = (here.dir.path().join("dev.out"), here.dir.path().join("dev.err"));
        let all: Vec<&str> = ["dev", "--json"].iter().chain(args).copied().collect();
        let mut command = here.command(&all);
        let child = with_toolchain(&mut command)
            .stdin(Stdio::piped())
            .stdout(File::create(&out).expect("a file"))
            .stderr(File::create(&err).expect("a file"))
            .spawn()
            .expect("start dev");
        Self { here, child, out, err }
    }

    /// The folder that dev works in, with its store as the one that other commands use.
    fn folder() -> Hourhand {
        Hourhand::new("sqlite://.hourhand/dev.db", &[])
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |at| &text[..at]);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    /// Waits for an event of this name after the first `from`.
    #[track_caller]
    fn event(&self, from: usize, name: &str, within: Duration) -> Value {
        eventually(&format!("the event {name}, in {}", self.out.display()), within, || {
            self.events().into_iter().skip(from).find(|event| event["event"] == name)
        })
    }

    fn type_in(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin");
        writeln!(stdin, "{line}").expect("typed");
    }

    /// What a job that is typed in comes to.
    #[track_caller]
    fn result_of(&mut self, line: &str) -> Value {
        let from = self.events().len();
        self.type_in(line);
        self.event(from, "ended", SOON)
    }

    fn stop(mut self) -> String {
        // SAFETY: kill() has no memory effects; the pid is our own child's, not yet waited for.
        #[allow(unsafe_code, reason = "the standard library sends no signals but SIGKILL")]
        let sent = unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        assert_eq!(sent, 0);
        let status = eventually("dev ends", SOON, || self.child.try_wait().expect("wait"));
        let said = fs::read_to_string(&self.err).unwrap_or_default();
        assert_eq!(status.code(), Some(0), "{said}");
        said
    }
}

impl Drop for Session {
    #[allow(clippy::print_stderr, reason = "a failed test's evidence")]
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            for file in [&self.out, &self.err] {
                eprintln!("--- {} ---\n{}", file.display(), fs::read_to_string(file).unwrap_or_default());
            }
        }
    }
}

fn edit(file: &Path, from: &str, to: &str) {
    let before = fs::read_to_string(file).expect("a source");
    assert!(before.contains(from), "{from:?} is not in {before}");
    // As editors do: a new file takes the name.
    let staged = file.with_extension("rs~");
    fs::write(&staged, before.replace(from, to)).expect("a source");
    fs::rename(&staged, file).expect("renamed");
}

#[test]
fn a_saved_file_is_built_and_the_next_job_runs_on_it_and_a_broken_one_changes_nothing() {
    let here = Session::folder();
    here.ok(&["handler", "new", "dev_greet"]);
    let source = here.dir.path().join("dev_greet/src/lib.rs");
    let mut dev = Session::start(here, &["dev_greet"]);
    dev.event(0, "serving", BUILD);
    let ended = dev.result_of("dev_greet {\"name\": \"Ada\"}");
    assert_eq!((&ended["outcome"], &ended["attempt"]), (&"completed".into(), &1.into()), "{ended:#}");
    assert_eq!(ended["result"], "{\"text\":\"hello, Ada\"}");
    let first = ended["handler"].clone();
    let logged = dev.events().into_iter().find(|event| event["event"] == "log").expect("a line of the log");
    assert_eq!(logged["line"], "INFO attempt 1 of 5");

    let from = dev.events().len();
    edit(&source, "\"hello, {}\"", "\"salve, {}\"");
    dev.event(from, "serving", BUILD);
    let ended = dev.result_of("dev_greet {\"name\": \"Bob\"}");
    assert_eq!(ended["result"], "{\"text\":\"salve, Bob\"}", "{ended:#}");
    assert_ne!(ended["handler"], first);

    let from = dev.events().len();
    edit(&source, "Ok(Greeting", "Ok(Greting");
    dev.event(from, "not_built", BUILD);
    let ended = dev.result_of("dev_greet {\"name\": \"Cem\"}");
    assert_eq!(ended["result"], "{\"text\":\"salve, Cem\"}", "the last good one serves on: {ended:#}");

    // From another terminal, and one that fails.
    let from = dev.events().len();
    dev.here.ok(&["enqueue", "dev_greet", "{\"name\": \"\"}"]);
    let ended = dev.event(from, "ended", SOON);
    assert_eq!((&ended["outcome"], &ended["reason"]), (&"dead".into(), &"permanent".into()), "{ended:#}");
    let from = dev.events().len();
    dev.type_in("no such line {");
    dev.type_in("{}");
    assert!(dev.event(from, "remark", SOON)["message"].as_str().expect("text").contains("KIND PAYLOAD"));
    assert_eq!(dev.event(from, "enqueued", SOON)["served"], false);

    let from = dev.events().len();
    edit(&source, "Ok(Greting", "Ok(Greeting");
    edit(&source, "\"salve, {}\"", "\"ciao, {}\"");
    dev.event(from, "serving", BUILD);
    let ended = dev.result_of("dev_greet {\"name\": \"Dora\"}");
    assert_eq!(ended["result"], "{\"text\":\"ciao, Dora\"}", "{ended:#}");
    let ignored = fs::read_to_string(dev.here.dir.path().join(".hourhand/.gitignore")).expect("a file");
    assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
    let said = dev.stop();
    for part in ["error[E0422]: cannot find struct", "hourhand enqueue KIND PAYLOAD --store sqlite:///"] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
}

/// A project whose build takes what lies beside it, and writes into its own folder each time.
fn scripted(here: &Hourhand) -> PathBuf {
    let folder = here.dir.path().join("scripted");
    fs::create_dir(&folder).expect("a folder");
    fs::copy(guest("echo"), folder.join("one.module")).expect("a module");
    fs::copy(guest("boom"), folder.join("two.module")).expect("a module");
    fs::write(folder.join("which"), "one").expect("a file");
    let script = "echo built >&2\ndate +%N > stamp\ncp \"$(cat which).module\" tried.wasm\n";
    fs::write(folder.join("build.sh"), script).expect("a script");
    folder
}

#[test]
fn a_project_with_a_script_is_built_by_it_and_what_it_writes_sets_off_no_endless_builds() {
    let here = Session::folder();
    let folder = scripted(&here);
    let mut dev = Session::start(here, &["scripted"]);
    assert_eq!(dev.event(0, "serving", SOON)["kind"], "echo");
    assert_eq!(dev.result_of("echo [1]")["result"], "[1]");
    let from = dev.events().len();
    fs::write(folder.join("which"), "two").expect("a file");
    assert_eq!(dev.event(from, "serving", SOON)["kind"], "boom");
    let ended = dev.result_of("boom {\"msg\":\"no\"}");
    assert_eq!((&ended["outcome"], &ended["reason"]), (&"retry".into(), &"error".into()), "{ended:#}");
    let said = dev.stop();
    // One for each change, and one or two for what the first ones wrote.
    let builds = said.matches("built\n").count();
    assert!((2..=4).contains(&builds), "{builds} builds:\n{said}");
}

#[test]
fn ctrl_c_ends_a_build_with_all_that_it_started() {
    let here = Session::folder();
    let folder = here.dir.path().join("slow");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("build.sh"), "sleep 1000 & echo $! > child.tmp\nwait\n").expect("a script");
    let dev = Session::start(here, &["slow"]);
    let child: u32 = eventually("the build has begun", SOON, || {
        fs::read_to_string(folder.join("child.tmp")).ok()?.strip_suffix('\n')?.parse().ok()
    });
    // The runner is there too: its store is made, and it listens to signals.
    let store = dev.here.dir.path().join(".hourhand/dev.db");
    eventually("the runner works", SOON, || store.is_file().then_some(()));
    dev.stop();
    let stat = format!("/proc/{child}/stat");
    eventually("its child is gone", SOON, || {
        fs::read_to_string(&stat)
            .is_ok_and(|stat| stat.contains(") Z "))
            .then_some(())
            .or_else(|| (!Path::new(&stat).exists()).then_some(()))
    });
}

#[test]
fn what_is_no_project_is_refused_and_the_store_of_others_is_left_alone() {
    let here = Session::folder();
    // So that there is a store to look at in the end.
    fs::create_dir(here.dir.path().join(".hourhand")).expect("a folder");
    here.ok(&["queue", "pause", "none"]);
    let output = here.run(&["dev"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains(".: expected a folder with a Cargo.toml") && said.contains("handler new"),
        "{said}"
    );
    scripted(&here);
    let mut command = here.command(&["dev", "scripted"]);
    let output = command.env("HOURHAND_DEV_STORE", "nonsense").env("HOURHAND_STORE", "other").output();
    let output = output.expect("run the binary");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("nonsense") && !said.contains("other"), "{said}");
}
