//! The one form of date that HTTP asks for: `Sun, 06 Nov 1994 08:49:37 GMT`.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Reads a date; `None` for anything else, and for what is before 1970.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let mut words = text.split_once(", ")?.1.split(' ');
    let mut next = || words.next();
    let day = number(next()?, 1, 31)?;
    let month = next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year = number(next()?, 1970, 9999)?;
    let mut time = next()?.split(':');
    let hour = number(time.next()?, 0, 23)?;
    let minute = number(time.next()?, 0, 59)?;
    let second = number(time.next()?, 0, 60)?;
    if next()? != "GMT" || time.next().is_some() || words.next().is_some() {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

fn number(digits: &str, min: u64, max: u64) -> Option<u64> {
    let value = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    (min..=max).contains(&value).then_some(value)
}

/// Days from 1970 to a day of the Gregorian calendar. Years begin in March here, so that a leap day is the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn dates_are_read_and_other_texts_are_none() {
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 29 Feb 2024 23:59:59 GMT"), Some(1_709_251_199));
        for text in [
            "",
            "0",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
