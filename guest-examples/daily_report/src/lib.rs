//! `daily_report`: fans a report out to many small jobs, and closes it when all of them are done.
//!
//! One module with three handlers. A `daily_report` enqueues a `report_part` for each part and one `report_close`, all of them
//! together with its own completion: either the whole report is under way or nothing of it. Each part adds what it found to the state that
//! the three share, together with its completion: it counts once, however often it was tried. The closing job looks whether all have
//! counted, and comes back later if not.
//!
//! ```json
//! {"day": "2026-11-30", "parts": 1000}
//! ```
//!
//! The manifest, `daily_report.toml`:
//!
//! ```toml
//! [allow]
//! enqueue = { kinds = ["report_part", "report_close"], jobs = 1001 }
//! state = "daily_report"
//! ```

use hourhand_sdk::prelude::*;

/// A report to be made.
#[derive(Serialize, Deserialize, Clone)]
struct Report {
    day: String,
    parts: u32,
}

/// One part of it.
#[derive(Serialize, Deserialize)]
struct Part {
    day: String,
    number: u32,
}

/// What one part found.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Found {
    number: u32,
    sales: i64,
}

/// The whole.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Closed {
    day: String,
    parts: i64,
    sales: i64,
}

#[handler(timeout = "30s", max_attempts = 10, backoff = "exp(1s, 1m)")]
fn daily_report(ctx: &Context, report: Report) -> Result<u32, Failure> {
    for number in 0..report.parts {
        if number % 100 == 0 {
            ctx.progress(
                (number * 100 / report.parts) as u8,
                format_args!("part {number} of {}", report.parts),
            );
        }
        ctx.enqueue("report_part", &Part { day: report.day.clone(), number }).send()?;
    }
    ctx.enqueue("report_close", &report).delay(seconds(1)).send()?;
    Ok(report.parts)
}

#[handler(timeout = "30s", max_attempts = 10, backoff = "exp(1s, 1m)")]
fn report_part(ctx: &Context, part: Part) -> Result<Found, Failure> {
    let sales = sales(part.number);
    let of_day = ctx.state().of(&part.day);
    of_day.increment("parts", 1)?;
    of_day.increment("sales", sales)?;
    Ok(Found { number: part.number, sales })
}

#[handler(timeout = "30s", max_attempts = 10, backoff = "exp(1s, 1m)")]
fn report_close(ctx: &Context, report: Report) -> Result<Closed, Failure> {
    let of_day = ctx.state().of(&report.day);
    let parts: i64 = of_day.get("parts")?.unwrap_or(0);
    if parts < report.parts.into() {
        ctx.info(format_args!("{parts} of {} parts are done", report.parts));
        return Err(Failure::snooze(seconds(1)));
    }
    let sales: i64 = of_day.get("sales")?.unwrap_or(0);
    // The next report of the same day begins anew.
    of_day.delete("parts")?;
    of_day.delete("sales")?;
    Ok(Closed { day: report.day, parts, sales })
}

/// What a part finds: in place of a long look into somebody's books.
fn sales(number: u32) -> i64 {
    i64::from(number) * 3 + 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_its_parts_and_a_closing_job() {
        let run = TestHost::new().run::<daily_report>(r#"{"day":"2026-11-30","parts":3}"#);
        let kinds: Vec<&str> = run.enqueued.iter().map(|job| job.kind.as_str()).collect();
        assert_eq!(kinds, ["report_part", "report_part", "report_part", "report_close"]);
        assert_eq!(run.enqueued[2].read::<Part>().number, 2);
        assert_eq!(run.progress[0].percent, 0);
    }

    #[test]
    fn the_parts_count_and_the_close_waits_for_all() {
        let mut host = TestHost::new();
        let close = r#"{"day":"d","parts":2}"#;
        for number in 0..2 {
            let early = host.run::<report_close>(close);
            assert!(matches!(early.outcome, Outcome::Failed(Failure::Snooze(_))), "{early:?}");
            let run = host.run::<report_part>(format!(r#"{{"day":"d","number":{number}}}"#));
            for (key, value) in run.state {
                host = host.state_bytes(key, value);
            }
        }
        let run = host.run::<report_close>(close);
        assert_eq!(run.result::<Closed>(), Closed { day: "d".to_owned(), parts: 2, sales: 17 });
        assert!(run.state.is_empty(), "the next one begins anew");
    }
}
