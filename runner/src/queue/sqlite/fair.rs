//! Sharing a claim: kinds alike, and the lanes of a kind among themselves. Pure, but for the taking.

use crate::queue::StoreError;

/// Takes up to so many from one of those that share; how many it got.
type Take<'a, T> = &'a mut dyn FnMut(&mut T, usize) -> Result<usize, StoreError>;

/// Shares `want` among `open`: each has as many for its turn as `weight` says. What one does not use goes to the others, and
/// none begins a second turn before each had a first. Returns how many were taken. `open` keeps those that may have more, those
/// first that were not asked in the last round.
pub(super) fn share_out<T>(
    open: &mut Vec<T>,
    want: usize,
    weight: fn(&T) -> usize,
    take: Take<'_, T>,
) -> Result<usize, StoreError> {
    let mut got = 0;
    while got < want && !open.is_empty() {
        let turns: usize = open.iter().map(weight).sum();
        // Rounded down, so that the rest goes round again.
        let share = ((want - got) / turns).max(1);
        let (mut unasked, mut asked) = (Vec::new(), Vec::new());
        for mut one in open.drain(..) {
            let ask = (share * weight(&one)).min(want - got);
            if ask == 0 {
                unasked.push(one);
                continue;
            }
            let taken = take(&mut one, ask)?;
            got += taken;
            if taken == ask {
                asked.push(one);
            }
        }
        unasked.append(&mut asked);
        *open = unasked;
    }
    Ok(got)
}

/// As many items of each list as its weight says, in turns, while they last.
pub(super) fn in_turns<T>(lists: Vec<(usize, Vec<T>)>) -> Vec<T> {
    let mut all = Vec::with_capacity(lists.iter().map(|(_, list)| list.len()).sum());
    let mut lists: Vec<_> = lists.into_iter().map(|(weight, list)| (weight, list.into_iter())).collect();
    while !lists.is_empty() {
        lists.retain_mut(|(weight, list)| {
            all.extend(list.by_ref().take(*weight));
            list.len() > 0
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_use_goes_to_the_others() {
        let mut open = vec![("a", 2), ("b", 100), ("c", 100)];
        let mut taken = std::collections::BTreeMap::new();
        let got = share_out(&mut open, 32, |_| 1, &mut |one: &mut (&str, usize), ask| {
            let some = ask.min(one.1);
            one.1 -= some;
            *taken.entry(one.0).or_insert(0) += some;
            Ok(some)
        });
        assert_eq!(got, Ok(32));
        assert_eq!(taken.into_iter().collect::<Vec<_>>(), [("a", 2), ("b", 15), ("c", 15)]);
    }

    #[test]
    fn lists_take_turns() {
        assert_eq!(in_turns(vec![(1, vec![1, 4, 6]), (1, vec![2]), (1, vec![3, 5])]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(in_turns(vec![(3, vec![1, 2, 3, 5]), (1, vec![4, 6, 7])]), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_turn_is_as_long_as_the_weight_says() {
        for (want, expected) in
            [(1, [1, 0]), (3, [3, 0]), (4, [3, 1]), (6, [5, 1]), (9, [7, 2]), (40, [30, 10])]
        {
            let mut open = vec![(0, 3, 30), (1, 1, 100)];
            let mut taken = [0, 0];
            let weight = |one: &(usize, usize, usize)| one.1;
            let got = share_out(&mut open, want, weight, &mut |one, ask| {
                let some = ask.min(one.2);
                one.2 -= some;
                taken[one.0] += some;
                Ok(some)
            });
            assert_eq!((got, taken), (Ok(want), expected));
        }
    }
}
