//! The fewest things that meet every one of several sets.

use std::collections::BTreeSet;

/// Up to this size the smallest set is searched for; beyond, the next best is taken.
const MAX_EXACT: usize = 3;

/// The smallest set that has an element of each set; `None` if one of them is empty.
pub(crate) fn smallest_meeting_set<T: Ord + Clone>(sets: &[BTreeSet<T>]) -> Option<BTreeSet<T>> {
    if sets.iter().any(BTreeSet::is_empty) {
        return None;
    }
    (0..=MAX_EXACT)
        .find_map(|size| meeting_set_of(sets, size))
        .or_else(|| Some(hit_greedily(sets)))
}

fn meeting_set_of<T: Ord + Clone>(sets: &[BTreeSet<T>], size: usize) -> Option<BTreeSet<T>> {
    let Some(first) = sets.first() else {
        return Some(BTreeSet::new());
    };
    if size == 0 {
        return None;
    }
    first.iter().find_map(|element| {
        let rest: Vec<BTreeSet<T>> = sets
            .iter()
            .filter(|set| !set.contains(element))
            .cloned()
            .collect();
        let mut found = meeting_set_of(&rest, size - 1)?;
        found.insert(element.clone());
        Some(found)
    })
}

fn hit_greedily<T: Ord + Clone>(sets: &[BTreeSet<T>]) -> BTreeSet<T> {
    let mut left: Vec<&BTreeSet<T>> = sets.iter().collect();
    let mut found = BTreeSet::new();
    while !left.is_empty() {
        let elements: BTreeSet<&T> = left.iter().flat_map(|set| set.iter()).collect();
        let best = elements
            .into_iter()
            .max_by_key(|element| left.iter().filter(|set| set.contains(*element)).count());
        let Some(best) = best.cloned() else { break };
        left.retain(|set| !set.contains(&best));
        found.insert(best);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_set_meets_every_set() {
        let sets = |texts: &[&str]| -> Vec<BTreeSet<char>> {
            texts.iter().map(|text| text.chars().collect()).collect()
        };
        for (given, found) in [
            (&[][..], Some("")),
            (&["ab", "bc", "bd"], Some("b")),
            (&["ab", "cd", "ac"], Some("ac")),
            (&["a", "b", "c"], Some("abc")),
            (&["a", "b", "c", "d"], Some("abcd")),
            (&["a", ""], None),
        ] {
            let found: Option<BTreeSet<char>> = found.map(|text| text.chars().collect());
            assert_eq!(smallest_meeting_set(&sets(given)), found, "{given:?}");
        }
    }
}
