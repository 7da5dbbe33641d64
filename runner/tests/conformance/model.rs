//! A random test against a model: random steps of everybody at once are taken by the store and by a small
//! model of it in memory (`state`), and after each of them the store must have answered, and must show, what the
//! model says. So the rules are tried in orders that nobody thought of.
//!
//! The store's clock is the store's own: the model learns from its answers between which two readings a step
//! was taken. Where a due time falls between the two, both answers are right, but all answers of one call must be
//! right at one moment.
//!
//! A run that fails prints its seed and its last steps; HOURHAND_TEST_SEED=<seed> repeats it. `make soak`
//! runs new seeds for as long as it is told to.

mod claim;
mod crew;
mod driver;
mod enqueue;
mod generate;
mod generate_effects;
mod generate_jobs;
mod job;
mod life;
mod look;
mod offer;
mod operate;
mod ops;
mod remember;
mod retain;
mod settle;
mod state;
mod window;

use hourhand::clock::monotonic;

use self::driver::World;
use crate::bed::Bed;
use crate::random::{given_seed, new_seed};

/// Steps of one run. Eight runs of each store are part of the suite.
const STEPS: u64 = 2_600;
/// For how many seconds `make soak` wants it.
const SOAK_VARIABLE: &str = "HOURHAND_SOAK_SECONDS";

/// One run on a fresh store.
async fn run<B: Bed>(bed: &B, seed: u64, steps: u64) {
    let mut world = World::new(bed, seed).await;
    for step in 0..steps {
        world.step(step).await;
    }
    world.end().await;
}

/// A claim for each seed, so that they run beside each other.
macro_rules! runs {
    ($($claim:ident $seed:literal)+) => {
        $(
            pub(crate) async fn $claim<B: Bed>(bed: B) {
                run(&bed, given_seed().unwrap_or($seed), STEPS).await;
            }
        )+
    };
}

runs! {
    every_step_agrees_with_the_model_1 1
    every_step_agrees_with_the_model_2 2
    every_step_agrees_with_the_model_3 3
    every_step_agrees_with_the_model_4 4
    every_step_agrees_with_the_model_5 5
    every_step_agrees_with_the_model_6 6
    every_step_agrees_with_the_model_7 7
    every_step_agrees_with_the_model_8 8
}

/// New seeds for as long as was asked for.
pub(crate) async fn soak<B: Bed>(store: &str) {
    let seconds = std::env::var(SOAK_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(60.0);
    let (begun, mut steps) = (monotonic(), 0);
    while begun.elapsed().as_secs_f64() < seconds {
        let seed = given_seed().unwrap_or_else(new_seed);
        run(&B::start().await, seed, STEPS).await;
        steps += STEPS;
        #[allow(clippy::print_stdout, reason = "whoever waits for it sees that it goes on")]
        {
            let passed = begun.elapsed().as_secs();
            println!("{store}: seed {seed}: {STEPS} steps agree; {steps} in {passed} s");
        }
    }
}
