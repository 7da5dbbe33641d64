//! Wake-ups across processes, and what listening costs.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use hourhand::clock::{HostClock, SystemClock};
use hourhand::queue::{Store, Wake};

use crate::bed::job;
use crate::child::{Child, is_stopped, run, say};
use crate::kit::{quick_store, tell};

const SIGNALS: usize = 20;
/// How long an idle store is watched.
const WATCHED: Duration = Duration::from_secs(2);

/// Enqueues a job to a new lane whenever it is nudged, and says when that was done.
pub(crate) fn enqueuer(file: &Path, nudges: &Receiver<()>) {
    run(async {
        let store = quick_store(file);
        store.identity().await.expect("open");
        say("ready");
        for number in 0.. {
            if nudges.recv().is_err() {
                return;
            }
            store.enqueue(&[job(&format!("kind{number}"))]).await.expect("taken");
            say(&SystemClock.boot_us().to_string());
        }
    });
}

/// Times from the end of an enqueue by another process to its wake-up here, in microseconds.
async fn delays() -> Vec<u64> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    let store = quick_store(&file);
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    let mut child = Child::start("enqueuer", &file);
    child.expect("ready");
    let mut delays = Vec::new();
    for number in 0..SIGNALS {
        child.nudge();
        let wake = tokio::time::timeout(Duration::from_secs(10), wakes.recv()).await.expect("a wake-up");
        let arrived_us = SystemClock.boot_us();
        let Some(Wake::Due { lane, .. }) = wake else { panic!("{wake:?}") };
        assert_eq!(lane.kind.as_str(), format!("kind{number}"));
        let done_us: u64 = child.line().expect("it says when").parse().expect("a time");
        delays.push(arrived_us.saturating_sub(done_us));
    }
    delays.sort_unstable();
    delays
}

fn assert_soon(how: &str, delays: &[u64]) {
    tell(&format!("{how}: median {} us, slowest {} us", delays[SIGNALS / 2], delays[SIGNALS - 1]));
    assert!(delays[SIGNALS - 1] < 1_000_000, "{delays:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_by_another_process_wakes() {
    assert_soon("told by the file system", &delays().await);
}

/// Takes inotify away from this thread and those that it starts.
fn without_inotify() {
    const ALLOW: libc::sock_filter =
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    const REFUSE: libc::sock_filter =
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32 };
    // Load the number of the system call; the refusal is for one of them.
    let mut filter = [
        libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_inotify_init1 as u32 },
        REFUSE,
        ALLOW,
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the calls, which affect this thread alone and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
        assert_eq!(libc::inotify_init1(0), -1, "there is no inotify");
    }
}

#[test]
fn an_enqueue_by_another_process_wakes_without_inotify_too() {
    let listening = std::thread::spawn(|| {
        without_inotify();
        run(async { assert_soon("without inotify", &delays().await) });
    });
    listening.join().expect("it wakes");
}

/// Listens to a store in which nothing happens, and says what that costs, in microseconds of work.
pub(crate) fn idler(file: &Path) {
    let spent = || {
        // SAFETY: all of a rusage may be zero, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
            usage
        };
        let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
        us(usage.ru_utime) + us(usage.ru_stime)
    };
    run(async {
        let store = quick_store(file);
        let mut wakes = store.wakes();
        store.enqueue(&[job("a")]).await.expect("taken");
        while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(200), wakes.recv()).await {}
        let before = spent();
        tokio::time::sleep(WATCHED).await;
        say(&(spent() - before).to_string());
        while !is_stopped() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn a_listener_of_an_idle_store_costs_next_to_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Child::start("idler", &folder.path().join("jobs.db"));
    let spent: u64 = child.line().expect("it measures").parse().expect("a number");
    child.stop();
    let part = spent as f64 / WATCHED.as_micros() as f64;
    tell(&format!("an idle store with a listener: {:.2} % of a core", 100.0 * part));
    assert!(part < 0.1, "{spent} us");
}
