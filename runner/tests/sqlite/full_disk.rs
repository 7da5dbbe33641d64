//! A disk that is full: enqueues stop first, what is there can still be settled, and work goes on when there is room again.

use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use hourhand::job::{NewJob, State};
use hourhand::outcome::Outcome;
use hourhand::queue::{ClaimedJob, ListQuery, Settled, Store, StoreError, Wake};
use tokio::sync::mpsc::Receiver;

use crate::bed::{Hand, job, lane, settlement, state};
use crate::kit::{PATIENCE, assert_whole, store, tell};

/// Set in the copy of this test that runs in a namespace where it may mount.
const INSIDE: &str = "HOURHAND_TEST_NAMESPACE";
const TEST: &str = "full_disk::a_full_disk_stops_enqueues_first_and_nothing_is_lost_or_done_falsely";

/// A small disk in memory.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Path) -> std::io::Result<Self> {
        let text = |bytes: &[u8]| CString::new(bytes).expect("no zero byte");
        let (place, kind, size) = (text(folder.as_os_str().as_bytes()), text(b"tmpfs"), text(b"size=64m"));
        // SAFETY: all are terminated strings that outlive the call.
        let done = unsafe {
            libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), libc::MS_NOSUID, size.as_ptr().cast())
        };
        if done == 0 { Ok(Self(folder.to_owned())) } else { Err(std::io::Error::last_os_error()) }
    }

    fn free(&self) -> u64 {
        let place = CString::new(self.0.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: all of a statvfs may be zero, and the call fills it; the path is a terminated string.
        let room = unsafe {
            let mut room: libc::statvfs = std::mem::zeroed();
            assert_eq!(libc::statvfs(place.as_ptr(), &raw mut room), 0);
            room
        };
        room.f_bavail * room.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let place = CString::new(self.0.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: a terminated string that outlives the call.
        unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_stops_enqueues_first_and_nothing_is_lost_or_done_falsely() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = match Disk::mount(folder.path()) {
        Ok(disk) => disk,
        Err(_) if std::env::var_os(INSIDE).is_none() => return in_a_namespace(),
        Err(error) => return tell(&format!("not tried: a disk cannot be mounted: {error}")),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(fill(&disk));
}

/// Where only root may mount, a user may in a namespace of his own, if the system lets him.
fn in_a_namespace() {
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount"])
        .arg(this)
        .args([TEST, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            tell(&said);
            assert!(output.status.success(), "{said}");
        }
        _ => tell("not tried: neither may a disk be mounted nor a namespace be made"),
    }
}

async fn fill(disk: &Disk) {
    let (file, ballast) = (disk.0.join("jobs.db"), disk.0.join("ballast"));
    std::fs::write(&ballast, vec![0; 16 << 20]).expect("written");
    let store = store(&file);
    let mut wakes = store.wakes();
    assert_eq!(wakes.recv().await, Some(Wake::Missed));
    let mut taken = 0;
    let refused = loop {
        let jobs = vec![NewJob { payload: Bytes::from(vec![b'x'; 4_000]), ..job("a") }; 50];
        match store.enqueue(&jobs).await {
            Ok(enqueued) => taken += enqueued.len() as u64,
            Err(error) => break error,
        }
    };
    tell(&format!("after {taken} jobs, with {} MiB free: {refused}", disk.free() >> 20));
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    assert!(disk.free() >= 16 << 20, "there is a reserve");
    // What is there is claimed and settled all the same.
    let mut hand = Hand::new(&store, "s");
    let mut claimed = Vec::new();
    while claimed.len() < 1_000 {
        claimed.extend(hand.claim(&["a"], 50).await);
    }
    for job in claimed.drain(..100) {
        hand.complete(&job).await;
    }
    // Now somebody takes the rest.
    let hog = disk.0.join("hog");
    fill_up(&hog);
    let (settled, unsettled) = settle_until_full(&hand, claimed).await;
    tell(&format!("{settled} more settled without any room"));
    // Nothing is taken for done that is not, whatever is tried meanwhile.
    for _ in 0..3 {
        for job in unsettled.iter().take(5) {
            let error = store.settle(&[large(job)]).await.expect_err("no room");
            assert!(matches!(error, StoreError::Full(_)), "{error:?}");
            assert_eq!(state(&store, &job.job.id).await, State::Running);
        }
        let error = store.enqueue(&[job("a")]).await.expect_err("no room");
        assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    }
    let page = store.list(&ListQuery { limit: 10, ..ListQuery::default() }).await.expect("reads go on");
    assert!(!page.items.is_empty());
    let counts = store.counts().await.expect("counted").queues.remove(0);
    assert_eq!(counts.completed, 100 + settled);
    assert_eq!(counts.running, unsettled.len() as u64);
    assert_eq!(counts.ready + counts.running + counts.completed, taken);
    for foreign in [hog, ballast] {
        std::fs::remove_file(foreign).expect("removed");
    }
    go_on(&store, &file, &hand, &unsettled, &mut wakes).await;
}

/// Writes a file until there is no room for another byte.
fn fill_up(hog: &Path) {
    let mut file = std::fs::File::create(hog).expect("made");
    for piece in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![0; piece]).is_ok() {}
    }
}

/// A settlement that needs room.
fn large(job: &ClaimedJob) -> hourhand::queue::Settlement {
    settlement(job, Outcome::Completed { result: Some(Bytes::from(vec![b'r'; 100_000])) })
}

/// Settles until there is no room; how many were, and what is left.
async fn settle_until_full(hand: &Hand<'_>, jobs: Vec<ClaimedJob>) -> (u64, Vec<ClaimedJob>) {
    for (index, job) in jobs.iter().enumerate() {
        match hand.store.settle(&[large(job)]).await {
            Ok(settled) => assert_eq!(settled, [Settled::Done]),
            Err(error) => {
                assert!(matches!(error, StoreError::Full(_)), "{error:?}");
                assert!(error.to_string().contains("free some space"), "{error}");
                return (index as u64, jobs[index..].to_vec());
            }
        }
    }
    panic!("the disk was never full");
}

/// There is room again: everything works, with the connections and listeners of before.
async fn go_on(
    store: &impl Store,
    file: &Path,
    hand: &Hand<'_>,
    unsettled: &[ClaimedJob],
    wakes: &mut Receiver<Wake>,
) {
    for job in unsettled {
        hand.complete(job).await;
    }
    store.enqueue(&[job("fresh")]).await.expect("taken");
    let woken = async {
        while let Some(wake) = wakes.recv().await {
            if matches!(&wake, Wake::Due { lane: woken, .. } if *woken == lane("fresh")) {
                return;
            }
        }
        panic!("nobody listens any more");
    };
    tokio::time::timeout(PATIENCE, woken).await.expect("the listener has survived");
    store.prune().await.expect("pruned");
    assert_whole(file);
}
