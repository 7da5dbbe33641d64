//! Types that cannot go through. See ../messages.rs.

use hourhand_sdk::prelude::*;

struct Plain;

#[handler]
fn payload(_: Plain) {} //~ a handler cannot take `Plain` as its payload

#[handler]
fn result() -> Plain { //~ a handler cannot return `Plain` as the job's result
    Plain
}

#[handler]
fn fallible() -> Result<Plain, Failure> { //~ a handler cannot return `Plain` as the job's result
    Ok(Plain)
}

#[handler]
fn error() -> Result<(), Plain> { //~ a handler cannot return `Plain` as its error
    Err(Plain)
}

#[handler]
fn sends_nothing_that_is_one(ctx: &Context) {
    let _ = ctx.enqueue("order_notify", Plain).send(); //~ a job cannot have `Plain` as its payload
}

fn main() {}
