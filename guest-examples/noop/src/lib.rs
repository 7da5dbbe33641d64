//! `noop`: decodes its payload and does nothing. What `make bench` measures, so that what is left is the runner's own cost.

use hourhand_sdk::prelude::*;

/// What `hourhand bench` puts into a job: 150 bytes of JSON unless it is told otherwise.
#[derive(Deserialize)]
struct Measured {
    n: u64,
    text: String,
}

#[handler]
fn noop(job: Measured) {
    // Decoding what nobody looks at could be left out by the compiler.
    std::hint::black_box((job.n, job.text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_what_is_measured_and_nothing_else() {
        let host = TestHost::new();
        let run = host.run::<noop>(r#"{"n":7,"text":"abc"}"#);
        assert!(matches!(run.outcome, Outcome::Completed(_)), "{run:?}");
        let run = host.run::<noop>(r#"{"n":7}"#);
        assert!(matches!(run.outcome, Outcome::Failed(Failure::Decode(_))), "{run:?}");
    }
}
