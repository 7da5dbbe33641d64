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

fn main() {}
