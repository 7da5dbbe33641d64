//! A runner over a long time: short jobs, many of which trap or run out of time, and handlers that are replaced all
//! the while. What it keeps in memory stays what it was, and old code goes.
//!
//! The large run is `make soak-handlers`; the small one is a test like any other.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime};

use crate::harness::backing::StoreKind;
use crate::harness::guests::guest;
use crate::harness::hourhand::{Hourhand, Runner};
use crate::harness::waiting::eventually;

/// Long enough on the slowest machine; it only ends a run that hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// Jobs between two replacements.
const JOBS_A_ROUND: usize = 400;

/// What a process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    resident_kib: u64,
    code_mappings: usize,
    mappings: usize,
    threads: u64,
    files: usize,
}

impl Held {
    fn by(runner: &Runner) -> Self {
        let of = |what: &str| format!("/proc/{}/{what}", runner.child.id());
        let status = fs::read_to_string(of("status")).expect("a live runner");
        let number = |key: &str| -> u64 {
            let line = status.lines().find(|line| line.starts_with(key)).expect("a line of the status");
            line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
        };
        let maps = fs::read_to_string(of("maps")).expect("a live runner");
        Self {
            resident_kib: number("VmRSS:"),
            code_mappings: maps.lines().filter(|line| line.contains(" r-xp ")).count(),
            mappings: maps.lines().count(),
            threads: number("Threads:"),
            files: fs::read_dir(of("fd")).expect("a live runner").count(),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident_kib, code_mappings, mappings, threads, files } = self;
        write!(
            f,
            "{:.1} MiB resident, {code_mappings} mappings of code, {mappings} in all, {threads} threads, {files} files",
            *resident_kib as f64 / 1_024.0
        )
    }
}

/// One round of jobs: of ten, two trap and one runs out of time, asleep or computing.
fn round(number: usize, jobs: usize) -> String {
    let mut lines = String::new();
    for n in 0..jobs {
        let (kind, timeout) = match n % 10 {
            0 => ("unreachable", "5s"),
            1 => ("out_of_bounds", "5s"),
            2 if n % 200 == 2 => ("spin", "20ms"),
            2 => ("sleep_forever", "20ms"),
            _ => ("echo", "5s"),
        };
        lines.push_str(&format!(
            "{{\"kind\":\"{kind}\",\"queue\":\"soak\",\"max_attempts\":1,\"timeout\":\"{timeout}\",\"payload\":[{number},{n}]}}\n"
        ));
    }
    lines
}

/// Puts another version of a handler into the folder, and waits until it is loaded.
fn replace(here: &Hourhand, runner: &Runner, name: &str, number: usize) {
    let mut module = fs::read(guest(name)).expect("an example");
    let mark = format!("{number:08}");
    module.extend_from_slice(&[0, 13, 4]);
    module.extend_from_slice(b"mark");
    module.extend_from_slice(mark.as_bytes());
    let staged = here.handlers().join(".staged");
    fs::write(&staged, &module).expect("write a version");
    // Old contents under a new name were moved in as a whole.
    fs::File::open(&staged).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH)).expect("its time");
    fs::rename(&staged, here.handlers().join(format!("{name}.wasm"))).expect("rename a version");
    let hash = &hourhand::registry::sha256_of(&module)[..12];
    eventually("the version is loaded", PATIENCE, || runner.log().contains(hash).then_some(()));
}

/// The measurements, by how many jobs had run.
fn soak(on: StoreKind, jobs: usize, reloads: usize) -> BTreeMap<usize, Held> {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["echo", "faults", "spin"]);
    let cache = here.dir.path().join("cache");
    let runner = here.runner(&["--cache-dir", cache.to_str().expect("UTF-8"), "--dead-count", "1000"]);
    let rounds = jobs.div_ceil(JOBS_A_ROUND);
    let file = here.dir.path().join("round.ndjson");
    let mut held = BTreeMap::new();
    let mut replaced = 0;
    for number in 0..rounds {
        fs::write(&file, round(number, JOBS_A_ROUND)).expect("a round");
        here.ok(&["enqueue", "--ndjson", "round.ndjson"]);
        while replaced < reloads * (number + 1) / rounds {
            replace(&here, &runner, if replaced % 5 == 4 { "faults" } else { "echo" }, replaced);
            replaced += 1;
        }
        // Ten looks at it, each when nothing runs.
        if (number + 1) % rounds.div_ceil(10) == 0 || number + 1 == rounds {
            let ran = (number + 1) * JOBS_A_ROUND;
            here.counts("soak", "all have ended", PATIENCE, |q| {
                q["completed_total"].as_u64().unwrap() + q["failed_total"].as_u64().unwrap() == ran as u64
            });
            let now = Held::by(&runner);
            println!("after {ran} jobs and {replaced} replacements: {now}");
            held.insert(ran, now);
        }
    }
    let counts = here.counts("soak", "they are there", PATIENCE, |_| true);
    let ran = rounds * JOBS_A_ROUND;
    assert_eq!(counts["completed_total"], ran * 7 / 10, "{counts:#}");
    assert_eq!(counts["failed_total"], ran * 3 / 10, "{counts:#}");
    assert!(!runner.log().contains(" ERROR "), "something went wrong in the runner");
    held
}

/// Code of the versions that serve, of what may still wait to be freed, and of the runner itself.
fn no_old_code(held: &BTreeMap<usize, Held>) {
    let first = held.values().next().expect("a look");
    let last = held.values().last().expect("a look");
    assert!(last.code_mappings <= first.code_mappings + 4, "{first}; {last}");
    assert!(last.files <= first.files + 4 && last.threads <= first.threads + 4, "{first}; {last}");
}

#[test]
fn replaced_handlers_and_failed_jobs_leave_nothing_behind() {
    let held = soak(StoreKind::Sqlite, 8_000, 40);
    no_old_code(&held);
}

#[test]
#[ignore = "takes minutes: make soak-handlers"]
fn two_hundred_thousand_jobs_and_five_hundred_replacements_leave_nothing_behind() {
    let number = |name: &str, or| std::env::var(name).map_or(or, |n| n.parse().expect("a number"));
    let jobs = number("HOURHAND_SOAK_JOBS", 200_000);
    let reloads = number("HOURHAND_SOAK_RELOADS", 500);
    let on =
        if std::env::var_os("HOURHAND_SOAK_REDIS").is_some() { StoreKind::Redis } else { StoreKind::Sqlite };
    let held = soak(on, jobs, reloads);
    no_old_code(&held);
    let warm = held.range(jobs / 4..).next().expect("a look after a quarter").1;
    let last = held.values().last().expect("a look");
    let grown = last.resident_kib as f64 / warm.resident_kib as f64 - 1.0;
    println!("from a quarter of the jobs to the end, resident memory has changed by {:+.1} %", grown * 100.0);
    assert!(grown < 0.05, "{warm}; {last}");
}

/// A process that may have 8 GiB of address space cannot have a pool for 1,000 jobs: it says so, and runs them.
#[test]
fn a_thousand_slots_in_eight_gibibytes_of_address_space_are_said_and_no_job_fails() {
    use std::os::unix::process::CommandExt;
    let store = StoreKind::Sqlite.start();
    let here = Hourhand::new(&store.url(), &["echo"]);
    let runner = here.runner_made(&["--concurrency", "1000"], |command| {
        let limit = libc::rlimit { rlim_cur: 8 << 30, rlim_max: 8 << 30 };
        // SAFETY: setrlimit may be called between fork and exec, and reads `limit` only.
        #[allow(unsafe_code, reason = "the standard library sets no limits")]
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
    });
    eventually("the runner serves", PATIENCE, || runner.log().contains("the runner serves").then_some(()));
    assert!(runner.log().contains("not enough address space"), "{}", runner.log());
    let mut lines = String::new();
    for n in 0..2_000 {
        lines.push_str(&format!("{{\"kind\":\"echo\",\"payload\":{n},\"max_attempts\":1}}\n"));
    }
    fs::write(here.dir.path().join("load.ndjson"), lines).expect("a file");
    here.ok(&["enqueue", "--ndjson", "load.ndjson"]);
    let counts = here.counts("echo", "all have ended", PATIENCE, |q| {
        q["completed_total"].as_u64().unwrap() + q["failed_total"].as_u64().unwrap() == 2_000
    });
    assert_eq!(counts["completed_total"], 2_000, "{counts:#}");
}
