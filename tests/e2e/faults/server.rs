//! A Redis that forgets scripts, throws clients out, is busy, full, read-only, cannot save, or holds foreign data where ours should be.

use std::time::Duration;

use hourhand::clock::monotonic;

use super::scene::Scene;
use crate::harness::at_redis;
use crate::harness::clerks::Work;
use crate::harness::faults::{Plan, sized};
use crate::harness::redis_server::{RedisServer, free_port};

fn scene() -> Scene {
    Scene::on(RedisServer::start())
}

fn work() -> Work {
    Work { pause_ms: 50..=300, ..Work::default() }
}

#[test]
fn scripts_that_are_flushed_ten_times_a_second_fail_no_command() {
    let balance = scene().under_load("script flush", work(), |scene, _, _, dice| {
        Plan::draw(dice, sized(50, 400), 100..=100, |_| ()).run(|()| {
            scene.command(&["SCRIPT", "FLUSH"]);
        });
    });
    assert_eq!((balance.again, balance.refused, balance.unsure), (0, 0, 0), "{balance}");
}

#[test]
fn clients_that_are_thrown_out_at_random_come_back() {
    let balance = scene().under_load("client kill", work(), |scene, _, _, dice| {
        let which =
            |dice: &mut crate::harness::dice::Dice| if dice.percent(60) { "normal" } else { "pubsub" };
        Plan::draw(dice, sized(25, 200), 20..=400, which).run(|which| {
            scene.command(&["CLIENT", "KILL", "TYPE", which, "SKIPME", "yes"]);
        });
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn a_script_that_keeps_the_server_busy_takes_nobody_s_jobs_away() {
    let mut work = work();
    work.mix.ms_max = 3_000;
    let mut scene = scene();
    // It is busy for 8 s, and everything goes on within 3 s of its end.
    scene.site.starts_within_ms = 11_000;
    let balance = scene.under_load("busy", work, |scene, _, _, dice| {
        Plan::draw(dice, sized(1, 3), sized(1_000..=2_000, 3_500..=5_000), |_| ()).run(|()| {
            at_redis::block(&scene.redis, Duration::from_secs(8));
        });
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn a_server_without_memory_refuses_enqueues_and_loses_nothing() {
    let mut work = work();
    (work.mix.pad, work.mix.ms_max, work.pause_ms) = (400, 500, 0..=50);
    let balance = scene().under_load("no memory", work, |scene, _, _, _| {
        std::thread::sleep(Duration::from_millis(500));
        let info = at_redis::command(&scene.redis, &["INFO", "memory"]);
        let info: String = redis::from_redis_value(info).expect("a text");
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("used memory");
        let limit = used.trim().parse::<u64>().expect("a number") + (256 << 10);
        scene.command(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
        std::thread::sleep(Duration::from_secs(sized(5, 20)));
        scene.command(&["CONFIG", "SET", "maxmemory", "0"]);
        std::thread::sleep(Duration::from_millis(500));
    });
    assert_eq!(balance.again, 0);
    assert!(balance.refused > 0, "it was never full: {balance}");
}

#[test]
fn a_primary_that_is_a_read_only_replica_for_a_while_is_waited_for() {
    let balance = scene().under_load("read-only", work(), |scene, _, _, dice| {
        Plan::draw(dice, sized(1, 5), 500..=1_500, |dice| dice.of(2_000..=6_000)).run(|ms| {
            // Of a primary that is not there, so that it keeps what it has.
            scene.command(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
            std::thread::sleep(Duration::from_millis(ms));
            scene.command(&["REPLICAOF", "NO", "ONE"]);
        });
        std::thread::sleep(Duration::from_millis(500));
    });
    assert_eq!(balance.again, 0);
    assert!(balance.refused > 0, "it was never read-only: {balance}");
}

#[test]
fn a_server_that_cannot_save_and_takes_no_writes_is_waited_for() {
    let mut scene = Scene::on(RedisServer::start_with(&["--enable-protected-configs", "yes"]));
    let lost = scene.redis.dir().join("lost");
    let balance = scene.under_load("misconf", work(), |scene, _, _, dice| {
        let kept = scene.redis.dir().display().to_string();
        Plan::draw(dice, sized(1, 5), 500..=1_500, |dice| dice.of(2_000..=6_000)).run(|ms| {
            // It saves into a folder that goes away, and then may not be written to.
            std::fs::create_dir(&lost).expect("a folder");
            scene.command(&["CONFIG", "SET", "dir", &lost.display().to_string()]);
            std::fs::remove_dir(&lost).expect("removed");
            scene.command(&["CONFIG", "SET", "save", "3600 1000000"]);
            scene.command(&["BGSAVE"]);
            std::thread::sleep(Duration::from_millis(ms));
            scene.command(&["CONFIG", "SET", "save", ""]);
            scene.command(&["CONFIG", "SET", "dir", &kept]);
        });
        std::thread::sleep(Duration::from_millis(500));
    });
    assert_eq!(balance.again, 0);
    assert!(balance.refused > 0, "it was never in that state: {balance}");
}

/// Puts a text where a key of ours is, and keeps what was there; the other way round with `back`.
const FOREIGN: &str = "
    local kept = 'foreign-test:' .. KEYS[1]
    if ARGV[1] == 'back' then
        redis.call('DEL', KEYS[1])
        if redis.call('EXISTS', kept) == 1 then redis.call('RENAME', kept, KEYS[1]) end
    else
        if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], kept) end
        redis.call('SET', KEYS[1], 'somebody else wrote this')
    end";

#[test]
fn foreign_data_under_our_names_is_said_clearly_and_once_it_is_gone_nothing_is_lost() {
    // A wrong type is no passing trouble: the command line says so at once.
    let work = Work { codes: &[1], ..work() };
    let mut logs = Vec::new();
    let mut scene = scene();
    let balance = scene.under_load("foreign data", work, |scene, _, fleet, dice| {
        std::thread::sleep(Duration::from_millis(500));
        let keys: Vec<String> =
            redis::from_redis_value(scene.command(&["KEYS", "hourhand:*"])).expect("a list of keys");
        let mut keys: Vec<String> = keys.into_iter().filter(|key| !key.contains("wake")).collect();
        keys.sort();
        println!("{} keys: {}", keys.len(), keys.join(" "));
        let count = sized(6, 60);
        Plan::draw(dice, count, 50..=300, |dice| {
            (dice.below(keys.len() as u64) as usize, dice.of(200..=1_200))
        })
        .run(|(key, ms)| {
            let swap = |back: &str| scene.command(&["EVAL", FOREIGN, "1", &keys[key], back]);
            swap("there");
            let started = monotonic();
            std::thread::sleep(Duration::from_millis(ms));
            swap("back");
            println!("{} was foreign for {} ms", keys[key], started.elapsed().as_millis());
        });
        std::thread::sleep(Duration::from_millis(500));
        logs = (0..fleet.len()).map(|number| fleet.runner(number).log()).collect();
    });
    assert_eq!(balance.again, 0);
    let words = scene.site.ledger.words();
    println!("{}", words.iter().cloned().collect::<Vec<_>>().join("\n"));
    let clear = |said: &String| said.contains("not ours") || said.contains("foreign data");
    assert!(!words.is_empty() && words.iter().all(clear), "{words:?}");
    for log in logs {
        let lines = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count() as u64;
        assert!(lines < 10 + 2 * sized(6, 60), "{lines} lines:\n{log}");
    }
}
