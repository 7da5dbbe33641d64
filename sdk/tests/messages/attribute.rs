//! What is wrong with the attribute or the function's head. See ../messages.rs.

use hourhand_sdk::prelude::*;

#[handler(timeout = "abc", retries = 3)] //~ "abc" is no span of time //~ unknown setting `retries`
fn bad_settings() {}

#[handler(timeout = "25h", max_attempts = 0)] //~ timeout is a span from 1ms to 24h //~ from 1 to 1000
fn out_of_bounds() {}

#[handler(backoff = "linear")] //~ backoff is "exp(15s, 1h)"
fn bad_backoff() {}

#[handler(keep_results)] //~ `keep_results` wants a value
fn no_value() {}

#[handler(kind = "a b")] //~ invalid name "a b"
fn bad_kind() {}

#[handler]
fn größe() {} //~ say it with kind = "..."

#[handler]
async fn asynchronous() {} //~ a handler cannot be async

#[handler]
fn generic<T>(_: T) {} //~ a handler cannot be generic

#[handler]
fn wrong_order(_: u8, _: &Context) {} //~ the context comes first

#[handler]
fn by_value(_: Context) {} //~ the context is taken as `&Context`

#[handler]
fn exclusive(_: &mut Context) {} //~ the context is taken as `&Context`

#[handler]
fn two_payloads(_: &Context, _: u8, _: u8) {} //~ a `&Context` and one payload at most

#[handler]
fn lent(_: &str) {} //~ only bytes can be lent

#[handler]
struct NoFunction; //~ #[handler] goes on a function

#[handler]
unsafe fn dangerous() {} //~ a handler cannot be unsafe

fn main() {}
