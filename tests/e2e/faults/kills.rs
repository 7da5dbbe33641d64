//! Processes that are killed, and processes that are stopped and go on.

use std::time::Duration;

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::clerks::Work;
use crate::harness::faults::{Plan, sized};
use crate::harness::site::Site;

on_both_stores! {
    runners_and_command_lines_that_are_killed_all_the_time_lose_nothing
    runners_that_stop_and_go_on_lose_nothing_and_their_late_outcomes_are_refused
}

const RUNNERS: usize = 4;

fn runners_and_command_lines_that_are_killed_all_the_time_lose_nothing(on: StoreKind) {
    let store = on.start();
    store.make();
    let mut site = Site::new(&store.url());
    let (dice, kills) = (&mut site.dice, sized(20, 200));
    let victims = Plan::draw(dice, kills, 50..=500, |dice| dice.below(RUNNERS as u64) as usize);
    let hands = [(); 2].map(|()| (dice.apart(), site.here.store.clone())).to_vec();
    let mut fleet = site.fleet(RUNNERS, &["--concurrency", "16"]);
    // So many that there is work for as long as somebody is killed.
    let work = Work {
        jobs: sized(1_000, 20_000),
        file_max: sized(60, 300),
        pause_ms: 50..=250,
        killed_percent: 25,
        ..Work::default()
    };
    let clerks = site.clerks(work);
    clerks.during(hands, || victims.run(|number| fleet.kill(number)));
    println!("{} runners and {} command lines killed", fleet.kills(), clerks.killed());
    fleet.assert_alive();
    let balance = site.close("kills", Duration::from_secs(sized(60, 600)));
    assert!(balance.completed > balance.taken / 2, "{balance}");
}

fn runners_that_stop_and_go_on_lose_nothing_and_their_late_outcomes_are_refused(on: StoreKind) {
    let store = on.start();
    store.make();
    let mut site = Site::new(&store.url());
    // The first of the small size is longer than a lease.
    let mut first = Some(7_000);
    // One that is stopped again and again sends its outcomes when it comes to it.
    site.ledger.settled_within_us = 2_000_000;
    let dice = &mut site.dice;
    let stops = Plan::draw(dice, sized(4, 30), 0..=sized(300, 1_000), |dice| {
        (
            dice.below(3) as usize,
            Duration::from_millis(first.take().unwrap_or_else(|| dice.of(100..=sized(1_500, 8_000)))),
        )
    });
    let clerk = dice.apart();
    let mut fleet = site.fleet(3, &["--concurrency", "16"]);
    let mut work = Work { pause_ms: 100..=400, ..Work::default() };
    work.mix.ms_max = 1_500;
    let clerks = site.clerks(work);
    clerks.during(vec![(clerk, site.here.store.clone())], || {
        stops.run(|(number, span)| fleet.stop(number, span));
    });
    fleet.assert_alive();
    let balance = site.close("stops", Duration::from_secs(60));
    let refused: usize = (0..fleet.len())
        .map(|number| fleet.runner(number).log().matches("late outcomes refused").count())
        .sum();
    println!("{refused} times late outcomes were refused");
    assert!(balance.completed > 0, "{balance}");
}
