//! A job that was described and not sent. See ../messages.rs.

#![deny(unused_must_use)]

use hourhand_sdk::prelude::*;

#[handler]
fn forgets(ctx: &Context) {
    ctx.enqueue("order_notify", &7).delay(minutes(5)); //~ unused `Enqueue` that must be used
}

fn main() {}
