//! Clocks that are set while jobs run: the store's own, and those of the processes that work with it.

use std::time::Duration;

use super::scene::PATIENCE;
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::clerks::{Clerks, Work};
use crate::harness::dice::Dice;
use crate::harness::fake_clock::FakeClock;
use crate::harness::faults::{Plan, sized};
use crate::harness::fleet::Fleet;
use crate::harness::redis_server::RedisServer;
use crate::harness::site::Site;
use crate::harness::waiting::eventually;

on_both_stores! {
    the_wall_clocks_of_runners_and_command_lines_do_not_matter
}

/// What the new clock calls due starts within this.
const STARTS_WITHIN_MS: u64 = 6_000;

/// Steps the clock of a Redis while jobs run and wait, and sets one that was behind right again.
fn step_of_the_store(offset_s: i64) {
    let Some(clock) = FakeClock::new() else { return };
    let redis = RedisServer::start_among(clock.variables_without_allocator());
    let mut site = Site::new(&redis.url());
    site.starts_within_ms = STARTS_WITHIN_MS;
    let mut work = Work { pause_ms: 50..=250, ..Work::default() };
    // Some are due before the step, and some only after it.
    (work.mix.delay_ms_max, work.mix.ms_max) = (sized(3_500, 6_000), sized(700, 1_500));
    let (dice, spans) =
        (site.dice.apart(), [site.dice.of(1_500..=3_000), site.dice.of(sized(4_500..=5_500, 6_500..=8_000))]);
    println!("a step of {offset_s} s after {} ms, and the next after {} ms more", spans[0], spans[1]);
    let mut fleet = site.fleet(2, &["--concurrency", "64"]);
    let clerks = site.clerks(work);
    clerks.during(vec![(dice, site.here.store.clone())], || {
        // One that was set ahead stays so: what was enqueued since would wait for an hour.
        for (span, offset_s) in spans.into_iter().zip([offset_s, offset_s.max(0)]) {
            std::thread::sleep(Duration::from_millis(span));
            clock.set(offset_s);
            site.ledger.stepped(offset_s * 1_000_000);
        }
        std::thread::sleep(Duration::from_secs(1));
    });
    fleet.assert_alive();
    let balance = site.close(&format!("the store's clock {offset_s} s"), PATIENCE);
    assert_eq!(balance.again, 0, "no double run, no take-over: {balance}");
}

#[test]
fn a_store_whose_clock_is_set_back_by_half_a_minute_runs_nothing_twice() {
    step_of_the_store(-30);
}

#[test]
fn a_store_whose_clock_is_set_back_by_an_hour_runs_nothing_twice() {
    step_of_the_store(-3_600);
}

#[test]
fn a_store_whose_clock_is_set_ahead_by_an_hour_runs_nothing_twice() {
    step_of_the_store(3_600);
}

fn the_wall_clocks_of_runners_and_command_lines_do_not_matter(on: StoreKind) {
    // Each of two runners and the command lines has a clock of its own.
    let (Some(first), Some(second), Some(third)) = (FakeClock::new(), FakeClock::new(), FakeClock::new())
    else {
        return;
    };
    let clocks = [&first, &second, &third];
    let store = on.start();
    store.make();
    let mut site = Site::new(&store.url());
    (site.ledger.by_files, site.starts_within_ms) = (true, STARTS_WITHIN_MS);
    let mut work = Work { pause_ms: 50..=250, ..Work::default() };
    (work.mix.delay_ms_max, work.mix.ms_max) = (4_000, 1_500);
    // Within the minute for which an embedded store disbelieves a wall clock.
    let steps = Plan::draw(&mut site.dice, sized(8, 40), 500..=1_200, |dice| {
        (dice.below(3) as usize, [-3_600, -30, -2, 0, 2, 30, 3_600][dice.below(7) as usize])
    });
    let dice = site.dice.apart();
    let mut fleet = Fleet::start(&site.here, &site.ledger, 2, &["--concurrency", "64"], |number, command| {
        command.envs(clocks[number].variables());
    });
    let clerks: Clerks<'_> = site.clerks(work).with(third.variables());
    clerks.during(vec![(dice, site.here.store.clone())], || {
        steps.run(|(number, offset_s)| clocks[number].set(offset_s));
    });
    for clock in clocks {
        clock.set(0);
    }
    fleet.assert_alive();
    let balance = site.close("the processes' clocks", PATIENCE);
    assert_eq!(balance.again, 0, "{balance}");
}

/// The embedded store believes the wall clock only after a minute: too long for a test among many.
#[test]
fn a_wall_clock_that_was_set_right_counts_for_the_embedded_store_after_a_minute() {
    if !sized(false, true) {
        println!("not tried: it takes over a minute: make faults");
        return;
    }
    let Some(clock) = FakeClock::new() else { return };
    let store = StoreKind::Sqlite.start();
    store.make();
    let site = Site::new(&store.url());
    let work = serde_json::json!({"key": "later"}).to_string();
    site.here.ok(&["enqueue", "ledger", &work, "--id", "later", "--delay", "50m"]);
    let mut fleet = Fleet::start(&site.here, &site.ledger, 1, &[], |_, command| {
        command.envs(clock.variables());
    });
    clock.set(3_600);
    let clerks = site.clerks(Work { ..Work::default() }).with(clock.variables());
    clerks.during(vec![(Dice::new(1), site.here.store.clone())], || {
        std::thread::sleep(Duration::from_secs(50));
        assert_eq!(site.here.job("later")["state"], "scheduled", "nobody believes it yet");
        eventually("it counts in the end", Duration::from_secs(60), || {
            (site.here.job("later")["state"] == "completed").then_some(())
        });
    });
    fleet.assert_alive();
}
