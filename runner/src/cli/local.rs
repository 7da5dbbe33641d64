//! Handlers on one's own machine: build a project, load what it makes as a runner would, and run jobs on it
//! without a store.

pub(super) mod answers;
pub(super) mod content;
pub(super) mod project;
pub(super) mod report;
pub(super) mod stage;
pub(super) mod state;
pub(super) mod trial;

/// `text` on one line of at most `max` characters, for people.
pub(super) fn brief(text: &str, max: usize) -> String {
    let text = super::output::plain(text);
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.chars().count()),
        None => text,
    }
}

/// A span of milliseconds as people write it: `250ms`, `15s`, `1h30m`.
pub(super) fn span(ms: u64) -> String {
    let mut rest = ms;
    let mut text = String::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0ms".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_back() {
        for (ms, text) in
            [(0, "0ms"), (250, "250ms"), (15_000, "15s"), (5_400_000, "1h30m"), (61_001, "1m1s1ms")]
        {
            assert_eq!(span(ms), text);
            assert_eq!(crate::wire::units::duration_ms(text), Ok(ms));
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(brief("a\nb", 10), "a\\nb");
        assert_eq!(brief(&"é".repeat(12), 4), "éééé... (12 characters)");
    }
}
