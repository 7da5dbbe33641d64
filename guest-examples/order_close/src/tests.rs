//! Under plain `cargo test`: no runner, no network.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

const DEADLINE: Duration = Duration::from_millis(1_798_794_000_000);
const URL: &str = "https://shop.example.com/orders/17";

fn host(passed: bool) -> TestHost {
    let deadline = SystemTime::UNIX_EPOCH + DEADLINE;
    TestHost::new().id("close-17").now(if passed { deadline + seconds(1) } else { deadline - seconds(1) })
}

fn order(state: State) -> Order {
    Order { id: 17, state, pay_by_ms: Some(DEADLINE.as_millis() as u64), closed_by: None }
}

#[test]
fn only_an_unpaid_order_past_its_deadline_is_to_be_closed() {
    for (state, passed, expected) in [
        (State::Unpaid, true, Verdict::Close),
        (State::Unpaid, false, Verdict::Keep),
        (State::Paid, true, Verdict::Keep),
        (State::Closed, true, Verdict::Keep),
    ] {
        let decision = host(passed).enter(|ctx| order_close(ctx, Job::Told(order(state)))).unwrap();
        assert_eq!(decision.decision, expected, "{state:?}, passed: {passed}");
    }
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
    for payload in ["", "[]", r#"{"id":1}"#, r#"{"id":1,"state":"lost"}"#, r#"{"order":7}"#] {
        let run = TestHost::new().run::<order_close>(payload);
        assert!(matches!(run.outcome, Outcome::Failed(Failure::Decode(_))), "{payload}: {run:?}");
    }
}

/// A service with one order, which is paid at the moment of its closing if `races`.
fn service(state: State, races: bool) -> TestHost {
    let held = Rc::new(RefCell::new((state, None::<String>)));
    host(true).http(move |request| {
        let (state, closed_by) = &mut *held.borrow_mut();
        match (request.method.as_str(), request.url.as_str()) {
            ("GET", URL) => Answer::new(200).json(&Order { closed_by: closed_by.clone(), ..order(*state) }),
            ("POST", "https://shop.example.com/orders/17/close") => {
                if races {
                    *state = State::Paid;
                }
                if *state == State::Unpaid {
                    (*state, *closed_by) =
                        (State::Closed, request.header("idempotency-key").map(str::to_owned));
                }
                let status = if *state == State::Closed { 200 } else { 409 };
                let closed_by = closed_by.as_ref().map_or("null".to_owned(), |key| format!("{key:?}"));
                let state = format!("{state:?}").to_lowercase();
                Answer::new(status).body(format!(r#"{{"state":"{state}","closed_by":{closed_by}}}"#))
            }
            _ => Answer::new(404),
        }
    })
}

fn payload() -> String {
    format!(r#"{{"order":"{URL}"}}"#)
}

#[test]
fn an_unpaid_order_is_closed_under_the_job_s_id_and_the_customer_is_told() {
    let host = service(State::Unpaid, false);
    let run = host.run::<order_close>(payload());
    assert_eq!(run.result::<Decision>().decision, Verdict::Close);
    assert_eq!(run.requests[1].header("idempotency-key"), Some("close-17"));
    assert_eq!(run.enqueued[0].read::<Notify>(), Notify { order_id: 17 });
    // An attempt that was cut off after the closing told nobody: the next one does.
    let again = host.run::<order_close>(payload());
    assert_eq!((again.result::<Decision>().decision, again.enqueued.len()), (Verdict::Close, 1));
    assert_eq!(again.requests.len(), 1, "it asks, and closes nothing");
    // Another job finds it closed.
    let other = host.id("other").run::<order_close>(payload());
    assert_eq!((other.result::<Decision>().reason.as_str(), other.enqueued.len()), ("closed already", 0));
}

#[test]
fn an_order_that_is_paid_is_left_alone_also_at_the_last_moment() {
    for (state, races, requests) in [(State::Paid, false, 1), (State::Unpaid, true, 2)] {
        let run = service(state, races).run::<order_close>(payload());
        let decision: Decision = run.result();
        assert_eq!((decision.decision, decision.reason.as_str()), (Verdict::Keep, "paid"));
        assert_eq!((run.requests.len(), run.enqueued.len()), (requests, 0));
    }
}

#[test]
fn a_service_that_is_down_is_tried_again_and_an_order_that_is_gone_is_not() {
    let down = host(true).http(|_| Answer::new(503)).run::<order_close>(payload());
    assert!(matches!(down.outcome, Outcome::Failed(Failure::Retry { .. })), "{down:?}");
    let gone = host(true).http(|_| Answer::new(404)).run::<order_close>(payload());
    assert!(matches!(gone.outcome, Outcome::Failed(Failure::Permanent(_))), "{gone:?}");
}
