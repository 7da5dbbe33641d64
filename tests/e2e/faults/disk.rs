//! A disk that is full under an embedded store, or under Redis' append-only file.

use std::time::Duration;

use super::scene::PATIENCE;
use crate::harness::clerks::Work;
use crate::harness::disk::on_a_disk;
use crate::harness::faults::{Plan, sized};
use crate::harness::redis_server::RedisServer;
use crate::harness::site::Site;

/// Jobs that fill a disk.
fn work() -> Work {
    let mut work = Work { pause_ms: 0..=30, killed_percent: 5, ..Work::default() };
    (work.mix.pad, work.mix.ms_max, work.mix.delay_ms_max) = (8_000, 300, 1_000);
    work
}

#[test]
fn a_full_disk_under_the_embedded_store_loses_nothing_and_ends_nothing_falsely() {
    let test = "faults::disk::a_full_disk_under_the_embedded_store_loses_nothing_and_ends_nothing_falsely";
    on_a_disk(test, |disk| {
        let mut site = Site::new(&format!("sqlite://{}", disk.path().join("hourhand.db").display()));
        let hands = [(); 2].map(|()| (site.dice.apart(), site.here.store.clone())).to_vec();
        let plan = Plan::draw(&mut site.dice, sized(1, 6), 3_000..=5_000, |dice| dice.of(1_000..=4_000));
        let mut fleet = site.fleet(2, &["--concurrency", "8"]);
        let clerks = site.clerks(work());
        // A part is somebody else's from the beginning, so that the rest is soon full.
        disk.take("ballast", 36 << 20);
        clerks.during(hands, || {
            plan.run(|ms| {
                disk.fill_up("hog");
                std::thread::sleep(Duration::from_millis(ms));
                disk.give_back("hog");
            });
        });
        disk.give_back("ballast");
        fleet.assert_alive();
        let balance = site.close("a full disk", PATIENCE);
        assert!(balance.refused > 0, "it was never full: {balance}");
        assert_eq!(balance.again, 0, "{balance}");
    });
}

#[test]
fn a_full_disk_under_the_append_only_file_is_waited_for() {
    let test = "faults::disk::a_full_disk_under_the_append_only_file_is_waited_for";
    on_a_disk(test, |disk| {
        let folder = disk.path().display().to_string();
        // With `always`, Redis ends itself when it cannot write.
        let redis =
            RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec", "--dir", &folder]);
        let mut site = Site::new(&redis.url());
        let hands = vec![(site.dice.apart(), site.here.store.clone())];
        let plan = Plan::draw(&mut site.dice, sized(1, 6), 1_500..=2_500, |dice| dice.of(2_000..=5_000));
        let mut fleet = site.fleet(2, &["--concurrency", "8"]);
        let clerks = site.clerks(work());
        clerks.during(hands, || {
            plan.run(|ms| {
                disk.fill_up("hog");
                std::thread::sleep(Duration::from_millis(ms));
                disk.give_back("hog");
            });
            std::thread::sleep(Duration::from_secs(1));
        });
        fleet.assert_alive();
        let balance = site.close("a full disk under the append-only file", PATIENCE);
        assert!(balance.refused > 0, "it was never full: {balance}");
        assert_eq!(balance.again, 0, "{balance}");
    });
}
