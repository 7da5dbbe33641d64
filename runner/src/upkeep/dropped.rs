//! Dead letters that limits have dropped: counted by the store for ever, and said here, for nobody had seen to them.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Monotonic;
use crate::names::Name;
use crate::queue::Pruned;

/// At most one line in so long.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// What was heard, and what is still to be said.
#[derive(Default)]
pub(super) struct Dropped {
    totals: HashMap<Name, u64>,
    /// Every queue that there was has been heard of: whatever is new began at 0.
    complete: bool,
    unsaid: HashMap<Name, u64>,
    said: Option<Monotonic>,
}

/// A line that may be said now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// How many since the last line.
    pub(super) dropped: u64,
    /// The queue of which the most were dropped.
    pub(super) queue: Name,
    /// How many queues.
    pub(super) queues: usize,
    /// How many of that queue, ever.
    pub(super) total: u64,
}

impl Dropped {
    /// Takes in what a prune has told, and gives what is to be said of it, if anything.
    pub(super) fn heard(&mut self, pruned: &Pruned, now: Monotonic) -> Option<Line> {
        for (queue, total) in &pruned.dead_dropped {
            let before = self.totals.insert(queue.clone(), *total);
            let before = before.unwrap_or(if self.complete { 0 } else { *total });
            if *total > before {
                *self.unsaid.entry(queue.clone()).or_default() += total - before;
            }
        }
        self.complete |= !pruned.more;
        if self.said.is_some_and(|said| now.duration_since(said) < LINE_EVERY) {
            return None;
        }
        let (queue, _) = self.unsaid.iter().max_by_key(|(queue, dropped)| (**dropped, *queue))?;
        let line = Line {
            dropped: self.unsaid.values().sum(),
            queue: queue.clone(),
            queues: self.unsaid.len(),
            total: self.totals.get(queue).copied().unwrap_or(0),
        };
        self.unsaid.clear();
        self.said = Some(now);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    fn told(totals: &[(&str, u64)], more: bool) -> Pruned {
        let dead_dropped = totals.iter().map(|(queue, n)| (queue.parse().expect("a name"), *n)).collect();
        Pruned { dead_dropped, more, ..Pruned::default() }
    }

    #[test]
    fn only_what_came_since_is_said_and_once_a_minute() {
        let (mut dropped, start) = (Dropped::default(), monotonic());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(dropped.heard(&told(&[("a", 7)], true), at(0)), None, "what was before");
        assert_eq!(dropped.heard(&told(&[("a", 7), ("b", 3)], false), at(1)), None, "b is as old as a");
        let line = dropped.heard(&told(&[("a", 9), ("b", 3), ("c", 5)], false), at(2)).expect("a line");
        assert_eq!((line.dropped, line.queue.as_str(), line.queues, line.total), (7, "c", 2, 5));
        assert_eq!(dropped.heard(&told(&[("a", 10)], false), at(30)), None, "not yet");
        assert_eq!(dropped.heard(&told(&[("a", 11)], false), at(50)), None);
        let line = dropped.heard(&told(&[("a", 11)], false), at(62)).expect("a line");
        assert_eq!((line.dropped, line.queue.as_str(), line.queues, line.total), (2, "a", 1, 11));
        assert_eq!(dropped.heard(&told(&[("a", 11)], false), at(200)), None, "nothing new");
    }

    #[test]
    fn totals_of_a_store_that_went_back_in_time_are_taken_as_they_are() {
        let (mut dropped, start) = (Dropped::default(), monotonic());
        assert_eq!(dropped.heard(&told(&[("a", 7)], false), start), None);
        assert_eq!(dropped.heard(&told(&[("a", 2)], false), start), None);
        assert_eq!(dropped.heard(&told(&[("a", 3)], false), start).map(|line| line.dropped), Some(1));
    }
}
