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

mod reach {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Note {
        to: String,
    }

    #[handler]
    fn does_everything(ctx: &Context, fails: bool) -> Result<i64, Failure> {
        ctx.progress(101, format_args!("{} of {}", 1, 2));
        let state = ctx.state();
        state.of("a/b").of("50%").set("last", &Note { to: "Ada".to_owned() })?;
        state.set_bytes("raw", [1, 2])?;
        state.delete("old")?;
        let at = SystemTime::UNIX_EPOCH + seconds(9);
        ctx.enqueue("note", &Note { to: "Bob".to_owned() }).at(at).id("n-1").queue("q").send()?;
        let id =
            ctx.enqueue("empty", ()).priority(Priority::High).max_attempts(2).timeout(seconds(3)).send()?;
        ctx.enqueue("raw", Raw(vec![0xff])).meta("after", id).send()?;
        if fails { Err(Failure::retry("no")) } else { Ok(state.increment("n", 2)?) }
    }

    #[test]
    fn what_a_handler_did_is_there_after_it() {
        let host = TestHost::new().state("n", &40).state("old", "x");
        let run = host.run::<does_everything>("false");
        assert_eq!(run.result::<i64>(), 42);
        assert_eq!((run.progress[0].percent, run.progress[0].message.as_str()), (100, "1 of 2"));
        let keys: Vec<&str> = run.state.keys().map(String::as_str).collect();
        assert_eq!(keys, ["a%2Fb/50%25/last", "n", "raw"]);
        assert_eq!(run.state_value::<Note>("a%2Fb/50%25/last"), Some(Note { to: "Ada".to_owned() }));
        assert_eq!((&run.state["raw"][..], run.state_value::<u8>("old")), (&[1, 2][..], None));
        let [note, empty, raw] = &run.enqueued[..] else { panic!("{:?}", run.enqueued) };
        assert_eq!((note.id.as_str(), note.queue.as_str(), note.kind.as_str()), ("n-1", "q", "note"));
        assert_eq!(
            (note.read::<Note>().to, note.due),
            ("Bob".to_owned(), Due::At(SystemTime::UNIX_EPOCH + seconds(9)))
        );
        assert_eq!((empty.payload.len(), empty.priority, empty.queue.as_str()), (0, Priority::High, "empty"));
        assert_eq!((empty.max_attempts, empty.timeout), (Some(2), Some(seconds(3))));
        assert_eq!(
            (&raw.payload[..], &raw.meta[0].1, raw.due),
            (&[0xff][..], &empty.id, Due::In(Duration::ZERO))
        );
    }

    #[test]
    fn what_failed_is_as_if_it_had_not_been() {
        let run = TestHost::new().state("n", &40).run::<does_everything>("true");
        assert_eq!(run.outcome, Outcome::Failed(Failure::retry("no")));
        assert_eq!((run.enqueued.len(), run.state.len(), run.state_value::<u8>("n")), (0, 1, Some(40)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_as_a_runner_would() {
        TestHost::new().state("text", "x").state("n", &i64::MAX).enter(|ctx| {
            let state = ctx.state();
            let long = "x".repeat(257);
            for refused in [
                ctx.enqueue("no name", ()).send().unwrap_err(),
                ctx.enqueue("k", ()).queue("").send().unwrap_err(),
                ctx.enqueue("k", ()).id(" x").send().unwrap_err(),
                ctx.enqueue("k", ()).max_attempts(0).send().unwrap_err(),
                ctx.enqueue("k", Raw(vec![0; (1 << 20) + 1])).send().unwrap_err(),
                ctx.enqueue("k", ()).meta("k", "x".repeat(4096)).send().unwrap_err(),
                state.get::<u8>("").unwrap_err(),
                state.get::<u8>("text").unwrap_err(),
                state.set(&long, &1).unwrap_err(),
                state.increment("text", 1).unwrap_err(),
                state.increment("n", 1).unwrap_err(),
            ] {
                assert!(matches!(refused, Refused::Invalid(_)), "{refused:?}");
            }
            let large = state.set_bytes("k", vec![0; (64 << 10) + 1]).unwrap_err();
            assert!(matches!(large, Refused::Limit(_)), "{large:?}");
        });
    }

    #[test]
    fn without_a_host_nothing_is_there() {
        let ctx = TestHost::new().enter(Context::clone);
        assert!(!ctx.is_cancelled());
        ctx.progress(1, "to nobody");
        for refused in [
            ctx.enqueue("k", ()).send().unwrap_err(),
            ctx.secret("s").unwrap_err(),
            ctx.state().get::<u8>("k").unwrap_err(),
        ] {
            assert!(matches!(refused, Refused::Unavailable(_)), "{refused:?}");
        }
    }
}
