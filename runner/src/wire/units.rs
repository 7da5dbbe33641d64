//! Durations, sizes and instants as people write them.
//!
//! A duration is numbers with units, the largest first, each unit once: `3s`, `500ms`, `1h30m`, `1.5h`.
//! Units are `y` (365.25 days), `w`, `d`, `h`, `m`, `s`, `ms`. A size is one number with a unit: `64MiB`,
//! `1.5GiB`, `10MB`. Only `0` may stand without a unit. An instant is RFC 3339 with its offset. All
//! arithmetic is on checked integers, so that no input overflows, rounds or becomes negative.

use crate::job::DELAY_MS_MAX;

/// Units of durations, the largest first, in milliseconds.
const DURATION_UNITS: [(&str, u64); 7] = [
    ("y", 31_557_600_000),
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// What a date is that nobody can write.
const BEYOND: &str = "beyond all calendars";

/// Units of sizes, in bytes.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A duration in milliseconds.
///
/// # Errors
/// A message that says what was expected, what came and, where it can be guessed, what to write.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let fail =
        |hint: &str| Err(format!("expected a duration such as 500ms, 3s or 1h30m, got {text:?}{hint}"));
    if text == "0" {
        return Ok(0);
    }
    if text.starts_with('-') {
        return fail(": it cannot be negative");
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return fail(&format!(": it needs a unit, as in {text}s or {text}ms"));
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = DURATION_UNITS.as_slice();
    while !rest.is_empty() {
        let Some((number, after)) = split_number(rest) else { return fail("") };
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, tail) = after.split_at(end);
        let Some(at) = units.iter().position(|(name, _)| *name == unit) else {
            let known = DURATION_UNITS.iter().any(|(name, _)| *name == unit);
            return fail(if known {
                ": larger units come first, each once"
            } else {
                ": units are y w d h m s ms"
            });
        };
        let ms = match number.times(units[at].1) {
            Ok(ms) => ms,
            Err(Unfit::TooFine) => return fail(": it is finer than a millisecond"),
            Err(Unfit::TooLarge) => return fail(": it is too long"),
        };
        let Some(sum) = total.checked_add(ms) else { return fail(": it is too long") };
        total = sum;
        units = &units[at + 1..];
        rest = tail;
    }
    if text.is_empty() { fail("") } else { Ok(total) }
}

/// A size in bytes.
///
/// # Errors
/// A message that says what was expected, what came and, where it can be guessed, what to write.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let fail = |hint: &str| Err(format!("expected a size such as 512KiB, 64MiB or 2GiB, got {text:?}{hint}"));
    if text == "0" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return fail(&format!(": it needs a unit, as in {text}B or {text}MiB"));
    }
    let Some((number, unit)) = split_number(text) else { return fail("") };
    let Some((_, bytes)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        return fail(": units are B KiB MiB GiB TiB KB MB GB TB");
    };
    match number.times(*bytes) {
        Ok(bytes) => Ok(bytes),
        Err(Unfit::TooFine) => fail(": it is not a whole number of bytes"),
        Err(Unfit::TooLarge) => fail(": it is too large"),
    }
}

/// How long a job is to wait, in milliseconds. `now_ms` (since 1970) serves the message alone: it shows
/// the date that a mistaken unit would have led to.
///
/// # Errors
/// When it is no duration, negative, or over 100 years.
pub fn delay_ms(text: &str, now_ms: u64) -> Result<u64, String> {
    let too_far = |ms: Option<u64>| {
        let date = ms.and_then(|ms| now_ms.checked_add(ms)).and_then(date_of);
        let date = date.unwrap_or_else(|| BEYOND.to_owned());
        format!("expected a delay of at most 100 years, got {text:?}: that is {date}")
    };
    match duration_ms(text) {
        Ok(ms) if ms > DELAY_MS_MAX => Err(too_far(Some(ms))),
        Ok(ms) => Ok(ms),
        // Too long for the exact numbers, or written with an exponent.
        Err(message) => match rough_ms(text) {
            Some(ms) if ms > DELAY_MS_MAX as f64 => Err(too_far((ms < 1e18).then_some(ms as u64))),
            _ => Err(message),
        },
    }
}

/// Roughly the milliseconds of a number with one unit that [`duration_ms`] refuses, for a message.
fn rough_ms(text: &str) -> Option<f64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, unit) = DURATION_UNITS.iter().find(|(name, _)| *name == &text[number.len()..])?;
    number.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+')).then_some(())?;
    Some(number.parse::<f64>().ok()? * *unit as f64)
}

/// An instant at which a job is to start, in milliseconds since 1970, rounded up. One in the past (from
/// 1970 on) is fine and means now.
///
/// # Errors
/// When it is not RFC 3339 with an offset, before 1970, or over 100 years after `now_ms`.
pub fn due_instant_ms(text: &str, now_ms: u64) -> Result<u64, String> {
    let too_far =
        |date: &str| format!("expected an instant at most 100 years ahead, got {text:?}: that is {date}");
    if is_beyond(text) {
        return Err(too_far(BEYOND));
    }
    let ms = instant_ms(text)?;
    if ms > now_ms.saturating_add(DELAY_MS_MAX) {
        return Err(too_far(&date_of(ms).unwrap_or_else(|| BEYOND.to_owned())));
    }
    Ok(ms)
}

/// True for a date that has the form of an instant and is behind all that can be reckoned with.
fn is_beyond(text: &str) -> bool {
    let year_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (date, rest) = text.split_at(year_digits);
    match year_digits {
        4 if date == "9999" => {
            // The last hours of the last year may lie outside in one offset and inside in another.
            let plain = text.trim_end_matches(['Z', 'z']);
            let plain = match plain.rfind(['+', '-']) {
                Some(at) if at > 10 => &plain[..at],
                _ => plain,
            };
            text.parse::<jiff::Timestamp>().is_err()
                && plain.len() < text.len()
                && plain.parse::<jiff::civil::DateTime>().is_ok()
        }
        5.. => rest.starts_with('-') && rest.contains(['T', 't', ' ']),
        _ => false,
    }
}

/// True when the seconds of an instant are a leap second. No clock here knows those, and none of its
/// neighbours is what was asked for.
fn is_leap_second(text: &str) -> bool {
    let Some((_, time)) = text.split_once(['T', 't', ' ']) else { return false };
    let digits: String =
        time.chars().filter(|c| *c != ':').take_while(char::is_ascii_digit).skip(4).take(2).collect();
    digits == "60"
}

/// An instant in milliseconds since 1970, rounded up.
///
/// # Errors
/// When it is not RFC 3339 with an offset, or before 1970.
pub fn instant_ms(text: &str) -> Result<u64, String> {
    let fail =
        |hint: &str| Err(format!("expected an instant such as 2026-12-01T09:00:00Z, got {text:?}{hint}"));
    if let Some(hint) = epoch_hint(text) {
        return fail(&hint);
    }
    if is_leap_second(text) {
        return fail(": it is a leap second: write the second before or after it");
    }
    // Temporal's annotations (`...Z[Europe/Paris]`) are beyond RFC 3339.
    if !text.contains('[')
        && let Ok(stamp) = text.parse::<jiff::Timestamp>()
    {
        let ns = stamp.as_nanosecond();
        if ns < 0 {
            return fail(": it is before 1970");
        }
        return Ok(u64::try_from((ns + 999_999) / 1_000_000).unwrap_or(u64::MAX));
    }
    if text.parse::<jiff::civil::DateTime>().is_ok() {
        return fail(": it needs an offset, Z for UTC or as in +02:00");
    }
    fail("")
}

/// `ms` since 1970 as RFC 3339 in UTC with milliseconds. `None` after the year 9999.
pub fn date_of(ms: u64) -> Option<String> {
    let stamp = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
    Some(format!("{stamp:.3}"))
}

/// As [`date_of`], for times that come from a store and are always in range: what is not is shown as
/// the last instant that can be written.
pub fn rfc3339(ms: u64) -> String {
    date_of(ms).unwrap_or_else(|| "9999-12-31T23:59:59.999Z".to_owned())
}

/// What a bare number would mean, for the message that refuses it.
fn epoch_hint(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['-', '+', '@']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = text.strip_prefix(['+', '@']).unwrap_or(text).parse::<u64>().ok()?;
    let (unit, ms) = if seconds < 100_000_000_000 {
        ("seconds", seconds.saturating_mul(1_000))
    } else {
        ("milliseconds", seconds)
    };
    Some(match date_of(ms) {
        Some(date) => format!(": if these are {unit} since 1970, write {date}"),
        None => ": a number is no date".to_owned(),
    })
}

/// A decimal number: its digits without the point, and how many of them are after it.
struct Decimal {
    digits: u128,
    places: u32,
}

enum Unfit {
    TooFine,
    TooLarge,
}

impl Decimal {
    /// The exact product, when it is a whole number that fits.
    fn times(&self, unit: u64) -> Result<u64, Unfit> {
        let product = self.digits.checked_mul(u128::from(unit)).ok_or(Unfit::TooLarge)?;
        let scale = 10u128.pow(self.places);
        if product % scale != 0 {
            return Err(Unfit::TooFine);
        }
        u64::try_from(product / scale).map_err(|_| Unfit::TooLarge)
    }
}

/// The number at the start of `text` (`12`, `1.5`), and the rest. At most 18 digits, so that nothing
/// that is built on it overflows.
fn split_number(text: &str) -> Option<(Decimal, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (whole, part) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    if whole.is_empty() || whole.len() + part.len() > 18 || part.contains('.') {
        return None;
    }
    let digits = format!("{whole}{part}").parse().ok()?;
    Some((Decimal { digits, places: part.len() as u32 }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    #[test]
    fn durations_are_exact() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("3s", 3_000),
            ("500ms", 500),
            ("30m", 1_800_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1.5h", 5_400_000),
            ("0.001s", 1),
            ("2147483648ms", 2_147_483_648),
            ("4294972296ms", 4_294_972_296),
            ("1w", 604_800_000),
            ("10y", 315_576_000_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        for (text, hint) in [
            ("", "expected a duration"),
            ("5", "it needs a unit, as in 5s"),
            ("-1s", "negative"),
            ("-0.5s", "negative"),
            ("NaN", "expected"),
            ("inf", "expected"),
            ("Infinity", "expected"),
            ("1e3", "units are"),
            ("1e18s", "units are"),
            ("1.s", "expected"),
            (".5s", "expected"),
            ("1.2.3s", "expected"),
            ("1 s", "units are"),
            ("+1s", "expected"),
            ("1m1h", "larger units come first"),
            ("1s1s", "larger units come first"),
            ("1H", "units are"),
            ("0.5ms", "finer than a millisecond"),
            ("99999999999999999y", "too long"),
            ("9999999999999999999s", "expected"),
            ("١s", "expected"),
            ("3s\n", "expected"),
        ] {
            let message = duration_ms(text).expect_err(text);
            assert!(message.contains(hint), "{text:?}: {message}");
        }
    }

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("1B", 1),
            ("64MiB", 64 << 20),
            ("1.5GiB", 1_610_612_736),
            ("10MB", 10_000_000),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "64", "64Mb", "-1B", "0.3B", "1e3B", "99999999999TiB", "MiB", "1MiB1KiB"] {
            assert!(size_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_delay_beyond_the_horizon_names_the_date() {
        assert_eq!(delay_ms("100y", NOW), Ok(DELAY_MS_MAX));
        let message = delay_ms("36526d", NOW).expect_err("over 100 years");
        assert!(message.contains("100 years") && message.contains("2126-"), "{message}");
        assert!(delay_ms("99999999y", NOW).expect_err("too far").contains("beyond all calendars"));
        for text in ["1e18s", "1E300y", "99999999999999999y", "9999999999999999999s", "1e999d"] {
            let message = delay_ms(text, NOW).expect_err(text);
            assert!(message.contains("100 years") && message.contains("beyond all calendars"), "{message}");
        }
        assert!(delay_ms("1e10s", NOW).expect_err("exponent").contains("2343-"), "the date of it");
        for text in ["1e3s", "infs", "NaNs", "1e18", "-1e18s"] {
            assert!(delay_ms(text, NOW).expect_err(text).contains("expected a duration"), "{text}");
        }
    }

    #[test]
    fn instants_are_rfc_3339_with_an_offset() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-12-01T09:00:00Z", 1_796_115_600_000),
            ("2026-12-01T10:00:00+01:00", 1_796_115_600_000),
            ("2026-12-01t09:00:00.0005z", 1_796_115_600_001),
        ] {
            assert_eq!(due_instant_ms(text, NOW), Ok(ms), "{text}");
        }
        for (text, hint) in [
            ("1969-12-31T23:59:59Z", "before 1970"),
            ("0001-01-01T00:00:00Z", "before 1970"),
            ("2026-12-01T09:00:00", "needs an offset"),
            ("2026-12-01", "needs an offset"),
            ("2026-12-01T09:00:00Z[Europe/Paris]", "expected an instant"),
            ("2026-02-30T09:00:00Z", "expected an instant"),
            ("tomorrow", "expected an instant"),
            ("", "expected an instant"),
            ("1772323200000", "2026-03-01T00:00:00.000Z"),
            ("1772323200", "2026-03-01T00:00:00.000Z"),
            ("1000000000000000000", "a number is no date"),
            ("2200-01-01T00:00:00Z", "2200-01-01T00:00:00.000Z"),
            ("9998-12-31T23:59:59Z", "9998-12-31T23:59:59.000Z"),
            (
                "9999-12-31T23:59:59Z",
                "100 years ahead, got \"9999-12-31T23:59:59Z\": that is beyond all calendars",
            ),
            ("9999-12-31T23:59:59.5-12:00", "beyond all calendars"),
            ("10000-01-01T00:00:00Z", "beyond all calendars"),
            ("9999-13-31T23:59:59Z", "expected an instant such as"),
            ("9999-12-31T23:59:59", "needs an offset"),
            ("2026-12-31T23:59:60Z", "a leap second"),
            ("2026-12-31t23:59:60.5+01:00", "a leap second"),
            ("2026-12-31T23:59:61Z", "expected an instant"),
            ("1e18", "expected an instant"),
        ] {
            let message = due_instant_ms(text, NOW).expect_err(text);
            assert!(message.contains(hint), "{text:?}: {message}");
        }
    }

    #[test]
    fn times_are_printed_in_utc_with_milliseconds() {
        assert_eq!(rfc3339(1_796_115_600_007), "2026-12-01T09:00:00.007Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
