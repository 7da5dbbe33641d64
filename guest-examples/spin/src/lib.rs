//! `spin`: loops for ever.

use hourhand_sdk::prelude::*;

#[handler]
fn spin() {
    let mut turns: u64 = 0;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
