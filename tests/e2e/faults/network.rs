//! The network between runners, command lines and Redis at its worst. Replies that do not come make no job run twice.

use std::time::Duration;

use super::scene::Scene;
use crate::harness::clerks::Work;
use crate::harness::dice::Dice;
use crate::harness::faults::{Plan, sized};
use crate::harness::proxy::Proxy;
use crate::harness::redis_server::RedisServer;

fn scene() -> Scene {
    Scene::on(RedisServer::start())
}

/// As many jobs as are asked for while the faults go on.
fn work() -> Work {
    Work { pause_ms: 50..=300, ..Work::default() }
}

fn seconds(small: u64, large: u64) -> Duration {
    Duration::from_secs(sized(small, large))
}

#[test]
fn connections_that_are_reset_every_second_cost_nothing() {
    let balance = scene().under_load("resets", work(), |_, links, _, dice| {
        // Now and then nobody takes new ones for a while.
        let refused = |dice: &mut Dice| if dice.percent(20) { dice.of(100..=700) } else { 0 };
        Plan::draw(dice, sized(8, 60), sized(500..=500, 1_000..=1_000), refused).run(|ms| {
            links.each(|link| link.refuse(ms > 0));
            links.each(Proxy::reset_all);
            std::thread::sleep(Duration::from_millis(ms));
            links.each(|link| link.refuse(false));
        });
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn every_tenth_reply_that_is_lost_costs_nothing() {
    let balance = scene().under_load("lost replies", work(), |_, links, _, _| {
        links.each(|link| link.lose_every(10));
        std::thread::sleep(seconds(5, 40));
        links.each(|link| link.lose_every(0));
        let lost: usize = (0..4).map(|number| links.link(number).lost()).sum();
        println!("{lost} replies lost");
        assert!(lost > 20, "{lost}");
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn a_slow_network_is_only_slow() {
    let balance = scene().under_load("delays", work(), |_, links, _, _| {
        links.each(|link| link.delay(Duration::from_millis(50), Duration::from_millis(300)));
        std::thread::sleep(seconds(6, 40));
        links.each(|link| link.delay(Duration::ZERO, Duration::ZERO));
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn a_narrow_network_is_only_slow() {
    let balance = scene().under_load("a narrow network", work(), |_, links, _, _| {
        links.each(|link| link.rate(48 << 10));
        std::thread::sleep(seconds(6, 40));
        links.each(|link| link.rate(0));
    });
    assert_eq!(balance.again, 0);
}

#[test]
fn connections_that_say_nothing_any_more_are_left_within_fifteen_seconds() {
    let mut scene = scene();
    // One job at a time, and somebody who waits for each: so the next one shows whether its runner is back.
    scene.under_load("half-open connections", work(), |scene, links, _, _| {
        for round in 0..sized(1, 4) {
            std::thread::sleep(Duration::from_millis(500));
            // Both runners' connections are dead, and new ones work.
            for number in 0..2 {
                links.link(number).freeze();
                links.link(number).thaw_for_new_connections();
            }
            let id = format!("echo-{round}");
            let here = &scene.site.here;
            let frozen = hourhand::clock::monotonic();
            // Whoever runs it has left its dead connection.
            here.ok(&["enqueue", "echo", "null", "--id", &id]);
            here.install("echo", "echo");
            here.job_in(&id, "completed", Duration::from_secs(15));
            println!("noticed after {} ms", frozen.elapsed().as_millis());
        }
    });
}

#[test]
fn a_runner_behind_a_frozen_link_loses_its_jobs_to_the_other_and_comes_back() {
    let mut scene = scene();
    let mut work = work();
    work.mix.ms_max = 1_000;
    scene.under_load("a frozen link", work, |scene, links, fleet, _| {
        std::thread::sleep(Duration::from_secs(1));
        let before = hourhand::clock::wall_us();
        links.link(0).freeze();
        std::thread::sleep(seconds(7, 20));
        links.link(0).thaw_for_new_connections();
        crate::harness::waiting::eventually("it is back", Duration::from_secs(15), || {
            fleet.runner(0).log().contains("the store is back").then_some(())
        });
        // What it had in hand at that time may have been run by the other.
        scene.site.ledger.excuse(Some(fleet.name(0)), before);
    });
}

#[test]
fn a_network_that_passes_one_way_only_costs_nothing() {
    let balance = scene().under_load("one way only", work(), |_, links, _, dice| {
        Plan::draw(dice, sized(4, 30), 300..=900, |dice| (dice.percent(50), dice.of(200..=2_000))).run(
            |(to_server, ms)| {
                links.each(|link| link.hold(to_server, !to_server));
                std::thread::sleep(Duration::from_millis(ms));
                links.each(|link| link.hold(false, false));
            },
        );
    });
    assert_eq!(balance.again, 0);
}
