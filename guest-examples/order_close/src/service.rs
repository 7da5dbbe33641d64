//! The shop's order service, as far as closing orders needs it.
//!
//! `GET /orders/17` is the order. `POST /orders/17/close` closes it if it is unpaid, and answers with the order as it is then and the key
//! under which it was closed: to repeat a request under the same key is to ask what became of it.

use hourhand_sdk::http::HttpError;
use hourhand_sdk::prelude::*;

use crate::{Order, State};

#[derive(Deserialize)]
struct Answer {
    state: State,
    closed_by: Option<String>,
}

/// Reads the order.
pub(crate) fn read(ctx: &Context, url: &str) -> Result<Order, Failure> {
    let response = ctx.http().get(url).timeout(seconds(3)).send()?;
    if response.status() == 404 {
        return Err(Failure::permanent(format_args!("there is no order at {url}")));
    }
    Ok(response.error_for_status()?.json()?)
}

/// Closes the order, unless it was paid meanwhile. Safe to repeat. What state it is in then, and who closed it.
pub(crate) fn close(ctx: &Context, url: &str) -> Result<(State, Option<String>), Failure> {
    let request = ctx.http().post(format!("{url}/close")).header("idempotency-key", ctx.id());
    let response = request.timeout(seconds(3)).send()?;
    // 409 is an answer too: it is not unpaid any more.
    if response.status() != 409 && !response.is_success() {
        let error = response.error_for_status().err();
        return Err(error.unwrap_or_else(|| HttpError::Response("a redirect".to_owned())).into());
    }
    let answer: Answer = response.json()?;
    Ok((answer.state, answer.closed_by))
}
