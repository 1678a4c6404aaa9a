//! Goes through the orders in which loops may iterate maps.

/// The most orders of one loop that are tried; a map of six entries has that many.
const MAX_OF_ONE: u32 = 720;

/// One order for each loop over a map in a run.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// The order of each loop so far, and the number of orders that it has.
    chosen: Vec<(u32, u32)>,
    next: usize,
}

impl Orders {
    /// Puts the entries of the next loop into their order. False if there are too many orders.
    pub(super) fn arrange_entries<T>(&mut self, entries: &mut Vec<T>) -> bool {
        let Some(count) = u32::try_from(entries.len())
            .ok()
            .and_then(|n| (1..=n).try_fold(1_u32, u32::checked_mul))
            .filter(|count| *count <= MAX_OF_ONE)
        else {
            return false;
        };
        if self.next == self.chosen.len() {
            self.chosen.push((0, count));
        }
        let mut number = self.chosen.get(self.next).map_or(0, |(number, _)| *number);
        self.next += 1;
        let mut left = std::mem::take(entries);
        while let Ok(size) = u32::try_from(left.len())
            && size > 0
        {
            entries.push(left.remove((number % size) as usize));
            number /= size;
        }
        true
    }

    /// Goes on to other orders. False if every one was used.
    pub(crate) fn advance_order(&mut self) -> bool {
        self.chosen.truncate(self.next);
        self.next = 0;
        while let Some((number, count)) = self.chosen.last_mut() {
            *number += 1;
            if number < count {
                return true;
            }
            self.chosen.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_of_every_loop_is_used_once() {
        let mut orders = Orders::default();
        let mut seen = Vec::new();
        loop {
            let (mut three, mut two) = (vec!['a', 'b', 'c'], vec![1, 2]);
            assert!(orders.arrange_entries(&mut three) && orders.arrange_entries(&mut two));
            seen.push((three, two));
            if !orders.advance_order() {
                break;
            }
        }
        seen.sort();
        let count = seen.len();
        seen.dedup();
        assert_eq!((count, seen.len()), (12, 12));
        assert!(!orders.arrange_entries(&mut vec![0; 7]));
    }
}
