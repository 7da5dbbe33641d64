//! What `#[handler]` makes of functions of every shape, run natively.

use std::error::Error;
use std::num::ParseIntError;
use std::time::{Duration, SystemTime};

use hourhand_sdk::Level;
use hourhand_sdk::prelude::*;

fn outcome<H: Handler>(payload: &str) -> Outcome {
    TestHost::new().run::<H>(payload).outcome
}

fn completed(result: &str) -> Outcome {
    Outcome::Completed(result.as_bytes().to_vec())
}

fn retry(message: &str) -> Outcome {
    Outcome::Failed(Failure::retry(message))
}

/// Names that the generated code might want for itself, in a type and in functions.
mod names {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Value {
        value: u64,
    }

    #[handler]
    fn payload(payload: Value) -> Value {
        payload
    }

    #[handler]
    fn ctx(ctx: &Context, value: Value) -> String {
        format!("{} {}", ctx.id(), value.value)
    }

    #[handler]
    fn register() -> u8 {
        1
    }

    #[handler(kind = "other-kind.1")]
    fn returned() -> u8 {
        2
    }

    #[handler]
    fn r#match() -> u8 {
        3
    }

    #[test]
    fn a_handler_may_have_any_name() {
        assert_eq!(outcome::<payload>(r#"{"value":7}"#), completed(r#"{"value":7}"#));
        assert_eq!(outcome::<ctx>(r#"{"value":7}"#), completed(r#""test 7""#));
        assert_eq!(outcome::<register>(""), completed("1"));
        assert_eq!((returned::KIND, outcome::<returned>("")), ("other-kind.1", completed("2")));
        assert_eq!((r#match::KIND, outcome::<r#match>("")), ("match", completed("3")));
    }

    #[test]
    fn a_handler_may_be_inside_a_function() {
        #[handler]
        fn inside() -> u8 {
            4
        }
        assert_eq!(outcome::<inside>(""), completed("4"));
    }
}

mod payloads {
    use super::*;

    type Bytes = Vec<u8>;

    #[derive(Deserialize)]
    struct Lent<'a> {
        name: &'a str,
    }

    #[handler]
    fn owned(bytes: Bytes) -> usize {
        bytes.len()
    }

    #[handler]
    fn slice(bytes: &[u8]) -> usize {
        bytes.len()
    }

    #[handler]
    fn raw(Raw(bytes): Raw) -> usize {
        bytes.len()
    }

    #[handler]
    fn lent(Lent { name }: Lent<'_>) -> usize {
        name.len()
    }

    #[handler]
    fn optional(number: Option<u8>) -> u8 {
        number.unwrap_or(9)
    }

    #[handler]
    fn required(number: u8) -> u8 {
        number
    }

    #[handler]
    fn none(_: &Context) {}

    #[test]
    fn bytes_come_as_they_are() {
        for payload in ["", "null", "[1]", "\r\n\u{0}"] {
            let len = completed(&payload.len().to_string());
            assert_eq!(outcome::<owned>(payload), len);
            assert_eq!(outcome::<slice>(payload), len);
            assert_eq!(outcome::<raw>(payload), len);
        }
    }

    #[test]
    fn values_are_read_from_json_and_may_borrow_from_it() {
        assert_eq!(outcome::<lent>(r#"{"name":"Zoë"}"#), completed("4"));
        assert_eq!(outcome::<required>(" 7\n"), completed("7"));
        assert_eq!(outcome::<none>("not even JSON"), completed(""));
    }

    #[test]
    fn an_empty_payload_reads_as_null() {
        assert_eq!(outcome::<optional>(""), completed("9"));
        assert_eq!(outcome::<optional>("null"), completed("9"));
        let Outcome::Failed(Failure::Decode(message)) = outcome::<required>("") else { panic!() };
        assert!(message.contains("the payload is empty"), "{message}");
    }

    #[test]
    fn what_does_not_decode_says_why() {
        for payload in ["256", "-1", "1 2", "{", "\u{feff}1"] {
            let Outcome::Failed(Failure::Decode(message)) = outcome::<required>(payload) else { panic!() };
            assert!(message.contains("line 1 column"), "{payload}: {message}");
        }
    }
}

mod results {
    use super::*;

    type Answer<T> = std::result::Result<T, ParseIntError>;

    #[derive(Serialize)]
    struct Done;

    #[handler]
    fn unit_struct() -> Done {
        Done
    }

    #[handler]
    fn nothing(_: u8) -> Option<u8> {
        None
    }

    #[handler]
    fn alias(text: String) -> Answer<Vec<u8>> {
        Ok(vec![text.parse()?])
    }

    #[handler]
    fn text_error() -> Result<(), String> {
        Err("a text".to_owned())
    }

    #[handler]
    fn boxed_error() -> Result<(), Box<dyn Error + Send + Sync>> {
        Err("a box".into())
    }

    #[handler]
    fn unwritable() -> std::collections::BTreeMap<(u8, u8), u8> {
        [((1, 2), 3)].into()
    }

    #[handler]
    fn lent(bytes: &[u8]) -> &[u8] {
        &bytes[1..]
    }

    #[test]
    fn values_become_json_and_bytes_stay_bytes() {
        assert_eq!(outcome::<alias>(r#""65""#), completed("A"));
        assert_eq!(outcome::<lent>("xyz"), completed("yz"));
        assert_eq!(outcome::<nothing>("1"), completed("null"));
    }

    #[test]
    fn units_are_no_result() {
        assert_eq!(outcome::<unit_struct>(""), completed(""));
        assert_eq!(outcome::<super::payloads_none>(""), completed(""));
    }

    #[test]
    fn any_error_is_a_retry() {
        assert_eq!(outcome::<alias>(r#""x""#), retry("invalid digit found in string"));
        assert_eq!(outcome::<text_error>(""), retry("a text"));
        assert_eq!(outcome::<boxed_error>(""), retry("a box"));
    }

    #[test]
    fn a_result_that_cannot_be_written_is_permanent() {
        let Outcome::Failed(Failure::Permanent(message)) = outcome::<unwritable>("") else { panic!() };
        assert!(message.starts_with("the result cannot be written as JSON"), "{message}");
    }
}

#[handler]
fn payloads_none() {}

mod host {
    use super::*;

    #[handler]
    fn tells(ctx: &Context) -> Vec<String> {
        ctx.warn("told");
        hourhand_sdk::log::debug(format_args!("{} of {}", ctx.attempt(), ctx.max_attempts()));
        let meta = ctx.meta_all().map(|(key, value)| format!("{key}={value}"));
        [ctx.id(), ctx.kind(), ctx.queue(), ctx.traceparent().unwrap_or("none")]
            .map(str::to_owned)
            .into_iter()
            .chain(meta)
            .collect()
    }

    #[handler]
    fn times(ctx: &Context) -> (bool, u64, u64) {
        let late = ctx.now().duration_since(ctx.due_at()).unwrap();
        assert_eq!(ctx.enqueued_at(), ctx.due_at());
        (ctx.is_last_attempt(), late.as_secs(), ctx.remaining().as_secs())
    }

    #[handler]
    fn panics(ctx: &Context) {
        ctx.info("before");
        panic!("bad id {}", 7);
    }

    #[test]
    fn the_host_is_what_the_test_says() {
        let host = TestHost::new().id("7").queue("slow").attempt(2).max_attempts(3).traceparent("00-1");
        let run = host.meta("k", "1").meta("k", "2").run::<tells>("");
        assert_eq!(run.result::<Vec<String>>(), ["7", "tells", "slow", "00-1", "k=1", "k=2"]);
        let logs: Vec<_> = run.logs.iter().map(|line| (line.level, line.message.as_str())).collect();
        assert_eq!(logs, [(Level::Warn, "told"), (Level::Debug, "2 of 3")]);
        assert_eq!(
            TestHost::new().run::<tells>("").result::<Vec<String>>(),
            ["test", "tells", "tells", "none"]
        );
        TestHost::new().meta("k", "1").meta("k", "2").enter(|ctx| assert_eq!(ctx.meta("k"), Some("2")));
    }

    #[test]
    fn the_clock_stands_where_the_test_set_it() {
        let due = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let host = TestHost::new().due_at(due).now(due + seconds(90)).timeout(minutes(2)).max_attempts(1);
        assert_eq!(host.run::<times>("").result::<(bool, u64, u64)>(), (true, 90, 120));
    }

    #[test]
    fn a_panic_is_caught_and_the_next_run_knows_nothing_of_it() {
        let run = TestHost::new().run::<panics>("");
        assert_eq!(run.outcome, Outcome::Panicked("bad id 7".to_owned()));
        assert_eq!(run.logs.len(), 1);
        hourhand_sdk::log::info("to nobody");
        assert_eq!(TestHost::new().run::<payloads_none>("").logs, []);
    }
}
