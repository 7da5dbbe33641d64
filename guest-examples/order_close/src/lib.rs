//! `order_close`: is an order still unpaid after its payment deadline, so that it is to be closed?
//!
//! Decides from the order in its payload and the clock alone. It changes nothing, so running it twice
//! is running it once.
//!
//! ```json
//! {"id": 17, "state": "unpaid", "pay_by_ms": 1798794000000}
//! ```

use std::time::{Duration, SystemTime};

use hourhand_sdk::prelude::*;

/// An order, as the shop knew it when it enqueued the job.
#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    state: State,
    /// When it had to be paid, in milliseconds since 1970. The job's due time if it is not said.
    pay_by_ms: Option<u64>,
}

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum State {
    Unpaid,
    Paid,
    Closed,
}

/// What is to become of the order.
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

#[handler(timeout = "3s", max_attempts = 5)]
fn order_close(ctx: &Context, order: Order) -> Result<Decision, Failure> {
    let now = ctx.now();
    let pay_by = match order.pay_by_ms {
        Some(ms) => SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_millis(ms))
            .ok_or_else(|| Failure::decode("pay_by_ms is beyond all time"))?,
        None => ctx.due_at(),
    };
    let (decision, reason) = decide(order.state, pay_by, now);
    let looked_at_us = now.duration_since(SystemTime::UNIX_EPOCH)?.as_micros().try_into()?;
    Ok(Decision { id: order.id, decision, reason: reason.to_owned(), looked_at_us })
}

fn decide(state: State, pay_by: SystemTime, now: SystemTime) -> (Verdict, &'static str) {
    match state {
        State::Paid => (Verdict::Keep, "paid"),
        State::Closed => (Verdict::Keep, "closed already"),
        State::Unpaid if now < pay_by => (Verdict::Keep, "not yet past its deadline"),
        State::Unpaid => (Verdict::Close, "unpaid after its deadline"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(1_798_794_000_000);

    fn decision(state: State, passed: bool) -> Decision {
        let deadline = SystemTime::UNIX_EPOCH + DEADLINE;
        let second = Duration::from_secs(1);
        let now = if passed { deadline + second } else { deadline - second };
        let pay_by_ms = Some(DEADLINE.as_millis() as u64);
        let order = Order { id: 17, state, pay_by_ms };
        TestHost::new().now(now).enter(|ctx| order_close(ctx, order)).unwrap()
    }

    #[test]
    fn only_an_unpaid_order_past_its_deadline_is_closed() {
        for (state, passed, expected) in [
            (State::Unpaid, true, Verdict::Close),
            (State::Unpaid, false, Verdict::Keep),
            (State::Paid, true, Verdict::Keep),
            (State::Closed, true, Verdict::Keep),
        ] {
            assert_eq!(decision(state, passed).decision, expected, "{state:?}, passed: {passed}");
        }
    }

    #[test]
    fn running_it_twice_is_running_it_once() {
        assert_eq!(decision(State::Unpaid, true), decision(State::Unpaid, true));
    }

    #[test]
    fn the_due_time_is_the_deadline_if_none_is_given() {
        let due = SystemTime::UNIX_EPOCH + DEADLINE;
        let host = TestHost::new().due_at(due).now(due + Duration::from_micros(1_500));
        let decision: Decision = host.run::<order_close>(r#"{"id":1,"state":"unpaid"}"#).result();
        assert_eq!(decision.decision, Verdict::Close);
        assert_eq!(u128::from(decision.looked_at_us), DEADLINE.as_micros() + 1_500);
    }

    #[test]
    fn an_order_of_another_shape_goes_to_the_dead_letters() {
        for payload in ["", "[]", r#"{"id":1}"#, r#"{"id":1,"state":"lost"}"#] {
            let run = TestHost::new().run::<order_close>(payload);
            assert!(matches!(run.outcome, Outcome::Failed(Failure::Decode(_))), "{payload}: {run:?}");
        }
    }
}
