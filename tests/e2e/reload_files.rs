//! The handlers folder of a real runner: copies under load, file systems without events, what it costs to watch, and
//! going back to an old version.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::guests::bomb;
use crate::harness::backing::{Backing, StoreKind};
use crate::harness::guests::guest;
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::waiting::eventually;

/// The example `echo` with a mark that makes it another version, and so many bytes more.
fn marked(mark: &str, padding: usize) -> Vec<u8> {
    let mut module = fs::read(guest("echo")).unwrap();
    let body = [&[4], b"mark".as_slice(), mark.as_bytes(), &vec![7; padding]].concat();
    module.push(0);
    let mut length = body.len();
    while length > 127 {
        module.push((length & 127) as u8 | 128);
        length >>= 7;
    }
    module.push(length as u8);
    module.extend_from_slice(&body);
    module
}

fn sha12(bytes: &[u8]) -> String {
    hourhand::registry::sha256_of(bytes)[..12].to_owned()
}

fn on_sqlite(handlers: &[&str]) -> (Backing, Hourhand) {
    let store = StoreKind::Sqlite.start();
    let here = Hourhand::new(&store.url(), handlers);
    // What is kept of this test's handlers is its own matter.
    fs::write(here.dir.path().join("hourhand.toml"), "").unwrap();
    (store, here)
}

/// Puts bytes into the folder as tools do that care.
fn put(here: &Hourhand, name: &str, bytes: &[u8]) {
    let staged = here.handlers().join(format!(".{name}.staged"));
    fs::write(&staged, bytes).unwrap();
    fs::rename(staged, here.handlers().join(name)).unwrap();
}

/// Runs a job of the kind; the version that it ran on.
fn ran_on(here: &Hourhand, kind: &str) -> String {
    let id = here.ok(&["enqueue", kind, "1"]).trim().to_owned();
    let job = here.job_in(&id, "completed", Duration::from_secs(30));
    job["handler"].as_str().unwrap().to_owned()
}

#[track_caller]
fn runs_on(here: &Hourhand, kind: &str, hash: &str) {
    eventually("jobs run on the version", Duration::from_secs(30), || {
        (ran_on(here, kind) == hash).then_some(())
    });
}

fn log_has(runner: &Runner, text: &str) {
    eventually(text, Duration::from_secs(30), || runner.log().contains(text).then_some(()));
}

#[test]
fn eight_megabytes_are_copied_slowly_over_a_handler_under_load_and_no_job_notices() {
    let (_store, here) = on_sqlite(&["echo"]);
    let old = sha12(&fs::read(here.handlers().join("echo.wasm")).unwrap());
    let runner = here.runner(&[]);
    let mut lines = String::new();
    for n in 0..500 {
        lines.push_str(&format!("{{\"kind\":\"echo\",\"delay\":\"{}ms\",\"payload\":{n}}}\n", n * 20));
    }
    fs::write(here.dir.path().join("load.ndjson"), lines).unwrap();
    here.ok(&["enqueue", "--ndjson", "load.ndjson"]);

    let new = marked("slow", 8 << 20);
    let mut file = fs::File::create(here.handlers().join("echo.wasm")).unwrap();
    let pieces: Vec<&[u8]> = new.chunks(64 << 10).collect();
    for (n, piece) in pieces.iter().enumerate() {
        file.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(if n == pieces.len() / 2 { 2_000 } else { 25 }));
    }
    drop(file);
    here.counts("echo", "all end", Duration::from_secs(60), |q| q["completed"] == 500);
    let jobs = here.all_jobs(&["--queue", "echo", "--state", "completed"]);
    let hashes: BTreeSet<&str> = jobs.iter().map(|job| job["handler"].as_str().unwrap()).collect();
    let new = sha12(&new);
    assert!(hashes.iter().all(|hash| [&old, &new].contains(&&(*hash).to_owned())), "{hashes:?}");
    assert!(jobs.iter().all(|job| job["attempt"] == 1));
    runs_on(&here, "echo", &new);
    assert!(!runner.log().contains("ERROR"), "a half file was reported");
}

/// The kernel of a process with this filter knows no inotify: as some containers and emulated machines do.
fn without_inotify(command: &mut std::process::Command) {
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        line(load, 0, 0, 4),
        line(jump, 0, 3, ARCHITECTURE),
        line(load, 0, 0, 0),
        line(jump, 0, 1, libc::SYS_inotify_init1 as u32),
        line(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        line(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: between fork and exec only prctl is called, which reads the filter that the closure owns.
    #[allow(unsafe_code, reason = "the standard library sets no filters")]
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
            let none = 0 as libc::c_ulong;
            let filtered = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, none, none, none) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0;
            if filtered { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

#[test]
fn without_events_the_start_says_so_and_changes_are_found_by_scanning() {
    let (_store, here) = on_sqlite(&["echo"]);
    let blind = here.runner_made(&[], without_inotify);
    log_has(&blind, "the runner serves");
    log_has(&blind, "no events for the handlers folder: changes are found by scanning it");
    assert!(blind.log().contains("every_ms=2000"), "{}", blind.log());
    let next = marked("polled", 0);
    put(&here, "echo.wasm", &next);
    runs_on(&here, "echo", &sha12(&next));
    drop(blind);
    let told = here.runner(&["--handlers-events", "off", "--handlers-scan", "1s"]);
    log_has(&told, "events are off: changes of the handlers folder are found by scanning it");
    assert!(told.log().contains("every_ms=1000"), "{}", told.log());
    let next = marked("polled again", 0);
    put(&here, "echo.wasm", &next);
    runs_on(&here, "echo", &sha12(&next));
}

/// As a service is started, and not by somebody whose terminal may close.
pub fn without_terminal(command: &mut std::process::Command) {
    // SAFETY: setsid may be called between fork and exec, and touches no memory.
    #[allow(unsafe_code, reason = "the standard library begins no sessions")]
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

#[test]
fn events_alone_bring_a_change_also_after_their_queue_has_overflowed_and_sighup_scans() {
    let (_store, here) = on_sqlite(&["echo"]);
    // No scan within the hour finds anything.
    let runner = here.runner(&["--handlers-scan", "1h"]);
    log_has(&runner, "watching the handlers folder, and scanning it");
    let next = marked("by event", 0);
    put(&here, "echo.wasm", &next);
    runs_on(&here, "echo", &sha12(&next));
    // More than the kernel queues: the change itself is told by no event, only that some were lost.
    let most: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    runner.signal(libc::SIGSTOP);
    let noise = here.handlers().join("noise");
    for _ in 0..most / 2 + 1 {
        fs::write(&noise, "").unwrap();
        fs::remove_file(&noise).unwrap();
    }
    let next = marked("after the overflow", 0);
    put(&here, "echo.wasm", &next);
    runner.signal(libc::SIGCONT);
    runs_on(&here, "echo", &sha12(&next));
    drop(runner);
    // Without events, nothing but the signal tells of this one.
    let runner = here.runner_made(&["--handlers-scan", "1h", "--handlers-events", "off"], without_terminal);
    log_has(&runner, "the runner serves");
    let next = marked("by signal", 0);
    put(&here, "echo.wasm", &next);
    eventually("the scan that SIGHUP asks for", Duration::from_secs(30), || {
        runner.signal(libc::SIGHUP);
        (ran_on(&here, "echo") == sha12(&next)).then_some(())
    });
}

#[test]
fn ten_thousand_strangers_a_restless_file_and_two_gigabytes_cost_next_to_nothing() {
    let (_store, here) = on_sqlite(&["echo"]);
    let runner = here.runner(&[]);
    for n in 0..10_000 {
        fs::write(here.handlers().join(format!("unrelated-{n}")), "").unwrap();
    }
    fs::File::create(here.handlers().join("big.wasm")).unwrap().set_len(2 << 30).unwrap();
    log_has(&runner, "it is over the module limit");
    put(&here, "busy.wasm", &marked("busy", 0));
    let began = jiff::Timestamp::now();
    let cpu = runner.cpu();
    while began.duration_until(jiff::Timestamp::now()).as_secs() < 10 {
        let busy = fs::File::open(here.handlers().join("busy.wasm")).unwrap();
        busy.set_modified(std::time::SystemTime::from(jiff::Timestamp::now())).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let used = runner.cpu() - cpu;
    println!(
        "watching 10,000 files, one of them touched ten times a second, took {used:?} of processor time in 10 s"
    );
    // A debug build beside other tests: the bound is for a loop without a pause, which would take all of it.
    assert!(used < Duration::from_secs(8), "{used:?}");
    runs_on(&here, "echo", &sha12(&fs::read(guest("echo")).unwrap()));
    let status = fs::read_to_string(format!("/proc/{}/status", runner.child.id())).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 1 << 20, "two gigabytes were read: {peak} KiB");
    assert_eq!(runner.log().matches("over the module limit").count(), 1);
}

/// The versions of echo as a command sees them: hash, and where it is.
fn versions(here: &Hourhand) -> Vec<(String, bool, bool)> {
    let list = here.json(&["handler", "versions", "echo"]);
    let of = |item: &Value| {
        let hash = item["sha256"].as_str().unwrap()[..12].to_owned();
        (hash, item["pinned"] == true, item["in_folder"] == true)
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn an_operator_goes_back_to_an_old_version_forward_and_off_the_pin() {
    let (_store, here) = on_sqlite(&["echo"]);
    let runner = here.runner(&[]);
    let one = sha12(&fs::read(guest("echo")).unwrap());
    runs_on(&here, "echo", &one);
    let mut hashes = vec![one];
    for mark in ["two", "three"] {
        let bytes = marked(mark, 0);
        put(&here, "echo.wasm", &bytes);
        hashes.push(sha12(&bytes));
        runs_on(&here, "echo", hashes.last().unwrap());
    }
    let listed: Vec<String> = versions(&here).into_iter().map(|(hash, _, _)| hash).collect();
    assert_eq!(listed, hashes.iter().rev().cloned().collect::<Vec<_>>());

    let said = here.ok(&["handler", "rollback", "echo"]);
    assert!(said.contains(&hashes[1]) && said.contains(&hashes[2]), "{said}");
    runs_on(&here, "echo", &hashes[1]);
    here.ok(&["handler", "rollback", "echo"]);
    runs_on(&here, "echo", &hashes[0]);
    let nothing = here.run(&["handler", "rollback", "echo"]);
    assert_eq!(nothing.status.code(), Some(3));
    let list = here.json(&["handler", "list"]);
    let item = list["items"].as_array().unwrap().iter().find(|item| item["status"] == "active").unwrap();
    assert!(item["sha256"].as_str().unwrap().starts_with(&hashes[0]), "{item:#}");
    assert!(item["pin"]["folder_sha256"].as_str().unwrap().starts_with(&hashes[2]), "{item:#}");

    here.ok(&["handler", "rollback", "echo", "--to", &hashes[2]]);
    runs_on(&here, "echo", &hashes[2]);
    here.ok(&["handler", "pin", "echo", &hashes[1]]);
    runs_on(&here, "echo", &hashes[1]);
    assert!(versions(&here).contains(&(hashes[1].clone(), true, false)));
    // A new file does not serve while it is pinned, and does as soon as it is not.
    let four = marked("four", 0);
    put(&here, "echo.wasm", &four);
    log_has(&runner, &sha12(&four));
    assert_eq!(ran_on(&here, "echo"), hashes[1]);
    here.ok(&["handler", "unpin", "echo"]);
    runs_on(&here, "echo", &sha12(&four));
    let dir: Vec<PathBuf> =
        fs::read_dir(here.handlers()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dir, [here.handlers().join("echo.wasm")], "a pin leaves nothing");
}

#[track_caller]
fn refused(here: &Hourhand, args: &[&str], code: i32, said: &str) {
    let output = here.run(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(said), "{args:?}: {text}");
}

#[test]
fn what_cannot_be_pinned_is_said_with_what_there_is() {
    let (_store, here) = on_sqlite(&["echo"]);
    let hash = sha12(&fs::read(guest("echo")).unwrap());
    refused(&here, &["handler", "versions", "nobody"], 3, "served are: echo");
    refused(&here, &["handler", "pin", "echo", "0123456789ab"], 3, &format!("there are: {hash}"));
    refused(
        &here,
        &["handler", "rollback", "echo", "--to", "0123456789ab"],
        3,
        &format!("there are: {hash}"),
    );
    refused(&here, &["handler", "pin", "echo", "latest"], 2, "expected 12 to 64 hex digits");
    refused(&here, &["handler", "rollback", "echo"], 3, "no version of echo before");
    refused(&here, &["handler", "versions", "a b"], 2, "invalid");
    // What would not load is not pinned.
    put(&here, "broken.wasm", b"(module)");
    refused(&here, &["handler", "pin", "broken"], 3, "served are: echo");
    let mut half = fs::read(guest("echo")).unwrap();
    half.extend_from_slice(&[0, 200, 1]);
    put(&here, "echo.wasm", &half);
    let output = here.run(&["handler", "pin", "echo"]);
    assert!(!output.status.success());
    // A folder that cannot be written.
    put(&here, "echo.wasm", &fs::read(guest("echo")).unwrap());
    let read_only = Path::new("/proc/self");
    let output = here.run(&["handler", "unpin", "echo", "--handlers", read_only.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    here.ok(&["handler", "unpin", "echo"]);
}

/// A runner that is killed takes its compiling process with it.
#[test]
fn a_compilation_ends_with_its_runner() {
    let (_store, here) = on_sqlite(&[]);
    put(&here, "bomb.wasm", &bomb());
    let mut runner = here.runner_unready(&[]);
    let pid = runner.child.id();
    let compiling = eventually("a process compiles", Duration::from_secs(60), || child_of(pid));
    runner.kill();
    eventually("it has ended", Duration::from_secs(30), || {
        (!Path::new(&format!("/proc/{compiling}")).exists()).then_some(())
    });
}

fn child_of(pid: u32) -> Option<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.filter_map(|list| list.split_whitespace().next()?.parse().ok()).next()
}
