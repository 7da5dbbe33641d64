//! `ledger`: writes down each of its runs where no store has a hand in it: a file of the folder `/ledger`, which is there before the
//! job does anything, and says afterwards how it ended. So a test counts runs of which no outcome ever came to the store.
//!
//! The file's name is `<key>~<attempt>~<runner>~<microseconds since 1970>~<16 random bytes>~<job id>`, and its content
//! `done`, `fails` or `dies` with the microseconds at the end; nothing while it runs, or when it was killed.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime};

use hourhand_sdk::prelude::*;

#[derive(Deserialize)]
struct Work {
    /// The test's own name for the job.
    key: String,
    /// How long it takes, in milliseconds.
    #[serde(default)]
    ms: u64,
    /// It computes all the while, and does not sleep.
    #[serde(default)]
    spin: bool,
    /// Attempts up to this one fail, to be tried again.
    #[serde(default)]
    fails: u32,
    /// Then it fails for good.
    #[serde(default)]
    dies: bool,
    /// Enqueues another job, whose key ends in `+`.
    #[serde(default)]
    child: bool,
}

#[derive(Serialize)]
struct Worked {
    key: String,
    nonce: String,
}

/// What a child is told.
#[derive(Serialize)]
struct Child {
    key: String,
    ms: u64,
}

#[handler(timeout = "60s")]
fn ledger(ctx: &Context, work: Work) -> Result<Worked, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let nonce = bytes.iter().fold(String::with_capacity(32), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    });
    let runner = std::env::var("LEDGER_RUNNER").unwrap_or_default();
    let name = format!("{}~{}~{runner}~{}~{nonce}~{}", work.key, ctx.attempt(), micros(ctx)?, ctx.id());
    let mut record = File::create_new(format!("/ledger/{name}"))?;
    let (began, span) = (Instant::now(), Duration::from_millis(work.ms));
    if work.spin {
        while began.elapsed() < span {}
    } else {
        std::thread::sleep(span);
    }
    let how = match () {
        () if ctx.attempt() <= work.fails => "fails",
        () if work.dies => "dies",
        () => "done",
    };
    if how == "done" && work.child {
        let child = Child { key: format!("{}+", work.key), ms: work.ms / 2 };
        ctx.enqueue("ledger", &child).queue(ctx.queue()).send()?;
    }
    record.write_all(format!("{how} {}", micros(ctx)?).as_bytes())?;
    match how {
        "fails" => Err(Failure::retry("as planned")),
        "dies" => Err(Failure::permanent("as planned")),
        _ => Ok(Worked { key: work.key, nonce }),
    }
}

fn micros(ctx: &Context) -> Result<u128, Failure> {
    Ok(ctx.now().duration_since(SystemTime::UNIX_EPOCH)?.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_folder_nothing_is_done() {
        let run = TestHost::new().run::<ledger>(r#"{"key":"a","child":true}"#);
        assert!(matches!(run.outcome, Outcome::Failed(Failure::Retry { .. })) && run.enqueued.is_empty());
    }
}
