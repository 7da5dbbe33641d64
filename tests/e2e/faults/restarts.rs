//! A Redis that is killed and comes back, with all that it had or without its last moments.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hourhand::clock::wall_us;

use super::scene::PATIENCE;
use crate::harness::clerks::Work;
use crate::harness::faults::{Plan, sized};
use crate::harness::redis_server::RedisServer;
use crate::harness::site::Site;

/// How long the append-only file was at which moment.
#[derive(Default)]
struct Lengths(Mutex<Vec<(u64, PathBuf, u64)>>);

impl Lengths {
    /// Notes it; the moment is before the look, so that whatever was acknowledged by then is within that length. While the disk
    /// is slow, a server with `everysec` answers before it writes, for up to two seconds: then there is nothing to note.
    fn look(&self, dir: &std::path::Path, server: &mut Option<redis::Connection>) {
        let now = wall_us();
        let Some(client) = server else { return };
        let info: redis::RedisResult<String> = redis::cmd("INFO").arg("persistence").query(client);
        let Ok(info) = info else {
            *server = None;
            return;
        };
        if !info.lines().any(|line| line == "aof_buffer_length:0") {
            return;
        }
        let files = fs::read_dir(dir.join("appendonlydir")).into_iter().flatten().flatten();
        for file in files.filter(|file| file.file_name().to_string_lossy().ends_with(".incr.aof")) {
            if let Ok(metadata) = file.metadata() {
                self.0.lock().expect("no panic").push((now, file.path(), metadata.len()));
            }
        }
    }

    /// When all that had been acknowledged was last seen to be in the file.
    fn complete_at(&self) -> u64 {
        self.0.lock().expect("no panic").last().expect("a look").0
    }

    /// Cuts the file back to what it was at the last look before `moment_us`. When that was.
    fn cut_to(&self, moment_us: u64) -> u64 {
        let looks = self.0.lock().expect("no panic");
        let (at, path, length) = looks.iter().rev().find(|look| look.0 <= moment_us).expect("a look");
        let file = fs::OpenOptions::new().write(true).open(path).expect("the append-only file");
        file.set_len(*length).expect("cut");
        *at
    }
}

fn work() -> Work {
    Work { pause_ms: 30..=200, killed_percent: 5, ..Work::default() }
}

/// Kills Redis again and again under load; with `cut`, half of the times its last moments are gone.
fn restarts(what: &str, fsync: &str, cut: bool) {
    let options = ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"];
    let mut redis = RedisServer::start_with(&options);
    let (dir, lengths, over) = (redis.dir(), Lengths::default(), AtomicBool::new(false));
    let site_url = redis.url();
    let mut site = Site::new(&site_url);
    // Outcomes are tried again every second at the latest, once Redis is back.
    site.ledger.settled_within_us = 2_500_000;
    let plan = Plan::draw(&mut site.dice, sized(3, 10), 2_200..=3_500, |dice| {
        let cut_ms = if cut && dice.percent(50) { dice.of(200..=2_000) } else { 0 };
        (cut_ms, dice.of(0..=1_500))
    });
    let hands = [(); 2].map(|()| (site.dice.apart(), site.here.store.clone())).to_vec();
    let clerks = site.clerks(work());
    let mut fleet = site.fleet(2, &["--concurrency", "16"]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (client, mut server) = (redis::Client::open(site_url.as_str()).expect("a URL"), None);
            while !over.load(Ordering::SeqCst) {
                server = server.or_else(|| client.get_connection().ok());
                lengths.look(&dir, &mut server);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let faults = || {
            plan.run(|(cut_ms, away_ms)| {
                let killed = wall_us();
                redis.kill();
                // Without a cut, too, what the server had not written yet goes with it, unless it writes before it answers.
                let since = match cut_ms {
                    0 => cut.then(|| lengths.complete_at()),
                    _ => Some(lengths.cut_to(killed - cut_ms * 1_000)),
                };
                if let Some(since) = since {
                    site.ledger.cut(since, killed);
                }
                std::thread::sleep(Duration::from_millis(away_ms));
                redis.restart();
                if let Some(since) = since {
                    // What began or ended since then may be done again once Redis is back; what was claimed before and had no slot
                    // yet may have started since.
                    site.ledger.excuse_until(None, since, wall_us() + 2_000_000);
                    println!("without its last {} ms", (killed - since) / 1_000);
                }
            })
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clerks.during(hands, faults)));
        over.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    fleet.assert_alive();
    let balance = site.close(what, PATIENCE);
    assert!(balance.completed > 100, "{balance}");
    if !cut {
        assert_eq!(balance.again, 0, "{balance}");
    }
}

#[test]
fn a_redis_that_writes_always_loses_nothing_by_being_killed() {
    restarts("restarts with always", "always", false);
}

#[test]
fn a_redis_that_loses_its_last_moments_loses_nothing_else() {
    restarts("restarts with cuts", "everysec", true);
}
