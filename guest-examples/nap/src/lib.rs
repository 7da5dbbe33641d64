//! `nap`: sleeps `{"ms": n}` and tells when it began and ended.

use std::time::{Duration, SystemTime};

use hourhand_sdk::prelude::*;

#[derive(Deserialize)]
struct Nap {
    ms: u64,
}

#[derive(Serialize)]
struct Napped {
    // In microseconds since 1970.
    began_us: u64,
    ended_us: u64,
}

#[handler(timeout = "1h")]
fn nap(ctx: &Context, nap: Nap) -> Napped {
    let began_us = micros(ctx.now());
    ctx.info(format_args!("id {} attempt {} naps {} ms at {began_us}", ctx.id(), ctx.attempt(), nap.ms));
    std::thread::sleep(Duration::from_millis(nap.ms));
    Napped { began_us, ended_us: micros(ctx.now()) }
}

fn micros(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros().try_into().unwrap_or(u64::MAX)
}
