//! `order_close`: closes an order that is still unpaid after its payment deadline.
//!
//! The job names the order in the shop's order service, which the manifest must allow:
//!
//! ```json
//! {"order": "https://shop.example.com/orders/17"}
//! ```
//!
//! It reads the order there, and asks the service to close it under the job's id as idempotency key: however often the job runs, and
//! wherever it was cut off, the order is closed once. Then it enqueues an `order_notify`, which comes into being together with the
//! job's completion.
//!
//! Without a service, the job brings the order as the shop knew it. Then it only decides, and changes nothing:
//!
//! ```json
//! {"id": 17, "state": "unpaid", "pay_by_ms": 1798794000000}
//! ```

mod service;

use std::time::{Duration, SystemTime};

use hourhand_sdk::prelude::*;

/// Why an order is closed.
const UNPAID: &str = "unpaid after its deadline";

/// What the job is about.
#[derive(Deserialize)]
#[serde(untagged)]
enum Job {
    /// Where the order is.
    InService { order: String },
    /// The order itself.
    Told(Order),
}

/// An order, as the shop knows it.
#[derive(Serialize, Deserialize, Clone)]
struct Order {
    id: u64,
    state: State,
    /// When it had to be paid, in milliseconds since 1970. The job's due time if it is not said.
    pay_by_ms: Option<u64>,
    /// The idempotency key of whoever closed it.
    closed_by: Option<String>,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum State {
    Unpaid,
    Paid,
    Closed,
}

/// What is to become of the order, or has become of it.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Decision {
    id: u64,
    decision: Verdict,
    reason: String,
    /// When the handler looked, in microseconds since 1970.
    looked_at_us: u64,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Close,
    Keep,
}

/// For whoever tells the customer.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Notify {
    order_id: u64,
}

#[handler(timeout = "10s", max_attempts = 5)]
fn order_close(ctx: &Context, job: Job) -> Result<Decision, Failure> {
    match job {
        Job::Told(order) => decide(ctx, &order),
        Job::InService { order } => close_in_service(ctx, &order),
    }
}

fn close_in_service(ctx: &Context, url: &str) -> Result<Decision, Failure> {
    let order = service::read(ctx, url)?;
    let mut decision = decide(ctx, &order)?;
    // An attempt before this one may have closed it and not come to its end.
    let mut state = order.state;
    let mut closed_by = order.closed_by;
    if decision.decision == Verdict::Close {
        (state, closed_by) = service::close(ctx, url)?;
    }
    if state == State::Closed && closed_by.as_deref() == Some(ctx.id()) {
        ctx.enqueue("order_notify", &Notify { order_id: order.id }).delay(seconds(1)).send()?;
        (decision.decision, decision.reason) = (Verdict::Close, UNPAID.to_owned());
    } else if decision.decision == Verdict::Close {
        // Somebody was faster: the customer, who paid, or another job.
        let (verdict, reason) = judged(state, true);
        (decision.decision, decision.reason) = (verdict, reason.to_owned());
    }
    Ok(decision)
}

/// Decides from the order and the clock alone.
fn decide(ctx: &Context, order: &Order) -> Result<Decision, Failure> {
    let now = ctx.now();
    let pay_by = match order.pay_by_ms {
        Some(ms) => SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_millis(ms))
            .ok_or_else(|| Failure::decode("pay_by_ms is beyond all time"))?,
        None => ctx.due_at(),
    };
    let (decision, reason) = judged(order.state, now >= pay_by);
    let looked_at_us = now.duration_since(SystemTime::UNIX_EPOCH)?.as_micros().try_into()?;
    Ok(Decision { id: order.id, decision, reason: reason.to_owned(), looked_at_us })
}

fn judged(state: State, overdue: bool) -> (Verdict, &'static str) {
    match state {
        State::Paid => (Verdict::Keep, "paid"),
        State::Closed => (Verdict::Keep, "closed already"),
        State::Unpaid if !overdue => (Verdict::Keep, "not yet past its deadline"),
        State::Unpaid => (Verdict::Close, UNPAID),
    }
}

#[cfg(test)]
mod tests;
